"""SIGKILLs spread over a batch: each task is done once if its effects have probes, and none is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from campaign import SOAK, tally
from paths import SUPPORT
from stores import Store

KILLS = 1000 if SOAK else 30  # over both stores
WORKER = SUPPORT / "batch_worker.py"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200 if SOAK else 900)]


def test_every_task_is_done_once_and_none_is_lost(disk_store: Store):
    seed = f"{os.environ.get('HOLDFAST_SEED', '1')} {disk_store.kind}"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(WORKER), disk_store.url, str(disk_store.where), str(KILLS // 2), seed],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    batches = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [one for one in batches if one["lost"] or one["twice"] or not one["indexed"]]
    tally(
        f"batches killed at random moments, {disk_store.kind}",
        done=sum(one["kills"] for one in batches),
        wrong=len(wrong),
        repeated=sum(one["repeated"] for one in batches),
    )
    assert wrong == []
    assert sum(one["kills"] for one in batches) == KILLS // 2
