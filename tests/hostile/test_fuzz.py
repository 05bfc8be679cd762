"""Made-up trees, values and databases: each is refused or taken, in time, and leaves nothing
outside. More of them in a soak."""

from __future__ import annotations

import os
from pathlib import Path

import campaign
import limited
import pytest
from test_hostile_databases import langgraph_database

COUNTS = {"trees": 60, "values": 500, "databases": 25}


@pytest.mark.slow
@pytest.mark.parametrize("kind", COUNTS)
def test_what_is_made_up_breaks_nothing(kind: str, tmp_path: Path) -> None:
    count = COUNTS[kind] * campaign.FUZZ_TIMES
    if kind == "databases":
        langgraph_database(tmp_path / "honest.db")
    seed = os.environ.get("HOLDFAST_SEED", "1")
    said = limited.run("fuzz.py", kind, count, seed, tmp_path, memory=3 << 29, seconds=60 + count)
    campaign.tally(f"made-up {kind}", done=count, **{name.replace(" ", "_"): number for name, number in said.items()})
    assert said["taken"] > 0
    assert said["refused"] > 0
