"""restore, get and latest: exactly what was saved, or an error that says why not."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import math
import random
import sqlite3
import uuid
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from stores import SOME_ID, Store, messages
from strategies import same, states, values

from holdfast import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    CorruptError,
    NewerVersionError,
    StateNotLoadedError,
    SyncClient,
    TypeRegistry,
    UnknownTypeError,
)

pytestmark = pytest.mark.every_store


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(state=states(), context=values())
def test_any_state_comes_back_equal_with_equal_types(client: SyncClient, state, context):
    restored = client.restore(client.save("a", execution_state=state, context=context, tasks=context, note=context))
    assert same(restored.execution_state, state)
    assert same(restored.agent_context, {} if context is None else context)
    assert same(restored.tasks, context)
    assert same(restored.metadata["note"], context)


def test_rich_values_survive_in_long_lists_and_large_strings(client: SyncClient):
    each = [
        dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC), b"\x00\xff", bytearray(b"ab"), (1, (2,)), {3, 4},
        frozenset({5}), decimal.Decimal("1.10"), uuid.UUID(int=7), 2**200, -(2**70), math.inf, "\ud800", None, True,
        {1: "int", (1, 2): "tuple", None: "none", 1.5: "float"},
    ]  # fmt: skip
    state = {"all": [[value, "filler" * 50] for value in each], "text": "é\ud800" * 5000, "raw": bytes(range(256)) * 40}
    for cid in (client.save("a", execution_state=state, session_id="s") for _ in range(2)):
        assert same(client.restore(cid).execution_state, state)


def test_key_order_is_kept(client: SyncClient):
    state = {"z": 1, "a": {"m": messages(12), "c": 1, "b": "x" * 5000}, "m": 2}
    first = client.save("a", execution_state=state, session_id="s")
    reordered = {"a": {"b": "x" * 5000, "m": messages(12), "c": 1}, "m": 2, "z": 1}
    second = client.save("a", execution_state=reordered, session_id="s")
    for saved, expected in ((first, state), (second, reordered)):
        restored = client.restore(saved).execution_state
        assert list(restored) == list(expected)
        assert list(restored["a"]) == list(expected["a"])


def test_the_state_is_the_callers_to_change(client: SyncClient):
    saved = client.save("a", execution_state={"messages": messages(20), "deep": {"a": [1]}}, note={"b": 1})
    first = client.restore(saved)
    first.execution_state["messages"].pop()
    first.execution_state["deep"]["a"].append(2)
    first.metadata["note"]["b"] = 2
    again = client.restore(saved)
    assert again.execution_state == {"messages": messages(20), "deep": {"a": [1]}}
    assert again.metadata == {"note": {"b": 1}}


def test_restoring_changes_nothing(client: SyncClient):
    old = client.save("a", session_id="s", execution_state={"x": 1})
    head = client.save("a", session_id="s", execution_state={"x": 2})
    client.restore(old)
    assert client.latest(session_id="s").checkpoint_id == head


def test_an_id_is_taken_in_any_form_that_a_uuid_has(client: SyncClient):
    saved = client.save("a", execution_state={"x": 1})
    assert client.restore(saved.upper()).checkpoint_id == saved
    assert client.restore(saved.replace("-", "")).checkpoint_id == saved


def test_get_gives_everything_but_the_state(client: SyncClient):
    saved = client.save("a", execution_state={"x": 1}, step_name="plan", note=1)
    entry, whole = client.get(saved), client.restore(saved)
    assert not entry.has_state
    for name, value in whole.as_dict().items():
        if name not in ("execution_state", "agent_context"):
            assert getattr(entry, name) == value
    for name in ("execution_state", "agent_context"):
        with pytest.raises(StateNotLoadedError, match=f"restore\\('{saved}'\\)"):
            getattr(entry, name)


def test_find_gives_the_ids_that_a_short_id_stands_for(client: SyncClient):
    saved = client.save("a")
    assert client.find(client.get(saved).short_id) == [saved]
    assert client.find(saved) == [saved]
    assert client.find("zz") == []


class TestLatest:
    def test_is_the_head_with_its_state(self, client: SyncClient):
        assert client.latest(session_id="s") is None
        client.save("a", session_id="s", execution_state={"x": 1})
        client.save("b", session_id="s", execution_state={"x": 2})
        assert client.latest(session_id="s").execution_state == {"x": 2}

    def test_of_an_agent_is_the_nearest_one_up_that_it_made_or_was_handed(self, client: SyncClient):
        first = client.save("a", session_id="s")
        second = client.save("b", session_id="s")
        handed = client.handoff(second, "c")
        client.save("d", session_id="s")
        assert client.latest(agent_id="a", session_id="s").checkpoint_id == first
        assert client.latest(agent_id="c", session_id="s").checkpoint_id == handed
        assert client.latest(agent_id="nobody", session_id="s") is None

    def test_without_a_session_is_of_the_one_saved_to_last(self, client: SyncClient):
        assert client.latest() is None
        client.save("a", session_id="s")
        client.save("a", session_id="t")
        newest = client.save("b", session_id="s")
        assert client.latest().checkpoint_id == newest
        assert client.latest(agent_id="a").session_id == "t"


class TestFourErrors:
    """Not found, expired, corrupt and newer are told apart."""

    def test_not_found(self, client: SyncClient):
        for call in (client.restore, client.get):
            with pytest.raises(CheckpointNotFoundError, match=SOME_ID) as error:
                call(SOME_ID)
            assert error.value.exit_code == 3

    def test_expired(self, client: SyncClient):
        saved = client.save("a", session_id="run-7")
        client.expire(saved)
        for call in (client.restore, client.get):
            with pytest.raises(CheckpointExpiredError, match=r"run-7.*expired by hand"):
                call(saved)

    def test_corrupt(self, sqlite_store: Store):
        saved = self._with_record_changed(sqlite_store, lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:])
        with pytest.raises(CorruptError, match=saved) as error:
            sqlite_store.client().restore(saved)
        assert error.value.exit_code == 5

    def test_newer(self, sqlite_store: Store):
        def newer(data: bytes) -> bytes:
            data = data[:3] + b"\x63" + data[4:-4]
            return data + zlib.crc32(data).to_bytes(4, "big")

        saved = self._with_record_changed(sqlite_store, newer)
        with pytest.raises(NewerVersionError, match=r"99.*newer holdfast"):
            sqlite_store.client().restore(saved)

    def test_a_newer_record_does_not_hide_that_others_can_be_restored(self, sqlite_store: Store):
        newer = self._with_record_changed(sqlite_store, lambda data: data[:3] + b"\x63" + data[4:])
        client = sqlite_store.client()
        other = client.save("a", execution_state={"x": 1}, session_id="other")
        assert client.restore(other).execution_state == {"x": 1}
        assert [entry.checkpoint_id for entry in client.timeline(session_id="other")] == [other]
        report = client.verify()
        assert not report.ok
        assert report.checked == 1
        assert newer in {problem.checkpoint_id for problem in report.problems}
        assert other not in {problem.checkpoint_id for problem in report.problems}

    def _with_record_changed(self, store: Store, change) -> str:
        client = store.client()
        saved = client.save("a", session_id="s", execution_state={"x": 1})
        client.close()
        with sqlite3.connect(store.where / "store.db") as database:
            [(data,)] = database.execute("SELECT data FROM record").fetchall()
            database.execute("UPDATE record SET data = ?", (change(data),))
        database.close()
        return saved


@dataclass
class Chat:
    title: str
    messages: list = field(default_factory=list)
    draft: str = ""


class TestRegisteredTypes:
    def types(self) -> TypeRegistry:
        types = TypeRegistry()
        types.register(Chat, name="chat")
        return types

    def test_that_hold_long_lists_and_large_strings_come_back(self, store: Store):
        client = store.client(types=self.types())
        chat = Chat("long", messages(30), "d" * 9000)
        state = {"chat": chat, "older": [Chat("short"), Chat("a", messages(20))]}
        saved = client.save("a", execution_state=state, session_id="s")
        assert client.restore(saved).execution_state == state

    def test_their_lists_grow_by_what_is_new(self, store: Store):
        client, recorder = store.recorded(types=self.types())
        client.save("a", execution_state={"chat": Chat("t", messages(200))}, session_id="s")
        recorder.forget()
        saved = client.save("a", execution_state={"chat": Chat("t", messages(201))}, session_id="s")
        assert recorder.written_bytes() < 2000
        assert client.restore(saved).execution_state["chat"] == Chat("t", messages(201))

    def test_an_unregistered_one_is_told_by_name(self, store: Store):
        saved = store.client(types=self.types()).save("a", execution_state={"chat": Chat("t")})
        with pytest.raises(UnknownTypeError, match="chat"):
            store.client(types=TypeRegistry()).restore(saved)


def sealed_state() -> dict[str, Any]:
    """A state of some sealed runs that zstd can only halve."""
    digits = random.Random(1)
    return {"messages": [{"id": number, "text": digits.randbytes(500).hex()} for number in range(900)]}


class TestALargeState:
    def test_is_restored_exactly_beside_other_calls(self, store: Store):
        state = sealed_state()

        async def main() -> None:
            async with store.async_client() as client:
                id_ = await client.save(agent_id="a", session_id="s", execution_state=state)
                restored = await asyncio.gather(
                    *(client.restore(id_) for _ in range(4)), client.timeline("s", agent_id="a"), client.restore(id_)
                )
                assert [one.execution_state == state for one in (*restored[:4], restored[5])] == [True] * 5
                assert (await client.restore(id_)).execution_state == state

        asyncio.run(main())

    @pytest.mark.parametrize("end", ["first", "last"])
    def test_damage_is_told_whichever_thread_meets_it_first(self, tmp_path: Path, end: str):
        store = Store("sqlite", tmp_path)
        with store.client() as client:
            id_ = client.save(agent_id="a", session_id="s", execution_state=sealed_state())
        with sqlite3.connect(tmp_path / "store.db") as database:
            sealed = database.execute("SELECT k, data FROM run WHERE length(data) > 16384 ORDER BY k").fetchall()
            assert len(sealed) > 4
            key, data = sealed[0 if end == "first" else -1]
            middle = len(data) // 2
            changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
            database.execute("UPDATE run SET data = ? WHERE k = ?", (changed, key))
        database.close()

        async def main() -> None:
            async with store.async_client() as client:
                for _ in range(3):
                    with pytest.raises(CorruptError):
                        await client.restore(id_)
                assert (await client.get(id_)).session_id == "s"

        asyncio.run(main())
