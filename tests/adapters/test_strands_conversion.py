"""Conversations in the form of Strands, by pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from conversations import NAMED, OPTIONS, PDF, PNG, convert, read_back, text

from holdfast import SyncClient
from holdfast.adapters.strands.transcript import from_transcript, to_transcript
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    BlobPart,
    MessagePart,
    ReasoningPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptMessage,
    UriPart,
)
from holdfast.model.framework import Framework


def user(*parts: MessagePart) -> TranscriptMessage:
    return TranscriptMessage(role="user", parts=parts)


def read(state: Any) -> Transcript:
    return to_transcript(
        Checkpoint(checkpoint_id="c", agent_id="a", session_id="s", framework=Framework.STRANDS, execution_state=state)
    )


def test_turns_alternate_and_results_are_the_users():
    call = TranscriptMessage(role="assistant", parts=(ToolCallPart(id="a", name="pay", arguments={}),))
    paid = TranscriptMessage(role="tool", parts=(ToolResponsePart(id="a", content=(text("paid"),)),))
    said = Transcript(messages=(user(text("pay")), call, paid, user(text("and now?"))))
    made = convert(said, "strands")
    assert [one["role"] for one in made.converted.state["messages"]] == ["user", "assistant", "user"]
    assert [one.role for one in read_back("strands", made)] == ["user", "assistant", "tool", "user"]
    assert not made.losses


@pytest.mark.parametrize(
    ("mime_type", "kind", "format_"),
    [
        ("image/webp", "image", "webp"),
        ("application/pdf", "document", "pdf"),
        ("text/plain", "document", "txt"),
        ("text/markdown", "document", "md"),
        ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "document", "xlsx"),
        ("audio/wav", "audio", "wav"),
        ("video/mp4", "video", "mp4"),
    ],
)
def test_media_keep_their_type(mime_type, kind, format_):
    made = convert(Transcript(messages=(user(BlobPart(mime_type=mime_type, data=b"x")),)), "strands")
    [block] = made.converted.state["messages"][0]["content"]
    assert block[kind]["format"] == format_ and block[kind]["source"] == {"bytes": b"x"}
    assert not made.losses


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (BlobPart(mime_type="image/svg+xml", data=b"x"), "images"),
        (BlobPart(mime_type="application/zip", data=b"x"), "files"),
        (UriPart(uri="https://a.example/x.pdf", mime_type="application/pdf"), "files"),
    ],
)
def test_what_strands_has_no_block_for_becomes_a_note_and_is_said(part, kind):
    made = convert(Transcript(messages=(user(text("look"), part),)), "strands")
    assert [one.kind for one in made.losses] == [kind]
    assert "not carried over" in read_back("strands", made).messages[0].text


def test_a_sound_in_a_result_becomes_a_note_and_a_link_to_s3_stays():
    sound = BlobPart(mime_type="audio/wav", data=b"x")
    link = UriPart(uri="s3://bucket/x.pdf", mime_type="application/pdf")
    call = TranscriptMessage(role="assistant", parts=(ToolCallPart(id="a", name="pay", arguments={}),))
    paid = TranscriptMessage(role="tool", parts=(ToolResponsePart(id="a", content=(sound, link, PDF, PNG)),))
    made = convert(Transcript(messages=(user(link), call, paid)), "strands")
    assert [one.kind for one in made.losses] == ["result_files"]
    names = [block["document"]["name"] for block in made.converted.state["messages"][0]["content"]]
    content = made.converted.state["messages"][2]["content"][0]["toolResult"]["content"]
    names += [block["document"]["name"] for block in content if "document" in block]
    assert len(set(names)) == 3


def test_values_go_to_the_agents_state_if_that_takes_them():
    with SyncClient.memory() as client:
        state = {"messages": [{"role": "user", "content": "hi"}], "plan": ["a"], "seen": {"x"}}
        client.save("loop", session_id="s", execution_state=state)
        plan = client.resume_as("s", "strands", carry={"plan": "todo", "seen": "seen"})
        head = client.latest(plan.save("clerk"))
        assert head.execution_state["agents"] == {"": {"state": {"todo": ["a"]}}}
        assert head.agent_context == {"seen": {"x"}}
        back = client.resume_as(head.session_id, "google_adk", carry={"todo": "todo"})
        assert not [one for one in back.losses if one.kind == "state"]


def test_state_is_what_the_transcript_lacks():
    said = [{"role": "user", "content": [{"text": "hi"}]}]
    kept = {"": {"state": {"a": 1}, "model_state": {"b": 2}}, "helper": {}}
    found = read({"agents": kept, "messages": said, "messages:helper": said, "turn": None})
    assert found.state == {"agents": {"": {"model_state": {"b": 2}}}, "messages:helper": said, "a": 1}
    found = read({"agents": {"x": {}}, "messages:x": said, "shared_context": {"": {"c": 3}}, "turn": None})
    assert [one.text for one in found] == ["hi"] and found.state == {"shared_context": {"": {"c": 3}}}


def test_the_state_of_a_graph_is_not_appended_to():
    native = {"agents": {"x": {}}, "messages:x": []}
    with pytest.raises(UsageError, match="graph or a swarm"):
        from_transcript(NAMED, replace(OPTIONS, native=native))


def test_an_earlier_state_is_appended_to():
    first = {"role": "user", "content": [{"text": "hi"}], "tracking_id": "t"}
    native = {"agents": {"": {"state": {"a": 1}}}, "messages": [first], "turn": None}
    said = Transcript(messages=(TranscriptMessage(role="assistant", parts=(text("hello"),)),))
    state = from_transcript(said, replace(OPTIONS, native=native, carried={"b": 2})).state
    assert state["messages"] == [first, {"role": "assistant", "content": [{"text": "hello"}]}]
    assert state["agents"] == {"": {"state": {"a": 1, "b": 2}}}


def test_ids_tokens_and_hidden_reasoning_are_read():
    hidden = {"reasoningContent": {"redactedContent": b"\x00\x01"}}
    about = {"tracking_id": "t", "metadata": {"usage": {"inputTokens": 7}}}
    [found] = read({"messages": [{"role": "assistant", "content": [hidden], **about}], "turn": None})
    assert found.parts == (ReasoningPart(encrypted="AAE="),)
    assert (found.id, found.usage) == ("t", {"inputTokens": 7})


def test_a_session_that_comes_back_continues_its_own_state():
    said = [
        {"role": "user", "content": [{"text": "hi"}], "tracking_id": "t1"},
        {"role": "assistant", "content": [{"text": "hello"}], "metadata": {"usage": {"inputTokens": 7}}},
    ]
    with SyncClient.memory() as client:
        state = {"messages": said, "agents": {"": {"model_state": {"b": 2}}}, "turn": None}
        client.save("a", "strands", state, session_id="s")
        there = client.resume_as("s", "openai_chat").save("loop")
        listed = client.latest(there).execution_state["messages"]
        client.save("loop", session_id=there, execution_state={"messages": [*listed, {"role": "user", "content": "x"}]})
        plan = client.resume_as(there, "strands")
        assert plan.native_id is not None
        state = client.latest(plan.save("a")).execution_state
    assert state["messages"] == [*said, {"role": "user", "content": [{"text": "x"}]}]
    assert state["agents"] == {"": {"model_state": {"b": 2}}}
