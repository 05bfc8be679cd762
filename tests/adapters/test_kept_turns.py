"""A session keeps the state of its last turn in memory: it is used only while it is that of the head."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast import Client, Migrations, SyncClient
from holdfast.adapters.base import session as sessions
from holdfast.adapters.base.loaded_list import LoadedList, fingerprint
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.codec.codec import Codec
from holdfast.model.framework import Framework
from holdfast.operations import restore

LONG = "a text that makes the list long enough to be stored element by element " * 10


@pytest.fixture(autouse=True)
def new_process() -> None:
    sessions._finished.clear()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The checkpoints that runs read from the store."""
    found: list[str] = []
    load = restore.load_checkpoint

    async def counted(ctx: Any, stored: Any, **options: Any) -> Any:
        checkpoint = await load(ctx, stored, **options)
        found.append(checkpoint.checkpoint_id)
        return checkpoint

    monkeypatch.setattr(restore, "load_checkpoint", counted)
    return found


class Talk:
    """A conversation that remembers what each turn was given, and says what the caller says."""

    def __init__(self, client: Client, session_id: str = "s") -> None:
        self.seen: list[list[Any]] = []
        self.states: list[Any] = []
        self.end: Callable[[FrameworkTurn, str], TurnEnd] | None = None
        self._session = ResumableSession(Framework.CUSTOM, session_id=session_id, store=client)

    async def say(self, text: str) -> Any:
        async def body(turn: FrameworkTurn) -> TurnEnd:
            self.seen.append([one["text"] for one in turn.state.get("messages", [])])
            self.states.append(turn.state)
            if self.end is not None:
                return self.end(turn, text)
            return TurnEnd(text, text, {"last": text}, {"messages": [message(text)]})

        return await self._session.take_turn("run", text, None, body, lambda recorded: recorded)


def message(text: str) -> dict[str, Any]:
    return {"text": text, "padding": LONG, "parts": [{"kind": "text"}]}


async def talked(client: Client, *texts: str) -> Talk:
    talk = Talk(client)
    for text in texts:
        await talk.say(text)
    return talk


def on_sqlite(tmp_path: Path, test: Callable[[Client], Any]) -> None:
    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            await test(client)

    asyncio.run(main())


TEXTS = [f"text {number}" for number in range(12)]


def test_a_session_that_keeps_nothing_saves_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]):
    states = []
    for name, is_kept in (("kept", True), ("read", False)):
        monkeypatch.setattr(sessions, "KEEP_STATE", is_kept)
        sessions._finished.clear()

        async def test(client: Client) -> None:
            talk = await talked(client, *TEXTS)
            states.append([talk.seen, repr((await client.latest("s")).execution_state)])

        on_sqlite(tmp_path / name, test)
    assert states[0] == states[1]
    assert len(reads) == len(TEXTS) - 1


def test_a_further_turn_reads_nothing_and_sees_the_whole_conversation(tmp_path: Path, reads: list[str]):
    async def test(client: Client) -> None:
        talk = await talked(client, *TEXTS)
        assert reads == []
        assert talk.seen == [TEXTS[:number] for number in range(12)]
        assert [one["text"] for one in (await client.latest("s")).execution_state["messages"]] == TEXTS
        await (await talked(client)).say("of another object")
        assert len(reads) == 1

    on_sqlite(tmp_path, test)


@pytest.mark.parametrize("is_plain", [True, False])
def test_what_is_kept_equals_what_a_restore_returns(tmp_path: Path, is_plain: bool):
    """Types included: another object of the same session reads it from the store."""

    async def test(client: Client) -> None:
        values = {"n": 1, "f": 1.5} if is_plain else {"at": datetime(2026, 1, 1, tzinfo=UTC), "d": Decimal("1.50")}
        others: dict[str, Any] = {} if is_plain else {"t": (1, [2]), "set": {1, 2}, "keys": {1: "a", (1, 2): "b"}}
        talk = Talk(client)
        talk.end = lambda turn, text: TurnEnd(
            text, None, {"z": 1, "a": dict(values)}, {"messages": [{**message(text), **values, **others}]}
        )
        for text in TEXTS:
            await talk.say(text)
        kept = talk._session._known
        stored = (await client.latest("s")).execution_state
        assert kept.state == stored
        assert repr(kept.state) == repr(stored)  # order and types
        other = Talk(client)
        await other.say("next")
        await talk.say("after that")
        del stored["turn"]
        assert repr(dict(other.states[0])) == repr(stored)

    on_sqlite(tmp_path, test)


async def another_saves(client: Client, first: str) -> list[str]:
    head = await client.latest("s")
    state = {**head.execution_state, "messages": [*head.execution_state["messages"], message("by another")]}
    await client.save("agent", session_id="s", execution_state=state, context=head.agent_context)
    return [*TEXTS, "by another"]


async def another_talks(client: Client, first: str) -> list[str]:
    await Talk(client).say("in another object")
    return [*TEXTS, "in another object"]


async def another_rolls_back(client: Client, first: str) -> list[str]:
    await client.rollback("s", to=first)
    return TEXTS[:3]


async def another_undoes_a_rollback(client: Client, first: str) -> list[str]:
    await client.rollback("s", to=first)
    await client.undo()
    return TEXTS


async def another_expires_the_head(client: Client, first: str) -> list[str]:
    await client.rollback("s", to=first)
    await client.save("agent", session_id="s", execution_state={"messages": [message("short")], "turn": None})
    head = await client.latest("s")
    await client.expire(head.checkpoint_id)
    return TEXTS[:3]


@pytest.mark.parametrize(
    "change",
    [another_saves, another_talks, another_rolls_back, another_undoes_a_rollback, another_expires_the_head],
    ids=lambda one: one.__name__,
)
def test_a_head_that_another_has_moved_is_read(tmp_path: Path, change: Callable[[Client, str], Any]):
    async def test(client: Client) -> None:
        talk = await talked(client, *TEXTS[:3])
        first = (await client.latest("s")).checkpoint_id
        for text in TEXTS[3:]:
            await talk.say(text)
        async with Client.sqlite(tmp_path / "a.db") as another:  # with a cache of its own, as another process has
            expected = await change(another, first)
        await talk.say("next")
        assert talk.seen[-1] == expected
        stored = (await client.latest("s")).execution_state["messages"]
        assert [one["text"] for one in stored] == [*expected, "next"]

    on_sqlite(tmp_path, test)


def test_a_fork_is_read_and_leaves_the_other_session_as_it_is(tmp_path: Path):
    async def test(client: Client) -> None:
        talk = await talked(client, *TEXTS)
        await client.fork((await client.timeline("s"))[-1].checkpoint_id, session_id="early")
        await client.fork("s", session_id="late")
        early, late = Talk(client, "early"), Talk(client, "late")
        await late.say("late")
        await talk.say("next")
        assert (await client.latest("late")).execution_state["messages"][-1]["text"] == "late"
        assert late.seen == [TEXTS]
        assert talk.seen[-1] == TEXTS
        with pytest.raises(Exception, match="not finished"):  # the first checkpoint is the beginning of a turn
            await early.say("early")

    on_sqlite(tmp_path, test)


def test_a_turn_that_was_cut_off_is_read(tmp_path: Path, reads: list[str]):
    async def test(client: Client) -> None:
        talk = await talked(client, *TEXTS)

        def fail(turn: FrameworkTurn, text: str) -> TurnEnd:
            raise RuntimeError(text)

        talk.end = fail
        with pytest.raises(RuntimeError, match="cut off"):
            await talk.say("cut off")
        talk.end = None
        await talk.say("cut off")
        assert len(reads) == 1
        assert talk.seen[-1] == TEXTS
        await talk.say("next")
        assert talk.seen[-1] == [*TEXTS, "cut off"]
        assert len(reads) == 1

    on_sqlite(tmp_path, test)


def test_a_migration_that_is_registered_between_turns_is_applied(tmp_path: Path):
    def shout(state: Any) -> Any:
        return {**state, "messages": [{**one, "text": one["text"].upper()} for one in state["messages"]]}

    async def main() -> None:
        migrations, texts = Migrations(), [f"text {number}" for number in range(60)]  # with a long journal, too
        async with Client.sqlite(tmp_path / "a.db", migrations=migrations) as client:
            talk = await talked(client, *texts)
            migrations.register("agent", from_version=1, to_version=2)(shout)
            await talk.say("next")
            assert talk.seen[-1] == [text.upper() for text in texts]
            await talk.say("after")
            expected = [*(text.upper() for text in texts), "next"]
            assert talk.seen[-1] == expected
            stored = await client.latest("s")
            assert stored.stored_state_version == 2
            assert [one["text"] for one in stored.execution_state["messages"]] == [*expected, "after"]

    asyncio.run(main())


def test_what_the_framework_or_the_user_changes_is_not_kept(tmp_path: Path):
    """A turn gets copies, and what it ends with is copied: nothing that is kept is in other hands."""

    async def test(client: Client) -> None:
        talk, given = Talk(client), []

        def end(turn: FrameworkTurn, text: str) -> TurnEnd:
            for one in turn.state.get("messages", []):
                one["text"] = "changed"
                one["parts"].append("changed")
            added, last = message(text), {"last": [text]}
            given.append((added, last))
            return TurnEnd(text, text, last, {"messages": [added]})

        talk.end = end
        for text in TEXTS:
            await talk.say(text)
            for added, last in given:
                added["text"] = "changed later"
                added["parts"].clear()
                last["last"].append("changed later")
        assert talk.seen == [TEXTS[:number] for number in range(12)]
        assert talk.states[-1]["last"] == [TEXTS[-2]]
        stored = (await client.latest("s")).execution_state
        assert stored["messages"] == [message(text) for text in TEXTS]
        assert stored["last"] == [TEXTS[-1]]

    on_sqlite(tmp_path, test)


def test_a_plain_session_keeps_its_state_too(tmp_path: Path, reads: list[str]):
    with SyncClient.sqlite(tmp_path / "a.db") as client:
        session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, is_async=False)
        seen = []

        def body(turn: FrameworkTurn) -> TurnEnd:
            seen.append([one["text"] for one in turn.state.get("messages", [])])
            return TurnEnd(None, None, {}, {"messages": [message(f"text {len(seen) - 1}")]})

        for text in TEXTS:
            session.take_turn_sync("run", text, None, body, lambda recorded: recorded)
        assert seen == [TEXTS[:number] for number in range(12)]
        assert reads == []
        client.rollback("s", to=client.timeline("s", limit=None)[-2].checkpoint_id)
        session.take_turn_sync("run", "next", None, body, lambda recorded: recorded)
        assert seen[-1] == TEXTS[:1]


def test_a_list_that_a_turn_rewrites_is_stored_whole(tmp_path: Path):
    async def test(client: Client) -> None:
        talk = await talked(client, *TEXTS)
        talk.end = lambda turn, text: TurnEnd(text, text, {"messages": [message("summary"), message(text)]})
        await talk.say("next")
        talk.end = None
        await talk.say("after")
        assert talk.seen[-1] == ["summary", "next"]
        stored = (await client.latest("s")).execution_state["messages"]
        assert [one["text"] for one in stored] == ["summary", "next", "after"]

    on_sqlite(tmp_path, test)


def test_a_value_that_can_t_be_stored_names_its_place_in_the_conversation(tmp_path: Path):
    async def test(client: Client) -> None:
        talk = await talked(client, *TEXTS)
        talk.end = lambda turn, text: TurnEnd(text, text, {}, {"messages": [{"text": object()}]})
        with pytest.raises(Exception, match=r"execution_state\.messages\[12\]\.text"):
            await talk.say("next")

    on_sqlite(tmp_path, test)


# -- objects of the framework ------------------------------------------------------------------------------------------


@dataclass
class Part:
    text: str
    about: dict[str, Any] = field(default_factory=dict)


@dataclass
class Message:
    parts: list[Part]


def load(stored: list[Any]) -> list[Message]:
    return [Message([Part(one["text"], one["about"])]) for one in stored]


def test_objects_are_made_once_while_the_list_grows():
    made: list[int] = []

    def counted(stored: list[Any]) -> list[Message]:
        made.append(len(stored))
        return load(stored)

    kept, codec = LoadedList(counted), Codec()
    stored = [{"text": str(number), "about": {"n": [number]}} for number in range(5)]
    first = kept.take(stored, codec)
    second = kept.take([*stored, {"text": "5", "about": {}}], codec)
    assert made == [5, 1]
    assert all(a is b for a, b in zip(first, second, strict=False))
    assert [one.parts[0].text for one in second] == list("012345")
    assert kept.take(stored[:2], codec) == load(stored[:2])  # a rollback
    assert kept.take([dict(one) for one in stored], codec) == load(stored)  # read again
    assert made == [5, 1, 5]


@pytest.mark.parametrize(
    "change",
    [
        lambda one: setattr(one.parts[0], "text", "changed"),
        lambda one: one.parts.append(Part("further")),
        lambda one: one.parts[0].about["n"].append(2),
        lambda one: one.parts[0].about.update(n=True),
        lambda one: one.parts[0].about.update(n=(1,)),
        lambda one: setattr(one, "further", object()),
        lambda one: setattr(one, "parts", None),
    ],
)
def test_an_object_that_was_changed_is_made_again(change: Callable[[Message], Any]):
    kept, codec = LoadedList(load), Codec()
    stored = [{"text": str(number), "about": {"n": [1]}} for number in range(3)]
    change(kept.take(stored, codec)[1])
    taken = kept.take(stored, codec)
    assert taken == load(stored)
    assert vars(taken[1]).keys() == {"parts"}
    assert stored[1] == {"text": "1", "about": {"n": [1]}}


def test_a_fingerprint_tells_types_apart_and_gives_up_on_what_it_can_t_see():
    values: list[Any] = [1, True, 1.0, "1", b"1", [1], (1,), {1}, {"1": 1}, {1: 1}, None, 1 << 70, Decimal(1)]
    found = [fingerprint([value]) for value in values]
    assert None not in found
    assert len(set(found)) == len(values)

    class Text(str):
        __slots__ = ()

    for hidden in (Text("a"), iter([1]), open, RuntimeError("a")):
        assert fingerprint([hidden]) is None
