"""Graphs and swarms of Strands: finished nodes, calls of every node, questions, conversations over several turns."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from framework_environments import require
from stored_steps import wait_for_step
from survives import survives

require("strands")

from strands import Agent, ToolContext, tool
from strands.agent import AgentResult
from strands.hooks import BeforeModelCallEvent, BeforeNodeCallEvent
from strands.multiagent import GraphBuilder, MultiAgentBase, MultiAgentResult, Status, Swarm
from strands.multiagent.base import NodeResult
from strands.multiagent.graph import Graph
from strands.session import SnapshotSessionManager
from strands.storage import InMemoryStorage
from strands.telemetry.metrics import EventLoopMetrics
from strands.types.exceptions import EventLoopException
from strands_model import FunctionModel, call, results_since_user, text_of

from holdfast import Client, Effect
from holdfast.errors import ApprovalPendingError, UsageError
from holdfast.strands import extract, reconstruct, resumable
from holdfast.transcript import to_transcript


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


def make_agent(name: str, answer: Any, *tools: Any) -> Agent:
    return Agent(FunctionModel(answer), name=name, tools=list(tools), callback_handler=None)


def says(text: str) -> Any:
    return lambda messages: f"{text} {len(messages)}"


def calls_then(text: str, *calls: Any) -> Any:
    def answer(messages: Sequence[Any]) -> Any:
        done = len(results_since_user(messages))
        return [calls[done]] if done < len(calls) else text

    return answer


def fail_then(answer: Any, *, after: int = 0, times: int = 1) -> Any:
    """Return a model that fails so often once so many results are there, then answers."""
    failures = [ConnectionError("away")] * times

    def try_to(messages: Sequence[Any]) -> Any:
        if len(results_since_user(messages)) >= after and failures:
            raise failures.pop()
        return answer(messages)

    return try_to


def make_chain(*nodes: Any) -> Graph:
    """Return a graph whose nodes run one after the other."""
    builder = GraphBuilder()
    names = [builder.add_node(node, node.name if isinstance(node, Agent) else node.id).node_id for node in nodes]
    for name, following in itertools.pairwise(names):
        builder.add_edge(name, following)
    return builder.set_execution_timeout(60) and builder.build()


def requests_of(group: Any, name: str) -> int:
    return len(group.nodes[name].executor.model.requests)


class Function(MultiAgentBase):
    """A node that is a function."""

    def __init__(self, runs: list[str]) -> None:
        super().__init__()
        self.id = "function"
        self._runs = runs

    async def invoke_async(self, task: Any, invocation_state: Any = None, **_: Any) -> MultiAgentResult:
        self._runs.append("run")
        message = {"role": "assistant", "content": [{"text": "computed"}]}
        result = AgentResult("end_turn", message, EventLoopMetrics(), {})
        return MultiAgentResult(Status.COMPLETED, {"function": NodeResult(result, status=Status.COMPLETED)})


# -- graphs ------------------------------------------------------------------------------------------------------------


@survives("finished nodes of a graph", "nothing of them is repeated")
def test_finished_nodes_are_not_run_again_and_calls_of_every_node_are_recorded(url):
    used: list[str] = []
    runs: list[str] = []

    @tool
    def look(node: str) -> str:
        """Look."""
        used.append(node)
        return "seen"

    def make(second: Any) -> Graph:
        first = make_agent("first", calls_then("one", call("look", "a", node="first")), look)
        return make_chain(first, Function(runs), make_agent("second", second, look))

    then = calls_then("two", call("look", "b", node="second"))
    with pytest.raises(Exception, match="away"):
        resumable(make(fail_then(then, after=1)), session_id="s", store=url)("go")
    assert (used, runs) == (["first", "second"], ["run"])
    graph = make(then)
    result = resumable(graph, session_id="s", store=url)("go")
    assert (used, runs) == (["first", "second"], ["run"])
    assert (requests_of(graph, "first"), requests_of(graph, "second")) == (0, 1)
    assert result.status is Status.COMPLETED
    assert [node.node_id for node in result.execution_order] == ["first", "function", "second"]
    assert isinstance(graph.nodes["function"].executor, Function)  # the user's own again


@survives("a node that is a function, under way", "runs again")
def test_a_node_that_is_a_function_and_was_cut_off_runs_again(url):
    runs: list[str] = []

    class Cut(Function):
        async def invoke_async(self, task: Any, invocation_state: Any = None, **options: Any) -> MultiAgentResult:
            done = await super().invoke_async(task, invocation_state, **options)
            if len(runs) == 1:
                raise ConnectionError("away")
            return done

    def make() -> Graph:
        return make_chain(make_agent("first", says("one")), Cut(runs), make_agent("second", says("two")))

    with pytest.raises(ConnectionError, match="away"):
        resumable(make(), session_id="s", store=url)("go")
    graph = make()
    resumable(graph, session_id="s", store=url)("go")
    assert len(runs) == 2
    assert (requests_of(graph, "first"), requests_of(graph, "second")) == (0, 1)


def test_a_finished_turn_of_a_graph_returns_its_recorded_result(url):
    inner = make_chain(make_agent("a", says("a")), make_agent("b", says("b")))
    inner.id = "inner"
    graph = make_chain(inner, make_agent("c", says("c")))
    target = resumable(graph, session_id="s", store=url)
    first = target("go", turn="1")
    again = target("go", turn="1")
    assert str(again) == str(first)
    assert again.results["inner"].result.results["a"].result.message["content"] == [{"text": "a 1"}]
    for name in ("status", "completed_nodes", "total_nodes", "accumulated_usage", "execution_count", "edges"):
        assert getattr(again, name) == getattr(first, name), name
    assert [node.node_id for node in again.execution_order] == ["inner", "c"]

    async def stream(turn: str) -> list[Any]:
        return [event async for event in target.stream_async("go", turn=turn)]

    assert [list(event) for event in asyncio.run(stream("1"))] == [["data"], ["result"]]
    kinds = [event.get("type") for event in asyncio.run(stream("2"))]
    assert kinds.count("multiagent_node_start") == 2
    assert kinds[-1] == "multiagent_result"


def test_agents_of_a_graph_remember_earlier_turns_in_every_life(url):
    for number, wanted in ((1, "second 1"), (2, "second 3")):
        graph = make_chain(make_agent("first", says("first")), make_agent("second", says("second")))
        result = resumable(graph, session_id="s", store=url)("go", turn=str(number))
        assert str(result.results["second"]).strip() == wanted

    async def read() -> list[Any]:
        async with Client.open(url) as client:
            return list(to_transcript(await client.latest("s")))

    told = asyncio.run(read())
    assert [(one.author, one.text) for one in told if one.role == "assistant"] == [
        ("first", "first 1"), ("first", "first 3"), ("second", "second 1"), ("second", "second 3"),
    ]  # fmt: skip


def test_nodes_side_by_side_get_their_own_answers(url):
    """Agents of one name that are asked the same at the same time: each life may hear them in another order."""

    def make(delays: tuple[float, float], after: Any) -> Graph:
        builder = GraphBuilder()
        for name, seconds in zip(("left", "right"), delays, strict=True):

            async def delay(event: Any, seconds: float = seconds) -> None:
                await asyncio.sleep(seconds)

            agent = Agent(FunctionModel(lambda _, name=name: name), callback_handler=None)
            agent.add_hook(delay, BeforeModelCallEvent)
            builder.add_node(agent, name)
        builder.add_node(make_agent("last", after), "last")
        both = lambda state: len(state.completed_nodes) >= 2  # noqa: E731 - short
        builder.add_edge("left", "last", condition=both)
        builder.add_edge("right", "last", condition=both)
        return builder.set_execution_timeout(60) and builder.build()

    with pytest.raises(ConnectionError):
        resumable(make((0, 0.1), fail_then(says("last"))), session_id="s", store=url)("go")
    graph = make((0.1, 0), says("last"))
    result = resumable(graph, session_id="s", store=url)("go")
    assert {name: str(one).strip() for name, one in result.results.items() if name != "last"} == {
        "left": "left",
        "right": "right",
    }
    assert [requests_of(graph, name) for name in ("left", "right", "last")] == [0, 0, 1]


def test_a_node_that_reads_nodes_side_by_side_is_not_asked_again(url):
    """In the first life the second one ends first; the next one replays both at once."""
    sealed: list[str] = []

    def make(answer: Any) -> Graph:
        @tool
        def seal(what: str) -> str:
            """Seal."""
            sealed.append(what)
            return f"sealed {what}"

        async def wait(_: Any) -> None:
            await asyncio.to_thread(wait_for_step, url, "second")

        builder = GraphBuilder()
        for name in ("first", "second"):
            builder.add_node(make_agent(name, says(name)), name)
        builder.nodes["first"].executor.add_hook(wait, BeforeModelCallEvent)
        builder.add_node(make_agent("last", answer, seal), "last")
        both = lambda state: len(state.completed_nodes) >= 2  # noqa: E731 - short
        for name in ("first", "second"):
            builder.add_edge(name, "last", condition=both)
        return builder.set_execution_timeout(120) and builder.build()

    concludes = calls_then("concluded", call("seal", what="it"))
    with pytest.raises(EventLoopException, match="away"):
        resumable(make(fail_then(concludes, after=1)), session_id="s", store=url)("go")
    graph = make(concludes)
    resumable(graph, session_id="s", store=url)("go")
    assert ([requests_of(graph, name) for name in ("first", "second", "last")], sealed) == ([0, 0, 1], ["it"])


ORDER = """
import sys
from strands import Agent
from strands.multiagent import GraphBuilder
from strands_model import FunctionModel
from holdfast.strands import resumable

builder = GraphBuilder()
for name in ("join", "a", "b", "c", "d"):
    builder.add_node(Agent(FunctionModel(lambda _: "x"), name=name, callback_handler=None), name)
for name in "abcd":
    builder.add_edge(name, "join")
graph = builder.set_execution_timeout(60).build()
print("".join(edge.from_node.node_id for edge in graph.edges))
resumable(graph, session_id="s", store=f"sqlite:///{sys.argv[1]}")
print("".join(edge.from_node.node_id for edge in graph.edges))
"""


def test_a_node_reads_its_inputs_in_the_same_order_in_every_process(tmp_path):
    orders = []
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "OTEL_SDK_DISABLED": "true"}
        shell = [sys.executable, "-c", ORDER, str(tmp_path / "s.db")]
        done = subprocess.run(shell, env=environment, capture_output=True, text=True, check=True)
        orders.append(done.stdout.split())
    assert len({own for own, _ in orders}) > 1  # the framework alone: another question for the model in each process
    assert {ours for _, ours in orders} == {"abcd"}


@pytest.mark.parametrize("asking", ["tool", "hook", "effect"])
def test_a_question_in_a_graph_waits_and_finished_nodes_stay_finished(url, asking):
    paid: list[int] = []

    @tool(context=True)
    def pay(invoice: int, tool_context: ToolContext) -> str:
        """Pay."""
        if asking == "tool":
            tool_context.interrupt("may I", reason="it is dear")
        paid.append(invoice)
        return "paid"

    def ask(event: BeforeNodeCallEvent) -> None:
        if event.node_id == "payer" and event.interrupt("may it run", reason="it is late") != "y":
            event.cancel_node = "no"

    def make() -> Graph:
        payer = make_agent("payer", calls_then("done", call("pay", "c-1", invoice=7)), pay)
        graph = make_chain(make_agent("first", says("first")), payer, make_agent("last", says("last")))
        if asking == "hook":
            graph.add_hook(ask, BeforeNodeCallEvent)
        return graph

    needed = "finance" if asking == "effect" else None
    declared = {"pay": Effect("irreversible", key="invoice", approve=needed)}
    graph = make()
    target = resumable(graph, session_id="s", store=url, tools=declared)
    for _ in range(2):  # the same object, too
        with pytest.raises(ApprovalPendingError):
            target("go")

    async def decide() -> None:
        async with Client.open(url) as client:
            [asked] = await client.approvals("s")
            expected = ("may it run", {"reason": "it is late"}) if asking == "hook" else ("pay", {"invoice": 7})
            assert (asked.call.tool, asked.arguments) == expected
            await client.decide(asked.approval_id, "approve", by="ann")

    asyncio.run(decide())
    other = make()
    result = resumable(other, session_id="s", store=url, tools=declared)("go")
    assert result.status is Status.COMPLETED
    assert paid == [7]
    assert [requests_of(graph, name) for name in ("first", "last")] == [1, 0]
    assert [requests_of(other, name) for name in ("first", "last")] == [0, 1]


def test_what_a_graph_may_not_have_is_refused(url):
    builder = GraphBuilder()
    builder.add_node(make_agent("a", says("a")), "a")
    builder.set_session_manager(SnapshotSessionManager("x", storage=InMemoryStorage()))
    with pytest.raises(UsageError, match="has a session manager"):
        resumable(builder.set_execution_timeout(60).build(), session_id="s", store=url)


# -- swarms ------------------------------------------------------------------------------------------------------------


def handoff(to: str, **context: Any) -> dict[str, Any]:
    return call("handoff_to_agent", f"to-{to}", agent_name=to, message=f"over to {to}", context=context)


def test_a_misspelt_tool_of_a_node_is_refused(url):
    @tool
    def spell(text: str) -> str:
        """Check the spelling."""
        return text

    builder = GraphBuilder()
    builder.add_node(make_agent("writer", says("1"), spell), "writer")
    builder.set_execution_timeout(60)
    graph = builder.build()
    with pytest.raises(UsageError, match=r"'spel'.*Did you mean 'spell'"):
        resumable(graph, session_id="s", store=url, tools={"spel": "read"})("write")
    resumable(graph, session_id="s", store=url, tools={"spell": "read"})("write")


@survives("a swarm", "continues with the agent that was working")
def test_a_swarm_goes_on_with_the_agent_that_was_working(url):
    used: list[str] = []

    @tool
    def close(case: str) -> str:
        """Close."""
        used.append(case)
        return "closed"

    def make(closing: Any) -> Swarm:
        triage = make_agent("triage", calls_then("handed over", handoff("closer", urgency="high")))
        return Swarm([triage, make_agent("closer", closing, close)])

    then = calls_then("done", call("close", case="p"))
    broken = resumable(make(fail_then(then, after=1)), session_id="s", store=url)("case p")
    assert broken.status is Status.FAILED  # a swarm returns failures; the turn is not finished
    swarm = make(then)
    result = resumable(swarm, session_id="s", store=url)("case p")
    assert result.status is Status.COMPLETED
    assert used == ["p"]
    assert (requests_of(swarm, "triage"), requests_of(swarm, "closer")) == (0, 1)
    assert [node.node_id for node in result.node_history] == ["triage", "closer"]
    assert "urgency" in text_of(swarm.nodes["closer"].executor.messages[0])
    assert resumable(make(then), session_id="s", store=url)("case p").status is Status.COMPLETED

    other = make(calls_then("done"))
    resumable(other, session_id="s", store=url)("case q", turn="2")
    assert "urgency" in text_of(other.nodes["triage"].executor.messages[0])  # agents share it over turns


def test_a_question_in_a_swarm_waits(url):
    signed: list[str] = []

    @tool(context=True)
    def sign(tool_context: ToolContext) -> str:
        """Sign."""
        signed.append(tool_context.interrupt("may I"))
        return "signed"

    def make() -> Swarm:
        triage = make_agent("triage", calls_then("handed over", handoff("signer")))
        return Swarm([triage, make_agent("signer", calls_then("done", call("sign")), sign)])

    async def decide() -> None:
        async with Client.open(url) as client:
            [asked] = await client.approvals("s")
            await client.decide(asked.approval_id, "approve", by="ann")

    swarm = make()
    target = resumable(swarm, session_id="s", store=url)
    with pytest.raises(ApprovalPendingError):
        target("go")
    asyncio.run(decide())
    assert target("go").status is Status.COMPLETED  # the same object
    assert signed == ["y"]
    assert requests_of(swarm, "triage") == 2


# -- states saved by hand ----------------------------------------------------------------------------------------------


def test_a_graph_saved_by_hand_goes_on(url):
    def make() -> Graph:
        return make_chain(make_agent("first", says("first")), make_agent("second", says("second")))

    graph = make()
    graph("go")

    async def save() -> Any:
        async with Client.open(url) as client:
            return await client.restore(await client.save_checkpoint(extract(graph, agent_id="x", session_id="s")))

    found = asyncio.run(save())
    assert str(reconstruct(found, make())("go").results["second"]).strip() == "second 3"
    assert str(resumable(make(), session_id="s", store=url)("go").results["second"]).strip() == "second 3"
