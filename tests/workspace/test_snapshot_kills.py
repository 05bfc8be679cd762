"""kill -9 at any moment of a snapshot: what was acknowledged is there, whole; nothing else shows,
and nothing is left over."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from paths import SUPPORT
from trees import in_snapshot, on_disk

from holdfast import SyncClient

HERE = SUPPORT
KILLS = 8


@pytest.mark.slow
def test_what_was_acknowledged_is_there_and_the_next_snapshot_is_the_directory(tmp_path: Path) -> None:
    root, store = tmp_path / "project", tmp_path / "store.db"
    root.mkdir()
    chosen = random.Random(7)
    acknowledged: list[str] = []
    for seed in range(KILLS):
        command = [sys.executable, str(HERE / "snapshot_process.py"), str(store), str(root), str(seed)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE) as process:
            assert process.stdout is not None
            # It has begun once it has acknowledged one; then it is killed wherever it is.
            acknowledged.append(process.stdout.readline().strip())
            time.sleep(chosen.random() * 0.3)
            process.send_signal(signal.SIGKILL)
            acknowledged += process.stdout.read().split()
        with SyncClient.sqlite(store, durability="fast") as client:
            report = client.verify()
            assert report.ok, report.problems
            there = {entry.checkpoint_id for entry in client.timeline(session_id="s", limit=None)}
            assert there.issuperset(acknowledged)
            assert [session.session_id for session in client.sessions() if session.session_id != "s"] == []
            workspace = client.workspace(root)
            saved = client.save("agent", session_id="s", workspace=workspace)
            assert in_snapshot(workspace, saved) == on_disk(root)
            client.gc()
            assert client.verify().ok
