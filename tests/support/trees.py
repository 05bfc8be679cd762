"""Directories on disk as plain values, and edits of them: the reference for snapshots."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from holdfast import SyncClient
from holdfast.workspace.scan.walk import Walk
from holdfast.workspace.sync import SyncWorkspace

Plain = dict[bytes, tuple]  # by path: kind, mode, content


def on_disk(root: Path | bytes, *, without: tuple[bytes, ...] = ()) -> Plain:
    """Everything below a directory, read in the plainest way."""
    found: Plain = {}
    root = os.fsencode(root)
    for where, directories, files in os.walk(root):
        for name in (*directories, *files):
            whole = os.path.join(where, name)
            path = os.path.relpath(whole, root)
            if path.split(b"/")[0] in without or any(path == one or path.startswith(one + b"/") for one in without):
                continue
            seen = os.lstat(whole)
            mode = stat.S_IMODE(seen.st_mode)
            if stat.S_ISLNK(seen.st_mode):
                found[path] = ("symlink", mode, os.readlink(whole))
            elif stat.S_ISDIR(seen.st_mode):
                found[path] = ("dir", mode, b"")
            elif stat.S_ISREG(seen.st_mode):
                with open(whole, "rb") as file:
                    found[path] = ("file", mode, file.read())
    return found


def in_snapshot(workspace: SyncWorkspace, at: str) -> Plain:
    """The same of a snapshot, with the contents as the store gives them."""
    return {
        entry.path: (
            entry.kind,
            entry.mode,
            workspace.read(at, entry.path) if entry.kind == "file" else entry.content,
        )
        for entry in workspace.entries(at)
    }


def write(root: Path | bytes, path: bytes, content: bytes | None, *, mode: int | None = None) -> None:
    """A file, or with None a directory, with the directories above it; whatever was there is gone."""
    whole = os.path.join(os.fsencode(root), path)
    remove(root, path)
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    if content is None:
        os.mkdir(whole)
    else:
        with open(whole, "wb") as file:
            file.write(content)
    if mode is not None:
        os.chmod(whole, mode)


def remove(root: Path | bytes, path: bytes) -> None:
    whole = os.path.join(os.fsencode(root), path)
    if os.path.islink(whole) or os.path.isfile(whole):
        os.unlink(whole)
    elif os.path.isdir(whole):
        shutil.rmtree(whole)


def session(client: SyncClient) -> str:
    return client.save("a", session_id="s", execution_state={"n": 1})


def tick(root: Path) -> int:
    """A moment that the file system tells from those before it."""
    probe = root.with_name("probe")
    probe.write_bytes(b"")
    before = now = probe.stat().st_ctime_ns
    while now == before:
        probe.write_bytes(b"")
        now = probe.stat().st_ctime_ns
    return now


def note_entered(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The directories whose names are looked at from now on, as they are entered."""
    entered: list[bytes] = []
    enter = Walk._scan_directory

    def noted(self, descriptor, path, rules):
        entered.append(path)
        return enter(self, descriptor, path, rules)

    monkeypatch.setattr(Walk, "_scan_directory", noted)
    return entered
