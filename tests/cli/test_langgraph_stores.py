"""The command line on a store that LangGraph's saver wrote: its threads are sessions, its checkpoints ours."""

import json
import operator
from typing import Annotated, TypedDict

import pytest

from holdfast import SyncClient

pytest.importorskip("langgraph.graph")

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

from holdfast.langgraph import HoldfastSaver

CONFIG = {"configurable": {"thread_id": "user-7"}}


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], operator.add]


def compiled(saver):
    def answer(state: State):
        return {"messages": [AIMessage(f"answer {len(state['messages'])}")], "log": ["answered"]}

    def approve(state: State):
        return {"log": [f"approved: {interrupt('send?')}"]}

    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_node("approve", approve)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", "approve")
    return builder.compile(checkpointer=saver)


@pytest.fixture
def store(tmp_path):
    """A thread with one finished turn, a turn that waits for an answer, and a branch from the first turn."""
    path = tmp_path / ".holdfast" / "store.db"
    with HoldfastSaver.from_sqlite(path) as saver:
        graph = compiled(saver)
        graph.invoke({"messages": [HumanMessage("one")]}, CONFIG)
        graph.invoke(Command(resume="yes"), CONFIG)
        first = graph.get_state(CONFIG)
        graph.invoke({"messages": [HumanMessage("two")]}, CONFIG)
        branched = graph.update_state(first.config, {"messages": [HumanMessage("instead")]}, as_node="__start__")
        graph.invoke(None, branched)
    return path


def on(path):
    return HoldfastSaver.from_sqlite(path)


def test_sessions_and_timeline(run, store):
    [session] = json.loads(run("sessions", "--json").stdout)["sessions"]
    assert (session["session_id"], session["agent_id"], session["saves"]) == ("lg/user-7", "langgraph", 9)
    assert session["head"]["framework"] == "langgraph"
    listed = json.loads(run("timeline", "lg/user-7", "--json").stdout)["checkpoints"]
    assert [entry["step_name"] for entry in listed] == [
        "loop 4", "update 3", "loop 5", "loop 4", "input 3", "loop 2", "loop 1", "loop 0", "input -1",
    ]  # fmt: skip
    assert [entry["metadata"]["thread_id"] for entry in listed] == ["user-7"] * 9


def test_the_branch_of_a_time_travel_is_one_in_the_graph(run, store):
    tree = json.loads(run("timeline", "lg/user-7", "--graph", "--json").stdout)["checkpoints"]
    children = [entry["parent_id"] for entry in tree]
    [fork] = {parent for parent in children if parent and children.count(parent) == 2}
    assert next(entry["step_name"] for entry in tree if entry["checkpoint_id"] == fork) == "loop 2"
    assert children.count(None) == 1  # one root: the chain of parents is not broken


def test_show(run, store):
    shown = json.loads(run("show", "lg/user-7", "--json").stdout)
    values = shown["execution_state"]["channel_values"]
    contents = [message["value"]["content"] for message in values["messages"]]
    assert contents == ["one", "answer 1", "instead", "answer 3"]
    assert values["messages"][0]["$type"] == "langchain:HumanMessage"
    one = run("show", "lg/user-7", "--path", "channel_values.log")
    assert one.exit_code == 0, one.stderr
    assert json.loads(one.stdout) == ["answered", "approved: yes", "answered"]


def test_timeline_names_the_nodes_that_ran(run, store):
    header, *rows = run("timeline", "lg/user-7").stdout.splitlines()
    at = header.index("nodes"), header.index("checkpoint")
    assert [row[at[0] : at[1]].strip() for row in rows] == ["answer", "", "answer", "", "", "approve", "answer", "", ""]


def test_a_node_that_was_sent_to_is_named_each_time(run, tmp_path):
    class Parts(TypedDict):
        out: Annotated[list[str], operator.add]

    builder = StateGraph(Parts)
    builder.add_node("plan", lambda _: {"out": ["planned"]})
    builder.add_node("work", lambda part: {"out": [part["name"]]})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda _: [Send("work", {"name": name}) for name in "ab"], ["work"])
    with on(tmp_path / ".holdfast" / "store.db") as saver:
        graph = builder.compile(checkpointer=saver)
        for _ in range(2):
            graph.invoke({"out": []}, CONFIG)
    header, *rows = run("timeline", "lg/user-7").stdout.splitlines()
    at = header.index("nodes"), header.index("checkpoint")
    assert [row[at[0] : at[1]].strip() for row in rows] == ["work", "plan", "", "", "work", "plan", "", ""]


def test_show_names_nodes_and_channels(run, store):
    lines = [line.split() for line in run("show", "lg/user-7").stdout.splitlines()]
    assert ["nodes", "answer"] in lines
    assert ["channels", "dict", "of", "2"] in lines
    assert ["log", "list", "of", "3,", "the", "last:", "'answered'"] in lines
    assert ["thread_id", "'user-7'"] in lines
    text = run("show", "lg/user-7").stdout
    assert "versions" not in text
    assert "branch:to" not in text
    assert "versions_seen" in run("show", "lg/user-7", "--state").stdout


def test_diff_shows_nodes_and_values(run, store):
    said = run("diff", "lg/user-7@-", "lg/user-7").stdout.splitlines()
    assert said[:2] == ["@ nodes that ran: answer", "+ log[2]: 'answered'"]
    assert said[2].startswith("+ messages[3]: langchain:AIMessage(content='answer 3', id='")
    assert len(said) == 3
    raw = run("diff", "lg/user-7@-", "lg/user-7", "--raw").stdout
    assert "~ execution_state.channel_versions.messages" in raw
    edits = json.loads(run("diff", "lg/user-7@-", "lg/user-7", "--json").stdout)["edits"]
    assert any(edit["path"][:2] == ["execution_state", "versions_seen"] for edit in edits)


def test_compare_shows_nodes_and_values(run, store):
    with on(store) as saver:
        graph = compiled(saver)
        other = {"configurable": {"thread_id": "other"}}
        graph.invoke({"messages": [HumanMessage("three")]}, other)
    said = run("compare", "lg/user-7", "lg/other").stdout
    assert "loop 1 answer" in said
    assert "- log[1..2] removed (2 elements): 'approved: yes' · 'answered'" in said
    assert "version" not in said
    assert "channel_versions" in run("compare", "lg/user-7", "lg/other", "--raw", "--all").stdout
    paths = json.loads(run("compare", "lg/user-7", "lg/other", "--stat", "--json").stdout)["paths"]
    assert [one["path"] for one in paths] == ["messages", "log"]


def test_verify_and_du(run, store):
    checked = json.loads(run("verify", "--json").stdout)
    assert (checked["ok"], checked["checked"]) == (True, 9)
    [session] = json.loads(run("du", "--json").stdout)["sessions"]
    assert (session["session_id"], session["checkpoints"]) == ("lg/user-7", 9)


def test_a_fork_is_a_session_of_its_own_and_leaves_the_thread(run, store):
    with SyncClient.sqlite(store, types=None) as client:
        before = [entry.checkpoint_id for entry in client.timeline(agent_id="langgraph", session_id="lg/user-7")]
        client.fork(before[-1], session_id="what-if")
        sessions = {session.session_id for session in client.sessions()}
    assert sessions == {"lg/user-7", "what-if"}
    listed = json.loads(run("timeline", "lg/user-7", "--json").stdout)["checkpoints"]
    assert [entry["checkpoint_id"] for entry in listed] == before
    with on(store) as saver:
        assert len([*compiled(saver).get_state_history(CONFIG)]) == 9
    [thread] = json.loads(run("langgraph", "threads", "--json").stdout)["threads"]
    assert thread["thread_id"] == "user-7"
    assert json.loads(run("verify", "--json").stdout)["ok"]


def test_export_and_import_take_the_thread_elsewhere_with_its_question(run, store, tmp_path):
    assert run("export", "-o", "bundle").exit_code == 0
    assert run("import", "bundle", "--store", "elsewhere.db").exit_code == 0
    with on(tmp_path / "elsewhere.db") as saver:
        graph = compiled(saver)
        assert [waiting.value for waiting in graph.get_state(CONFIG).interrupts] == ["send?"]
        assert graph.invoke(Command(resume="no"), CONFIG)["log"][-1] == "approved: no"


def test_an_expired_checkpoint_is_gone_for_the_graph_until_it_is_brought_back(run, store):
    head = json.loads(run("timeline", "lg/user-7", "--json").stdout)["head"]
    assert run("expire", "lg/user-7", "--yes").exit_code == 0
    with on(store) as saver:
        state = compiled(saver).get_state(CONFIG)
    assert (state.metadata["source"], state.metadata["step"]) == ("update", 3)
    assert run("expire", "--undo", head).exit_code == 0
    with on(store) as saver:
        graph = compiled(saver)
        assert graph.get_state(CONFIG).next == ("approve",)
        assert graph.invoke(Command(resume="yes"), CONFIG)["log"][-1] == "approved: yes"


def test_retain_and_gc_leave_what_the_graph_stands_at(run, store):
    assert run("retain", "--keep-last", "2", "--yes").exit_code == 0
    assert run("gc").exit_code == 0
    with on(store) as saver:
        graph = compiled(saver)
        assert len([*graph.get_state_history(CONFIG)]) == 2
        assert graph.invoke(Command(resume="yes"), CONFIG)["log"][-1] == "approved: yes"
    assert json.loads(run("verify", "--json").stdout)["ok"]
