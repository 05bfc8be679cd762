"""Workflows of agent-framework: turns, supersteps, questions, values without pickle, its own checkpoint storage."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("agent_framework")

from agent_framework import (
    Agent,
    AgentExecutor,
    AgentExecutorRequest,
    AgentExecutorResponse,
    Executor,
    InMemoryCheckpointStorage,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
    tool,
)
from agent_framework.exceptions import WorkflowCheckpointException
from agent_framework_model import FunctionClient, call, results_since_user

import holdfast
from holdfast import Client
from holdfast.adapters.agent_framework.values import dump_value, load_value
from holdfast.adapters.agent_framework.workflow import TurnStorage
from holdfast.agent_framework import HoldfastCheckpointStorage, extract, reconstruct, resumable
from holdfast.errors import ApprovalPendingError, HoldfastError, UsageError
from holdfast.transcript import to_transcript


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


@holdfast.register
@dataclass
class Ticket:
    text: str
    count: int


@dataclass
class Unknown:
    text: str


class Prepare(Executor):
    """Counts its runs in its own state, and in a list that no checkpoint has."""

    def __init__(self, runs: list[str], kind: Any = Ticket) -> None:
        super().__init__("prepare")
        self.runs = runs
        self.kind = kind
        self.count = 0

    @handler
    async def prepare(self, text: str, ctx: WorkflowContext[Any]) -> None:
        self.runs.append(text)
        self.count += 1
        await ctx.send_message(Ticket(text, self.count) if self.kind is Ticket else Unknown(text))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"count": self.count}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Work(Executor):
    def __init__(self) -> None:
        super().__init__("work")

    @handler
    async def work(self, ticket: Ticket, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        message = Message("user", [f"{ticket.text} {ticket.count}"])
        await ctx.send_message(AgentExecutorRequest(messages=[message], should_respond=True))

    @handler
    async def refuse(self, unknown: Unknown, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        raise AssertionError


class Ask(Executor):
    def __init__(self) -> None:
        super().__init__("ask")

    @handler
    async def ask(self, draft: AgentExecutorResponse, ctx: WorkflowContext) -> None:
        await ctx.request_info(request_data=draft.agent_response.text, response_type=str)

    @response_handler
    async def publish(self, draft: str, answer: str, ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(f"{draft}: {answer}")


def make_workflow(runs: list[str], client: FunctionClient, kind: Any = Ticket) -> Workflow:
    first, second, third, fourth = Prepare(runs, kind), Work(), AgentExecutor(Agent(client, name="writer")), Ask()
    builder = WorkflowBuilder(start_executor=first, name="tickets")
    return builder.add_edge(first, second).add_edge(second, third).add_edge(third, fourth).build()


def writer() -> FunctionClient:
    return FunctionClient(lambda messages: f"draft of {messages[-1].text} after {len(messages)}")


async def approve(url: str, **options: Any) -> None:
    async with Client.open(url) as client:
        for asked in await client.approvals("s"):
            await client.decide(asked.approval_id, "approve", by="ann", **options)


@survives("finished supersteps of a workflow", "not run again")
def test_finished_supersteps_are_not_run_again(url):
    def fail(_: Any) -> str:
        raise ConnectionError("away")

    async def main() -> None:
        runs: list[str] = []
        with pytest.raises(ConnectionError, match="away"):
            await resumable(make_workflow(runs, FunctionClient(fail)), session_id="s", store=url).run("a")
        assert runs == ["a"]
        with pytest.raises(ApprovalPendingError, match="ask"):
            await resumable(make_workflow(runs, writer()), session_id="s", store=url).run("a")
        await approve(url, note="good")
        client = writer()
        result = await resumable(make_workflow(runs, client), session_id="s", store=url).run("a")
        assert result.get_outputs() == ["draft of a 1 after 1: good"]
        assert runs == ["a"]
        assert not client.requests

    asyncio.run(main())


@survives("state of executors and agents in later turns", "as the last turn left it")
def test_executors_and_agents_remember_earlier_turns(url):
    async def take(workflow: Workflow, text: str) -> list[Any]:
        target = resumable(workflow, session_id="s", store=url)
        with pytest.raises(ApprovalPendingError):
            await target.run(text, turn=text)
        await approve(url, note="good")
        return (await target.run(text, turn=text)).get_outputs()

    async def main() -> None:
        assert await take(make_workflow([], writer()), "a") == ["draft of a 1 after 1: good"]
        assert await take(make_workflow([], writer()), "b") == ["draft of b 2 after 3: good"]
        client = writer()
        recorded = await resumable(make_workflow([], client), session_id="s", store=url).run("b", turn="b")
        assert recorded.get_outputs() == ["draft of b 2 after 3: good"]
        assert not client.requests
        async with Client.open(url) as client_:
            told = to_transcript(await client_.latest("s"))
            names = {one.step_name for one in await client_.timeline("s")}
        assert [one.text for one in told][-2:] == ["b 2", "draft of b 2 after 3"]
        assert {"writer", "superstep 1", "run"} <= names

    asyncio.run(main())


class Remember(Executor):
    """Answers with all that it was told."""

    def __init__(self, started: asyncio.Event, released: asyncio.Event) -> None:
        super().__init__("remember")
        self.told: list[str] = []
        self.started, self.released = started, released

    @handler
    async def remember(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        self.started.set()
        await self.released.wait()
        self.told.append(text)
        await ctx.yield_output(" ".join(self.told))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"told": list(self.told)}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.told = list(state["told"])


def test_sessions_share_a_workflow_one_after_the_other_and_share_no_state(url):
    async def main() -> None:
        started, released = asyncio.Event(), asyncio.Event()
        workflow = WorkflowBuilder(start_executor=Remember(started, released), name="memory").build()

        async def say(session: str, text: str) -> str:  # as a server does, for each message
            return (await resumable(workflow, session_id=session, store=url).run(text)).get_outputs()[0]

        first = asyncio.create_task(say("ann", "a"))
        await started.wait()
        with pytest.raises(UsageError, match="in the middle of another turn"):
            await asyncio.wait_for(say("bob", "x"), 60)
        released.set()
        assert await first == "a"
        assert await say("ann", "b") == "a b"
        assert [await say("bob", text) for text in "xy"] == ["x", "x y"]
        assert await say("ann", "c") == "a b c"

    asyncio.run(main())


@survives("outputs of finished supersteps", "in the result, since the last answer of a person")
def test_an_output_of_a_finished_superstep_is_not_lost(url, monkeypatch):
    """The process ends after the last superstep was saved, before the turn was."""

    class Ended(BaseException):
        pass

    class Teller(Executor):
        @handler
        async def tell(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            await ctx.yield_output(f"{self.id} heard {text}")
            await ctx.send_message(f"{text}!")

    def make() -> Workflow:
        first, second = Teller("first"), Teller("second")
        return WorkflowBuilder(start_executor=first, name="tellers").add_edge(first, second).build()

    save = TurnStorage.save

    async def save_and_end(self: Any, checkpoint: Any) -> str:
        id_ = await save(self, checkpoint)
        if checkpoint.iteration_count == 2:
            raise Ended
        return id_

    async def main() -> None:
        monkeypatch.setattr(TurnStorage, "save", save_and_end)
        with pytest.raises(Ended):
            await resumable(make(), session_id="s", store=url).run("a", turn="1")
        monkeypatch.setattr(TurnStorage, "save", save)
        expected = ["first heard a", "second heard a!"]
        whole = await resumable(make(), session_id="whole", store=url).run("a", turn="1")
        assert whole.get_outputs() == expected
        stream = resumable(make(), session_id="s", store=url).run("a", turn="1", stream=True)
        assert [event.data async for event in stream if event.type == "output"] == expected
        assert (await stream.get_final_response()).get_outputs() == expected
        again = await resumable(make(), session_id="s", store=url).run("a", turn="1")
        assert again.get_outputs() == expected

    asyncio.run(main())


def test_a_streamed_turn_yields_events_and_a_result(url):
    async def main() -> None:
        target = resumable(make_workflow([], writer()), session_id="s", store=url)
        with pytest.raises(ApprovalPendingError):
            async for _ in target.run("a", stream=True):
                pass
        await approve(url)
        stream = target.run("a", stream=True)
        events = [event async for event in stream]
        assert [event.data for event in events if event.type == "output"] == ["draft of a 1 after 1: APPROVE"]
        assert (await stream.get_final_response()).get_outputs() == ["draft of a 1 after 1: APPROVE"]
        for refused in ("responses", "checkpoint_id", "checkpoint_storage"):
            with pytest.raises(UsageError, match=f"{refused}= can't be given"):
                target.run("a", **{refused: None})

    asyncio.run(main())


def test_a_tool_of_an_agent_in_a_workflow_waits_for_another_process(url, tmp_path):
    paid: list[int] = []

    @tool(approval_mode="always_require")
    async def pay(invoice: int) -> str:
        """Pay."""
        paid.append(invoice)
        return f"paid {invoice}"

    def answer(messages: Any) -> Any:
        results = results_since_user(messages)
        return f"done: {results[-1]}" if results else [call("pay", invoice=7)]

    def take() -> list[Any]:
        payer = AgentExecutor(Agent(FunctionClient(answer), name="payer", tools=[pay]))
        workflow = WorkflowBuilder(start_executor=payer, name="pay").build()
        return asyncio.run(resumable(workflow, session_id="s", store=url).run("pay 7")).get_outputs()

    with pytest.raises(ApprovalPendingError, match="pay"):
        take()

    async def find() -> str:
        async with Client.open(url) as client:
            [asked] = await client.approvals("s")
            return asked.short_id

    shell = [sys.executable, "-m", "holdfast", "approve", asyncio.run(find()), "-y", "--by", "ann", "--store", url]
    subprocess.run(shell, check=True, capture_output=True, cwd=tmp_path)
    outputs = take()
    assert outputs[-1].text == "done: paid 7"
    assert paid == [7]


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, (2, "x")], "$type": "mine"},
        Message("user", ["hello"]),
        AgentExecutorRequest(messages=[Message("user", ["hello"])], should_respond=False),
        Ticket("a", 1),
        None,
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back_as_they_were(value):
    found = load_value(dump_value(value))
    assert type(found) is type(value)
    if isinstance(value, AgentExecutorRequest):
        assert found.should_respond is False
        assert [one.to_dict() for one in found.messages] == [one.to_dict() for one in value.messages]
    elif isinstance(value, Message):
        assert found.to_dict() == value.to_dict()
    else:
        assert found == value


def test_a_name_of_no_class_is_refused():
    for name in ("os", "no_such_class", "__builtins__"):
        with pytest.raises(UsageError, match="lacks"):
            load_value({"$type": name, "value": {}})


@survives("objects of your own classes in a workflow", "refused unless registered")
def test_a_class_that_is_not_registered_ends_the_turn_with_its_place(url):
    workflow = make_workflow([], writer(), kind=Unknown)
    with pytest.raises(HoldfastError, match="Unknown"):
        asyncio.run(resumable(workflow, session_id="s", store=url).run("a"))


# -- the framework's own storage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [InMemoryCheckpointStorage, HoldfastCheckpointStorage], ids=["control", "ours"])
def test_the_storage_behaves_as_the_frameworks_own(url, make):
    async def main() -> None:
        storage = make() if make is InMemoryCheckpointStorage else make(store=url)
        runs: list[str] = []
        workflow = make_workflow(runs, writer())
        events = await workflow.run("a", checkpoint_storage=storage)
        [question] = events.get_request_info_events()
        ids = await storage.list_checkpoint_ids(workflow_name="tickets")
        assert len(ids) == len(set(ids)) == 5
        listed = await storage.list_checkpoints(workflow_name="tickets")
        assert [one.checkpoint_id for one in listed] == ids
        latest = await storage.get_latest(workflow_name="tickets")
        assert latest.checkpoint_id == ids[-1]
        assert list(latest.pending_request_info_events) == [question.request_id]
        other = make_workflow(runs, writer())
        result = await other.run(
            checkpoint_id=ids[-1], checkpoint_storage=storage, responses={question.request_id: "good"}
        )
        assert result.get_outputs() == ["draft of a 1 after 1: good"]
        assert runs == ["a"]
        early = make_workflow(runs, writer())
        assert (await early.run(checkpoint_id=ids[1], checkpoint_storage=storage)).get_request_info_events()
        assert await storage.delete(ids[0])
        assert not await storage.delete(ids[0])
        with pytest.raises(WorkflowCheckpointException):
            await storage.load(ids[0])
        assert await storage.list_checkpoint_ids(workflow_name="another") == []
        assert await storage.get_latest(workflow_name="another") is None
        if make is HoldfastCheckpointStorage:
            await storage.close()

    asyncio.run(main())


def test_a_checkpoint_saved_by_hand_goes_on(url):
    async def main() -> None:
        storage = InMemoryCheckpointStorage()
        workflow = make_workflow([], writer())
        [question] = (await workflow.run("a", checkpoint_storage=storage)).get_request_info_events()
        latest = await storage.get_latest(workflow_name="tickets")
        checkpoint = extract(latest, agent_id="x", session_id="s")
        async with Client.open(url) as client:
            found = await client.restore(await client.save_checkpoint(checkpoint))
        fresh = InMemoryCheckpointStorage()
        other = make_workflow([], writer())
        id_ = await fresh.save(reconstruct(found, other))
        responses = {question.request_id: "good"}
        result = await other.run(checkpoint_id=id_, checkpoint_storage=fresh, responses=responses)
        assert result.get_outputs() == ["draft of a 1 after 1: good"]
        with pytest.raises(UsageError, match="agent"):
            reconstruct(found, Agent(writer(), name="a"))

    asyncio.run(main())
