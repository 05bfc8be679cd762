"""Transcripts of the Claude Agent SDK's CLI in neutral form, without the SDK."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.adapters.claude_agent import entries as reading
from holdfast.adapters.claude_agent.transcript import to_transcript
from holdfast.model.checkpoint_builder import CheckpointBuilder
from holdfast.transcript import (
    CompactionPart,
    GenericPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
)

ANSWER = {"id": "m1", "role": "assistant", "model": "claude-opus-5", "stop_reason": "tool_use", "usage": {"n": 1}}


def entry(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content}
    return {"type": kind, "message": ANSWER | message if kind == "assistant" else message, **more}


def read(**state: Any) -> Transcript:
    return to_transcript(CheckpointBuilder("claude", "claude_agent").session("s").execution_state(state).build())


def test_entries_become_messages():
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a"}], "is_error": True}
    user, model, tool, odd, summary, synthetic, agent = read(
        messages=[
            {"type": "queue-operation", "operation": "enqueue"},
            entry("user", "look", timestamp="2026-01-01T00:00:00Z"),
            {"type": "attachment", "attachment": {"type": "date"}},
            entry("assistant", [{"type": "thinking", "thinking": "hm", "signature": "s"}]),
            entry("assistant", [call]),
            entry("user", [result]),
            {"type": "of a later version", "x": 1},
            entry("user", "so far …", isCompactSummary=True),
            {"type": "assistant", "message": {"model": "<synthetic>", "id": "x", "content": "No response requested."}},
        ],
        **{"subagents/agent-1": [entry("user", "check")]},
    )
    assert (user.text, user.created_at) == ("look", "2026-01-01T00:00:00Z")
    assert model.parts == (
        ReasoningPart(content="hm", provider="anthropic", signature="s"),
        ToolCallPart(id="c1", name="Bash", arguments={"command": "ls"}),
    )
    assert (model.id, model.model, model.finish_reason, model.usage) == ("m1", "claude-opus-5", "tool_use", {"n": 1})
    assert tool.parts == (ToolResponsePart(id="c1", name="Bash", content=(TextPart(content="a"),), is_error=True),)
    assert odd.parts == (GenericPart(type="of a later version", values={"type": "of a later version", "x": 1}),)
    assert summary.parts == (CompactionPart(content="so far …"),)
    assert (synthetic.role, synthetic.model) == ("assistant", None)
    assert (agent.author, agent.text) == ("agent-1", "check")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
NAMES = ("type", "uuid", "sessionId", "attachment", "isCompactSummary", "timestamp")
KINDS = st.sampled_from(["user", "assistant", "attachment", "tool_use", "tool_result", "hook_deferred_tool", "text"])
BLOCKS = st.dictionaries(
    st.sampled_from(["type", "text", "id", "name", "input", "tool_use_id", "content", "source", "data"]), JSON | KINDS
)
CONTENT = st.fixed_dictionaries(
    {"content": JSON | st.lists(BLOCKS, max_size=3)}, optional={"id": JSON, "stop_reason": JSON, "model": JSON}
)
ENTRIES = st.dictionaries(st.sampled_from(NAMES), JSON | KINDS, max_size=6)
WHOLE = st.fixed_dictionaries({"type": JSON | KINDS, "message": JSON | CONTENT}, optional={"attachment": BLOCKS})


@given(st.lists(ENTRIES | WHOLE | JSON, max_size=5), JSON)
@example([{"type": "user", "message": {"content": [{"type": "tool_use", "id": []}]}}], None)
def test_entries_of_any_shape_are_read(entries: list[Any], other: Any):
    transcript = read(messages=entries, other=other)
    assert json.loads(json.dumps(transcript.to_json()))["messages"] is not None
    reading.find_answer(entries)
    reading.find_deferred(entries)
    reading.find_session_id(entries)
    assert reading.find_prompt(entries, "no such id") is None
    assert reading.name_step(entries)
