"""Repair: every tool call is answered exactly once, in order, and nothing else has changed."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import OpenToolCallError, UsageError
from holdfast.model.transcript import open_calls
from holdfast.model.transcript_repair import NOT_STARTED, UNKNOWN, CallOutcome, Outcome, repair

SHAPES = ("openai", "anthropic", "langchain", "langchain data")
NAMES = st.sampled_from(("pay", "look", "post"))


def calling(shape, calls):
    """A message of the model with these calls, as (id, name)."""
    match shape:
        case "openai":
            made = [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps({"n": id_})}}
                for id_, name in calls
            ]
            return {"role": "assistant", "content": None, "tool_calls": made}
        case "anthropic":
            made = [{"type": "tool_use", "id": id_, "name": name, "input": {"n": id_}} for id_, name in calls]
            return {"role": "assistant", "content": [{"type": "text", "text": "well"}, *made]}
        case _:
            fields = {
                "content": "",
                "tool_calls": [
                    {"id": id_, "name": name, "args": {"n": id_}, "type": "tool_call"} for id_, name in calls
                ],
            }
            return {"type": "ai", "data": fields} if shape == "langchain data" else {"type": "ai", **fields}


def answering(shape, ids):
    match shape:
        case "openai":
            return [{"role": "tool", "tool_call_id": id_, "content": f"result of {id_}", "kept": True} for id_ in ids]
        case "anthropic":
            blocks = [{"type": "tool_result", "tool_use_id": id_, "content": f"result of {id_}"} for id_ in ids]
            return [{"role": "user", "content": [*blocks, {"type": "text", "text": "and?"}]}] if ids else []
        case _:
            fields = [{"content": f"result of {id_}", "tool_call_id": id_} for id_ in ids]
            if shape == "langchain data":
                return [{"type": "tool", "data": one} for one in fields]
            return [{"type": "tool", **one} for one in fields]


def saying(shape, text):
    if shape == "langchain":
        return {"type": "human", "content": text}
    return (
        {"type": "human", "data": {"content": text}} if shape == "langchain data" else {"role": "user", "content": text}
    )


@st.composite
def transcripts(draw, shapes=SHAPES):
    """A conversation in which any calls, of any turn, may be open. Ids come up again in later turns."""
    shape = draw(st.sampled_from(shapes))
    messages = [saying(shape, "hello")]
    is_in_order = True
    for _ in range(draw(st.integers(0, 4))):
        calls = [(f"call_{number}", draw(NAMES)) for number in range(draw(st.integers(0, 4)))]
        messages.append(calling(shape, calls))
        answered = [id_ for id_, _ in calls if draw(st.booleans())]
        order = draw(st.permutations(answered))
        is_in_order = is_in_order and list(order) == answered
        messages += answering(shape, order)
        if draw(st.booleans()):
            messages.append(saying(shape, draw(st.text(max_size=3))))
    return shape, messages, is_in_order


def flat(message):
    """A message as a list of its pieces, of which repair may add some."""
    content = message.get("content")
    if message.get("role") == "user" and isinstance(content, list):
        return [json.dumps(block, sort_keys=True) for block in content]
    return [json.dumps(message, sort_keys=True)]


def pieces(messages):
    return [piece for message in messages for piece in flat(message)]


def turns_of(messages):
    """The calls of each turn and the ids that are answered in it, in order: written another way
    than the library does."""
    found = []
    for message in messages:
        body = message.get("data", message)
        content = body.get("content")
        blocks = content if isinstance(content, list) else []
        if message.get("role") == "assistant" or message.get("type") == "ai":
            calls = [call["id"] for call in body.get("tool_calls", [])]
            calls += [block["id"] for block in blocks if block["type"] == "tool_use"]
            found.append((calls, []))
        elif "tool_call_id" in body:
            found[-1][1].append(body["tool_call_id"])
        else:
            answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            if answered:
                found[-1][1].extend(answered)
    return found


@given(transcripts(), st.sampled_from([NOT_STARTED, UNKNOWN, Outcome(CallOutcome.FINISHED, {"paid": 5})]))
def test_every_call_is_answered_once_and_nothing_else_has_changed(made, outcome):
    _, messages, is_in_order = made
    before = copy.deepcopy(messages)
    repaired = repair(messages, lambda _call: outcome)
    assert messages == before
    for calls, answered in turns_of(repaired):
        assert sorted(answered) == sorted(calls)
        if is_in_order:
            assert answered == calls
    assert open_calls(repaired) == []
    rest = iter(pieces(repaired))
    assert all(piece in rest for piece in pieces(before))  # what was there is there, in the same order
    added = len(pieces(repaired)) - len(pieces(before))
    assert added == len(open_calls(before))
    assert repair(repaired, lambda _call: pytest.fail("nothing is open")) == repaired


@given(transcripts())
def test_a_transcript_without_open_calls_stays_as_it_is(made):
    _, messages, _ = made
    if not open_calls(messages):
        assert repair(messages, {}, "raise") == messages


@given(transcripts())
def test_execute_makes_what_was_not_started_in_order_and_nothing_else(made):
    _, messages, _ = made
    wanted = open_calls(messages)
    truth = {call.id: UNKNOWN for call in wanted if call.name == "pay"}
    executed = []
    repaired = repair(messages, truth, "execute", execute=lambda call: executed.append(call) or f"did {call.id}")
    assert executed == [call for call in wanted if call.id not in truth]
    assert open_calls(repaired) == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (Outcome(CallOutcome.FINISHED, "paid"), "paid"),
        (Outcome(CallOutcome.FINISHED, {"paid": 5}), '{"paid": 5}'),
        (NOT_STARTED, "was not carried out"),
        (UNKNOWN, "It is unknown"),
        (Outcome(CallOutcome.FAILED, words="no money"), "no money"),
        (Outcome(CallOutcome.MAY_BE_REPEATED), "may have been carried out"),
    ],
)
def test_the_answer_tells_the_truth_in_the_shape_of_the_call(shape, outcome, told):
    messages = [saying(shape, "pay bob"), calling(shape, [("c1", "pay")])]
    *kept, answer = repair(messages, {"c1": outcome})
    assert kept == messages
    if shape == "anthropic":
        assert answer["role"] == "user"
        [body] = answer["content"]
        assert body.get("is_error", False) == outcome.is_error
        assert (body["type"], body["tool_use_id"]) == ("tool_result", "c1")
    else:
        body = answer.get("data", answer)
        assert body["tool_call_id"] == "c1"
        if shape != "openai":
            assert (answer["type"], body["status"]) == ("tool", "error" if outcome.is_error else "success")
    assert told in body["content"]


@pytest.mark.parametrize("shape", SHAPES)
def test_raise_names_what_is_open_and_lets_finished_ones_pass(shape):
    messages = [calling(shape, [("c1", "pay"), ("c2", "pay")])]
    finished = Outcome(CallOutcome.FINISHED, "done")
    with pytest.raises(OpenToolCallError, match="unknown") as caught:
        repair(messages, {"c1": finished, "c2": UNKNOWN}, "raise")
    assert caught.value.call_ids == ("c2",)
    assert open_calls(repair(messages, {"c1": finished, "c2": finished}, "raise")) == []


def test_what_a_tool_raises_is_told_and_not_taken_for_nothing():
    def fails(_call):
        raise TimeoutError("no answer in 30 s")

    [_, answer] = repair([calling("openai", [("c1", "pay")])], {}, "execute", execute=fails)
    assert "It is unknown" in answer["content"]
    assert "TimeoutError: no answer in 30 s" in answer["content"]


def test_a_call_whose_arguments_are_no_object_is_not_made():
    broken = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"to": "bo'}}
    messages = [{"role": "assistant", "tool_calls": [broken]}]
    [_, answer] = repair(messages, {}, "execute", execute=lambda _call: pytest.fail("it was made"))
    assert "no JSON object" in answer["content"]


def test_a_call_that_is_answered_twice_is_refused():
    messages = [calling("openai", [("c1", "pay")]), *answering("openai", ["c1", "c1"])]
    with pytest.raises(UsageError, match="more than once"):
        repair(messages, {})


def test_policies_that_can_not_be_right_are_refused():
    with pytest.raises(UsageError, match="execute"):
        repair([], {}, "guess")
    with pytest.raises(UsageError, match="needs execute"):
        repair([], {}, "execute")
