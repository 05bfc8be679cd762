"""Versions of the user's own states: stored with each checkpoint, migrated when it is restored."""

import asyncio

import pytest
from stores import SOME_ID, messages

from holdfast import (
    CheckpointBuilder,
    ConflictError,
    MigrationError,
    Migrations,
    MissingMigrationError,
    NewerStateError,
    SyncClient,
    UsageError,
)
from holdfast.format.state import record
from holdfast.model import ids


@pytest.fixture
def migrations():
    """Version 1 has `msgs`, version 2 `messages`, version 3 a turn in the context."""
    made = Migrations()

    @made.register("chat", 1, 2)
    def rename(state):
        state["messages"] = state.pop("msgs")
        return state

    @made.register("chat", 2, 3)
    def count(state, context):
        return state, {**context, "turn": len(state["messages"])}

    return made


def header(client, id_):
    [found] = client._ctx.backend.backend.records([ids.from_text(id_)])
    return record.unpack(client._ctx.codec, found.data).header


def all_records(client):
    return client._ctx.backend.backend.page_records(None, 1000)


# -- saved with a version ---------------------------------------------------------------------------------------------


def test_a_version_is_kept_with_the_checkpoint(client):
    id_ = client.save("chat", execution_state={"n": 1}, session_id="s", state_version=3)
    for found in (
        client.restore(id_),
        client.get(id_),
        client.latest(session_id="s"),
        *client.timeline(session_id="s"),
    ):
        assert (found.state_version, found.stored_state_version) == (3, 3)
        assert found.schema_version == "1.0"
    assert header(client, id_)["sv"] == 3


def test_whoever_gives_none_stores_what_was_always_stored(client):
    plain = client.save("chat", execution_state={"n": 1}, session_id="s")
    first = client.save("chat", execution_state={"n": 1}, session_id="s", state_version=1)
    assert client.restore(plain).state_version == 1
    assert header(client, plain).keys() == {"id", "seq", "at", "agent", "session"}
    assert "sv" not in header(client, first)


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1", 2**63])
def test_a_version_is_a_whole_number_from_1_on(quick, version):
    with pytest.raises(UsageError, match="state_version"):
        quick.save("chat", execution_state={}, session_id="s", state_version=version)
    assert quick.latest(session_id="s") is None


def test_forks_handoffs_and_built_checkpoints_keep_it(client):
    id_ = client.save("chat", execution_state={"n": 1}, session_id="s", state_version=2)
    assert client.get(client.fork(id_).checkpoint_id).state_version == 2
    assert client.get(client.handoff(id_, "other")).state_version == 2
    built = CheckpointBuilder("chat").session("t").execution_state({"n": 1}).state_version(4).build()
    assert client.restore(client.save_checkpoint(built)).state_version == 4
    unversioned = CheckpointBuilder("chat").session("u").build()
    assert client.restore(client.save_checkpoint(unversioned)).state_version == 1


def test_the_checksum_covers_it(clock):
    def checksum(**version):
        with SyncClient.memory() as client:
            clock.rules(client)
            id_ = client.save("chat", execution_state={}, session_id="s", checkpoint_id=SOME_ID, **version)
            return client.get(id_).checksum

    assert len({checksum(), checksum(state_version=2), checksum(state_version=3)}) == 3
    assert checksum() == checksum(state_version=1)


def test_a_repeated_save_with_another_version_is_a_conflict(quick):
    first = quick.save("chat", execution_state={}, session_id="s", state_version=2)
    assert quick.save("chat", execution_state={}, session_id="s", state_version=2, checkpoint_id=first) == first
    with pytest.raises(ConflictError):
        quick.save("chat", execution_state={}, session_id="s", state_version=3, checkpoint_id=first)


# -- restored by a program with migrations ----------------------------------------------------------------------------


def test_an_old_state_comes_back_in_the_newest_version(store, migrations):
    old = store.client()
    id_ = old.save("chat", execution_state={"msgs": ["hi"]}, context={"user": "u"}, session_id="s")
    before = all_records(old)

    new = store.client(migrations=migrations)
    for found in (new.restore(id_), new.latest(session_id="s"), new.latest("s", agent_id="chat")):
        assert found.execution_state == {"messages": ["hi"]}
        assert found.agent_context == {"user": "u", "turn": 1}
        assert (found.state_version, found.stored_state_version) == (3, 1)
    assert new.as_store().load("s") == {"messages": ["hi"]}

    # The original is untouched, and can be had as it is.
    assert all_records(new) == before
    for found in (new.restore(id_, migrate=False), new.latest(session_id="s", migrate=False)):
        assert found.execution_state == {"msgs": ["hi"]}
        assert (found.state_version, found.stored_state_version) == (1, 1)
    assert old.restore(id_).execution_state == {"msgs": ["hi"]}


def test_the_async_client_migrates_too(memory_store, migrations):
    id_ = memory_store.client().save("chat", execution_state={"msgs": []}, session_id="s")

    async def restored():
        async with memory_store.async_client(migrations=migrations) as client:
            return (await client.restore(id_)).execution_state, (await client.check_migrations()).migrating

    assert asyncio.run(restored()) == ({"messages": []}, 1)


def test_states_of_other_agents_are_left_alone(quick, memory_store, migrations):
    id_ = quick.save("other", execution_state={"msgs": 1}, session_id="s", state_version=9)
    found = memory_store.client(migrations=migrations).restore(id_)
    assert (found.execution_state, found.state_version) == ({"msgs": 1}, 9)


def test_a_migration_for_all_agents(quick, memory_store):
    migrations = Migrations()
    migrations.register("*", 1, 2)(lambda state: {"by": "all", **state})
    migrations.register("special", 1, 2)(lambda state: {"by": "special", **state})
    plain, special = (quick.save(agent, execution_state={"n": 1}) for agent in ("plain", "special"))
    new = memory_store.client(migrations=migrations)
    assert new.restore(plain).execution_state == {"by": "all", "n": 1}
    assert new.restore(special).execution_state == {"by": "special", "n": 1}


def test_the_process_wide_registry_is_the_default(quick):
    from holdfast import migration
    from holdfast.model.state_migration import default_migrations

    id_ = quick.save("registered-here", execution_state={"n": 1})
    try:
        migration("registered-here", 1, 2)(lambda state: {"n": state["n"] + 1})
        assert quick.restore(id_).execution_state == {"n": 2}
    finally:
        default_migrations._steps.pop("registered-here")
        default_migrations._newest.pop("registered-here")


def test_a_missing_step_is_named_and_nothing_is_changed(store, migrations):
    migrations.register("chat", 5, 6)(lambda state: state)
    client = store.client(migrations=migrations)
    id_ = client.save("chat", execution_state={"msgs": []}, session_id="s", state_version=1)
    before = all_records(client)
    for restore in (lambda: client.restore(id_), lambda: client.latest(session_id="s")):
        with pytest.raises(MissingMigrationError, match=rf"{id_}.*'chat', from_version=3, to_version=5"):
            restore()
    assert all_records(client) == before
    assert client.restore(id_, migrate=False).execution_state == {"msgs": []}


def test_a_newer_state_is_told_before_its_types_are(store, migrations):
    from dataclasses import dataclass

    from holdfast import TypeRegistry

    types = TypeRegistry()

    @types.register
    @dataclass
    class OnlyNewerProgramsKnow:
        n: int

    id_ = store.client(types=types).save("chat", execution_state=OnlyNewerProgramsKnow(1), state_version=4)
    with pytest.raises(NewerStateError, match="version 4, and this program knows version 3"):
        store.client(migrations=migrations).restore(id_)


def test_a_migration_that_fails_is_named_with_its_cause(store):
    migrations = Migrations()

    @migrations.register("chat", 1, 2)
    def fails(state):
        state["half"] = "done"
        return state["nothing"]

    client = store.client(migrations=migrations)
    id_ = client.save("chat", execution_state={"n": 1}, session_id="s", state_version=1)
    before = all_records(client)
    with pytest.raises(MigrationError, match=r"fails \(agent 'chat', 1 to 2\) failed: KeyError") as caught:
        client.restore(id_)
    assert isinstance(caught.value.__cause__, KeyError)
    assert all_records(client) == before
    assert client.restore(id_, migrate=False).execution_state == {"n": 1}


# -- saved again ------------------------------------------------------------------------------------------------------


def test_what_is_saved_after_a_migration_has_the_new_version(store, migrations):
    """Long lists: every element changes, some go, and the list gets another path."""
    migrations.register("chat", 3, 4)(
        lambda state: {"messages": [{**one, "id": one["n"]} for one in state["messages"] if one["n"] % 5]}
    )
    old = store.client()
    first = old.save("chat", execution_state={"msgs": messages(60)}, session_id="s")

    new = store.client(migrations=migrations)
    state = new.latest(session_id="s").execution_state
    assert len(state["messages"]) == 48
    second = new.save("chat", execution_state=state, session_id="s")
    state["messages"] += messages(20, start=60)
    third = new.save("chat", execution_state=state, session_id="s")

    fresh = store.client(migrations=migrations)
    assert [entry.state_version for entry in fresh.timeline(session_id="s")] == [4, 4, 1]
    assert fresh.restore(third).execution_state == state
    assert fresh.restore(second).execution_state == {"messages": state["messages"][:48]}
    assert fresh.restore(first, migrate=False).execution_state == {"msgs": messages(60)}
    assert fresh.verify()


def test_elements_that_a_migration_leaves_alone_are_not_written_again(sqlite_store):
    migrations = Migrations()

    @migrations.register("chat", 1, 2)
    def drop_the_first(state):
        del state["messages"][0]
        return state

    sqlite_store.client().save("chat", execution_state={"messages": messages(200)}, session_id="s")
    new, recorder = sqlite_store.recorded(migrations=migrations)
    state = new.latest(session_id="s").execution_state
    recorder.forget()
    new.save("chat", execution_state=state, session_id="s")
    assert recorder.written_bytes() < 5_000
    assert sqlite_store.client().latest(session_id="s").execution_state == {"messages": messages(199, start=1)}


def test_a_program_that_does_not_know_a_newer_version_can_not_cover_it(store, migrations):
    """A worker of the last deployment is still running while a new one has migrated its session."""
    before = store.client()
    before.save("chat", execution_state={"msgs": ["a"]}, session_id="s")
    new = store.client(migrations=migrations)
    head = new.save("chat", execution_state=new.latest(session_id="s").execution_state, session_id="s")

    older = Migrations()
    older.register("chat", 1, 2)(lambda state: state)
    for worker in (before, store.client(), store.client(migrations=older)):
        with pytest.raises(NewerStateError, match=r"state version is 3.*Nothing was saved"):
            worker.save("chat", execution_state={"msgs": ["a", "b"]}, session_id="s")
        assert new.latest(session_id="s").checkpoint_id == head

    # Who says which version it is may do so; other agents have versions of their own.
    explicit = before.save("chat", execution_state={"msgs": ["a", "b"]}, session_id="s", state_version=1)
    assert new.restore(explicit).execution_state == {"messages": ["a", "b"]}
    new.rollback("s", to=head)
    assert store.client().get(before.save("other", execution_state={}, session_id="s")).state_version == 1


def test_a_remembered_head_is_no_reason_to_refuse(store):
    """What this process remembers may be old: the store is asked before a save is refused."""
    one, other = store.client(), store.client()
    base = one.save("chat", execution_state={"n": 1}, session_id="s")
    one.save("chat", execution_state={"n": 2}, session_id="s", state_version=2)
    other.rollback("s", to=base)
    assert one.get(one.save("chat", execution_state={"n": 3}, session_id="s")).parent_id == base


def test_appends_to_a_list_of_an_older_version_are_refused(store, migrations):
    store.client().save("chat", execution_state={"messages": messages(30), "msgs": []}, session_id="s")
    new = store.client(migrations=migrations)
    head = new.latest(session_id="s", migrate=False).checkpoint_id
    with pytest.raises(UsageError, match=r"state version 1.*of version 3.*Save the whole state once"):
        new.save("chat", append={"messages": messages(1)}, session_id="s")
    assert new.session("s").head.checkpoint_id == head

    whole = new.save("chat", execution_state={"messages": messages(30)}, session_id="s")
    new.save("chat", append={"messages": messages(1, start=30)}, session_id="s")
    assert new.latest(session_id="s").execution_state == {"messages": messages(31)}
    assert new.latest(session_id="s").parent_id == whole
    # Back to a parent of the old version, whose list is not of this one.
    with pytest.raises(UsageError, match="append"):
        new.save("chat", append={"messages": messages(1)}, session_id="s", parent_id=head)
    assert new.save("chat", append={"messages": []}, session_id="s", parent_id=head, state_version=1)


def test_another_agent_appends_to_what_it_would_be_given_unmigrated(store, migrations):
    old = store.client()
    id_ = old.save("chat", execution_state={"messages": messages(30), "msgs": []}, session_id="s")
    handed = old.handoff(id_, "helper")
    old.save("helper", append={"messages": messages(1)}, session_id="s", parent_id=handed)
    with pytest.raises(UsageError, match=r"state version 1.*of version 3"):
        store.client(migrations=migrations).save(
            "helper", append={"messages": messages(1)}, session_id="s", parent_id=handed
        )
