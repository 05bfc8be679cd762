"""A session that moved away and comes back: the earlier state goes on, with what was said since."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from conversations import NAMED, NAMES, OPTIONS, convert, text
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast import SyncClient
from holdfast.client.adapters import load_transcripts
from holdfast.client.conversion_targets import TARGETS
from holdfast.errors import HoldfastError
from holdfast.model.conversation import ToolCallPart, ToolResponsePart, Transcript, TranscriptMessage
from holdfast.model.loss import KINDS
from holdfast.transcript import to_transcript

pytestmark = pytest.mark.filterwarnings("ignore:.*came back as plain data:holdfast.errors.HoldfastWarning")
LONG_ID = "fc_" + "0123456789abcdef" * 4  # as OpenAI's Responses API has them
TOOL = "files.read"  # a name that some providers refuse


def ask(*ids: str, name: str = TOOL) -> dict[str, Any]:
    calls = [{"id": id_, "type": "function", "function": {"name": name, "arguments": '{"n": 1}'}} for id_ in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def tell(id_: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": f"result of {id_}"}


def graph(messages: list[Any]) -> dict[str, Any]:
    return {"channel_values": {"messages": messages, "plan": ["keep"]}, "v": 4}


def visit(client: SyncClient, target: str, more: Transcript, home: str = "lg/home", **options: Any) -> str:
    """Move a session to a target, say more there, and return the name of its session."""
    there = client.resume_as(home, target, accept=list(KINDS), **options).save("guest", session_id="away")
    head = client.latest(there)
    told = replace(
        OPTIONS, session_id=there, agent_id="guest", shape=TARGETS[target].shape, native=head.execution_state, seed="x"
    )
    state = load_transcripts(TARGETS[target].framework).from_transcript(more, told).state
    client.save("guest", TARGETS[target].framework, dict(state), session_id=there)
    return there


def check_pairs(messages: Any) -> None:
    """Check that each call has one result, right after it, by the ids as they are."""
    waiting: list[str] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                waiting.append(part.id)
            elif isinstance(part, ToolResponsePart):
                assert part.id in waiting, f"{part.id} answers no call"
                waiting.remove(part.id)
            else:
                assert not waiting or message.role == "assistant", f"{waiting} have no results"
    assert not waiting


SAID = Transcript(
    messages=(
        TranscriptMessage(role="user", parts=(text("and now?"),)),
        TranscriptMessage(role="assistant", parts=(ToolCallPart(id="n1", name="files_read_601e4eb6", arguments={}),)),
        TranscriptMessage(
            role="tool", parts=(ToolResponsePart(id="n1", name="files_read_601e4eb6", content=(text("new result"),)),)
        ),
        TranscriptMessage(role="assistant", parts=(text("all read"),)),
    )
)


@pytest.mark.parametrize("target", NAMES)
def test_ids_and_names_are_the_earlier_states_own_again(target):
    if target == "langgraph":
        return
    first = [{"role": "user", "content": "read"}, ask("a", LONG_ID), tell("a")]
    with SyncClient.memory(on_unknown_type="plain") as client:
        source = client.save("g", "langgraph", graph(first), session_id="lg/home")
        plan = client.resume_as(visit(client, target, SAID, dangling="answer"), "langgraph", accept=list(KINDS))
        assert plan.native_id == source
        state = client.latest(plan.save("g", session_id="back")).execution_state
        back = to_transcript(client.latest("lg/back"))
    assert state["channel_values"]["messages"][:3] == first and state["channel_values"]["plan"] == ["keep"]
    check_pairs(back)
    assert [part.id for one in back for part in one.tool_responses] == ["a", LONG_ID, "n1"]
    assert {call.name for one in back for call in one.tool_calls} == {TOOL}
    assert [one.text for one in back if one.text] == ["read", "and now?", "all read"]


@pytest.mark.slow
@pytest.mark.parametrize("home", NAMES)
def test_from_every_framework_to_every_other_and_back_the_native_state_continues(home):
    begun = convert(NAMED, home).converted
    for target in NAMES:
        if target == home:
            continue
        with SyncClient.memory(on_unknown_type="plain") as client:
            session = begun.session_id or "home"
            source = client.save("clerk", TARGETS[home].framework, dict(begun.state), session_id=session)
            before = to_transcript(client.latest(session)).messages
            plan = client.resume_as(visit(client, target, SAID, home=session), home, accept=list(KINDS))
            assert plan.native_id == source, target
            after = to_transcript(client.latest(plan.save("clerk"))).messages
        check_pairs(after)
        parts, known = ([part for one in messages for part in one.parts] for messages in (after, before))
        assert parts[: len(known)] == known, target
        told = json.dumps([part.to_json() for part in parts[len(known) :]])
        assert [told.count(word) for word in ("and now?", "new result", "all read")] == [1, 1, 1], (target, told)


def test_a_list_of_anthropic_gets_late_results_where_the_others_are():
    blocks = [{"type": "tool_use", "id": id_, "name": "look", "input": {}} for id_ in ("a", "b")]
    given = {"type": "tool_result", "tool_use_id": "a", "content": "A"}
    first = [
        {"role": "user", "content": "look"}, {"role": "assistant", "content": blocks},
        {"role": "user", "content": [given]},
    ]  # fmt: skip
    with SyncClient.memory(on_unknown_type="plain") as client:
        source = client.save("g", "custom", {"messages": first}, session_id="lg/home")
        plan = client.resume_as(visit(client, "crewai", SAID, dangling="answer"), "anthropic", accept=list(KINDS))
        assert plan.native_id == source
        made = client.latest(plan.save("g", session_id="back")).execution_state["messages"]
    assert [one["role"] for one in made] == ["user", "assistant"] * 3
    assert made[2]["content"][0] == given
    assert [one.get("tool_use_id") for one in made[2]["content"]] == ["a", "b", None]


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


@pytest.mark.parametrize(
    ("first", "shapes"),
    [
        ({"role": "user", "content": "hi"}, {"openai_chat", "open_responses", "anthropic"}),
        ({"role": "system", "content": "Be brief."}, {"openai_chat", "open_responses"}),
        ({"role": "user", "content": [PICTURE]}, {"openai_chat"}),
        ({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, {"open_responses"}),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}, {"anthropic"}),
    ],
)
def test_a_list_is_continued_in_its_own_shape_only(first, shapes):
    given = [{"role": "user", "content": "begin"}, first]
    with SyncClient.memory(on_unknown_type="plain") as client:
        client.save("loop", session_id="lg/home", execution_state={"messages": given})
        there = visit(client, "crewai", SAID, dangling="answer")
        for target in ("openai_chat", "open_responses", "anthropic"):
            plan = client.resume_as(there, target, accept=list(KINDS))
            assert (plan.native_id is not None) == (target in shapes)
            assert ("native_state" in {one.kind for one in plan.losses}) == (target not in shapes)
            made = client.latest(plan.save("g", session_id=target)).execution_state["messages"]
            assert made[0] == given[0] or target not in shapes


TURNS = st.lists(st.sampled_from(["user", "text", "one", "two", "handoff", "odd"]), max_size=5)


@settings(deadline=None)
@given(TURNS, st.integers(0, 2), st.sampled_from(["answer", "drop"]), st.sampled_from(NAMES), st.data())
def test_any_way_there_and_back_gives_valid_pairs_and_loses_nothing(turns, cut, policy, target, data):
    assume(target != "langgraph")
    first: list[Any] = [{"role": "user", "content": "begin"}]
    for number, kind in enumerate(turns):
        if kind == "user":
            first.append({"role": "user", "content": f"user {number}"})
        elif kind == "text":
            first.append({"role": "assistant", "content": f"said {number}"})
        elif kind == "handoff":
            first += [ask(f"h{number}", name="transfer_to_bob"), tell(f"h{number}")]
        elif kind == "odd":  # the same id in each turn
            first += [ask("0"), tell("0")]
        else:
            ids = [f"{LONG_ID}{number}{one}" for one in ("a", "b")[: 1 + (kind == "two")]]
            first += [ask(*ids), *map(tell, ids)]
    while cut and len(first) > 1 and first[-1]["role"] == "tool":  # the session was cut off in its calls
        first.pop()
        cut -= 1
    more = Transcript(messages=SAID.messages[data.draw(st.sampled_from([0, 3])) :])
    with SyncClient.memory(on_unknown_type="plain") as client:
        source = client.save("g", "langgraph", graph(first), session_id="lg/home")
        try:
            there = visit(client, target, more, dangling=policy)
            plan = client.resume_as(there, "langgraph", accept=list(KINDS))
        except HoldfastError:
            return
        state = client.latest(plan.save("g", session_id="back")).execution_state
        back = to_transcript(client.latest("lg/back"))
    check_pairs(back)
    told = json.dumps([[part.to_json() for part in one.parts] for one in back], default=str)
    kept = plan.native_id is not None
    for one in first:
        wanted = one["content"]
        assert wanted is None or "h" in str(one.get("tool_call_id", "")) or wanted in told or policy == "drop", wanted
    for one in more:
        assert one.text in told
    assert [one.text for one in back].count("all read") <= 1
    if kept:
        assert plan.native_id == source
        assert state["channel_values"]["messages"][: len(first)] == first
    else:
        assert "native_state" in {one.kind for one in plan.losses}
