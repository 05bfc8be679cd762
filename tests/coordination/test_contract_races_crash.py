"""Two programs register one version of a contract with different schemas at once, and one is killed in between.

Whatever happens, one schema is registered, and each program that lives either has it or is told the difference.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import pytest
from contract_racer import NAME, VERSION
from paths import SUPPORT
from stores import Store

from holdfast import ContractConflictError, SyncClient
from holdfast.backends.port import ANY_VERSION
from holdfast.coordination.contract import Contracts

pytestmark = [pytest.mark.every_store, pytest.mark.timeout(600)]
TYPES = ("string", "integer")
DIFFERENCE = {
    "string": "$.properties.text.type: 'string', here 'integer'",
    "integer": "$.properties.text.type: 'integer', here 'string'",
}


def registered(client: SyncClient) -> str:
    [found] = client.contracts()
    assert (found.name, found.version) == (NAME, VERSION)
    return found.schema["properties"]["text"]["type"]


def register(client: SyncClient, type_: str) -> tuple[str, tuple[str, ...]]:
    made = Contracts().declare(NAME, VERSION, {"type": "object", "properties": {"text": {"type": type_}}})
    saved = client.save("a", session_id=type_, execution_state={"text": "x" if type_ == "string" else 7})
    try:
        client.handoff(saved, "b", contract=made)
    except ContractConflictError as error:
        return "conflict", error.differences
    return "registered", ()


def race(store: Store, *, unconditional: bool = False) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Let both come to their commit before either of them commits."""
    barrier = threading.Barrier(2, timeout=30)
    found: dict[str, Any] = {}

    def run(type_: str) -> None:
        client, recorder = store.recorded()

        def meet(commits: Any) -> None:
            for commit in commits:
                if any(write.key.space == "contract" for write in commit.rows):
                    if unconditional:
                        commit.rows = [write._replace(expect=ANY_VERSION) for write in commit.rows]
                    barrier.wait()

        recorder.before_commit = meet
        found[type_] = register(client, type_)

    threads = [threading.Thread(target=run, args=(type_,)) for type_ in TYPES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_of_two_programs_at_once_one_wins_and_the_other_gets_the_difference(store):
    found = race(store)
    winner = registered(store.client())
    [loser] = [type_ for type_ in TYPES if type_ != winner]
    assert found == {winner: ("registered", ()), loser: ("conflict", (DIFFERENCE[winner],))}
    assert len(store.client().inbox("b")) == 1


def test_control_without_the_condition_both_believe_that_they_have_won(quick, memory_store):
    assert {one for one, _ in race(memory_store, unconditional=True).values()} == {"registered"}
    assert len(quick.inbox("b")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_one_of_two_programs_is_killed_while_it_registers(shared_store, when):
    client = shared_store.client()
    client.handoff(client.save("a", session_id="s", execution_state={}), "starter")
    programs = {
        type_: subprocess.Popen(
            [sys.executable, str(SUPPORT / "contract_racer.py"), shared_store.url, type_, *kill],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for type_, kill in (("string", [when]), ("integer", []))
    }  # fmt: skip
    try:
        for program in programs.values():
            assert program.stdout is not None
            assert program.stdin is not None
            assert program.stdout.readline(), program.stderr
        for program in programs.values():
            program.stdin.write("\n")
            program.stdin.flush()
        said = {type_: program.communicate(timeout=120) for type_, program in programs.items()}
    finally:
        for program in programs.values():
            program.kill()
    winner = registered(client)
    lines = said["integer"][0].splitlines()
    assert lines, said["integer"][1]
    outcome = json.loads(lines[-1])
    if winner == "integer":
        assert outcome == {"registered": "integer"}
    else:
        assert outcome == {"conflict": [DIFFERENCE["string"]]}
        assert when == "after"
    assert not any("registered" in line for line in said["string"][0].splitlines()) or winner == "string"
    # The next life of the killed program learns the same.
    assert register(client, winner)[0] == "registered"
    assert register(client, next(type_ for type_ in TYPES if type_ != winner))[0] == "conflict"
    assert client.verify().problems == ()
