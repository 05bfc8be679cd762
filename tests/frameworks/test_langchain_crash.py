"""Agents of LangChain's `create_agent` on the LangGraph saver, killed and started again."""

from __future__ import annotations

import json
from itertools import chain

from call_log import read_calls
from crash_kit import Finished, assert_same_outcome, run_program, run_until_done, spread
from framework_environments import require

require("langchain")

from langchain_core.messages import ToolMessage

from holdfast.langgraph import HoldfastSaver

PROGRAM = "langchain_agent"


def finish(places) -> Finished:
    uninterrupted = run_program(PROGRAM, *places.make("whole"))
    assert isinstance(uninterrupted, Finished)
    assert [len(uninterrupted.calls[name]) for name in ("model", "pay")] == [3, 3]
    return uninterrupted


def test_an_agent_killed_between_steps_goes_on(places):
    uninterrupted = finish(places)
    points = spread(uninterrupted.commits)
    for number in points if places.kind == "sqlite" else points[len(points) // 2 :][:1]:
        store, directory = places.make(f"at-{number}")
        killed = run_until_done(PROGRAM, store, directory, kill_after_commits=number)
        assert_same_outcome(uninterrupted, killed)
        # A kill at a commit interrupts one step: at most its calls are made again.
        assert sum(map(len, killed.calls.values())) <= sum(map(len, uninterrupted.calls.values())) + 2


def test_finished_tools_of_a_step_are_not_repeated(sqlite_places):
    """A step with two tools is killed at each of its commits: a tool whose result is stored is not called again."""
    uninterrupted = finish(sqlite_places)
    found: list[int] = []
    for number in range(1, uninterrupted.commits + 1):
        store, directory = sqlite_places.make(f"at-{number}")
        run_program(PROGRAM, store, directory, kill_after_commits=number)
        stored = stored_receipts(store)
        before = len(read_calls(directory).get("pay", ()))
        finished = run_until_done(PROGRAM, store, directory)
        assert stored.isdisjoint(json.loads(call)[0] for call in finished.calls["pay"][before:])
        assert {json.loads(call)[0] for call in finished.calls["pay"]} == {"a", "b", "c"}
        found.append(len(stored))
    assert {0, 2, 3} <= set(found)  # 1 if the results of the first step's tools were not committed together


def stored_receipts(store: str) -> set[str]:
    """Return the invoices whose receipts are in the store, as messages or as writes of an unfinished step."""
    with HoldfastSaver.from_conn_string(store) as saver:
        found = saver.get_tuple({"configurable": {"thread_id": "invoices"}})
    if found is None:
        return set()
    written = [value for _, channel, value in found.pending_writes or () if channel == "messages"]
    messages = [*found.checkpoint["channel_values"].get("messages", ()), *chain.from_iterable(written)]
    return {one.tool_call_id.removeprefix("call-") for one in messages if isinstance(one, ToolMessage)}


def test_a_tool_under_way_is_made_again(sqlite_places):
    uninterrupted = finish(sqlite_places)
    store, directory = sqlite_places.make("killed")
    killed = run_until_done(PROGRAM, store, directory, kill_in_call=2)
    assert_same_outcome(uninterrupted, killed)
    assert len(killed.calls["pay"]) > 3
