"""AgentState: never changed, kept whole."""

from __future__ import annotations

import copy
import json
import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import AgentState, NewerVersionError, PlanStep, SubagentTrace, UsageError
from holdfast.model.run_policy import SubagentCall

WHEN = datetime(2026, 3, 1, 12, tzinfo=UTC)
TRACE = SubagentTrace(
    subagent_id="research/c1",
    subagent_type="research",
    parent_tool_call_id="c1",
    prompt="find it",
    started_at=WHEN,
    ended_at=WHEN,
    success=True,
    result="found",
    tool_calls=(SubagentCall(name="look", key="c2", started_at=WHEN, ended_at=WHEN),),
    usage={"total_tokens": 7},
)


def full():
    return (
        AgentState.initial()
        .with_message({"role": "user", "content": [{"type": "text", "text": "hello"}]})
        .with_step(3)
        .with_metadata("customer", {"name": "bob", "orders": [1, 2]})
        .with_reasoning("think")
        .with_plan([{"id": "a", "description": "first"}, PlanStep(id="b", description="then", depends_on=["a"])])
        .with_subagent_trace(TRACE)
    )


def test_every_with_gives_another_state_and_leaves_the_old_one():
    state = full()
    before = state.to_json()
    others = [
        state.with_message({"role": "user", "content": "x"}),
        state.with_context([]),
        state.with_step(4),
        state.with_metadata("customer", None),
        state.without_metadata("customer"),
        state.with_reasoning("more"),
        state.with_plan(None),
        state.with_plan_status("a", "completed"),
        state.with_subagent_trace(TRACE),
    ]
    assert state.to_json() == before
    assert len({state.id, *(other.id for other in others)}) == len(others) + 1


def test_nothing_that_is_read_from_a_state_can_be_changed():
    state = full()
    with pytest.raises(TypeError, match="never changes"):
        state.messages[0]["content"][0]["text"] = "changed"
    with pytest.raises(TypeError, match="never changes"):
        state.messages.append({})
    with pytest.raises(TypeError, match="never changes"):
        state.metadata["customer"]["orders"].append(3)
    with pytest.raises(TypeError, match="never changes"):
        state.metadata |= {}
    with pytest.raises(AttributeError):
        state.plan[0].status = "completed"
    with pytest.raises(AttributeError):
        state.step = 9


def test_what_was_given_may_be_changed_afterwards():
    message = {"role": "user", "content": [{"text": "hello"}]}
    told = {"a": [1]}
    state = AgentState.initial().with_message(message).with_metadata("told", told)
    message["content"][0]["text"] = "changed"
    told["a"].append(2)
    assert state.messages[0]["content"] == [{"text": "hello"}]
    assert state.metadata == {"told": {"a": [1]}}
    given_back = state.to_json()
    given_back["messages"].clear()
    assert len(state.messages) == 1
    assert type(copy.deepcopy(state.messages)) is list  # a copy is the caller's


def test_everything_is_kept_ids_and_times_of_messages_as_well():
    state = full()
    kept = AgentState.from_json(json.loads(json.dumps(state.to_json())))
    assert kept == state
    assert kept.id == state.id
    assert kept.messages[0]["id"] == state.messages[0]["id"]
    assert kept.messages[0]["timestamp"] == state.messages[0]["timestamp"]
    assert kept.subagent_traces == (TRACE,)
    assert [step.status for step in kept.plan] == ["pending", "pending"]
    assert kept.plan[1].depends_on == ("a",)
    assert pickle.loads(pickle.dumps(state)) == state


def test_a_message_that_has_an_id_and_a_time_keeps_them():
    message = {"role": "user", "content": "x", "id": "m1", "timestamp": "2026-01-01T00:00:00.000Z"}
    assert AgentState.initial().with_message(message).messages == [message]


def test_steps_do_not_go_back():
    with pytest.raises(UsageError, match="don't go back"):
        full().with_step(2)


def test_what_is_no_state_is_refused():
    for data in ({}, [], {"version": 1}, {"version": 1, "id": "x"}, {**full().to_json(), "plan": [{"id": 1}]}):
        with pytest.raises(UsageError):
            AgentState.from_json(data)
    with pytest.raises(NewerVersionError, match="upgrade"):
        AgentState.from_json({**full().to_json(), "version": 2})
    with pytest.raises(UsageError, match="no message"):
        AgentState.initial().with_message("hello")
    with pytest.raises(UsageError, match="same id"):
        AgentState.initial().with_plan([{"id": "a", "description": ""}, {"id": "a", "description": ""}])
    with pytest.raises(UsageError, match="must be one of"):
        full().with_plan_status("a", "nearly")
    with pytest.raises(UsageError, match="no step"):
        full().with_plan_status("z", "completed")


def test_a_state_of_the_predecessor_is_read():
    state = AgentState.from_json(
        {
            "version": "1.0.0",
            "id": "s1",
            "messages": [{"role": "user", "content": "hi", "metadata": {"k": 1}}],
            "step": 4,
            "metadata": {"agentId": "a"},
            "reasoning": ["r"],
            "plan": [{"id": "p", "description": "d", "dependsOn": ["o"], "status": "in_progress"}],
            "subagentTraces": [
                {
                    "subagentId": "x", "subagentType": "explorer", "parentToolCallId": "c", "prompt": "p",
                    "startTime": 1_767_225_600_000, "endTime": 1_767_225_601_000, "success": True, "result": "r",
                    "toolExecutions": [{"toolName": "t", "toolCallId": "i", "arguments": {}, "result": "x",
                                        "isError": True}],
                }
            ],
        }
    )  # fmt: skip
    assert (state.id, state.step, state.plan[0].depends_on, state.plan[0].status) == ("s1", 4, ("o",), "in_progress")
    [trace] = state.subagent_traces
    assert (trace.subagent_type, trace.parent_tool_call_id) == ("explorer", "c")
    assert (trace.ended_at - trace.started_at).total_seconds() == 1
    assert trace.tool_calls[0].failed
    assert AgentState.from_json(state.to_json()) == state


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.builds(lambda content: {"role": "user", "content": content}, json_values), max_size=4), json_values)
def test_any_state_is_kept_whole(messages, value):
    state = AgentState.initial().with_messages(messages).with_metadata("value", value)
    data = json.loads(json.dumps(state.to_json()))
    assert AgentState.from_json(data) == state
    assert AgentState.from_json(data).to_json() == data
    assert [message["content"] for message in data["messages"]] == [message["content"] for message in messages]


@pytest.mark.parametrize("wrong", [{"id": "a"}, {"id": "a", "description": "x", "dependsOn": []}, 7, "read it"])
def test_what_is_no_step_of_a_plan_is_refused_with_what_one_is(wrong):
    with pytest.raises(UsageError, match="an id and a description"):
        AgentState.initial().with_plan([wrong])


def test_a_text_is_no_list_of_dependencies():
    with pytest.raises(UsageError, match="list of ids"):
        AgentState.initial().with_plan([{"id": "b", "description": "x", "depends_on": "ab"}])


def test_a_state_that_lacks_something_is_refused_by_its_name():
    given = AgentState.initial().to_json()
    del given["messages"]
    with pytest.raises(UsageError, match="it has no 'messages'"):
        AgentState.from_json(given)
