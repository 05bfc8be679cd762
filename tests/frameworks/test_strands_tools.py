"""Tools of resumable Strands agents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from framework_environments import require
from stored_steps import wait_for_step
from survives import survives

require("strands")

from strands import Agent, ToolContext, tool
from strands.middleware import ExecuteToolStage, InvokeModelStage
from strands.types.exceptions import EventLoopException
from strands_model import call, results_since_user
from strands_turns import calls_then_text, die_after, make_agent, said

from holdfast import Client, Effect
from holdfast.adapters.base.turn import INTERRUPTED
from holdfast.errors import UsageError
from holdfast.strands import resumable
from holdfast.transcript import BlobPart, TextPart, to_transcript

PICTURE = bytes(range(256))


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


# -- tools -------------------------------------------------------------------------------------------------------------


@survives("an undeclared tool under way", "not repeated; the model reads that it was interrupted")
def test_a_tool_that_was_under_way_is_not_repeated(url):
    calls: list[str] = []
    under_way = asyncio.Event()

    @tool
    async def quick() -> str:
        """Take no time."""
        calls.append("quick")
        return "quick"

    @tool
    async def slow() -> str:
        """Take long."""
        calls.append("slow")
        under_way.set()
        await asyncio.sleep(30)
        return "never"

    def make() -> Any:
        agent = make_agent(calls_then_text(call("quick"), call("slow")), quick, slow)
        return resumable(agent, session_id="s", store=url)

    async def main() -> None:
        reader = asyncio.create_task(make().invoke_async("go"))
        await under_way.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        result = await make().invoke_async("go")
        assert calls == ["quick", "slow"]
        assert "interrupted, and its outcome is unknown" in said(result)

    asyncio.run(main())


@survives("a tool that failed", "the model reads the failure; not repeated")
@pytest.mark.parametrize(
    "declared", [None, {"pay": Effect("irreversible", key="invoice", not_done=(ConnectionError,))}]
)
def test_a_failure_of_a_tool_reaches_the_model_once(url, declared):
    attempts: list[int] = []

    @tool
    async def pay(invoice: int) -> str:
        """Pay."""
        attempts.append(invoice)
        raise ConnectionError("no route to the bank")

    then = calls_then_text(call("pay", invoice=7))
    with pytest.raises(EventLoopException):
        resumable(make_agent(die_after(1, then), pay), session_id="s", store=url, tools=declared)("pay")
    result = resumable(make_agent(then, pay), session_id="s", store=url, tools=declared)("pay")
    assert said(result) == "done: Error: ConnectionError - no route to the bank"
    assert attempts == [7]


def test_declarations_on_functions_and_streams_of_tools_are_seen(url):
    paid: list[int] = []

    @tool
    @Effect("irreversible", key="invoice")
    async def pay(invoice: int) -> Any:
        """Pay."""
        yield "connecting"
        paid.append(invoice)
        yield f"paid {invoice}"

    async def main() -> None:
        target = resumable(
            make_agent(calls_then_text(call("pay", "1", invoice=7), call("pay", "2", invoice=7)), pay),
            session_id="s",
            store=url,
        )
        events = [event async for event in target.stream_async("pay")]
        streamed = [one["tool_stream_event"]["data"] for one in events if "tool_stream_event" in one]
        assert streamed == ["connecting", "paid 7"]
        assert paid == [7]  # the second call is the same effect
        assert said(events[-1]["result"]).startswith("done: paid 7, ")

    asyncio.run(main())


@survives("`invocation_state`", "not stored: pass it again")
def test_the_invocation_state_is_the_callers_in_every_life(url):
    @tool(context=True)
    def whoami(tool_context: ToolContext) -> str:
        """Say who asks."""
        tool_context.invocation_state["seen"] = True
        return tool_context.invocation_state["user"]

    then = calls_then_text(call("whoami"))
    given: dict[str, Any] = {"user": "ann", "connection": object()}  # which can't be stored
    with pytest.raises(EventLoopException):
        resumable(make_agent(die_after(1, then), whoami), session_id="s", store=url)("go", invocation_state=given)
    assert given["seen"]
    given = {"user": "ben"}
    result = resumable(make_agent(then, whoami), session_id="s", store=url)("go", invocation_state=given)
    assert said(result) == "done: ann"
    assert "seen" not in given  # the tool is not called again


def test_a_tool_that_is_declared_to_run_in_every_life_does(url):
    cart: list[str] = []

    @tool
    def add(item: str) -> str:
        """Add to the cart."""
        cart.append(item)
        return f"{len(cart)} in the cart"

    then, declared = calls_then_text(call("add", item="book")), {"add": "agent"}
    with pytest.raises(EventLoopException):
        resumable(make_agent(die_after(1, then), add), session_id="s", store=url, tools=declared)("go")
    cart.clear()  # with the process
    assert said(resumable(make_agent(then, add), session_id="s", store=url, tools=declared)("go")) == (
        "done: 1 in the cart"
    )
    assert cart == ["book"]


@survives("bytes in messages", "kept exactly")
def test_bytes_in_messages_are_kept_exactly(url):
    @tool
    def photograph() -> dict[str, Any]:
        """Take a picture."""
        return {"status": "success", "content": [{"image": {"format": "png", "source": {"bytes": PICTURE}}}]}

    hidden = {"reasoningContent": {"redactedContent": PICTURE}}
    then = calls_then_text(call("photograph"))

    def answer(messages: Sequence[Any]) -> Any:
        made = then(messages)
        return [hidden, *made] if isinstance(made, list) else made

    prompt = [{"text": "look at this"}, {"image": {"format": "png", "source": {"bytes": PICTURE}}}]
    with pytest.raises(EventLoopException):
        resumable(make_agent(die_after(1, answer), photograph), session_id="s", store=url)(prompt)
    agent = make_agent(answer, photograph)
    resumable(agent, session_id="s", store=url)(prompt)
    asked, called, shown = agent.model.requests[0]
    assert asked["content"] == prompt
    assert called["content"][0] == hidden
    assert shown["content"][0]["toolResult"]["content"][0]["image"]["source"]["bytes"] == PICTURE

    async def read() -> list[Any]:
        async with Client.open(url) as client:
            return list(to_transcript(await client.latest("s")))

    told = asyncio.run(read())
    assert told[0].parts == (TextPart(content="look at this"), BlobPart(mime_type="image/png", data=PICTURE))


def test_a_misspelt_tool_is_refused(url):
    @tool
    def search(query: str) -> str:
        """Search."""
        return query

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    helper = make_agent(lambda _: "1", pay, name="helper")
    agent = make_agent(lambda _: "1", search, helper)
    with pytest.raises(UsageError, match=r"'serch'.*Did you mean 'search'.*It has 'helper', 'pay', 'search'"):
        resumable(agent, session_id="s", store=url, tools={"serch": "read"})("hi")

    async def is_empty() -> bool:
        async with Client.open(url) as client:
            return await client.latest("s") is None

    assert asyncio.run(is_empty())
    assert said(resumable(agent, session_id="s", store=url, tools={"search": "read", "pay": "irreversible"})("hi"))


@survives("agents that are tools", "their own calls are replayed")
def test_middleware_hooks_and_agents_that_are_tools_work_inside_and_outside_a_turn(url):
    seen: list[str] = []

    async def watch(context: Any, next_fn: Any) -> Any:
        seen.append(context.tool_use["name"] if hasattr(context, "tool_use") else "model")
        async for event in next_fn(context):
            yield event

    def make(answer: Any) -> Agent:
        helper = make_agent(lambda messages: f"helper {len(messages)}", name="helper")
        agent = make_agent(answer, helper, name="clerk")
        agent.add_middleware(InvokeModelStage, watch)
        agent.add_middleware(ExecuteToolStage, watch)
        return agent

    then = calls_then_text(call("helper", input="how many?"))
    with pytest.raises(EventLoopException):
        resumable(make(die_after(1, then)), session_id="s", store=url)("a")
    agent = make(then)
    assert said(resumable(agent, session_id="s", store=url)("a")) == "done: helper 1"
    assert seen == ["model", "helper", "model"] * 2
    assert len(agent.model.requests) == 1
    assert not agent.tool_registry.registry["helper"].agent.model.requests  # its recorded answer was used
    assert said(agent("b")) == "done: helper 1"  # outside a turn

    async def names() -> set[str]:
        async with Client.open(url) as client:
            return {one.step_name for one in await client.timeline("s")}

    assert {"clerk", "helper", "invoke"} <= asyncio.run(names())


def test_an_agent_that_remembers_its_calls_as_a_tool_goes_on(url):
    def make() -> Any:
        helper = make_agent(lambda messages: f"helper {len(messages)}", name="helper")
        clerk = make_agent(calls_then_text(call("helper", input="?")), helper.as_tool(preserve_context=True))
        return resumable(clerk, session_id="s", store=url)

    assert said(make()("a", turn="1")) == "done: helper 1"
    assert said(make()("b", turn="2")) == "done: helper 3"


@survives("a call without a result in a history of yours", "not carried out; the model reads that it was interrupted")
def test_a_call_without_result_at_the_end_of_a_history_is_not_carried_out(url):
    paid: list[int] = []

    @tool
    def pay(invoice: int) -> str:
        """Pay."""
        paid.append(invoice)
        return "paid"

    dangling = [
        {"role": "user", "content": [{"text": "pay"}]},
        {"role": "assistant", "content": [call("pay", "c-1", invoice=7)]},
    ]
    control = make_agent(calls_then_text(call("pay", invoice=7)), pay, messages=[dict(one) for one in dangling])
    control()
    assert paid == [7]  # Strands carries it out, though it may have been carried out before
    agent = make_agent(lambda messages: f"told: {results_since_user(messages)[-1]}", pay, messages=dangling)
    assert said(resumable(agent, session_id="s", store=url)()) == f"told: {INTERRUPTED}"
    assert paid == [7]


def test_a_model_that_reads_parallel_results_is_not_asked_again(url):
    """In the first life the second tool ends first; the next one replays both at once."""
    sealed: list[str] = []

    @tool
    def first() -> str:
        """Return late."""
        wait_for_step(url, "second")
        return "one"

    @tool
    def second() -> str:
        """Return early."""
        return "two"

    @tool
    def seal(what: str) -> str:
        """Seal."""
        sealed.append(what)
        return f"sealed {what}"

    def answer(messages: Sequence[Any]) -> Any:
        results = results_since_user(messages)
        if not results:
            return [call("first"), call("second")]
        return [call("seal", what="it")] if len(results) == 2 else "concluded"

    with pytest.raises(EventLoopException):
        agent = make_agent(die_after(3, answer), first, second, seal)
        asyncio.run(resumable(agent, session_id="s", store=url).invoke_async("go"))
    agent = make_agent(answer, first, second, seal)
    assert said(asyncio.run(resumable(agent, session_id="s", store=url).invoke_async("go"))) == "concluded"
    assert (len(agent.model.requests), sealed) == (1, ["it"])
