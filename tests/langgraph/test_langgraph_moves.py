"""Threads of LangGraph that move to another framework: positions, pending writes, questions to people."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from holdfast import SyncClient
from holdfast.errors import ApprovalPendingError, ConversionError, OpenToolCallError, UsageError
from holdfast.langgraph import HoldfastSaver

THREAD: Any = {"configurable": {"thread_id": "t"}}


class Killed(BaseException):
    pass


class DyingSaver(HoldfastSaver):
    """A saver whose process dies before it stores the checkpoint of a step, when the writes are stored."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if metadata.get("step") == 2:
            raise Killed
        return super().put(config, checkpoint, metadata, new_versions)


def office(saver: HoldfastSaver, paid: list[str], pay: Any = None) -> Any:
    def model(state: MessagesState) -> dict[str, Any]:
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage("done")]}
        return {"messages": [AIMessage("", tool_calls=[{"id": "c1", "name": "pay", "args": {"to": "bob"}}])]}

    def tools(state: MessagesState) -> dict[str, Any]:
        if pay is not None:
            pay()
        paid.append("bob")
        return {"messages": [ToolMessage("paid", tool_call_id="c1")]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", tools)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


@pytest.fixture
def store(tmp_path) -> str:
    return str(tmp_path / "a.db")


def test_a_result_that_only_the_pending_writes_have_is_found(store):
    paid: list[str] = []
    with DyingSaver.from_sqlite(store) as saver, pytest.raises(Killed):
        office(saver, paid).invoke({"messages": [HumanMessage("pay bob")]}, THREAD, durability="sync")
    assert paid == ["bob"]
    with SyncClient.sqlite(store) as client:
        plan = client.resume_as("lg/t", "crewai")  # the call has a result: nothing is open
        assert [one.role for one in plan.messages] == ["user", "assistant", "tool"]
        there = plan.save("clerk")
        state = client.latest(there).execution_state
        more = [{"role": "user", "content": "go on"}, {"role": "assistant", "content": "paid", "agent": "clerk"}]
        client.save("clerk", "crewai", {**state, "messages": [*state["messages"], *more]}, session_id=there)
        home = client.resume_as(there, "langgraph").save("graph", session_id="home")
    with HoldfastSaver.from_sqlite(store) as saver:
        state = office(saver, paid).get_state({"configurable": {"thread_id": home.removeprefix("lg/")}})
        assert [one.type for one in state.values["messages"]] == ["human", "ai", "tool", "human", "ai"]
        assert state.next == ()


def test_a_question_to_a_person_is_asked_again_in_the_target(store):
    with HoldfastSaver.from_sqlite(store) as saver:
        graph = office(saver, [], lambda: interrupt("may bob be paid?"))
        graph.invoke({"messages": [HumanMessage("pay bob")]}, THREAD)
    with SyncClient.sqlite(store) as client:
        plan = client.resume_as("lg/t", "crewai")
        assert "waited for a person's approval" in plan.messages[-1].tool_responses[0].content[0].content
        assert "approvals" in [one.kind for one in plan.losses]
        with pytest.raises(ApprovalPendingError, match="may bob be paid"):
            client.resume_as("lg/t", "crewai", approvals="raise")


def test_a_tool_that_failed_leaves_its_call_open(store):
    def fail() -> None:
        raise RuntimeError

    with HoldfastSaver.from_sqlite(store) as saver, pytest.raises(RuntimeError):
        office(saver, [], fail).invoke({"messages": [HumanMessage("pay bob")]}, THREAD)
    with SyncClient.sqlite(store) as client:
        with pytest.raises(OpenToolCallError):
            client.resume_as("lg/t", "crewai")
        assert client.resume_as("lg/t", "crewai", dangling="answer")


def test_branches_and_positions_within_a_graph_are_refused(store):
    def fail(state: MessagesState) -> None:
        raise RuntimeError

    def say(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("hello")]}

    builder = StateGraph(MessagesState)
    for name, node in (("say", say), ("left", fail), ("right", fail)):
        builder.add_node(name, node)
    builder.add_edge(START, "say")
    builder.add_edge("say", "left")
    builder.add_edge("say", "right")
    with HoldfastSaver.from_sqlite(store) as saver, pytest.raises(RuntimeError):
        builder.compile(checkpointer=saver).invoke({"messages": [HumanMessage("hi")]}, THREAD)
    with SyncClient.sqlite(store) as client:
        with pytest.raises(ConversionError, match="2 pending branches"):
            client.resume_as("lg/t", "crewai")
        with pytest.raises(ConversionError, match="in its first turn"):
            client.resume_as("lg/t", "crewai", at="last_turn")
        first = client.timeline("lg/t")[-1].checkpoint_id  # before any node ran
        assert [one.text for one in client.resume_as(first, "crewai").messages] == ["hi"]


def test_a_thread_has_a_name_that_its_session_tells(store):
    with SyncClient.sqlite(store) as client:
        client.save("a", session_id="x/y", execution_state={"messages": [{"role": "user", "content": "hi"}]})
        plan = client.resume_as("x/y", "langgraph")
        with pytest.raises(UsageError, match="must not have '/'"):
            plan.save("graph", session_id="a/b")
        assert plan.save("graph") == "lg/x-y-langgraph-1"
        assert plan.save("graph", session_id="lg/z") == "lg/z"
