"""Agents of Strands: turns, tools, interrupts, forks, transcripts, states saved by hand."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("strands")

from pydantic import BaseModel
from strands import Agent, Snapshot, ToolContext, tool
from strands.agent.conversation_manager import NullConversationManager, SlidingWindowConversationManager
from strands.hooks import AfterModelCallEvent, BeforeToolCallEvent
from strands.session import SnapshotSessionManager
from strands.storage import InMemoryStorage
from strands.types.exceptions import ConcurrencyException, EventLoopException, MaxTokensReachedException
from strands.vended_interventions.hitl import HumanInTheLoop
from strands_model import FunctionModel, call, text_of
from strands_turns import calls_then_text, die_after, make_agent, said

from holdfast import NOT_DONE, Client, Done, Effect
from holdfast.adapters.base.turn import INTERRUPTED
from holdfast.errors import ApprovalPendingError, UnfinishedTurnError, UsageError
from holdfast.strands import extract, reconstruct, resumable
from holdfast.transcript import ReasoningPart, TextPart, ToolCallPart, ToolResponsePart, to_transcript


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


def echo() -> Agent:
    """Return an agent that says how many messages of its conversation it has been sent."""
    return make_agent(lambda messages: f"parrot {len(messages)}", name="parrot")


async def find_approval(url: str, session_id: str = "s") -> Any:
    async with Client.open(url) as client:
        [asked] = await client.approvals(session_id)
    return asked


async def decide(url: str, answer: str = "approve", **options: Any) -> None:
    async with Client.open(url) as client:
        for asked in await client.approvals("s"):
            await client.decide(asked.approval_id, answer, by="ann", **options)


# -- turns -------------------------------------------------------------------------------------------------------------


def test_a_finished_turn_returns_its_recorded_result(url):
    agent = echo()
    first = resumable(agent, session_id="s", store=url)("hello", turn="m1")
    again = resumable(agent, session_id="s", store=url)("hello", turn="m1")
    assert (said(again), again.stop_reason, again.message) == ("parrot 1", "end_turn", first.message)
    assert again.metrics.accumulated_usage == first.metrics.accumulated_usage
    assert len(agent.model.requests) == 1

    async def stream() -> list[Any]:
        return [event async for event in resumable(agent, session_id="s", store=url).stream_async("hello", turn="m1")]

    events = asyncio.run(stream())
    assert events[0]["data"] == "parrot 1\n"
    assert events[-1]["result"].message == first.message
    assert len(agent.model.requests) == 1


def test_turns_are_one_conversation_in_every_life_and_by_every_entry_point(url):
    assert said(resumable(echo(), session_id="s", store=url)("a")) == "parrot 1"

    async def main() -> None:
        target = resumable(echo(), session_id="s", store=url)
        assert said(await target.invoke_async("b")) == "parrot 3"
        assert said(target("c")) == "parrot 5"  # within a running event loop, as Strands allows
        texts = [event["data"] async for event in target.stream_async("d") if "data" in event]
        assert "".join(texts) == "parrot 7"
        assert said(await target.invoke_async([{"text": "e"}, {"text": "f"}])) == "parrot 9"
        assert said(await target.invoke_async([{"role": "user", "content": [{"text": "g"}]}])) == "parrot 11"

    asyncio.run(main())


def test_a_new_session_begins_without_what_another_one_has_left_in_the_agent(url):
    agent = echo()

    def say(session: str, text: str) -> str:  # as a server does, for each message
        return said(resumable(agent, session_id=session, store=url)(text))

    assert [say("ann", text) for text in "ab"] == ["parrot 1", "parrot 3"]
    assert [say("bob", text) for text in "ab"] == ["parrot 1", "parrot 3"]
    assert say("ann", "c") == "parrot 5"


def test_a_client_serves_calls_from_threads_and_event_loops(url):
    async def main() -> None:
        async with Client.open(url) as client:
            target = resumable(echo(), session_id="s", store=client)
            assert said(await target.invoke_async("a")) == "parrot 1"
            assert said(await asyncio.to_thread(target, "b")) == "parrot 3"

    asyncio.run(main())


def test_another_turn_is_refused_while_one_is_unfinished(url):
    def fail(_: Any) -> str:
        raise ConnectionError("the model is away")

    with pytest.raises(ConnectionError, match="away"):
        resumable(make_agent(fail), session_id="s", store=url)("a", turn="1")
    with pytest.raises(UnfinishedTurnError, match=r"turn=1.*turn=2"):
        resumable(echo(), session_id="s", store=url)("b", turn="2")
    assert said(resumable(echo(), session_id="s", store=url)("a", turn="1")) == "parrot 1"


def test_a_failed_turn_leaves_nothing_in_the_agent(url):
    failures = [ConnectionError("away")]

    def answer(messages: Sequence[Any]) -> str:
        if failures:
            raise failures.pop()
        return f"parrot {len(messages)}"

    target = resumable(make_agent(answer), session_id="s", store=url)
    with pytest.raises(ConnectionError):
        target("a")
    assert said(target("a")) == "parrot 1"  # the same object: the prompt is there once


def test_a_structured_answer_comes_back_in_its_type(url):
    class Weather(BaseModel):
        degrees: int

    def answer(messages: Sequence[Any]) -> Any:
        return [call("Weather", degrees=20)]

    agent = make_agent(answer)
    first = resumable(agent, session_id="s", store=url)("?", turn="1", structured_output_model=Weather)
    again = resumable(agent, session_id="s", store=url)("?", turn="1", structured_output_model=Weather)
    assert again.structured_output == first.structured_output == Weather(degrees=20)
    assert len(agent.model.requests) == 1


def test_a_structured_answer_that_was_recorded_is_parsed_again(url):
    class Weather(BaseModel):
        degrees: int

    class Killed(BaseException):
        pass

    def die(event: Any) -> None:
        if lives:
            raise lives.pop()

    lives: list[Any] = [Killed()]
    model = FunctionModel(lambda _: [call("Weather", degrees=20)])
    for _ in range(2):
        agent = make_agent(model, structured_output_model=Weather)
        agent.add_hook(die, AfterModelCallEvent)
        target = resumable(agent, session_id="s", store=url)
        if lives:
            with pytest.raises(Killed):
                target("?")
        else:
            assert target("?").structured_output == Weather(degrees=20)
    assert len(model.requests) == 1


def test_an_answer_that_was_cut_short_is_asked_for_again(url):
    class Short(FunctionModel):
        async def stream(self, *args: Any, **options: Any) -> Any:
            async for event in super().stream(*args, **options):
                yield {"messageStop": {"stopReason": "max_tokens"}} if "messageStop" in event else event

    with pytest.raises(MaxTokensReachedException):
        resumable(make_agent(Short(lambda _: "par")), session_id="s", store=url)("a")
    assert said(resumable(echo(), session_id="s", store=url)("a")) == "parrot 1"


@survives("models that keep the conversation at their provider", "refused")
def test_what_resumable_does_not_take_is_refused(url):
    with pytest.raises(UsageError, match="an Agent, a Graph or a Swarm of Strands, not a str"):
        resumable("agent", session_id="s", store=url)
    with pytest.raises(UsageError, match="has a session manager"):
        manager = SnapshotSessionManager("x", storage=InMemoryStorage())
        resumable(make_agent(lambda _: "", session_manager=manager), session_id="s", store=url)
    with pytest.raises(UsageError, match="responses to interrupts"):
        resumable(echo(), session_id="s", store=url)([{"interruptResponse": {"interruptId": "i", "response": "y"}}])
    with pytest.raises(UsageError, match="checkpointing"):
        agent = make_agent(calls_then_text(call("missing")), checkpointing=True)
        resumable(agent, session_id="s", store=url)("a")

    class Stateful(FunctionModel):
        @property
        def stateful(self) -> bool:
            return True

    with pytest.raises(UsageError, match="keeps the conversation at its provider"):
        resumable(make_agent(Stateful(lambda _: "")), session_id="s", store=url)


def test_an_agent_takes_one_turn_at_a_time(url):
    started, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await may_end.wait()
        return "waited"

    async def main() -> None:
        agent = make_agent(calls_then_text(call("wait")), wait)
        first = asyncio.create_task(resumable(agent, session_id="s", store=url).invoke_async("a"))
        await started.wait()
        with pytest.raises(ConcurrencyException, match="another turn"):
            await resumable(agent, session_id="other", store=url).invoke_async("b")
        may_end.set()
        assert said(await first) == "done: waited"

    asyncio.run(main())


@survives("the system prompt", "the program's own; not stored")
def test_the_system_prompt_is_the_programs_and_is_not_stored(url):
    for prompt in ("You are new here.", "You know it all."):
        agent = make_agent(lambda messages: "hello", system_prompt=prompt)
        resumable(agent, session_id="s", store=url)(f"hello {prompt}")
        assert agent.model.prompts == [prompt]

    async def read() -> Any:
        async with Client.open(url) as client:
            return (await client.latest("s")).execution_state

    assert "system_prompt" not in repr(asyncio.run(read()))


@survives("`agent.state` that a tool has changed", "changed again, without the tool")
def test_state_and_window_of_the_conversation_go_on(url):
    @tool(context=True)
    def count(tool_context: ToolContext) -> str:
        """Count."""
        counted = (tool_context.agent.state.get("count") or 0) + 1
        tool_context.agent.state.set("count", counted)
        tool_context.agent.state.delete("old")
        return str(counted)

    def make(answer: Any) -> Agent:
        window = SlidingWindowConversationManager(window_size=6)
        return make_agent(answer, count, conversation_manager=window, state={"old": 1})

    then = calls_then_text(call("count"))
    for number in range(1, 4):
        with pytest.raises(EventLoopException):  # after the tool has changed the state, and its result is recorded
            resumable(make(die_after(1, then)), session_id="s", store=url)("go", turn=str(number))
        agent = make(then)
        assert said(resumable(agent, session_id="s", store=url)("go", turn=str(number))) == f"done: {number}"
        assert agent.state.get() == {"count": number}
        assert len(agent.messages) + agent.conversation_manager.removed_message_count == 4 * number
    assert len(agent.messages) <= 6


# -- people ------------------------------------------------------------------------------------------------------------

ASKING = ("tool", "hook", "hitl")


def make_payer(asking: str, paid: list[int], tried: list[str]) -> Agent:
    """Return an agent that asks a person before it pays: in the tool, in a hook, or by Strands' own handler."""

    @tool(context=True)
    async def pay(invoice: int, tool_context: ToolContext) -> str:
        """Pay."""
        tried.append("pay")
        if asking == "tool" and tool_context.interrupt("may I", reason={"invoice": invoice}) != "y":
            return "denied by the tool"
        paid.append(invoice)
        return f"paid {invoice}"

    def approve(event: BeforeToolCallEvent) -> None:
        event.interrupt("may I", reason="it is dear")  # and whatever is said, the call is made

    agent = make_agent(
        calls_then_text(call("pay", "c-1", invoice=7)), pay, interventions=[HumanInTheLoop()] * (asking == "hitl")
    )
    if asking == "hook":
        agent.add_hook(approve, BeforeToolCallEvent)
    return agent


@survives("people's decisions", "kept; each question is asked once")
@pytest.mark.parametrize("declared", [None, {"pay": Effect("irreversible", key="invoice")}], ids=["", "declared"])
@pytest.mark.parametrize("asking", ASKING)
@pytest.mark.parametrize(
    ("answer", "options", "wanted"),
    [
        ("approve", {}, "done: paid 7"),
        ("modify", {"arguments": {"invoice": 8}}, "done: paid 8"),
        ("reject", {"note": "too dear"}, None),
    ],
    ids=["approve", "modify", "reject"],
)
def test_an_interrupt_waits_for_a_decision(url, asking, answer, options, wanted, declared):
    paid: list[int] = []
    tried: list[str] = []
    models: list[FunctionModel] = []

    def take() -> str:
        agent = make_payer(asking, paid, tried)
        models.append(agent.model)
        return said(resumable(agent, session_id="s", store=url, tools=declared)("pay"))

    with pytest.raises(ApprovalPendingError, match="pay"):
        take()
    with pytest.raises(ApprovalPendingError, match="pay"):
        take()  # still
    asked = asyncio.run(find_approval(url))
    assert (asked.call.tool, asked.arguments) == ("pay", {"invoice": 7})
    assert "may I" in asked.summary or "Approve" in asked.summary
    asyncio.run(decide(url, answer, **options))
    told = take()
    assert told == wanted or (wanted is None and told.startswith("done: "))
    assert paid == ([] if wanted is None else [int(wanted[-1])])
    if asking == "tool":
        assert tried == ["pay", "pay"][: 1 + (wanted is not None)]  # asked once, then carried out
    assert [len(model.requests) for model in models] == [1, 0, 1]


def test_another_process_decides_and_its_note_is_the_response(url, tmp_path):
    @tool(context=True)
    def choose(tool_context: ToolContext) -> str:
        """Choose."""
        return f"chosen: {tool_context.interrupt('which account?')}"

    def take() -> str:
        return said(resumable(make_agent(calls_then_text(call("choose")), choose), session_id="s", store=url)("go"))

    with pytest.raises(ApprovalPendingError):
        take()
    asked = asyncio.run(find_approval(url)).short_id
    shell = [sys.executable, "-m", "holdfast", "approve", asked, "-y", "--note", "savings", "--by", "ann"]
    subprocess.run([*shell, "--store", url], check=True, capture_output=True, cwd=tmp_path)
    assert take() == "done: chosen: savings"


def test_the_same_object_goes_on_after_a_decision_and_asks_a_second_question(url):
    @tool(context=True)
    def sign(tool_context: ToolContext) -> str:
        """Sign."""
        return " ".join(tool_context.interrupt(f"question {number}") for number in (1, 2))

    target = resumable(make_agent(calls_then_text(call("sign")), sign), session_id="s", store=url)
    for note in ("one", "two"):
        with pytest.raises(ApprovalPendingError):
            target("go")
        asyncio.run(decide(url, note=note))
    assert said(target("go")) == "done: one two"


def test_an_interrupt_of_an_agent_that_is_a_tool_names_the_inner_call(url):
    paid: list[int] = []

    def take() -> str:
        helper = make_payer("tool", paid, [])
        helper.name = "payer"
        clerk = make_agent(calls_then_text(call("payer", "c-0", input="pay it")), helper, name="clerk")
        return said(resumable(clerk, session_id="s", store=url)("go"))

    with pytest.raises(ApprovalPendingError, match="pay"):
        take()
    asked = asyncio.run(find_approval(url))
    assert (asked.call.tool, asked.arguments) == ("pay", {"invoice": 7})
    asyncio.run(decide(url))
    assert take() == "done: done: paid 7"
    assert paid == [7]


def test_an_effect_that_needs_approval_ends_the_turn(url):
    paid: list[int] = []

    @tool
    def pay(invoice: int) -> str:
        """Pay."""
        paid.append(invoice)
        return f"paid {invoice}"

    declared = {"pay": Effect("irreversible", key="invoice", approve="finance", probe=lambda invoice: NOT_DONE)}

    def take() -> str:
        agent = make_agent(calls_then_text(call("pay", invoice=7)), pay)
        return said(resumable(agent, session_id="s", store=url, tools=declared)("pay"))

    with pytest.raises(ApprovalPendingError):
        take()
    asyncio.run(decide(url))
    assert take() == "done: paid 7"
    assert paid == [7]


def test_a_probe_answers_for_a_payment_that_was_cut_off(url):
    class Killed(BaseException):
        pass

    paid: list[int] = []

    @tool
    async def pay(invoice: int) -> str:
        """Pay."""
        paid.append(invoice)
        raise Killed

    declared = {"pay": Effect("irreversible", key="invoice", probe=lambda invoice: Done({"receipt": invoice}))}
    then = calls_then_text(call("pay", invoice=7))
    with pytest.raises(Killed):
        resumable(make_agent(then, pay), session_id="s", store=url, tools=declared)("pay")
    result = resumable(make_agent(then, pay), session_id="s", store=url, tools=declared)("pay")
    assert said(result) == 'done: {"receipt": 7}'
    assert paid == [7]


# -- forks, transcripts, states saved by hand --------------------------------------------------------------------------


def test_a_fork_is_a_second_conversation_over_the_same_history(url):
    resumable(echo(), session_id="s", store=url)("a", turn="1")

    async def fork() -> None:
        async with Client.open(url) as client:
            await client.fork("s", session_id="try-2")

    asyncio.run(fork())
    assert said(resumable(echo(), session_id="try-2", store=url)("b", turn="2")) == "parrot 3"
    assert said(resumable(echo(), session_id="s", store=url)("c", turn="3")) == "parrot 3"


def test_a_conversation_reads_well_finished_or_cut_off(url):
    @tool
    def look() -> dict[str, Any]:
        """Look it up."""
        return {"status": "success", "content": [{"json": {"sky": "blue"}}]}

    reasoning = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s1"}}}
    then = calls_then_text(call("look"))

    def answer(messages: Sequence[Any]) -> Any:
        made = then(messages)
        return [reasoning, {"text": "I look"}, *made] if isinstance(made, list) else made

    async def read() -> list[Any]:
        async with Client.open(url) as client:
            transcript = to_transcript(await client.latest("s"))
        assert not transcript.open_calls
        return list(transcript)

    with pytest.raises(EventLoopException):
        resumable(make_agent(die_after(1, answer), look), session_id="s", store=url)("weather?")
    cut = asyncio.run(read())
    resumable(make_agent(answer, look), session_id="s", store=url)("weather?")
    whole = asyncio.run(read())
    assert [one.role for one in whole] == ["user", "assistant", "tool", "assistant"]
    assert whole[1].parts == (
        ReasoningPart(content="hm", signature="s1"),
        TextPart(content="I look"),
        ToolCallPart(id="call-look", name="look", arguments={}),
    )
    assert whole[2].parts == (ToolResponsePart(id="call-look", content=(TextPart(content='{"sky": "blue"}'),)),)
    assert [one.parts for one in cut[:2]] == [one.parts for one in whole[:2]]
    assert cut[2].parts[0].content == whole[2].parts[0].content


@pytest.mark.parametrize("kind", ["agent", "snapshot"])
def test_a_conversation_saved_by_hand_goes_on(url, kind):
    agent = make_agent(lambda messages: f"parrot {len(messages)}", conversation_manager=NullConversationManager())
    agent("a")
    native = agent if kind == "agent" else agent.take_snapshot(preset="session", include=["system_prompt"])
    checkpoint = extract(native, agent_id="x", session_id="s", context={"who": "me"})

    async def save() -> Any:
        async with Client.open(url) as client:
            return await client.restore(await client.save_checkpoint(checkpoint))

    found = asyncio.run(save())
    assert found.agent_context == {"who": "me"}
    assert [one.role for one in to_transcript(found)] == ["user", "assistant"]
    assert said(reconstruct(found, echo())("b")) == "parrot 3"  # with another conversation manager
    assert said(resumable(echo(), session_id="s", store=url)("b")) == "parrot 3"
    with pytest.raises(UsageError, match="not a dict"):
        extract({}, agent_id="x", session_id="s")
    with pytest.raises(UsageError, match="not a str"):
        reconstruct(found, "agent")


def test_a_conversation_with_an_open_call_or_question_is_reconstructed_truthfully_or_refused():
    paid: list[int] = []
    waiting = make_payer("tool", paid, [])
    assert waiting("pay").stop_reason == "interrupt"
    with pytest.raises(UsageError, match="waits for an answer"):
        extract(waiting, agent_id="x", session_id="s")
    with pytest.raises(UsageError, match="waits for an answer"):
        extract(waiting.take_snapshot(preset="session"), agent_id="x", session_id="s")
    dangling = Snapshot.from_dict(waiting.take_snapshot(include=["messages"]).to_dict())  # as it is after a kill
    other = make_payer("none", paid, [])
    reconstruct(extract(dangling, agent_id="x", session_id="s"), other)
    assert said(other()) == f"done: {INTERRUPTED}"
    assert text_of(other.messages[0]) == "pay"
    assert not paid
