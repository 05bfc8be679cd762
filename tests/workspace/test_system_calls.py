"""System calls beyond `os` raise what `os` would, and one module makes them."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.backends import system_calls
from holdfast.workspace import dirfd

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="calls of Linux")


@pytest.fixture
def without_libc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_calls, "_libc", lambda: None)


def test_one_module_of_backends_and_workspace_uses_ctypes() -> None:
    package = Path(holdfast.__file__).parent
    users = {
        path.relative_to(package).as_posix()
        for part in ("backends", "workspace")
        for path in (package / part).rglob("*.py")
        if "import ctypes" in path.read_text(encoding="utf-8")
    }
    assert users == {"backends/system_calls.py"}


@on_linux
def test_an_error_of_the_kernel_is_an_os_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError, match="link") as caught:
            system_calls.openat2(root, b"link", os.O_RDONLY)
        assert caught.value.errno == errno.ELOOP
        with pytest.raises(FileNotFoundError):
            system_calls.openat2(root, b"nothing", os.O_RDONLY)
    finally:
        os.close(root)
    with pytest.raises(OSError, match="Bad file descriptor"):
        system_calls.syncfs(-1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        system_calls.inotify_rm_watch(-1, 1)


def test_where_there_is_no_such_call_it_is_enosys(without_libc: None) -> None:
    for call in (lambda: system_calls.syncfs(0), system_calls.inotify_init):
        with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)) as caught:
            call()
        assert caught.value.errno == errno.ENOSYS


@pytest.mark.parametrize("libc", ["there", "not there"])
def test_a_rename_replaces_nothing_with_the_call_and_without(
    tmp_path: Path, libc: str, request: pytest.FixtureRequest
) -> None:
    if libc == "not there":
        request.getfixturevalue("without_libc")
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(FileExistsError):
            dirfd.rename_new(directory, b"a", b"b")
        assert (tmp_path / "b").read_text() == "b"
        dirfd.rename_new(directory, b"a", b"c")
        assert (tmp_path / "c").read_text() == "a"
        dirfd.sync_file_system(directory)
    finally:
        os.close(directory)
