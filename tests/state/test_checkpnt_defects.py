"""What went wrong in checkpnt 0.1.0, done right: one test for each defect, C1 to C13, that was observed in it."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import zlib
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from stores import SOME_ID, Clock, Store, messages, python
from strategies import same

from holdfast import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    CorruptError,
    Framework,
    NewerVersionError,
    StoreError,
    SyncClient,
    UnsupportedValueError,
    UsageError,
)
from holdfast.codec.codec import Codec
from holdfast.format.state import record


def test_c1_a_datetime_comes_back_and_passes_its_own_check(client: SyncClient):
    """There: saved, then "may have been tampered with" on restore."""
    when = datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=UTC)
    saved = client.save("a", execution_state={"when": when, "naive": when.replace(tzinfo=None)}, context={"w": when})
    restored = client.restore(saved, verify=True)
    assert restored.execution_state == {"when": when, "naive": when.replace(tzinfo=None)}
    assert restored.execution_state["when"].tzinfo is UTC
    assert restored.agent_context == {"w": when}


def test_c2_int_keys_come_back_and_do_not_break_the_timeline(client: SyncClient):
    """There: saved, then unreadable for ever, and with it the whole timeline."""
    saved = client.save("a", session_id="s", execution_state={1: "one", "1": "text", -5: {2: 3}})
    assert client.restore(saved).execution_state == {1: "one", "1": "text", -5: {2: 3}}
    assert client.restore(saved, verify=False).execution_state[1] == "one"
    assert len(client.timeline("s", agent_id="a")) == 1


@pytest.mark.parametrize(
    "value",
    [{1, "a"}, Decimal("1.10"), 2**70, "\ud800", {1: 1, "a": 2, (3,): 4}, (1, [2, (3,)])],
    ids=["set", "Decimal", "big int", "lone surrogate", "mixed keys", "tuples"],
)
def test_c3_values_that_were_refused_or_changed_come_back(client: SyncClient, value):
    """There: TypeError at save; tuples silently became lists."""
    restored = client.restore(client.save("a", execution_state={"value": value})).execution_state["value"]
    assert same(restored, value)


def test_c3_what_is_nested_too_deep_is_refused_by_name(client: SyncClient):
    """There: RecursionError."""
    deep: list = []
    for _ in range(1500):
        deep = [deep]
    with pytest.raises(UnsupportedValueError, match=r"execution_state\.deep"):
        client.save("a", session_id="s", execution_state={"deep": deep})
    assert client.timeline(session_id="s") == []


class TestC4Tampering:
    """There: only the state was covered; steps, parents and dates could be changed, and timelines never checked."""

    def tampered(self, store: Store, change) -> tuple[str, SyncClient]:
        """A store of three checkpoints, the second one's row changed by hand."""
        client = store.client()
        saved = [client.save("a", session_id="s", step_index=5 + i, step_name="plan", note="n") for i in range(3)]
        client.close()
        with sqlite3.connect(store.where / "store.db") as database:
            change(database)
        database.close()
        return saved[1], store.client()

    def assert_detected(self, saved: str, client: SyncClient) -> None:
        for verify in (True, False):
            with pytest.raises(CorruptError):
                client.restore(saved, verify=verify)
        with pytest.raises(CorruptError):
            client.get(saved)
        with pytest.raises(CorruptError):
            client.timeline("s", agent_id="a")
        assert saved in {problem.checkpoint_id for problem in client.verify().problems}

    @pytest.mark.parametrize(
        "field", ["step", "seq", "at", "parent", "psum", "agent", "session", "name", "meta", "tree"]
    )
    @pytest.mark.parametrize("fix_crc", [True, False], ids=["CRC fixed", "CRC left"])
    def test_of_any_header_field_is_detected_by_restore_and_by_timeline(
        self, sqlite_store: Store, field: str, fix_crc: bool
    ):
        def change(database: sqlite3.Connection) -> None:
            [(n, data)] = database.execute("SELECT n, data FROM record WHERE sequence = 2").fetchall()
            name = data.index(bytes([0xA0 + len(field)]) + field.encode()) + 1 + len(field)
            at = name + (2 if data[name] in (0xC4, 0xCC, 0xCD, 0xCE, 0xCF, 0xD9) else 1 if data[name] >= 0x80 else 0)
            changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 : -4]
            changed += zlib.crc32(changed).to_bytes(4, "big") if fix_crc else data[-4:]
            assert changed != data
            database.execute("UPDATE record SET data = ? WHERE n = ?", (changed, n))

        self.assert_detected(*self.tampered(sqlite_store, change))

    def test_of_the_kind_is_detected(self, sqlite_store: Store):
        """A live record that claims to be a tombstone."""

        def change(database: sqlite3.Connection) -> None:
            [(n, data)] = database.execute("SELECT n, data FROM record WHERE sequence = 2").fetchall()
            changed = data[:2] + b"\x01" + data[3:-4]
            changed += zlib.crc32(changed).to_bytes(4, "big")
            database.execute("UPDATE record SET data = ? WHERE n = ?", (changed, n))

        self.assert_detected(*self.tampered(sqlite_store, change))

    @pytest.mark.parametrize(
        "change",
        ["sequence = 100", "session = (SELECT n FROM session WHERE id = x'6f74686572')"],
        ids=["sequence", "session"],
    )
    def test_of_a_place_in_the_timeline_is_detected(self, sqlite_store: Store, change: str):
        sqlite_store.client().save("a", session_id="other")
        saved, client = self.tampered(
            sqlite_store, lambda database: database.execute(f"UPDATE record SET {change} WHERE sequence = 2")
        )
        with pytest.raises(CorruptError):
            client.timeline("other" if "session" in change else "s", agent_id="a")
        assert saved in {problem.checkpoint_id for problem in client.verify().problems}

    def test_two_swapped_records_are_detected(self, sqlite_store: Store):
        def change(database: sqlite3.Connection) -> None:
            rows = dict(database.execute("SELECT sequence, data FROM record"))
            for sequence, other in ((2, 3), (3, 2)):
                database.execute("UPDATE record SET data = ? WHERE sequence = ?", (rows[other], sequence))

        self.assert_detected(*self.tampered(sqlite_store, change))

    def test_labels_for_people_are_never_read_back(self, sqlite_store: Store):
        """The columns that copy the header for plain SQL have no say in anything."""
        saved, client = self.tampered(
            sqlite_store,
            lambda database: database.execute(
                "UPDATE record SET step_index = 99, parent = NULL, created_at_us = 0, agent_id = 'evil', "
                "framework = 'x', step_name = 'x', handoff_target = 'x'"
            ),
        )
        restored = client.restore(saved)
        assert (restored.step_index, restored.agent_id, restored.step_name) == (6, "a", "plan")
        assert restored.parent_id is not None
        assert restored.created_at.year >= 2026
        assert [entry.step_index for entry in client.timeline("s", agent_id="a")] == [7, 6, 5]
        assert client.timeline("s", agent_id="evil") == []

    def test_a_record_forged_with_its_checksum_does_not_fit_its_children(self, sqlite_store: Store):
        """A checksum without a key can be computed by anybody: but the child holds the one it was saved after."""
        codec = Codec()

        def change(database: sqlite3.Connection) -> None:
            [(n, data)] = database.execute("SELECT n, data FROM record WHERE sequence = 2").fetchall()
            stored = record.unpack(codec, data)
            forged, _ = record.pack(codec, stored.header | {"name": "evil"}, stored.manifest())
            database.execute("UPDATE record SET data = ? WHERE n = ?", (forged, n))

        saved, client = self.tampered(sqlite_store, change)
        child = client.timeline("s", agent_id="a")[0].checkpoint_id
        assert client.restore(saved).step_name == "evil"
        assert child in {problem.checkpoint_id for problem in client.verify().problems}


class TestC5TimeToLive:
    @pytest.mark.parametrize("ttl", [0, -1, -0.0, math.nan, True, False])
    def test_zero_and_less_are_refused(self, quick: SyncClient, ttl):
        """There: zero never expired, negatives were accepted."""
        with pytest.raises(UsageError, match="must be a positive number"):
            quick.save("a", ttl_seconds=ttl)

    def test_what_expired_is_purged_and_leaves_a_tombstone(self, store: Store, clock: Clock):
        """There: 200 of 200 expired rows remained."""
        client = store.client()
        clock.rules(client)
        client.save("a", session_id="s")
        expired = [client.save("a", session_id="s", ttl_seconds=60, execution_state={"m": messages(20, i * 20)})
                   for i in range(20)]  # fmt: skip
        clock.forward(61)
        assert client.gc().expired_by_ttl == 20
        assert client.stats().segment_bytes == 0
        for id_ in expired:
            with pytest.raises(CheckpointExpiredError):
                client.restore(id_)

    def test_a_handoff_keeps_ttl_and_metadata(self, client: SyncClient):
        handed = client.restore(client.handoff(client.save("a", ttl_seconds=60, note=1), "b"))
        assert (handed.ttl_seconds, handed.metadata) == (60, {"note": 1})

    def test_a_made_up_parent_is_refused(self, client: SyncClient):
        with pytest.raises(CheckpointNotFoundError):
            client.save("a", session_id="s", parent_id=SOME_ID)

    def test_an_expired_parent_is_known_as_one(self, client: SyncClient):
        """There: a dangling parent id."""
        parent = client.save("a", session_id="s")
        child = client.save("a", session_id="s")
        client.expire(parent)
        assert client.tree("s").expired == {parent: None}
        assert client.restore(child).parent_id == parent
        assert client.verify().ended_chains == 1


def test_c6_timeline_order_is_save_order_whatever_steps_and_clocks_say(store: Store, clock: Clock):
    """There: by step on one backend, by milliseconds on another."""
    client = store.client()
    clock.rules(client)
    saved = []
    for i in range(30):
        clock.forward((0, 0, -3, 1)[i % 4])
        saved.append(client.save("a", session_id="s", step_index=(0, 9, 3)[i % 3]))
    assert [entry.checkpoint_id for entry in client.timeline("s", agent_id="a")] == saved[::-1]
    client.rollback("s", to=saved[3])
    newest = client.save("a", session_id="s")
    assert client.timeline("s", agent_id="a")[0].checkpoint_id == newest == client.latest(session_id="s").checkpoint_id


class TestC7Sessions:
    def test_one_ttl_does_not_end_its_permanent_neighbours(self, store: Store, clock: Clock):
        client = store.client()
        clock.rules(client)
        stays = client.save("a", session_id="s")
        client.save("a", session_id="s", ttl_seconds=1)
        clock.forward(2)
        client.gc()
        assert [entry.checkpoint_id for entry in client.timeline("s", agent_id="a")] == [stays]
        assert client.latest(session_id="s").checkpoint_id == stays

    def test_expiring_an_old_checkpoint_does_not_lose_the_latest(self, client: SyncClient):
        old, head = (client.save("a", session_id="s") for _ in range(2))
        client.expire(old)
        assert client.latest(session_id="s").checkpoint_id == head

    def test_names_with_separators_do_not_meet(self, client: SyncClient):
        """There: ('a:b', 'c') and ('a', 'b:c') were the same key."""
        one = client.save("a:b", session_id="c")
        two = client.save("a", session_id="b:c")
        assert [entry.checkpoint_id for entry in client.timeline("c", agent_id="a:b")] == [one]
        assert [entry.checkpoint_id for entry in client.timeline("b:c", agent_id="a")] == [two]
        assert client.timeline("b:c", agent_id="a:b") == client.timeline("c", agent_id="a") == []

    def test_two_hundred_concurrent_saves_all_succeed(self, store: Store):
        async def scenario() -> list[str]:
            client = store.async_client()
            return await asyncio.gather(*(client.save("a", session_id=f"s{i}") for i in range(200)))

        assert len(set(asyncio.run(scenario()))) == 200
        assert len(store.client().sessions()) == 200


def test_c8_concurrent_first_saves_share_one_connection_and_closed_stays_closed(sqlite_store: Store, monkeypatch):
    """There: fifty connections, and a client that silently came back to life."""
    opened = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: opened.append(1) or connect(*args, **kwargs))

    async def scenario() -> None:
        client = sqlite_store.async_client()
        await asyncio.gather(*(client.save("a", session_id=f"s{i}") for i in range(50)))
        await client.close()
        with pytest.raises(StoreError, match="closed"):
            await client.save("a")

    asyncio.run(scenario())
    assert len(opened) <= 2  # one that writes, one that reads


def test_c9_asyncio_run_without_closing_does_not_hang_at_exit(disk_store: Store):
    done = python(
        """
        import asyncio, sys
        from holdfast import Client
        client = Client.open(sys.argv[1])
        print(asyncio.run(client.save("a", session_id="s", execution_state={"x": 1})))
        """,
        disk_store.url,
        timeout=240,
    )
    assert disk_store.client().restore(done.stdout.strip()).execution_state == {"x": 1}


def test_c10_time_travel_is_an_api(client: SyncClient):
    first = client.save("a", session_id="s", execution_state={"x": 1})
    client.save("a", session_id="s", execution_state={"x": 2})
    assert client.sessions()[0].session_id == "s"
    assert client.latest(session_id="s").execution_state == {"x": 2}
    client.rollback("s", to=first)
    assert client.latest(session_id="s").execution_state == {"x": 1}
    fork = client.fork(first)
    assert client.latest(session_id=fork.session_id).execution_state == {"x": 1}
    handed = client.handoff(first, "b")
    assert [entry.checkpoint_id for entry in client.timeline("s", agent_id="b")] == [handed]


@pytest.mark.slow
def test_c11_each_message_is_written_once(store: Store):
    """There: 93.9 MB for 0.6 MB of state after 300 steps."""
    client, recorder = store.recorded()
    for step in range(1, 301):
        client.save("a", session_id="s", execution_state={"messages": messages(step, size=2000)})
    final = sum(len(repr(message)) for message in messages(300, size=2000))
    # Each message once as it came, and once more, compressed, when its run is sealed.
    assert recorder.written_bytes() < 1.5 * final
    assert client.stats().segment_bytes < 1.1 * final
    assert client.latest(session_id="s").execution_state == {"messages": messages(300, size=2000)}


@pytest.mark.parametrize("framework", ["langgraph", Framework.LANGGRAPH])
def test_c12_a_framework_may_be_named_by_its_string(quick: SyncClient, framework):
    assert quick.restore(quick.save("a", framework)).framework is Framework.LANGGRAPH


def test_c13_one_newer_record_does_not_take_the_rest_with_it(sqlite_store: Store):
    """There: a ValueError that ended restore and the whole timeline."""
    client = sqlite_store.client()
    newer = client.save("a", session_id="newer")
    other = client.save("a", session_id="other", execution_state={"x": 1})
    client.close()
    with sqlite3.connect(sqlite_store.where / "store.db") as database:
        [(data,)] = database.execute(
            "SELECT data FROM record WHERE id = ?", (bytes.fromhex(newer.replace("-", "")),)
        ).fetchall()
        changed = data[:3] + b"\x02" + data[4:-4]
        changed += zlib.crc32(changed).to_bytes(4, "big")
        database.execute("UPDATE record SET data = ? WHERE data = ?", (changed, data))
    database.close()
    client = sqlite_store.client()
    for call in (lambda: client.restore(newer), lambda: client.timeline("newer", agent_id="a")):
        with pytest.raises(NewerVersionError, match="Upgrade"):
            call()
    assert client.restore(other).execution_state == {"x": 1}
    assert [entry.checkpoint_id for entry in client.timeline("other", agent_id="a")] == [other]
    assert other in {session.head.checkpoint_id for session in client.sessions()}
