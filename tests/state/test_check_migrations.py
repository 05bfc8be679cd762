"""check_migrations: what would not resume with the code that is here, and why. It changes nothing."""

import sqlite3
from dataclasses import dataclass

import pytest
from stores import Recorder, messages

from holdfast import Migrations, StoreError, TypeRegistry
from holdfast.model import ids


@dataclass
class Gone:
    n: int


@pytest.fixture
def migrations():
    made = Migrations()
    made.register("chat", 1, 2)(lambda state: {**state, "n": state["n"] + 1})
    made.register("chat", 4, 5)(lambda state: state)
    made.register("chat", 2, 5)(lambda state: state)
    return made


@pytest.fixture
def filled(store):
    """A session for each thing that can stand in the way."""
    types = TypeRegistry()
    types.register(Gone)
    client = store.client(types=types)
    saved = {
        "fits": client.save("chat", execution_state={"n": 1}, session_id="fits", state_version=5),
        "old": client.save("chat", execution_state={"n": 1, "messages": messages(20)}, session_id="old"),
        "missing": client.save("chat", execution_state={"n": 1}, session_id="missing", state_version=3),
        "newer": client.save("chat", execution_state={"n": 1}, session_id="newer", state_version=6),
        "raises": client.save("chat", execution_state={"n": "one"}, session_id="raises"),
        "unknown": client.save("chat", execution_state=Gone(1), session_id="unknown", state_version=5),
        "other": client.save("other", execution_state={}, session_id="other"),
    }
    expired = client.save("chat", execution_state=Gone(1), session_id="expired")
    client.expire(expired)
    return saved


REASONS = {
    "missing": "missing_migration",
    "newer": "newer_state",
    "raises": "migration_failed",
    "unknown": "unknown_type",
}


def test_every_reason_is_told(store, filled, migrations):
    client = store.client(migrations=migrations)
    before = client._ctx.backend.backend.page_records(None, 100)
    report = client.check_migrations()
    assert not report
    assert (report.checked, report.migrating) == (7, 1)
    assert {problem.session_id: problem.reason for problem in report.problems} == REASONS
    for problem in report.problems:
        assert problem.checkpoint_id == filled[problem.session_id]
        assert problem.agent_id == "chat"
        assert problem.state_version == client.get(problem.checkpoint_id).state_version
    assert client._ctx.backend.backend.page_records(None, 100) == before


def test_of_one_session_or_one_agent(store, filled, migrations):
    client = store.client(migrations=migrations)
    assert client.check_migrations("old").checked == 1
    assert client.check_migrations("old")
    assert [problem.reason for problem in client.check_migrations(session_id="newer").problems] == ["newer_state"]
    assert client.check_migrations(agent_id="other").checked == 1
    assert client.check_migrations(agent_id="other")
    assert client.check_migrations(agent_id="chat").checked == 6
    for nothing in (client.check_migrations("nobody"), client.check_migrations("expired")):
        assert (nothing.checked, nothing.ok) == (0, True)


def test_every_checkpoint(store, filled, migrations):
    client = store.client(migrations=migrations)
    client.save("chat", execution_state={"n": 2}, session_id="raises")
    assert "raises" not in {problem.session_id for problem in client.check_migrations().problems}
    every = client.check_migrations(every=True)
    assert every.checked == 8
    assert {problem.session_id: problem.reason for problem in every.problems} == REASONS
    one = client.check_migrations("raises", every=True)
    assert (one.checked, [problem.checkpoint_id for problem in one.problems]) == (2, [filled["raises"]])


def test_what_is_pinned_counts_after_its_time_and_what_is_not_does_not(store, clock):
    client = store.client()
    clock.rules(client)
    pinned, _ = (client.save("chat", execution_state={"n": n}, session_id="s", ttl_seconds=60) for n in range(2))
    client.pin(pinned)
    assert client.check_migrations(every=True).checked == 2
    clock.forward(61)
    assert client.check_migrations(every=True).checked == 1


@pytest.mark.parametrize(("every", "only"), [(False, None), (True, None), (False, "old"), (True, "old")])
def test_progress_ends_where_it_said_it_would(store, filled, migrations, every, only):
    told = []
    client = store.client(migrations=migrations)
    client.check_migrations(only, every=every, progress=lambda done, total: told.append((done, total)))
    assert told == [(number, len(told)) for number in range(1, len(told) + 1)]
    assert len(told) == (1 if only else 8)


def test_what_a_migration_makes_must_be_something_that_can_be_saved(quick, memory_store):
    migrations = Migrations()
    migrations.register("chat", 1, 2)(lambda state: {"tool": object()})
    quick.save("chat", execution_state={}, session_id="s")
    [problem] = memory_store.client(migrations=migrations).check_migrations().problems
    assert problem.reason == "unsupported_value"
    assert "execution_state.tool" in problem.message


@pytest.mark.parametrize("every", [False, True])
def test_damage_is_one_of_the_reasons(sqlite_store, every):
    client = sqlite_store.client()
    client.save("chat", execution_state={"n": 1}, session_id="whole")
    damaged = client.save("chat", execution_state={"n": 1}, session_id="damaged")
    with sqlite3.connect(sqlite_store.where / "store.db") as connection:
        connection.execute("UPDATE record SET data = ? WHERE id = ?", (b"\0" * 99, ids.from_text(damaged)))
    connection.close()
    report = sqlite_store.client().check_migrations(every=every)
    assert report.checked == 2
    [problem] = report.problems
    assert (problem.session_id, problem.reason) == ("damaged", "corrupt")
    assert problem.checkpoint_id == (damaged if every else "")


def test_a_store_that_can_not_be_read_is_no_finding(sqlite_store):
    client, recorder = sqlite_store.recorded()
    client.save("chat", execution_state={"messages": messages(30)}, session_id="s")

    class Unreadable(Recorder):
        def segments(self, spans):
            raise StoreError("the disk is gone")

    from holdfast import SyncClient

    with pytest.raises(StoreError, match="disk"):
        SyncClient(Unreadable(recorder.inner)).check_migrations()
