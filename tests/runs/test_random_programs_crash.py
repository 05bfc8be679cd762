"""Random programs of steps, tasks, sub-agents and effects, killed at random moments: each effect is done once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from campaign import SOAK, tally
from paths import SUPPORT

PROGRAMS = 500 if SOAK else 15
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if SOAK else 600)]


def test_each_effect_of_a_random_program_is_carried_out_once_and_none_is_blocked(tmp_path: Path):
    first = zlib.crc32(os.environ.get("HOLDFAST_SEED", "1").encode())
    command = [sys.executable, "-W", "error", str(SUPPORT / "random_programs.py")]
    done = subprocess.run(
        [*command, str(tmp_path), str(first), str(PROGRAMS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    programs = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [one for one in programs if one["came_to"] != "done" or one["twice"] or one["never"]]
    counted = {what: sum(one[what] for one in programs) for what in ("kills", "effects", "doubts")}
    tally("random programs killed at random moments", done=counted.pop("kills"), wrong=len(wrong), **counted)
    assert wrong == []
    assert counted["doubts"] > 0
