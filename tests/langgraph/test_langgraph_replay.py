"""replay of a graph: recorded nodes don't run, live ones do; the thread that is replayed stays as it is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import operator
import sys
import threading
from collections import Counter
from typing import Annotated, Any, TypedDict

import pytest
from click.testing import CliRunner
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from holdfast import Client, NotRecordedError, SyncClient, UsageError
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.thread_store import Threads
from holdfast.cli.main import cli


class State(TypedDict, total=False):
    question: str
    notes: Annotated[list[str], operator.add]
    answer: str


class Nodes:
    """What the nodes do. Which were run is counted."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.suffix = ""

    def plan(self, state: State) -> State:
        self.ran["plan"] += 1
        return {"notes": [f"plan for {state['question']}{self.suffix}"]}

    def left(self, state: State) -> State:
        self.ran["left"] += 1
        return {"notes": [f"left{self.suffix}"]}

    def right(self, state: State) -> State:
        self.ran["right"] += 1
        return {"notes": ["right"]}

    def answer(self, state: State) -> State:
        self.ran["answer"] += 1
        return {"answer": "; ".join(state["notes"])}

    def graph(self, saver: HoldfastSaver) -> Any:
        builder = StateGraph(State)
        for name in ("plan", "left", "right", "answer"):
            builder.add_node(name, getattr(self, name))
        builder.add_edge(START, "plan")
        builder.add_edge("plan", "left")
        builder.add_edge("plan", "right")
        builder.add_edge(["left", "right"], "answer")
        builder.add_edge("answer", END)
        return builder.compile(checkpointer=saver)


@pytest.fixture
def client() -> SyncClient:
    return SyncClient.memory()


@pytest.fixture
def nodes(client: SyncClient) -> Nodes:
    made = Nodes()
    made.compiled = made.graph(HoldfastSaver(client))
    made.compiled.invoke({"question": "why?", "notes": []}, {"configurable": {"thread_id": "t"}})
    made.ran.clear()
    return made


def told(report: Any) -> dict[str, str]:
    return {step.name: step.source for step in report.steps}


def test_recorded_nodes_do_not_run(client: SyncClient, nodes: Nodes) -> None:
    before = client.session("lg/t").head.checkpoint_id
    report = client.replay("lg/t", nodes.compiled, name="again")
    assert report.ok, report.error
    assert not nodes.ran
    assert told(report) == dict.fromkeys(("plan", "left", "right", "answer"), "recorded")
    assert report.result["answer"] == "plan for why?; left; right"
    assert report.session_id == "lg/again"
    assert client.session("lg/t").head.checkpoint_id == before
    assert client.compare("lg/t", "lg/again").ancestor is not None
    assert client.verify().ok


def test_a_thread_that_is_not_named_is_numbered(client: SyncClient, nodes: Nodes) -> None:
    assert [client.replay("lg/t", nodes.compiled).session_id for _ in range(2)] == ["lg/t-replay-1", "lg/t-replay-2"]


def test_two_that_begin_at_once_have_threads_of_their_own(client: SyncClient, nodes: Nodes) -> None:
    """Both see that the first number is free; the save of the first checkpoint decides."""
    saver = nodes.compiled.checkpointer
    met = threading.Barrier(2)
    newest = Threads.newest

    async def after_the_other(threads: Threads, place: Any, id_: Any) -> Any:
        found = await newest(threads, place, id_)
        if place.thread == "t-replay-1" and found is None and len(seen) < 4:
            seen.append(1)
            with contextlib.suppress(threading.BrokenBarrierError):
                met.wait(2)
        return found

    seen: list[int] = []
    names: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Threads, "newest", after_the_other)
        both = [
            threading.Thread(target=lambda: names.append(client.replay("lg/t", nodes.graph(saver)).session_id))
            for _ in range(2)
        ]
        for one in both:
            one.start()
        for one in both:
            one.join()
    assert sorted(names) == ["lg/t-replay-1", "lg/t-replay-2"]


def test_live_nodes_run(client: SyncClient, nodes: Nodes) -> None:
    nodes.suffix = "!"
    report = client.replay("lg/t", nodes.compiled, mode="live")
    assert nodes.ran == {"plan": 1, "left": 1, "right": 1, "answer": 1}
    assert set(told(report).values()) == {"live"}
    assert {step.name: step.same for step in report.steps} == {
        "plan": False, "left": False, "right": True, "answer": False,
    }  # fmt: skip
    assert report.result["answer"] == "plan for why?!; left!; right"
    original = nodes.compiled.get_state({"configurable": {"thread_id": "t"}})
    assert original.values["answer"] == "plan for why?; left; right"


def test_single_nodes_by_name(client: SyncClient, nodes: Nodes) -> None:
    nodes.suffix = "?"
    report = client.replay("lg/t", nodes.compiled, steps={"left": "live"})
    assert nodes.ran == {"left": 1}
    assert told(report)["right"] == "recorded"
    # What follows is served, too: this is what "recorded" says.
    assert report.result["answer"] == "plan for why?; left; right"


def test_mixed_runs_from_the_first_difference_on(client: SyncClient, nodes: Nodes) -> None:
    assert set(told(client.replay("lg/t", nodes.compiled, mode="mixed")).values()) == {"recorded"}
    assert not nodes.ran
    nodes.suffix = "?"
    report = client.replay("lg/t", nodes.compiled, mode="mixed", steps={"left": "live"})
    assert told(report) == {"plan": "recorded", "left": "live", "right": "recorded", "answer": "live"}
    assert report.result["answer"] == "plan for why?; left?; right"


def test_from_a_checkpoint_with_an_edit(client: SyncClient, nodes: Nodes) -> None:
    start = next(
        one.checkpoint_id for one in client.timeline(session_id="lg/t")
        if one.metadata["metadata"]["step"] == 1
    )  # fmt: skip
    report = client.replay(
        "lg/t", nodes.compiled, from_=start, mode="mixed", set={"channel_values.notes.0": "another plan"}
    )
    assert told(report) == {"left": "live", "right": "live", "answer": "live"}
    assert report.result["answer"] == "another plan; left; right"
    assert report.from_id == start


def test_what_was_not_recorded_does_not_run(client: SyncClient, nodes: Nodes) -> None:
    halfway = next(
        one.metadata["langgraph_id"] for one in client.timeline(session_id="lg/t")
        if one.metadata["metadata"]["step"] == 1
    )  # fmt: skip
    config = {"configurable": {"thread_id": "t", "checkpoint_id": halfway}}
    nodes.compiled.update_state(config, {"notes": ["by hand"]}, as_node="plan")
    nodes.ran.clear()
    report = client.replay("lg/t", nodes.compiled, from_="lg/t")
    assert isinstance(report.error, NotRecordedError)
    assert not nodes.ran
    assert set(told(report).values()) == {"blocked"}


def test_a_message_is_edited(client: SyncClient) -> None:
    def answer(state: MessagesState) -> MessagesState:
        return {"messages": [AIMessage(f"you said {state['messages'][-1].content}", id="a")]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=HoldfastSaver(client))
    config = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": [HumanMessage("hello", id="h")]}, config)
    report = client.replay("lg/t", graph, mode="mixed", set={"channel_values.messages.-1.content": "goodbye"})
    assert report.ok, report.error
    assert report.result["messages"] == [HumanMessage("goodbye", id="h"), AIMessage("you said goodbye", id="a")]
    assert graph.get_state(config).values["messages"][0].content == "hello"


def test_of_a_graph_that_stops_before_nodes(client: SyncClient, nodes: Nodes) -> None:
    nodes.compiled.interrupt_before_nodes = ["answer"]
    assert client.replay("lg/t", nodes.compiled).result["answer"] == "plan for why?; left; right"
    assert not nodes.ran
    report = client.replay("lg/t", nodes.compiled, mode="live")
    assert report.ok, report.error
    assert nodes.ran == {"plan": 1, "left": 1, "right": 1, "answer": 1}


def test_of_a_node_that_asks_a_person(client: SyncClient) -> None:
    asked: list[str] = []

    def ask(state: State) -> State:
        asked.append("asked")
        return {"answer": interrupt("which?")}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=HoldfastSaver(client))
    config = {"configurable": {"thread_id": "t"}}
    graph.invoke({"question": "why?"}, config)
    graph.invoke(Command(resume="this one"), config)
    report = client.replay("lg/t", graph)
    assert (report.ok, report.result["answer"]) == (True, "this one")
    asked.clear()
    report = client.replay("lg/t", graph, mode="live", name="again")
    assert "waits for an answer" in str(report.error)
    assert asked == ["asked"]
    assert graph.invoke(Command(resume="that one"), {"configurable": {"thread_id": "again"}})["answer"] == "that one"


def test_a_node_that_raises_ends_it(client: SyncClient, nodes: Nodes) -> None:
    def fail(state: State) -> State:
        raise ValueError("no")

    nodes.answer = fail
    broken = nodes.graph(nodes.compiled.checkpointer)
    report = client.replay("lg/t", broken, steps={"answer": "live"})
    assert isinstance(report.error, ValueError)
    assert (report.steps[-1].name, report.steps[-1].source, report.steps[-1].failed) == ("answer", "live", True)


def test_what_can_not_be_replayed(client: SyncClient, nodes: Nodes) -> None:
    client.save("a", session_id="plain")
    with pytest.raises(UsageError, match="saved by no graph"):
        client.replay("plain", nodes.compiled)
    with pytest.raises(UsageError, match="on_repeat"):
        client.replay("lg/t", nodes.compiled, on_repeat="again")
    with pytest.raises(UsageError, match="thread 't' already"):
        client.replay("lg/t", nodes.compiled, name="t")


def test_a_saver_on_another_store_is_told(client: SyncClient, nodes: Nodes) -> None:
    with pytest.raises(UsageError, match="another store"):
        client.replay("lg/t", nodes.graph(HoldfastSaver.memory()))
    assert [session.session_id for session in client.sessions()] == ["lg/t"]


def test_on_the_command_line(tmp_path, monkeypatch) -> None:
    (tmp_path / "replayed_graph.py").write_text(
        "from typing import TypedDict\n"
        "from langgraph.graph import START, StateGraph\n"
        "from holdfast.langgraph import HoldfastSaver\n"
        "class State(TypedDict):\n"
        "    number: int\n"
        "builder = StateGraph(State)\n"
        "builder.add_node('double', lambda state: {'number': 2 * state['number']})\n"
        "builder.add_edge(START, 'double')\n"
        "graph = builder.compile(checkpointer=HoldfastSaver.from_sqlite('.holdfast/store.db'))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    import replayed_graph

    replayed_graph.graph.invoke({"number": 4}, {"configurable": {"thread_id": "t"}})
    edit = ["--mode", "mixed", "--set", "channel_values.number=10", "--name", "ten"]
    result = CliRunner().invoke(cli, ["replay", "lg/t", "replayed_graph:graph", *edit, "--json"])
    found = json.loads(result.stdout)
    assert (found["session_id"], found["result"]) == ("lg/ten", {"number": 20})
    assert [(step["name"], step["source"], step["same"]) for step in found["steps"]] == [("double", "live", False)]
    replayed_graph.graph.checkpointer.close()
    del sys.modules["replayed_graph"]


def test_awaited(tmp_path) -> None:
    async def main() -> None:
        async with Client.sqlite(tmp_path / "store.db") as client:
            nodes = Nodes()
            graph = nodes.graph(HoldfastSaver(client))
            await graph.ainvoke({"question": "why?", "notes": []}, {"configurable": {"thread_id": "t"}})
            nodes.ran.clear()
            report = await client.replay("lg/t", graph)
            assert not nodes.ran
            assert report.result["answer"] == "plan for why?; left; right"
            report = await client.replay("lg/t", graph, mode="live")
            assert nodes.ran == {"plan": 1, "left": 1, "right": 1, "answer": 1}

    asyncio.run(main())


def _extended(state: list[str] | None, writes: list[Any]) -> list[str]:
    return [*(state or []), *(note for write in writes for note in write)]


class DeltaState(TypedDict, total=False):
    notes: Annotated[list[str], DeltaChannel(_extended)]


def test_channels_that_are_kept_as_deltas(client: SyncClient) -> None:
    ran: list[str] = []

    def node(name: str) -> Any:
        def write(state: DeltaState) -> DeltaState:
            ran.append(name)
            return {"notes": [f"{name} after {len(state['notes'])}"]}

        return write

    builder = StateGraph(DeltaState)
    for name in "abc":
        builder.add_node(name, node(name))
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("b", "c")
    graph = builder.compile(checkpointer=HoldfastSaver(client))
    graph.invoke({"notes": ["start"]}, {"configurable": {"thread_id": "t"}})
    expected = ["start", "a after 1", "b after 2", "c after 3"]
    ran.clear()
    assert client.replay("lg/t", graph).result["notes"] == expected
    assert client.replay("lg/t", graph, mode="mixed").result["notes"] == expected
    assert not ran
    start = next(
        one.checkpoint_id for one in client.timeline(session_id="lg/t") if one.metadata["metadata"]["step"] == 1
    )
    report = client.replay("lg/t", graph, from_=start, mode="mixed", steps={"b": "live"})
    assert report.result["notes"] == expected
    assert ran == ["b"]  # the same came of it, so c is asked the same
