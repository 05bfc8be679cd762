"""While a snapshot is taken, garbage is looked for among what is young: that of others in the process goes meanwhile."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from holdfast import SyncClient
from holdfast.workspace import compressing, taking


class Circle:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    for number in range(8):
        (made / f"f{number}").write_bytes(bytes([number]) * 1000)
    return made


def test_garbage_of_others_goes_while_a_long_snapshot_is_taken(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compressing, "BATCH_CONTENTS", 1)
    monkeypatch.setattr(compressing, "MAX_BLOBS", 1)  # each file is given away alone
    monkeypatch.setattr(taking, "MANY", 100)
    left: list[weakref.ref[Circle]] = []
    alive: list[int] = []

    def progress(_files: int, _size: int) -> None:
        assert not gc.isenabled()
        alive.append(sum(one() is not None for one in left))
        left.extend(weakref.ref(Circle()) for _ in range(200))

    with SyncClient.sqlite(tmp_path / "store.db") as client:
        client.workspace(root).snapshot(progress=progress)
    assert len(alive) > 2
    assert max(alive) <= 200, alive
    assert gc.isenabled()


def test_who_has_stopped_the_collector_finds_it_stopped(root: Path, tmp_path: Path):
    gc.disable()
    try:
        with SyncClient.sqlite(tmp_path / "store.db") as client:
            client.workspace(root).snapshot()
        assert not gc.isenabled()
    finally:
        gc.enable()
