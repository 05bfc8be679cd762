"""Programs with effects, killed by SIGKILL at random moments and started again until they have finished.

A fulfilment agent (`fulfilment.py`) and an agent loop (`payments.py`) act on an outside world that
holdfast knows nothing of. Nothing is done twice, nothing is left out, and no call is blocked: there
is no rollback and no rename in these stories. A scripted person resolves only what was truly in
doubt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from campaign import SOAK, tally
from paths import SUPPORT
from stores import Store

DRIVER = SUPPORT / "effect_driver.py"
KILLS = 300 if SOAK else 30  # of each campaign, on SQLite
ON_A_SERVER = 60 if SOAK else 6
OF_A_CONTROL = 40 if SOAK else 20
CAMPAIGNS = ("fulfilment", "payments")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200 if SOAK else 600)]


def run_campaign(name: str, store: Store, kills: int, *options: str) -> list[dict[str, Any]]:
    """What became of each session."""
    seed = f"{os.environ.get('HOLDFAST_SEED', '1')} {store.kind}"
    command = [sys.executable, "-W", "error", str(DRIVER), name, store.url, str(store.where), str(kills), seed]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def judge(name: str, store: Store, kills: int) -> None:
    sessions = run_campaign(name, store, kills)
    wrong = [one for one in sessions if one["twice"] or one["never"] or one["blocked"] or not one["done"]]
    counted = {"kills": 0, "doubts": 0, "twice": 0, "never": 0, "blocked": 0}
    for one in sessions:
        for what in counted:
            counted[what] += one[what] if isinstance(one[what], int) else len(one[what])
    tally(
        f"effects killed at random moments, {name}, {store.kind}",
        done=counted.pop("kills"),
        wrong=len(wrong),
        **counted,
    )
    assert wrong == []
    assert sum(one["kills"] for one in sessions) == kills
    # One kill leaves no more in doubt than was under way: the three workers of the fulfilment, or one call of the loop.
    assert counted["doubts"] <= 3 * kills


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_nothing_is_done_twice_left_out_or_blocked(sqlite_store: Store, name: str):
    judge(name, sqlite_store, KILLS)


@pytest.mark.servers
@pytest.mark.parametrize("shared_store", ["postgres"], indirect=True)
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_nor_is_it_on_a_server(shared_store: Store, name: str):
    judge(name, shared_store, ON_A_SERVER)


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_program_without_a_ledger_is_found_out(sqlite_store: Store, name: str):
    """The control: the same program, whose effects are recorded only once they are over."""
    sessions = run_campaign(name, sqlite_store, OF_A_CONTROL, "--control")
    twice = sum(len(one["twice"]) for one in sessions)
    tally(f"control: effects without a ledger, {name}", done=sum(one["kills"] for one in sessions), twice=twice)
    assert twice > 0
