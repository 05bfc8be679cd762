"""FileCheckpoints in a directory from a stranger: no link is followed, and no FIFO waited for."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from strangers_clone import link
from trees_on_disk import tree_of

from holdfast import SyncFileCheckpoints
from holdfast.errors import CorruptError, UsageError

pytestmark = [
    pytest.mark.slow,  # in sum: many commands on many stores
    pytest.mark.skipif(sys.platform == "win32", reason="the files store needs flock"),
]


@pytest.fixture
def plain(clone: Path) -> Iterator[Path]:
    SyncFileCheckpoints().save("s", {"step": 1})
    return clone / ".checkpoints"


def plain_uses() -> list[Callable[[], object]]:
    files = SyncFileCheckpoints()
    return [
        lambda: files.load("s"),
        lambda: files.load_metadata("s"),
        files.list,
        lambda: files.save("s", {"step": 2}),
        lambda: files.save("t", {"step": 2}),
        lambda: files.delete("s"),
    ]


@pytest.mark.parametrize(
    ("name", "target"),
    [("s", "documents"), ("t", "documents"), ("t", "new directory"), (".lock", "new file"), (".lock", ".bashrc"),
     ("s/checkpoint.json", ".bashrc"), ("s/metadata.json", ".bashrc"), ("s/.checkpoint.json.tmp", ".bashrc"),
     ("s/.metadata.json.tmp", "new file")],
)  # fmt: skip
def test_plain_checkpoints_follow_no_link(plain, home, name, target):
    for names in ("checkpoint.json", "metadata.json"):
        (home / "documents" / names).write_text('{"step": 7}')
    link(plain / name, home / target)
    before = tree_of(home)
    outcomes: list[object] = []
    for use in plain_uses():
        try:
            outcomes.append(use())
        except CorruptError as error:
            assert "is a symbolic link" in str(error)
            outcomes.append(error)
        assert tree_of(home) == before
    assert {"step": 7} not in outcomes
    if not name.endswith(".tmp"):
        assert any(isinstance(one, CorruptError) for one in outcomes)


def test_plain_checkpoints_of_the_default_name_are_no_link(plain, home):
    link(plain, home / "documents")
    before = tree_of(home)
    with pytest.raises(UsageError, match="is a symbolic link"):
        SyncFileCheckpoints().save("s", {"step": 2})
    assert tree_of(home) == before
    SyncFileCheckpoints(plain).save("s", {"step": 2})  # who names it may mean a link
    assert (home / "documents/s/checkpoint.json").exists()


@pytest.mark.parametrize("name", ["s/checkpoint.json", "s/metadata.json", ".lock"])
def test_plain_checkpoints_wait_for_no_fifo(plain, name):
    (plain / name).unlink()
    os.mkfifo(plain / name)
    refused: list[CorruptError] = []

    def use_all() -> None:
        for use in plain_uses()[:-1]:
            try:
                use()
            except CorruptError as error:
                refused.append(error)

    thread = threading.Thread(target=use_all, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert refused
    assert all("is a FIFO" in str(error) for error in refused)
