"""AutoGen agents and teams: turns, tools, people, forks, transcripts, and states saved by hand."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("autogen")

from autogen_agentchat.agents import (
    AssistantAgent,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import SingleThreadedAgentRuntime
from autogen_core.models import FunctionExecutionResultMessage
from autogen_model import FunctionModel, call
from autogen_turns import answer_once_called, texts
from pydantic import BaseModel

from holdfast import Client
from holdfast.autogen import extract, reconstruct, resumable
from holdfast.errors import ApprovalPendingError, UnfinishedTurnError, UsageError
from holdfast.transcript import to_transcript


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


def echo(name: str = "parrot") -> AssistantAgent:
    """Return an agent that says how many messages of its conversation it has been sent."""
    return AssistantAgent(name, FunctionModel(lambda messages: f"{name} {len(messages) - 1}"))


# -- turns -------------------------------------------------------------------------------------------------------------


@survives("ids and times of messages", "new ones, until the turn is finished")
def test_a_finished_turn_returns_its_recorded_result(url):
    async def main() -> None:
        agent = echo()
        first = await resumable(agent, session_id="s", store=url).run(task="hello", turn="m1")
        again = await resumable(agent, session_id="s", store=url).run(task="hello", turn="m1")
        assert again == first
        assert len(agent._model_client.requests) == 1
        streamed = [
            one async for one in resumable(agent, session_id="s", store=url).run_stream(task="hello", turn="m1")
        ]
        assert streamed == [*first.messages, first]

    asyncio.run(main())


def test_turns_are_one_conversation_in_every_life(url):
    async def main() -> None:
        assert texts(await resumable(echo(), session_id="s", store=url).run(task="a", turn="1"))[-1] == "parrot 1"
        assert texts(await resumable(echo(), session_id="s", store=url).run(task="b", turn="2"))[-1] == "parrot 3"
        agent = echo()
        one, other = (resumable(agent, session_id=name, store=url) for name in ("s", "other"))
        assert texts(await other.run(task="x", turn="1"))[-1] == "parrot 1"  # one agent may serve several sessions
        assert texts(await one.run(task="c", turn="3"))[-1] == "parrot 5"
        assert texts(await other.run(task="y", turn="2"))[-1] == "parrot 3"

    asyncio.run(main())


@pytest.mark.parametrize("is_team", [False, True])
def test_a_new_session_begins_without_what_another_one_has_left_in_the_agent(url, is_team):
    agent = echo()
    target = RoundRobinGroupChat([agent], max_turns=1) if is_team else agent

    async def say(session: str, task: str) -> str:  # as a server does, for each message
        return texts(await resumable(target, session_id=session, store=url).run(task=task))[-1]

    async def main() -> None:
        assert [await say("ann", task) for task in "ab"] == ["parrot 1", "parrot 3"]
        assert [await say("bob", task) for task in "ab"] == ["parrot 1", "parrot 3"]
        assert await say("ann", "c") == "parrot 5"

    asyncio.run(main())


def test_a_new_session_begins_without_what_another_one_has_left_in_a_tool(url):
    helper = echo("helper")
    tool = AgentTool(helper, return_value_as_last_message=True)

    async def ask(session: str) -> str:
        model = answer_once_called(call("helper", task="?"))
        clerk = AssistantAgent("clerk", model, tools=[tool], max_tool_iterations=2)
        return texts(await resumable(clerk, session_id=session, store=url).run(task="go"))[-1]

    async def main() -> None:
        assert [await ask(session) for session in ("ann", "ann", "bob")] == [
            "done: helper 1", "done: helper 3", "done: helper 1",
        ]  # fmt: skip

    asyncio.run(main())


def test_an_agent_takes_one_turn_at_a_time(url):
    started, released = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait."""
        started.set()
        await released.wait()
        return "waited"

    async def main() -> None:
        agent = AssistantAgent("a", answer_once_called(call("wait")), tools=[wait], max_tool_iterations=2)
        team = RoundRobinGroupChat([agent], max_turns=1)
        first = asyncio.create_task(resumable(agent, session_id="ann", store=url).run(task="x"))
        await started.wait()
        for target in (agent, team):
            with pytest.raises(UsageError, match="in the middle of another turn"):
                await asyncio.wait_for(resumable(target, session_id="bob", store=url).run(task="y"), 60)
        released.set()
        assert texts(await first)[-1] == "done: waited"
        assert texts(await resumable(agent, session_id="bob", store=url).run(task="z"))[-1] == "done: waited"

    asyncio.run(main())


def test_another_turn_is_refused_while_one_is_unfinished(url):
    async def main() -> None:
        def fail(_: Any) -> str:
            raise ConnectionError("the model is away")

        broken = resumable(AssistantAgent("parrot", FunctionModel(fail)), session_id="s", store=url)
        with pytest.raises(ConnectionError, match="away"):
            await broken.run(task="a", turn="1")
        with pytest.raises(UnfinishedTurnError, match=r"turn=1.*turn=2"):
            await resumable(echo(), session_id="s", store=url).run(task="b", turn="2")
        result = await resumable(echo(), session_id="s", store=url).run(task="a", turn="1")
        assert texts(result) == ["a", "parrot 1"]

    asyncio.run(main())


def test_a_task_may_be_messages_or_none_and_be_left_out_of_the_result(url):
    async def main() -> None:
        agent = resumable(echo(), session_id="s", store=url)
        task = [TextMessage(content="a", source="user"), TextMessage(content="b", source="user")]
        assert texts(await agent.run(task=task, output_task_messages=False)) == ["parrot 2"]
        assert texts(await agent.run()) == ["parrot 3"]
        streamed = [one async for one in agent.run_stream(task="c", output_task_messages=False)]
        assert [one.to_text() for one in streamed[:-1]] == ["parrot 5"]
        with pytest.raises(UsageError, match="task"):
            await agent.run(task=[])

    asyncio.run(main())


def test_a_structured_answer_comes_back_in_its_type(url):
    class Weather(BaseModel):
        degrees: int

    def make() -> AssistantAgent:
        return AssistantAgent("w", FunctionModel(lambda _: '{"degrees": 20}'), output_content_type=Weather)

    async def main() -> None:
        first = await resumable(make(), session_id="s", store=url).run(task="hello", turn="m1")
        again = await resumable(make(), session_id="s", store=url).run(task="hello", turn="m1")
        assert again.messages[-1].content == first.messages[-1].content == Weather(degrees=20)

    asyncio.run(main())


@survives("an undeclared tool under way", "not repeated; the model reads that it was interrupted")
def test_a_reader_that_stops_leaves_a_turn_that_the_same_call_continues(url):
    calls: list[str] = []
    under_way = asyncio.Event()

    async def slow() -> str:
        """Take long."""
        calls.append("slow")
        under_way.set()
        await asyncio.sleep(30)
        return "never"

    def make() -> RoundRobinGroupChat:
        model = answer_once_called(call("quick"), call("slow"))
        agent = AssistantAgent("a", model, tools=[quick, slow], max_tool_iterations=5)
        return RoundRobinGroupChat([agent], max_turns=1)

    async def quick() -> str:
        """Take no time."""
        calls.append("quick")
        return "quick"

    async def main() -> None:
        stream = resumable(make(), session_id="s", store=url).run_stream(task="go")
        async for event in stream:
            if event.type == "ToolCallRequestEvent" and event.content[0].name == "slow":
                break
        await under_way.wait()
        await asyncio.wait_for(stream.aclose(), 10)
        result = await resumable(make(), session_id="s", store=url).run(task="go")
        assert calls == ["quick", "slow"]  # neither is repeated
        assert "interrupted, and its outcome is unknown" in texts(result)[-1]

    asyncio.run(main())


@pytest.mark.parametrize("declared", ["irreversible", "idempotent", "read", None])
def test_a_caller_that_is_cancelled_does_not_wait_for_a_tool(url, declared):
    """AutoGen stops a tool that is under way; so does a turn, and the next one knows of it."""
    started: list[str] = []
    is_under_way = asyncio.Event()

    async def pay(invoice: str) -> str:
        started.append(invoice)
        is_under_way.set()
        if len(started) == 1:
            await asyncio.sleep(60)
        return f"paid {invoice}"

    async def main() -> str:
        agent = AssistantAgent(
            "payer", answer_once_called(call("pay", invoice="a")), tools=[pay], max_tool_iterations=2
        )
        tools = {} if declared is None else {"pay": declared}
        target = resumable(agent, session_id="s", store=url, tools=tools)
        running = asyncio.create_task(target.run(task="pay it"))
        await is_under_way.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(running), 20)
        return texts(await target.run(task="pay it"))[-1]

    said = asyncio.run(main())
    if declared in ("idempotent", "read"):
        assert (said, started) == ("done: paid a", ["a", "a"])
    else:
        assert "outcome is unknown" in said
        assert started == ["a"]


@survives("teams with `runtime=`", "refused")
def test_what_resumable_does_not_take_is_refused(url):
    with pytest.raises(UsageError, match="agent or a team of AutoGen, not a str"):
        resumable("agent", session_id="s", store=url)
    team = RoundRobinGroupChat([echo()], max_turns=1, runtime=SingleThreadedAgentRuntime())
    with pytest.raises(UsageError, match="without runtime="):
        asyncio.run(resumable(team, session_id="s", store=url).run(task="a"))


def test_agents_are_themselves_again_after_a_turn(url):
    async def look() -> str:
        """Look it up."""
        return "sunny"

    agent = AssistantAgent("a", FunctionModel(lambda _: "yes"), tools=[look])
    before = dict(vars(agent))
    asyncio.run(resumable(agent, session_id="s", store=url).run(task="a"))
    assert dict(vars(agent)) == before
    assert texts(asyncio.run(agent.run(task="b")))[-1] == "yes"


def test_what_is_changed_in_memory_or_by_others_between_turns(url):
    """A model and a user change messages in place, another process rolls back: the store tells the conversation."""
    seen: list[list[str]] = []

    def answer(messages: Sequence[Any]) -> str:
        seen.append([one.content for one in messages[1:]])
        for one in messages[1:-1]:
            one.content = "changed by the model"
        return f"answer {len(seen)}"

    async def main() -> None:
        async with Client.open(url) as client:
            target = AssistantAgent("a", FunctionModel(answer))
            agent = resumable(target, session_id="s", store=client)
            for number in range(3):
                result = await agent.run(task=f"prompt {number + 1}")
                for one in (*result.messages, *await target.model_context.get_messages()):
                    one.content = "changed by the user"
                if number == 0:
                    first = (await client.latest("s")).checkpoint_id
            assert seen[2] == ["prompt 1", "answer 1", "prompt 2", "answer 2", "prompt 3"]
            async with Client.open(url) as another:
                await another.rollback("s", to=first)
            await agent.run(task="prompt 4")
            assert seen[3] == ["prompt 1", "answer 1", "prompt 4"]

    asyncio.run(main())


def test_a_misspelt_tool_is_refused(url):
    def search(query: str) -> str:
        return query

    agent = AssistantAgent("a", FunctionModel(lambda _: "done"), tools=[search])
    team = RoundRobinGroupChat([agent, echo()], termination_condition=MaxMessageTermination(3))

    class Own(AssistantAgent):
        pass

    async def main() -> None:
        with pytest.raises(UsageError, match=r"'serch'.*Did you mean 'search'.*It has 'search'"):
            await resumable(team, session_id="s", store=url, tools={"serch": "read"}).run(task="hello")
        async with Client.open(url) as client:
            assert await client.latest("s") is None
        await resumable(team, session_id="s", store=url, tools={"search": "read"}).run(task="hello")
        own = Own("own", FunctionModel(lambda _: "done"))  # it may get tools as it likes
        await resumable(own, session_id="own", store=url, tools={"other": "read"}).run(task="hello")

    asyncio.run(main())


# -- teams -------------------------------------------------------------------------------------------------------------


@survives("finished model calls, the selector's too", "their answers are replayed")
def test_a_selector_a_nested_team_and_a_society_of_mind_continue(url):
    def make() -> tuple[SelectorGroupChat, FunctionModel]:
        selector = FunctionModel(lambda messages: "inner" if "inner 1" not in str(messages) else "society")
        society = SocietyOfMindAgent(
            "society",
            RoundRobinGroupChat([echo("deep")], max_turns=1),
            FunctionModel(lambda messages: f"in short: {len(messages)}"),
        )
        inner = RoundRobinGroupChat([echo("inner")], name="inner", description="an inner team", max_turns=1)
        return SelectorGroupChat([inner, society], selector, max_turns=2), selector

    async def main() -> None:
        plain, _ = make()
        wanted = [texts(await plain.run(task=task)) for task in ("a", "b")]
        team, selector = make()
        first = await resumable(team, session_id="s", store=url).run(task="a", turn="1")
        assert len(selector.requests) == 1
        team, selector = make()
        again = await resumable(team, session_id="s", store=url).run(task="a", turn="1")
        assert not selector.requests
        second = await resumable(team, session_id="s", store=url).run(task="b", turn="2")
        assert [texts(first), texts(second)] == wanted
        assert texts(again) == texts(first)

    asyncio.run(main())


# -- people ------------------------------------------------------------------------------------------------------------


def make_pair(person: UserProxyAgent, *models: FunctionModel) -> RoundRobinGroupChat:
    model = models[0] if models else FunctionModel(lambda messages: f"heard {messages[-1].content}")
    return RoundRobinGroupChat([person, AssistantAgent("listener", model)], max_turns=2)


@pytest.mark.parametrize(
    ("words", "heard"),
    [(["approve", "-y", "--note", "go ahead"], "go ahead"), (["approve", "-y"], "APPROVE"), (["reject"], "REJECT")],
)
def test_a_person_answers_from_another_process(url, tmp_path, words, heard):
    def take() -> TaskResult:
        team = make_pair(UserProxyAgent("boss"))
        return asyncio.run(resumable(team, session_id="s", store=url).run(task="may I?"))

    with pytest.raises(ApprovalPendingError, match="boss"):
        take()
    command, *options = words

    async def find() -> str:
        async with Client.open(url) as client:
            [asked] = await client.approvals("s")
            return asked.short_id

    shell = [sys.executable, "-m", "holdfast", command, asyncio.run(find()), *options, "--by", "ann", "--store", url]
    subprocess.run(shell, check=True, capture_output=True, cwd=tmp_path)
    assert texts(take())[-1] == f"heard {heard}"


@survives("people's answers", "asked for once")
def test_a_persons_own_way_to_answer_is_asked_once(url):
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "yes"

    def fail(_: Any) -> str:
        raise ConnectionError("away")

    async def main() -> None:
        team = make_pair(UserProxyAgent("boss", input_func=ask), FunctionModel(fail))
        with pytest.raises(RuntimeError, match="away"):
            await resumable(team, session_id="s", store=url).run(task="may I?")
        team = make_pair(UserProxyAgent("boss", input_func=ask))
        assert texts(await resumable(team, session_id="s", store=url).run(task="may I?"))[-1] == "heard yes"

    asyncio.run(main())
    assert len(asked) == 1


# -- forks, transcripts, states saved by hand --------------------------------------------------------------------------


def test_a_fork_is_a_second_conversation_over_the_same_history(url):
    async def main() -> None:
        await resumable(echo(), session_id="s", store=url).run(task="a", turn="1")
        async with Client.open(url) as client:
            await client.fork("s", session_id="try-2")
        assert texts(await resumable(echo(), session_id="try-2", store=url).run(task="b", turn="2"))[-1] == "parrot 3"
        assert texts(await resumable(echo(), session_id="s", store=url).run(task="c", turn="3"))[-1] == "parrot 3"

    asyncio.run(main())


def test_a_conversation_reads_well_finished_or_cut_off(url):
    async def look() -> str:
        """Look it up."""
        return "sunny"

    def make(model: FunctionModel) -> AssistantAgent:
        return AssistantAgent("guide", model, tools=[look], max_tool_iterations=3)

    def stop(messages: Sequence[Any]) -> Any:
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            raise ConnectionError("away")
        return [call("look")]

    async def read() -> list[tuple[str, str]]:
        async with Client.open(url) as client:
            transcript = to_transcript(await client.latest("s"))
        assert not transcript.open_calls
        return [(one.role, one.text or str([part.name for part in one.parts])) for one in transcript]

    async def main() -> None:
        cut = [("user", "weather?"), ("assistant", "['look']"), ("tool", "['look']")]
        with pytest.raises(ConnectionError):
            await resumable(make(FunctionModel(stop)), session_id="s", store=url).run(task="weather?")
        assert await read() == cut
        await resumable(make(answer_once_called(call("look"))), session_id="s", store=url).run(task="weather?")
        assert await read() == [*cut, ("assistant", "done: sunny")]
        async with Client.open(url) as client:
            names = [one.step_name for one in await client.timeline("s")]
        assert {"guide", "look", "run"} <= set(names)

    asyncio.run(main())


@pytest.mark.parametrize("make", [echo, lambda: RoundRobinGroupChat([echo("a"), echo("b")], max_turns=2)])
def test_a_state_saved_by_hand_goes_on_in_another_object(url, make):
    async def main() -> None:
        plain = make()
        await plain.run(task="a")
        checkpoint = await extract(plain, agent_id="x", session_id="s", context={"who": "me"})
        wanted = texts(await plain.run(task="b"))
        async with Client.open(url) as client:
            found = await client.restore(await client.save_checkpoint(checkpoint))
        assert found.agent_context == {"who": "me"}
        assert texts(await (await reconstruct(found, make())).run(task="b")) == wanted
        assert [one.role for one in to_transcript(found)][:2] == ["user", "assistant"]
        result = await resumable(make(), session_id="s", store=url).run(task="b")
        assert texts(result) == wanted
        async with Client.open(url) as client:
            finished = await client.latest("s")
        assert texts(await (await reconstruct(finished, make())).run(task="c")) == texts(await plain.run(task="c"))

    asyncio.run(main())


@survives("counts of termination conditions", "begin at zero; replayed messages are counted")
def test_terminations_count_from_zero_after_a_turn_that_failed(url):
    """Control: AutoGen itself keeps the counts of a run that failed, and ends the next one early."""
    failures = [True]

    def sometimes(_: Any) -> str:
        if failures:
            failures.pop()
            raise ConnectionError("away")
        return "yes"

    def make() -> RoundRobinGroupChat:
        agents = [echo("a"), AssistantAgent("b", FunctionModel(sometimes))]
        return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(4))

    async def main() -> None:
        team = make()
        agent = resumable(team, session_id="s", store=url)
        with pytest.raises(RuntimeError):
            await agent.run(task="go")
        assert texts(await agent.run(task="go")) == ["go", "a 1", "yes", "a 3"]
        failures.append(True)
        plain = make()
        with pytest.raises(RuntimeError):
            await plain.run(task="go")
        assert len((await plain.run(task="go")).messages) < 4

    asyncio.run(main())
