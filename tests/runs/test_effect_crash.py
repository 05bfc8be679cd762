"""A program with an effect is killed at every point, on every store, and resumes.

At every point, the world outside sees an irreversible effect at most once. If its outcome can't be
known, holdfast says so. The file that counts is not part of the store.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from paths import SUPPORT
from stores import Store

WORKER = SUPPORT / "crash_worker.py"
pytestmark = [pytest.mark.every_store, pytest.mark.slow]


def crashes(store: Store, *, points: int = 16, **how: Any) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(WORKER), store.url, str(store.where), json.dumps({"name": "s", **how})],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(one["first"] == "killed" for one in told) >= points  # they are really met
    return told


def test_an_irreversible_effect_is_never_repeated_and_every_doubt_is_told(shared_store: Store):
    for one in crashes(shared_store, kind="irreversible"):
        assert one["seen"] <= 1, one
        assert (one["lives"] == ["unknown"] * 2) == (one["doubts"] == 1), one
        assert (one["lives"] == ["receipt"] * 2) == (one["doubts"] == 0), one
        assert one["doubts"] == 1 or one["seen"] == 1, one


def test_with_a_probe_it_is_carried_out_exactly_once(shared_store: Store):
    for one in crashes(shared_store, kind="irreversible", probe=True):
        assert one["seen"] == 1, one
        assert set(one["lives"]) in ({"receipt"}, {"found"}), one


def test_an_idempotent_one_is_repeated_under_the_same_key_only(disk_store: Store):
    told = crashes(disk_store, kind="idempotent")
    for one in told:
        assert (one["seen"] >= 1, one["keys"]) == (True, 1), one
        assert one["lives"] == ["receipt"] * 2, one
    assert max(one["seen"] for one in told) == 2


@pytest.mark.parametrize("then", ["rollback", "fork"])
def test_after_a_crash_and_a_rollback_or_a_fork(shared_store: Store, then: str):
    for one in crashes(shared_store, kind="irreversible", then=then):
        assert one["seen"] <= 1, one
        assert one["seen"] == 1 or one["doubts"] == 1, one
        if one["doubts"]:
            assert one["lives"] == ["unknown"] * 2, one


def test_with_regenerated_arguments_in_the_next_life(disk_store: Store):
    """Another amount: it may be the same payment, made up anew. What is certain is that bob is not paid twice."""
    told = crashes(disk_store, kind="irreversible", then="rollback", again={"amount": 501})
    for one in told:
        assert one["seen"] <= 1, one
    assert {life for one in told for life in one["lives"]} == {"receipt", "blocked"}


@pytest.mark.parametrize("by", ["key", "task", "sub-agent", "identity"])
def test_a_payment_in_doubt_leaves_the_others_alone(sqlite_store: Store, by: str):
    """a, b and c are paid, and the program is killed at every point: b and c are always paid, and
    each once. Only what was under way is in doubt."""
    told = crashes(sqlite_store, kind="irreversible", three_by=by)
    for one in told:
        paid = one["payees"]
        assert len(set(paid)) == len(paid), one
        assert "blocked" not in ",".join(one["lives"]), one
        assert len(paid) == 3 or (one["doubts"], len(paid)) == (1, 2), one
    assert sum(one["doubts"] for one in told) >= 4


def test_control_without_a_name_of_its_own_another_payment_waits(sqlite_store: Store):
    told = crashes(sqlite_store, kind="irreversible", three_by="arguments")
    assert any("blocked" in life for one in told for life in one["lives"])
    for one in told:
        assert len(set(one["payees"])) == len(one["payees"]), one


@pytest.mark.parametrize("then", ["rollback", "fork"])
def test_after_a_rollback_or_a_fork_every_other_payment_waits(sqlite_store: Store, then: str):
    told = crashes(sqlite_store, kind="irreversible", three_by="key", then=then)
    for one in told:
        assert len(set(one["payees"])) == len(one["payees"]), one
        if one["first"] == "killed" and one["doubts"]:
            assert any("blocked" in life for life in one["lives"]), one


def test_control_a_step_in_the_place_of_the_effect_is_repeated(disk_store: Store):
    """What the same program does without a ledger: so a repetition would be seen."""
    told = crashes(disk_store, points=12, kind="irreversible", as_step=True)  # a step has fewer commits
    assert max(one["seen"] for one in told) == 2
