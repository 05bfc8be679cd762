"""kill -9 in the third of three nodes, after its effect, in each durability, beside the official SQLite saver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_which_nodes_run_again_after_a_kill() -> None:
    pytest.importorskip("langgraph.checkpoint.sqlite")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "benchmarks.langgraph.kills", "--rounds", "3", "--json"],
        cwd=ROOT, capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    print(counts)
    for saver in ("holdfast", "langgraph-checkpoint-sqlite"):
        assert counts["sync"][saver] == [[1, 1, 2]] * 3
        assert counts["exit"][saver] == [[2, 2, 2]] * 3  # nothing is stored before the end: all of it is done again
        # What was being stored when the kill came may be there or not, but nothing is done a third time.
        assert all(c == 2 and 1 <= a <= b <= 2 for a, b, c in counts["async"][saver])
