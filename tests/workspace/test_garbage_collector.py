"""Snapshots and restores leave the process's garbage collector alone: it is the host program's."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from holdfast import SyncClient
from holdfast.workspace.snapshot import compress


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    for number in range(8):
        (made / f"f{number}").write_bytes(bytes([number]) * 1000)
    return made


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_all_the_while(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    monkeypatch.setattr(compress, "BATCH_CONTENTS", 1)
    monkeypatch.setattr(compress, "MAX_BLOBS", 1)  # each file is a batch
    seen: list[bool] = []

    def progress(_files: int, _size: int) -> None:
        seen.append(gc.isenabled())

    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with SyncClient.sqlite(tmp_path / "store.db") as client:
            workspace = client.workspace(root)
            first = workspace.snapshot(progress=progress)
            (root / "f1").write_bytes(b"other")
            workspace.restore(first.checkpoint_id, force=True, progress=progress)
            workspace.close()
        seen.append(gc.isenabled())
    finally:
        (gc.enable if was else gc.disable)()
    assert len(seen) > 3
    assert set(seen) == {enabled}
