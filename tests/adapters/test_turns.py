"""Turns of a resumable session: what is recorded, what is replayed, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import NOT_DONE, Client, Done, Effect, SyncClient, UsageError
from holdfast.adapters.base import session as sessions
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import INTERRUPTED, CallPausedError, FrameworkTurn, TurnEndedError, digest
from holdfast.backends.bridge.step import run_inline, run_inline_context
from holdfast.errors import ApprovalPendingError, EffectNotDoneError, UnfinishedTurnError
from holdfast.model.framework import Framework
from holdfast.transcript import to_transcript


class Killed(BaseException):
    """Stands for the end of the process."""


class Agent:
    """A loop that calls the tools of a plan, one after the other, and counts what is really called."""

    def __init__(self, plan: list[tuple[str, dict[str, Any]]]) -> None:
        self.plan = plan
        self.called: list[str] = []
        self.killed_in: str | None = None

    def call(self, name: str) -> str:
        self.called.append(name)
        if self.killed_in == name:
            raise Killed
        return f"{name} ok"

    async def body(self, turn: FrameworkTurn) -> TurnEnd:
        messages = [*turn.state.get("messages", []), {"role": "user", "content": "go"}]
        start = len(messages)
        for number, (tool, arguments) in enumerate(self.plan):

            async def ask(number: int = number, tool: str = tool, arguments: dict[str, Any] = arguments) -> Any:
                self.call(f"model {number}")
                call = {"id": f"call-{number}", "name": tool, "args": arguments}
                return {"role": "assistant", "content": "", "tool_calls": [call]}

            messages.append(await turn.call_model("agent", messages, ask))

            async def use(tool: str = tool, **_: Any) -> str:
                return self.call(tool)

            result = await turn.call_tool(tool, arguments, use, call_id=f"call-{number}")
            messages.append({"role": "tool", "tool_call_id": f"call-{number}", "content": result})
        text = messages[-1]["content"] if len(messages) > start else ""
        return TurnEnd(text, text, {"messages": messages})


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Forget the turns that other tests have finished, as a new process has."""
    sessions._finished.clear()


def restart() -> None:
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
            agent.killed_in = None
            await take(client, agent, turn="first")()
            await take(client, agent, turn="second")()

    asyncio.run(main())


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
        from holdfast.backends.bridge.step import run_inline

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


def test_several_questions_wait_at_the_same_time(tmp_path: Path):
    async def body(turn: FrameworkTurn) -> TurnEnd:
        calls = [("delete", {"path": "a"}, "c-1"), ("delete", {"path": "b"}, "c-2")]
        answers = await turn.request_approvals(calls, summaries=["it is old", None])
        given = [one.is_approved for one in answers]
        return TurnEnd(given, given, {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(ApprovalPendingError):
                await session.take_turn("run", "go", None, body, str)
            first, second = await client.approvals("s")
            assert {one.arguments["path"]: one.summary for one in (first, second)} == {"a": "it is old", "b": None}
            await client.decide(second.approval_id, "reject", by="ann")
            with pytest.raises(ApprovalPendingError):
                await session.take_turn("run", "go", None, body, str)
            await client.decide(first.approval_id, "approve", by="ann")
            expected = [one.arguments["path"] == "a" for one in (first, second)]
            assert await session.take_turn("run", "go", None, body, str) == expected

    asyncio.run(main())


def test_an_open_turn_without_an_end_is_continued_by_the_same_call(tmp_path: Path):
    asked: list[str] = []

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            for life in range(2):
                async with session.open_turn("iter", "go", None) as opened:
                    async with opened.turn.open_model_call("agent", "hello") as call:
                        if call.answer is None:
                            asked.append("model")
                            await call.record("hi")
                    if life:
                        opened.end = TurnEnd("hi", "hi", {"messages": ["hi"]})
            restart()
            async with session.open_turn("iter", "go", None) as opened:
                assert (opened.turn, opened.recorded, session.state) == (None, "hi", {"messages": ["hi"]})
        assert asked == ["model"]

    asyncio.run(main())


def test_a_part_of_a_turn_counts_its_calls_on_its_own(tmp_path: Path):
    asked: list[str] = []

    async def body(turn: FrameworkTurn) -> TurnEnd:
        async def ask() -> str:
            asked.append("model")
            return f"answer {len(asked)}"

        first = await turn.open_part("b").call_model("agent", "hi", ask)
        again = await turn.open_part("b").call_model("agent", "hi", ask)  # the part runs again
        other = await turn.open_part("a").call_model("agent", "hi", ask)
        return TurnEnd([first, again, other], None, {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            assert await session.take_turn("run", "go", None, body, str) == ["answer 1", "answer 1", "answer 2"]

    asyncio.run(main())


def test_a_part_that_ends_the_turn_ends_all_of_it(tmp_path: Path):
    async def body(turn: FrameworkTurn) -> TurnEnd:
        try:
            await turn.open_part("a").request_approval("delete", {}, call_id="c-1")
        except BaseException:
            with pytest.raises(TurnEndedError):
                await turn.open_part("b").call_model("agent", "hi", lambda: "hi")
        return TurnEnd(None, None, {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(ApprovalPendingError):
                await session.take_turn("run", "go", None, body, str)

    asyncio.run(main())


def test_the_start_of_a_turn_may_be_saved_with_its_first_record(tmp_path: Path):
    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            await session.take_turn("run", "go", "first", Agent([]).body, str)
            before = await client.latest("s")
            async with session.open_turn("run", "go", "t", saves_start=False) as opened:
                assert not opened.turn.is_start_saved
            assert (await client.latest("s")).checkpoint_id == before.checkpoint_id
            with pytest.raises(Killed):
                async with session.open_turn("run", "go", "t", saves_start=False) as opened:
                    opened.turn.put_state({"place": 1})
                    await opened.turn.call_once("first", _nothing)
                    assert opened.turn.is_start_saved
                    raise Killed
            state = (await client.latest("s")).execution_state
            assert (state["turn"]["input"], state["place"]) == ("go", 1)
            with pytest.raises(UnfinishedTurnError):
                await session.take_turn("run", "go", "other", None, str)
            async with session.open_turn("run", "go", "t", saves_start=False) as opened:
                assert opened.turn.is_start_saved
                assert opened.turn.state["place"] == 1

    async def _nothing() -> None:
        pass

    asyncio.run(main())


def test_an_answer_that_is_recorded_is_known_before_it_is_asked_for(tmp_path: Path):
    known: list[bool] = []

    async def body(turn: FrameworkTurn) -> TurnEnd:
        known.append(turn.has_answer("delete", "c-1"))
        await turn.request_approval("delete", {}, call_id="c-1")
        if len(known) == 2:
            raise Killed
        return TurnEnd(None, None, {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(ApprovalPendingError):
                await session.take_turn("run", "go", None, body, str)
            [asked] = await client.approvals("s")
            await client.decide(asked.approval_id, "approve", by="ann")
            with pytest.raises(Killed):
                await session.take_turn("run", "go", None, body, str)
            await session.take_turn("run", "go", None, body, str)
            assert known == [False, False, True]

    asyncio.run(main())


def test_parts_of_one_name_are_told_apart_by_their_keys_in_whatever_order_they_begin(tmp_path: Path):
    begun: list[str] = []

    def body_of(order: str, *, is_cut_off: bool) -> Callable[[FrameworkTurn], Any]:
        async def body(turn: FrameworkTurn) -> TurnEnd:
            async def part(key: str) -> str:
                begun.append(key)
                return f"result of {key}"

            results = {}
            for key in order:
                results[key] = await turn.call_part("part", lambda key=key: part(key), key=key)
            if is_cut_off:
                raise Killed
            return TurnEnd(results, results, {})

        return body

    async def main() -> Any:
        async with Client.sqlite(tmp_path / "s.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(Killed):
                await session.take_turn("run", "go", None, body_of("ab", is_cut_off=True), lambda recorded: recorded)
            restart()
            return await session.take_turn("run", "go", None, body_of("ba", is_cut_off=False), lambda one: one)

    assert asyncio.run(main()) == {"a": "result of a", "b": "result of b"}
    assert begun == ["a", "b"]


def test_lists_that_grow_while_calls_are_recorded_lose_nothing(tmp_path: Path):
    async def grow(turn: FrameworkTurn) -> TurnEnd:
        async def note(number: int) -> None:
            await turn.append_to_state("more", {"messages": [{"n": number, "text": "x" * 1000}], "notes": [number]})

        async def call(number: int) -> None:
            await turn.call_once(f"part {number}", lambda: asyncio.sleep(0, "x" * 1000))

        for number in range(0, 60, 3):
            await asyncio.gather(*(one(number + more) for more in range(3) for one in (note, call)))
        return TurnEnd("done", "done", turn.state)

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            assert await session.take_turn("run", "go", None, grow, str) == "done"
            await session.append_to_state("late", {"messages": [{"n": 60}]})
            state = await session.load_state()
        assert [one["n"] for one in state["messages"]] == list(range(61))
        assert state["notes"] == list(range(60))

    asyncio.run(main())


def test_a_state_that_is_replaced_while_it_is_saved_is_saved_too(tmp_path: Path):
    session: ResumableSession

    async def replace(turn: FrameworkTurn) -> TurnEnd:
        for number in range(20):  # a journal that is long enough to be appended to
            await turn.call_once(f"part {number}", lambda: asyncio.sleep(0, "x" * 1000))
        messages = [{"n": number, "text": "x" * 1000} for number in range(20)]
        await turn.save_state("first", {"messages": messages})
        for waits in range(1, 10):  # the second save begins at another moment of the first
            messages = [*messages, {"n": len(messages)}]
            saving = asyncio.create_task(turn.save_state("one", {"messages": messages}))
            for _ in range(waits):
                await asyncio.sleep(0)
            messages = [*messages, {"n": len(messages)}]
            await turn.save_state("another", {"messages": messages})
            await saving
            assert (await session.load_state())["messages"] == messages
        raise Killed

    async def main() -> None:
        nonlocal session
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(Killed):
                await session.take_turn("run", "go", None, replace, str)

    asyncio.run(main())


def test_a_stream_of_a_plain_session_that_is_closed_early_is_continued_by_the_same_call(tmp_path: Path):
    asked: list[int] = []

    def stream() -> Any:
        session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, is_async=False)
        with session.open_turn_sync("run", "go", None) as opened:
            assert opened.turn is not None
            for number in range(2):
                with run_inline_context(opened.turn.open_model_call("agent", number)) as call:
                    if call.answer is None:
                        asked.append(number)
                        run_inline(call.record(f"answer {number}"))
                    yield f"answer {number}" if call.answer is None else call.answer
            opened.end = TurnEnd("done", "done", {})

    with SyncClient.sqlite(tmp_path / "store.db") as client:
        events = stream()
        assert next(events) == "answer 0"
        events.close()  # the reader stops
        assert list(stream()) == ["answer 0", "answer 1"]
        assert asked == [0, 1]
        session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, is_async=False)
        restart()
        with session.open_turn_sync("run", "go", None) as opened:
            assert (opened.turn, opened.recorded) == (None, "done")
        with pytest.raises(ValueError, match="raised within"), session.open_turn_sync("run", "go", "2"):
            raise ValueError("raised within")
