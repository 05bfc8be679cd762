"""Turns of a resumable session: what is recorded, what is replayed, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from turn_agent import Agent, Killed, restart

from holdfast import NOT_DONE, Client, Done, Effect, SyncClient, UsageError
from holdfast.adapters.base import session as sessions
from holdfast.adapters.base.digest import digest
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import INTERRUPTED, CallPausedError, FrameworkTurn
from holdfast.backends.bridge.step import run_inline
from holdfast.errors import ApprovalPendingError, EffectNotDoneError, UnfinishedTurnError
from holdfast.model.framework import Framework
from holdfast.transcript import to_transcript


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Forget the turns that other tests have finished, as a new process has."""
    sessions._finished.clear()


def take(
    client: Client, agent: Agent, *, given: Any = "go", turn: str | None = None, tools: Any = None
) -> Callable[[], Any]:
    session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, tools=tools)
    return lambda: session.take_turn("run", given, turn, agent.body, lambda recorded: f"recorded {recorded}")


PLAN = [("search", {"q": "x"}), ("pay", {"invoice": "i-1"})]


@pytest.mark.parametrize("killed_in", ["model 0", "search", "model 1", "pay"])
@pytest.mark.parametrize("kind", ["undeclared", "declared"])
def test_a_turn_that_was_cut_off_repeats_no_finished_call(tmp_path: Path, killed_in: str, kind: str):
    tools = None if kind == "undeclared" else {"search": "read", "pay": Effect("irreversible", key="invoice")}

    async def main() -> None:
        agent = Agent(PLAN)
        agent.killed_in = killed_in
        async with Client.sqlite(tmp_path / "a.db") as client:
            with pytest.raises(Killed):
                await take(client, agent, tools=tools)()
        agent.killed_in = None
        restart()
        async with Client.sqlite(tmp_path / "a.db") as client:
            result = await take(client, agent, tools=tools)()
            is_repeated = killed_in.startswith("model") or (killed_in == "search" and kind == "declared")
            expected = ["model 0", "search", "model 1", "pay"]
            if is_repeated:
                expected.insert(expected.index(killed_in), killed_in)
            assert agent.called == expected
            assert result == "pay ok" if killed_in != "pay" else "outcome is unknown" in result
            messages = (await client.latest("s")).execution_state["messages"]
            assert len(messages) == 5
            if killed_in == "search" and kind == "undeclared":
                assert messages[2]["content"] == INTERRUPTED

    asyncio.run(main())


@pytest.mark.parametrize("tools", [None, {"look": "read"}])
def test_parallel_calls_with_equal_ids_get_their_own_results(tmp_path: Path, tools: Any):
    """Models of sub-agents may give equal ids, and the next life may make their calls in another order."""

    async def look(what: str) -> str:
        return f"seen {what}"

    async def call_in(order: list[str], *, is_killed: bool = False) -> dict[str, Any]:
        found = {}

        async def body(turn: FrameworkTurn) -> TurnEnd:
            for what in order:
                found[what] = await turn.call_tool("look", {"what": what}, look, call_id="call-0")
            if is_killed:
                raise Killed
            return TurnEnd("", "", {})

        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, tools=tools)
            await session.take_turn("run", "go", None, body, str)
        return found

    async def main() -> None:
        with pytest.raises(Killed):
            await call_in(["one", "two"], is_killed=True)
        restart()
        assert await call_in(["two", "one"]) == {"one": "seen one", "two": "seen two"}

    asyncio.run(main())


def test_a_call_that_has_paused_is_made_again_and_one_that_was_killed_then_is_not(tmp_path: Path):
    ends: list[Any] = [CallPausedError(), CallPausedError(), Killed(), "never"]
    told: list[str] = []

    async def book() -> str:
        end = ends.pop(0)
        if isinstance(end, BaseException):
            raise end
        return str(end)

    async def body(turn: FrameworkTurn) -> TurnEnd:
        told.append(await turn.call_tool("book", {}, book, call_id="1"))
        return TurnEnd(told[-1], told[-1], {})

    async def main() -> None:
        for error in (CallPausedError, CallPausedError, Killed):
            restart()
            async with Client.sqlite(tmp_path / "a.db") as client:
                session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
                with pytest.raises(error):
                    await session.take_turn("run", "go", None, body, str)
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            assert await session.take_turn("run", "go", None, body, str) == INTERRUPTED
        assert (told, ends) == ([INTERRUPTED], ["never"])

    asyncio.run(main())


def test_a_finished_turn_returns_its_recorded_result_and_equal_calls_are_further_turns(tmp_path: Path):
    async def main() -> None:
        agent = Agent(PLAN)
        async with Client.sqlite(tmp_path / "a.db") as client:
            assert await take(client, agent)() == "pay ok"
            assert await take(client, agent)() == "pay ok"  # the same input again: the second turn
            assert len(agent.called) == 8
            restart()
            assert await take(client, agent)() == "recorded pay ok"
            assert await take(client, agent)() == "recorded pay ok"
            assert len(agent.called) == 8
            assert await take(client, agent)() == "pay ok"  # the third
            assert len(agent.called) == 12
            assert await take(client, agent, turn="m-1")() == "pay ok"
            assert await take(client, agent, turn="m-1")() == "recorded pay ok"

    asyncio.run(main())


def test_another_turn_is_refused_while_one_is_unfinished(tmp_path: Path):
    async def main() -> None:
        agent = Agent(PLAN)
        agent.killed_in = "pay"
        async with Client.sqlite(tmp_path / "a.db") as client:
            with pytest.raises(Killed):
                await take(client, agent, turn="first")()
            with pytest.raises(UnfinishedTurnError, match=r"turn=first.*turn=second") as refused:
                await take(client, agent, turn="second")()
            assert (refused.value.unfinished, refused.value.begun) == ("turn=first", "turn=second")
            assert refused.value.before is None
            agent.killed_in = None
            await take(client, agent, turn="first")()
            await take(client, agent, turn="second")()

    asyncio.run(main())


def test_a_turn_that_fails_for_good_is_dropped_by_a_rollback(tmp_path: Path):
    async def main() -> None:
        agent = Agent(PLAN)
        tools = {"search": "read", "pay": Effect("irreversible", key="invoice")}
        async with Client.sqlite(tmp_path / "a.db") as client:
            await take(client, agent, turn="first", tools=tools)()
            agent.killed_in = "model 1"
            with pytest.raises(Killed):
                await take(client, agent, turn="second", tools=tools)()
            agent.killed_in = None
            with pytest.raises(UnfinishedTurnError) as refused:
                await take(client, agent, turn="third", tools=tools)()
            await client.rollback("s", to=refused.value.before)
            await take(client, agent, turn="third", tools=tools)()
            head = await client.latest("s")
            assert [item["role"] for item in head.execution_state["messages"]].count("user") == 2

    asyncio.run(main())


def test_turns_with_an_id_are_not_counted(tmp_path: Path):
    """A server names each turn by its message: a count of each would never be used, and never go away."""

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            for number in range(3):
                await take(client, Agent(PLAN[:1]), turn=f"message {number}")()
            assert not sessions._finished
            await take(client, Agent(PLAN[:1]))()
            assert sessions._finished.total() == 1

    asyncio.run(main())


def test_a_call_without_the_argument_that_is_its_key_is_answered_to_the_model(tmp_path: Path):
    """The model may leave out an argument that the function does not need. A name of no argument is the program's."""

    async def pay(amount: int, invoice: str | None = None) -> str:
        raise AssertionError

    async def main(key: str) -> Any:
        async def body(turn: FrameworkTurn) -> TurnEnd:
            said = await turn.call_tool("pay", {"amount": 7, "invoice": None}, pay, call_id="1", function=pay)
            return TurnEnd(said, said, {})

        async with Client.sqlite(tmp_path / "a.db") as client:
            tools = {"pay": Effect("irreversible", key=key)}
            session = ResumableSession(Framework.CUSTOM, session_id=key, store=client, tools=tools)
            return await session.take_turn("run", "go", None, body, str)

    assert asyncio.run(main("invoice")) == "This call was not carried out: it has no argument 'invoice'"
    with pytest.raises(UsageError, match="no such argument"):
        asyncio.run(main("invoce"))


def test_an_effect_is_not_carried_out_without_a_required_argument_and_leaves_no_doubt(tmp_path: Path):
    """The framework would refuse the call, too. But the ledger could not know that, and block the next one."""
    called: list[dict[str, Any]] = []

    async def pay(**arguments: Any) -> str:
        called.append(arguments)
        return "paid"

    async def body(turn: FrameworkTurn) -> TurnEnd:
        said = [
            await turn.call_tool("pay", arguments, pay, call_id=str(number), required=["invoice"])
            for number, arguments in enumerate([{"invoyce": "a"}, {"invoice": "a"}])
        ]
        return TurnEnd(said, said, {})

    async def main() -> Any:
        async with Client.sqlite(tmp_path / "a.db") as client:
            tools = {"pay": "irreversible"}
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, tools=tools)
            return await session.take_turn("run", "go", None, body, list)

    assert asyncio.run(main()) == ["This call was not carried out: it has no argument 'invoice'", "paid"]
    assert called == [{"invoice": "a"}]


def test_a_probe_answers_for_an_effect_that_was_cut_off(tmp_path: Path):
    paid: list[str] = []

    async def main(found: Any) -> list[str]:
        agent = Agent([("pay", {"invoice": "i-1"})])
        agent.killed_in = "pay"
        tools = {"pay": Effect("irreversible", key="invoice", probe=lambda invoice: found)}
        async with Client.sqlite(tmp_path / f"{len(paid)}.db") as client:
            with pytest.raises(Killed):
                await take(client, agent, tools=tools)()
            agent.killed_in = None
            paid.append(await take(client, agent, tools=tools)())
        return agent.called

    assert asyncio.run(main(Done("found"))) == ["model 0", "pay"]
    assert asyncio.run(main(NOT_DONE)) == ["model 0", "pay", "pay"]
    assert paid == ["found", "pay ok"]


def test_an_effect_that_waits_for_approval_ends_the_turn_even_if_the_framework_swallows_errors(tmp_path: Path):
    async def main() -> None:
        agent = Agent([("pay", {"invoice": "i-1"})])
        tools = {"pay": Effect("irreversible", key="invoice", approve="finance")}

        async def swallows(turn: FrameworkTurn) -> TurnEnd:
            try:
                return await agent.body(turn)
            except BaseException:
                return TurnEnd("swallowed", "swallowed", {})

        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, tools=tools)
            with pytest.raises(ApprovalPendingError):
                await session.take_turn("run", "go", None, swallows, str)
            [asked] = await client.approvals("s")
            assert (asked.call.tool, dict(asked.arguments)) == ("pay", {"invoice": "i-1"})
            await client.decide(asked.approval_id, "approve", by="ann")
            assert await take(client, agent, tools=tools)() == "pay ok"
            assert agent.called == ["model 0", "pay"]

    asyncio.run(main())


@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_a_question_of_the_framework_waits_for_a_person_and_survives_a_restart(tmp_path: Path, answer: str):
    async def body(turn: FrameworkTurn) -> TurnEnd:
        given = await turn.request_approval("delete", {"path": "a"}, call_id="c-1")
        text = f"{given.is_approved} by {given.by}"
        return TurnEnd(text, text, {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(ApprovalPendingError):
                await session.take_turn("run", "go", None, body, str)
            [asked] = await client.approvals("s")
            await client.decide(asked.approval_id, answer, by="ann")
        restart()
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            expected = f"{answer == 'approve'} by ann"
            assert await session.take_turn("run", "go", None, body, str) == expected
            assert await client.approvals("s") == []

    asyncio.run(main())


def test_a_plain_session_takes_turns_without_an_event_loop(tmp_path: Path):
    called: list[str] = []

    def body(turn: FrameworkTurn) -> TurnEnd:

        def ask() -> str:
            called.append("model")
            return "hello"

        answer = run_inline(turn.call_model("agent", ["hi"], ask))
        return TurnEnd(answer, answer, {"messages": [answer]})

    with SyncClient.sqlite(tmp_path / "a.db") as client:
        session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, is_async=False)
        assert session.take_turn_sync("run", "hi", "t", body, str) == "hello"
        assert session.take_turn_sync("run", "hi", "t", body, str) == "hello"
    assert called == ["model"]


def test_the_transcript_of_an_unfinished_turn_has_its_recorded_calls(tmp_path: Path):
    async def main() -> None:
        agent = Agent(PLAN)
        agent.killed_in = "pay"
        async with Client.sqlite(tmp_path / "a.db") as client:
            with pytest.raises(Killed):
                await take(client, agent, tools={"search": "read", "pay": "irreversible"})()
            cut_off = to_transcript(await client.latest("s"))
            assert [message.role for message in cut_off] == ["user", "assistant", "tool", "assistant"]
            assert [call.name for call in cut_off.open_calls] == ["pay"]
            assert cut_off.cursor is not None
            assert not cut_off.cursor.is_finished

    asyncio.run(main())


@pytest.mark.parametrize("store", ["memory://", 7])
def test_a_store_that_can_not_be_used_is_refused(store: Any):
    with pytest.raises(UsageError, match="store is"):
        ResumableSession(Framework.CUSTOM, session_id="s", store=store)
    with pytest.raises(UsageError, match="SyncClient"):
        ResumableSession(Framework.CUSTOM, session_id="s", store=SyncClient.memory())


@pytest.mark.parametrize(
    "made", [lambda: Effect("odd"), lambda: Effect("read", probe=print), lambda: Effect("agent", approve="ann")]
)
def test_declarations_that_contradict_themselves_are_refused(made: Callable[[], Effect]):
    with pytest.raises(UsageError):
        made()


def test_a_digest_does_not_depend_on_addresses_or_order():
    class Something:
        pass

    assert digest({"a": 1, "b": Something}) == digest({"b": Something, "a": 1})
    assert digest([1]) != digest(["1"])


def test_a_model_call_that_is_tried_again_is_recorded_once(tmp_path: Path):
    asked: list[int] = []

    async def ask() -> str:
        asked.append(len(asked))
        if len(asked) == 1:
            raise ConnectionError("try again")
        return f"answer {len(asked)}"

    async def body(turn: FrameworkTurn) -> TurnEnd:
        for _ in range(2):
            try:
                first = await turn.call_model("agent", ["hi"], ask)
                break
            except ConnectionError:
                pass
        second = await turn.call_model("agent", ["hi"], ask)  # an equal question is another call
        if len(asked) == 3:
            asked.append(3)
            raise Killed
        return TurnEnd([first, second], None, {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(Killed):
                await session.take_turn("run", "go", None, body, str)
            assert await session.take_turn("run", "go", None, body, str) == ["answer 2", "answer 3"]
            assert len(asked) == 4

    asyncio.run(main())


def test_the_failure_of_an_effect_reads_the_same_in_every_life(tmp_path: Path):
    paid: list[str] = []

    async def pay(invoice: str) -> str:
        paid.append(invoice)
        raise ConnectionError("no route")

    async def body(turn: FrameworkTurn) -> TurnEnd:
        text = await turn.call_tool(
            "pay", {"invoice": "i-1"}, pay, call_id="c-1", failed=lambda error: f"failed: {error!r}"
        )
        if not lived:
            lived.append(text)
            raise Killed
        return TurnEnd(text, text, {})

    lived: list[str] = []

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, tools={"pay": "irreversible"})
            with pytest.raises(Killed):
                await session.take_turn("run", "go", None, body, str)
            assert await session.take_turn("run", "go", None, body, str) == lived[0]
            assert lived[0].startswith("failed: ")
            assert paid == ["i-1"]
            assert len(await client.effects("s", in_doubt=True)) == 1

    asyncio.run(main())


def test_an_effect_that_was_not_done_is_tried_again_by_a_later_life(tmp_path: Path):
    tries: list[str] = []
    lives: list[str] = []

    async def pay(invoice: str) -> str:
        tries.append(invoice)
        if len(tries) == 1:
            raise EffectNotDoneError("no route")
        return "paid"

    async def body(turn: FrameworkTurn) -> TurnEnd:
        texts = []
        for call_id in ("c-1", "c-2"):
            if call_id == "c-2" and not lives:
                lives.append("killed before the second try")
                raise Killed
            texts.append(await turn.call_tool("pay", {"invoice": "i-1"}, pay, call_id=call_id, failed=str))
        return TurnEnd(texts, texts, {})

    async def main() -> None:
        declared = {"pay": Effect("irreversible", key="invoice")}
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, tools=declared)
            with pytest.raises(Killed):
                await session.take_turn("run", "go", None, body, list)
            assert await session.take_turn("run", "go", None, body, list) == ["no route", "paid"]
            assert tries == ["i-1", "i-1"]

    asyncio.run(main())
