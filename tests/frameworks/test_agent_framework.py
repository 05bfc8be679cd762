"""Agents of agent-framework: turns, tools, approvals, forks, transcripts, and its own history provider."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("agent_framework")

from agent_framework import Agent, AgentSession, ContextProvider, FunctionMiddleware, Message, tool
from agent_framework_model import FunctionClient, call, results_since_user
from pydantic import BaseModel

from holdfast import Client, Effect
from holdfast.agent_framework import HoldfastHistoryProvider, extract, reconstruct, resumable
from holdfast.errors import ApprovalPendingError, UnfinishedTurnError, UsageError
from holdfast.transcript import to_transcript


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


def answer_once_called(*calls: Any) -> FunctionClient:
    """Return a client that makes these calls in each turn, one after the other, then says what they returned."""

    def answer(messages: Sequence[Any]) -> Any:
        results = results_since_user(messages)
        return [calls[len(results)]] if len(results) < len(calls) else f"done: {', '.join(results)}"

    return FunctionClient(answer)


def echo(name: str = "parrot") -> Agent:
    """Return an agent that says how many messages of its conversation it has been sent."""
    return Agent(FunctionClient(lambda messages: f"{name} {len(messages)}"), name=name)


def fail(_: Any) -> str:
    raise ConnectionError("the model is away")


# -- turns -------------------------------------------------------------------------------------------------------------


def test_a_finished_turn_returns_its_recorded_response(url):
    async def main() -> None:
        agent = echo()
        first = await resumable(agent, session_id="s", store=url).run("hello", turn="m1")
        again = await resumable(agent, session_id="s", store=url).run("hello", turn="m1")
        assert again.to_dict() == first.to_dict()
        assert len(agent.client.requests) == 1
        stream = resumable(agent, session_id="s", store=url).run("hello", stream=True, turn="m1")
        assert [update.text async for update in stream] == ["parrot 1"]
        assert (await stream.get_final_response()).to_dict() == first.to_dict()

    asyncio.run(main())


def test_turns_are_one_conversation_in_every_life(url):
    async def main() -> None:
        assert (await resumable(echo(), session_id="s", store=url).run("a", turn="1")).text == "parrot 1"
        agent = echo()
        one, other = (resumable(agent, session_id=name, store=url) for name in ("s", "other"))
        said = await asyncio.gather(one.run("b", turn="2"), other.run("x", turn="1"))  # at the same time
        assert [response.text for response in said] == ["parrot 3", "parrot 1"]
        stream = one.run("c", stream=True, turn="3")
        assert "".join([update.text async for update in stream]) == "parrot 5"

    asyncio.run(main())


def test_another_turn_is_refused_while_one_is_unfinished(url):
    async def main() -> None:
        with pytest.raises(ConnectionError, match="away"):
            await resumable(Agent(FunctionClient(fail), name="a"), session_id="s", store=url).run("a", turn="1")
        with pytest.raises(UnfinishedTurnError, match=r"turn=1.*turn=2"):
            await resumable(echo(), session_id="s", store=url).run("b", turn="2")
        assert (await resumable(echo(), session_id="s", store=url).run("a", turn="1")).text == "parrot 1"

    asyncio.run(main())


def test_a_structured_answer_comes_back_in_its_type(url):
    class Weather(BaseModel):
        degrees: int

    async def main() -> None:
        agent = Agent(FunctionClient(lambda _: '{"degrees": 20}'), name="w")
        options = {"response_format": Weather}
        first = await resumable(agent, session_id="s", store=url).run("?", turn="1", options=options)
        again = await resumable(agent, session_id="s", store=url).run("?", turn="1", options=options)
        assert again.value == first.value == Weather(degrees=20)

    asyncio.run(main())


def test_what_resumable_does_not_take_is_refused(url):
    with pytest.raises(UsageError, match="an Agent or a Workflow of agent-framework, not a str"):
        resumable("agent", session_id="s", store=url)
    with pytest.raises(UsageError, match="session= can't be given"):
        resumable(echo(), session_id="s", store=url).run("a", session=AgentSession())


def test_what_is_changed_in_memory_or_by_others_between_turns(url):
    """A model and a user change messages in place, another process rolls back: the store tells the conversation."""
    seen: list[list[str]] = []

    def answer(messages: Sequence[Any]) -> str:
        seen.append([one.text for one in messages])
        for one in messages[:-1]:
            one.contents[0].text = "changed by the model"
        return f"answer {len(seen)}"

    async def main() -> None:
        async with Client.open(url) as client:
            agent = resumable(Agent(FunctionClient(answer), name="a"), session_id="s", store=client)
            for number in range(3):
                response = await agent.run(f"prompt {number + 1}")
                response.messages[0].contents[0].text = "changed by the user"
                response.messages[0].additional_properties["changed"] = True
                if number == 0:
                    first = (await client.latest("s")).checkpoint_id
            assert seen[2] == ["prompt 1", "answer 1", "prompt 2", "answer 2", "prompt 3"]
            async with Client.open(url) as another:
                await another.rollback("s", to=first)
            await agent.run("prompt 4")
            assert seen[3] == ["prompt 1", "answer 1", "prompt 4"]

    asyncio.run(main())


def test_a_misspelt_tool_is_refused(url):
    @tool
    def search(query: str) -> str:
        return query

    @tool
    def pay(amount: int) -> str:
        return "paid"

    clerk = Agent(FunctionClient(lambda _: "done"), name="clerk", tools=[pay])
    agent = Agent(FunctionClient(lambda _: "done"), name="a", tools=[search, clerk.as_tool()])

    async def main() -> None:
        misspelt = resumable(agent, session_id="s", store=url, tools={"serch": "read"})
        with pytest.raises(UsageError, match=r"'serch'.*Did you mean 'search'.*'clerk', 'pay', 'search'"):
            await misspelt.run("hello")
        async with Client.open(url) as client:
            assert await client.latest("s") is None
        right = resumable(agent, session_id="s", store=url, tools={"search": "read", "pay": "read", "late": "read"})
        await right.run("hello", tools=[tool(print, name="late")])
        agent.context_providers.append(ContextProvider("further"))  # which may bring tools
        await resumable(agent, session_id="s", store=url, tools={"other": "read"}).run("hello again")

    asyncio.run(main())


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
        client = answer_once_called(call("quick"), call("slow"))
        return resumable(Agent(client, name="a", tools=[quick, slow]), session_id="s", store=url)

    async def main() -> None:
        stream = make().run("go", stream=True)
        reader = asyncio.create_task(stream.get_final_response())
        await under_way.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        response = await make().run("go")
        assert calls == ["quick", "slow"]
        assert "interrupted, and its outcome is unknown" in response.text

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

    def answer(messages: Sequence[Any]) -> Any:
        if not results_since_user(messages):
            return [call("pay", invoice=7)]
        raise OSError("killed")

    async def main() -> None:
        dying = Agent(FunctionClient(answer), name="a", tools=[pay])
        with pytest.raises(OSError, match="killed"):
            await resumable(dying, session_id="s", store=url, tools=declared).run("pay")
        agent = Agent(answer_once_called(call("pay", invoice=7)), name="a", tools=[pay])
        response = await resumable(agent, session_id="s", store=url, tools=declared).run("pay")
        assert "Error" in response.text

    asyncio.run(main())
    assert attempts == [7]


@survives("agents that are tools (`as_tool`)", "their own calls are replayed")
def test_middleware_and_agents_that_are_tools_work_inside_and_outside_a_turn(url):
    seen: list[str] = []

    class Watch(FunctionMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            seen.append(context.function.name)
            await call_next()

    def make() -> Agent:
        helper = echo("helper")
        client = answer_once_called(call("helper", task="how many?"))
        return Agent(client, name="clerk", tools=[helper.as_tool()], middleware=[Watch()])

    async def main() -> None:
        agent = make()
        assert (await resumable(agent, session_id="s", store=url).run("a")).text == "done: helper 1"
        assert (await agent.run("b")).text == "done: helper 1"
        assert seen == ["helper", "helper"]
        async with Client.open(url) as client:
            names = {one.step_name for one in await client.timeline("s")}
        assert {"clerk", "helper", "run"} <= names

    asyncio.run(main())


# -- people ------------------------------------------------------------------------------------------------------------


@survives("people's decisions", "kept; each question is asked once")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["approve", "-y"], "done: paid 7"),
        (["approve", "-y", "--modify", '{"invoice": 8}'], "done: paid 8"),
        (["reject"], "done: Error: Tool call invocation was rejected by user."),
    ],
)
def test_a_call_that_needs_approval_waits_for_another_process(url, tmp_path, words, said):
    paid: list[int] = []

    @tool(approval_mode="always_require")
    async def pay(invoice: int) -> str:
        """Pay."""
        paid.append(invoice)
        return f"paid {invoice}"

    def answer(messages: Sequence[Any]) -> Any:
        results = results_since_user(messages)
        return f"done: {results[-1]}" if results else [call("pay", invoice=7)]

    def take() -> Any:
        agent = Agent(FunctionClient(answer), name="a", tools=[pay])
        return asyncio.run(resumable(agent, session_id="s", store=url).run("pay"))

    with pytest.raises(ApprovalPendingError, match="pay"):
        take()
    assert not paid

    async def find() -> str:
        async with Client.open(url) as client:
            [asked] = await client.approvals("s")
            assert asked.arguments == {"invoice": 7}
            return asked.short_id

    command, *options = words
    shell = [sys.executable, "-m", "holdfast", command, asyncio.run(find()), *options, "--by", "ann", "--store", url]
    subprocess.run(shell, check=True, capture_output=True, cwd=tmp_path)
    response = take()
    assert response.text == said
    assert len(paid) == (command == "approve")


# -- forks, transcripts, states saved by hand, history -----------------------------------------------------------------


def test_a_fork_is_a_second_conversation_over_the_same_history(url):
    async def main() -> None:
        await resumable(echo(), session_id="s", store=url).run("a", turn="1")
        async with Client.open(url) as client:
            await client.fork("s", session_id="try-2")
        assert (await resumable(echo(), session_id="try-2", store=url).run("b", turn="2")).text == "parrot 3"
        assert (await resumable(echo(), session_id="s", store=url).run("c", turn="3")).text == "parrot 3"

    asyncio.run(main())


def test_a_conversation_reads_well_finished_or_cut_off(url):
    @tool
    async def look() -> str:
        """Look it up."""
        return "sunny"

    def stop(messages: Sequence[Any]) -> Any:
        if results_since_user(messages):
            raise ConnectionError("away")
        return [call("look")]

    def make(client: FunctionClient) -> Any:
        return resumable(Agent(client, name="guide", tools=[look]), session_id="s", store=url)

    async def read() -> list[tuple[str, str]]:
        async with Client.open(url) as client:
            transcript = to_transcript(await client.latest("s"))
        assert not transcript.open_calls
        return [(one.role, one.text or str([type(part).__name__ for part in one.parts])) for one in transcript]

    async def main() -> None:
        cut = [("user", "weather?"), ("assistant", "['ToolCallPart']"), ("tool", "['ToolResponsePart']")]
        with pytest.raises(ConnectionError):
            await make(FunctionClient(stop)).run("weather?")
        assert await read() == cut
        await make(answer_once_called(call("look"))).run("weather?")
        assert await read() == [*cut, ("assistant", "done: sunny")]

    asyncio.run(main())


def test_a_session_saved_by_hand_goes_on(url):
    async def main() -> None:
        agent, session = echo(), AgentSession(session_id="mine")
        await agent.run("a", session=session)
        checkpoint = extract(session, agent_id="x", session_id="s", context={"who": "me"})
        async with Client.open(url) as client:
            found = await client.restore(await client.save_checkpoint(checkpoint))
        assert found.agent_context == {"who": "me"}
        assert [one.role for one in to_transcript(found)] == ["user", "assistant"]
        assert (await agent.run("b", session=reconstruct(found, agent))).text == "parrot 3"
        assert (await resumable(echo(), session_id="s", store=url).run("b")).text == "parrot 3"

    asyncio.run(main())
    with pytest.raises(UsageError, match="takes an AgentSession or a WorkflowCheckpoint, not a dict"):
        extract({}, agent_id="x", session_id="s")


def test_the_history_provider_keeps_a_conversation(url):
    async def main() -> None:
        for number, wanted in ((1, "parrot 1"), (2, "parrot 3")):
            history = HoldfastHistoryProvider(store=url)
            agent = Agent(
                FunctionClient(lambda messages: f"parrot {len(messages)}"), name="a", context_providers=[history]
            )
            response = await agent.run(f"hello {number}", session=agent.create_session(session_id="chat"))
            assert response.text == wanted
            assert [type(one) for one in await history.get_messages("chat")] == [Message] * 2 * number
            await history.close()
        async with Client.open(url) as client:
            told = to_transcript(await client.latest("chat"))
        assert [one.text for one in told] == ["hello 1", "parrot 1", "hello 2", "parrot 3"]
        with pytest.raises(UsageError, match="no session"):
            await HoldfastHistoryProvider(store=url).get_messages(None)

    asyncio.run(main())
