"""Conversations in the form of Haystack, by pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conversations import OPTIONS, PNG, convert, read_back, text

from holdfast import SyncClient
from holdfast.adapters.haystack.transcript import from_transcript, parts_of_result, to_transcript
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    BlobPart,
    ReasoningPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptMessage,
    UriPart,
)
from holdfast.model.framework import Framework

ASKED = TranscriptMessage(role="user", parts=(text("pay"),))
CALL = TranscriptMessage(role="assistant", parts=(ToolCallPart(id="a", name="pay", arguments={"to": "bob"}),))
PAID = TranscriptMessage(role="tool", parts=(ToolResponsePart(id="a", name="pay", content=(text("paid"),)),))


def read(state: Any) -> Transcript:
    return to_transcript(
        Checkpoint(checkpoint_id="c", agent_id="a", session_id="s", framework=Framework.HAYSTACK, execution_state=state)
    )


def test_an_answer_has_one_text_and_one_thought():
    parts = (
        ReasoningPart(content="hm"),
        text("first"),
        ToolCallPart(id="a", name="pay", arguments={}),
        ReasoningPart(content="so"),
        text("last"),
    )
    said = Transcript(messages=(ASKED, TranscriptMessage(role="assistant", parts=parts), PAID))
    made = convert(said, "haystack")
    assert [[*part] for part in made.converted.state["messages"][1]["content"]] == [
        ["reasoning"],
        ["text"],
        ["tool_call"],
    ]
    assert not made.losses


def test_each_result_is_a_message_and_has_its_call():
    calls = tuple(ToolCallPart(id=one, name="pay", arguments={"to": one}) for one in "ab")
    results = tuple(ToolResponsePart(id=one, content=(text(f"paid {one}"),)) for one in "ab")
    said = Transcript(
        messages=(
            ASKED,
            TranscriptMessage(role="assistant", parts=calls),
            TranscriptMessage(role="tool", parts=results),
        )
    )
    made = convert(said, "haystack")
    found = [one["content"][0]["tool_call_result"] for one in made.converted.state["messages"][2:]]
    assert [(one["result"], one["origin"]["arguments"]) for one in found] == [
        ("paid a", {"to": "a"}),
        ("paid b", {"to": "b"}),
    ]
    assert not made.losses


@pytest.mark.parametrize("mime_type", ["image/svg+xml", "application/zip", ""])
def test_media_of_any_type_are_kept(mime_type):
    blob = BlobPart(mime_type=mime_type, data=b"x")
    shown = TranscriptMessage(role="tool", parts=(ToolResponsePart(id="a", name="pay", content=(text("see"), blob)),))
    said = Transcript(messages=(TranscriptMessage(role="user", parts=(blob,)), CALL, shown))
    made = convert(said, "haystack")
    assert not made.losses
    there = read_back("haystack", made).messages
    assert there[0].parts == (blob,) and there[2].tool_responses[0].content == (text("see"), blob)


def test_links_become_notes_and_are_said():
    link = UriPart(uri="https://a.example/x.pdf", mime_type="application/pdf")
    shown = TranscriptMessage(role="tool", parts=(ToolResponsePart(id="a", name="pay", content=(link, PNG)),))
    made = convert(Transcript(messages=(TranscriptMessage(role="user", parts=(link,)), CALL, shown)), "haystack")
    assert [one.kind for one in made.losses] == ["files", "result_files"]
    assert "x.pdf" in read_back("haystack", made).messages[0].text


def test_the_name_of_an_agent_is_one_that_providers_take():
    said = Transcript(messages=(ASKED, TranscriptMessage(role="assistant", author="The buyer", parts=(text("yes"),))))
    made = convert(said, "haystack")
    assert [one.kind for one in made.losses] == ["authors"]
    assert made.converted.state["messages"][1]["name"].startswith("The_buyer")


@pytest.mark.parametrize(("context", "then"), [(None, None), ([[1, 2]], [[1, 2], [2, 4]])])
def test_what_is_appended_to_an_earlier_state_is_read_by_the_model(context, then):
    before = from_transcript(Transcript(messages=(ASKED, CALL)), OPTIONS).state
    more = Transcript(messages=(PAID, TranscriptMessage(role="assistant", parts=(text("done"),))))
    state = from_transcript(more, replace(OPTIONS, native={**before, "context": context})).state
    assert state["context"] == then
    assert state["messages"][:2] == before["messages"]
    assert state["messages"][2]["content"][0]["tool_call_result"]["origin"]["arguments"] == {"to": "bob"}


def test_the_spans_of_the_context_are_no_state():
    assert not read({"messages": [], "context": [[0, 1]], "turn": None}).state
    assert read({"messages": [], "snapshot": {"a": 1}, "turn": None}).state == {"snapshot": {"a": 1}}


@pytest.mark.parametrize(
    "recorded",
    [
        "paid",
        {"holdfast_failed": "paid"},
        {"holdfast_told": "paid"},
        {"holdfast_changes": {"x": 1}, "result": "paid"},
    ],
)
def test_recorded_results_are_read_without_their_marks(recorded):
    assert parts_of_result(recorded) == (text("paid"),)


def test_an_image_without_a_type_is_an_image():
    image = {"image": {"base64_image": "aGk=", "mime_type": None}}
    [found] = read({"messages": [{"role": "user", "content": [image]}], "turn": None})
    assert found.parts == (BlobPart(mime_type="image/jpeg", data=b"hi"),)


def test_a_session_that_comes_back_continues_its_own_state():
    said = [
        {"role": "user", "meta": {}, "name": None, "content": [{"text": "hi"}]},
        {"role": "assistant", "meta": {"model": "m-1"}, "name": None, "content": [{"text": "hello"}]},
    ]
    with SyncClient.memory() as client:
        client.save("a", "haystack", {"messages": said, "context": [[1, 2]], "turn": None}, session_id="s")
        there = client.resume_as("s", "openai_chat").save("loop")
        listed = client.latest(there).execution_state["messages"]
        client.save("loop", session_id=there, execution_state={"messages": [*listed, {"role": "user", "content": "x"}]})
        plan = client.resume_as(there, "haystack")
        assert plan.native_id is not None
        state = client.latest(plan.save("a")).execution_state
    assert state["messages"][:2] == said and state["context"] == [[1, 2], [2, 3]]
