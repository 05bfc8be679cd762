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
from holdfast.adapters.base.turn import INTERRUPTED, FrameworkTurn, digest
from holdfast.errors import ApprovalPendingError, UnfinishedTurnError
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


def test_several_questions_wait_at_the_same_time(tmp_path: Path):
    async def body(turn: FrameworkTurn) -> TurnEnd:
        answers = await turn.request_approvals([("delete", {"path": "a"}, "c-1"), ("delete", {"path": "b"}, "c-2")])
        given = [one.is_approved for one in answers]
        return TurnEnd(given, given, {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(ApprovalPendingError):
                await session.take_turn("run", "go", None, body, str)
            first, second = await client.approvals("s")
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
