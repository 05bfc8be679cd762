"""Conversations in neutral form: the shapes of providers, and LangGraph's threads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import SyncClient
from holdfast.transcript import (
    BlobPart,
    GenericPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptMessage,
    UriPart,
    messages_of_chat,
    to_transcript,
)

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
CALL = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"to": "bob"}'}}
OPENAI: list[dict[str, Any]] = [
    {"role": "developer", "content": "be brief"},
    {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "paid"},
]
LINK = {"type": "image", "source": {"type": "url", "url": "https://a.example/x.png"}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
REFUSED = {"type": "tool_result", "tool_use_id": "c1", "content": "no money", "is_error": True}
ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "look"}, LINK]},
    {
        "role": "assistant",
        "content": [THOUGHT, {"type": "tool_use", "id": "c1", "name": "pay", "input": {"to": "bob"}}],
    },
    {"role": "user", "content": [REFUSED]},
]
LANGCHAIN: list[dict[str, Any]] = [
    {"type": "human", "content": "look"},
    {"type": "ai", "content": "", "tool_calls": [{"id": "c1", "name": "pay", "args": {"to": "bob"}}], "name": "buyer"},
    {"type": "tool", "tool_call_id": "c1", "content": "paid", "status": "success"},
]


def test_openai_messages_in_neutral_form():
    system, user, model, tool = messages_of_chat(OPENAI)
    assert (system.role, system.text) == ("system", "be brief")
    assert user.parts == (TextPart(content="look"), BlobPart(mime_type="image/png", data=b"hi"))
    assert model.tool_calls == [ToolCallPart(id="c1", name="pay", arguments={"to": "bob"})]
    assert tool.tool_responses == [ToolResponsePart(id="c1", content=(TextPart(content="paid"),))]


def test_anthropic_messages_in_neutral_form():
    user, model, tool = messages_of_chat(ANTHROPIC)
    assert user.parts[1] == UriPart(uri="https://a.example/x.png")
    assert model.parts[0] == ReasoningPart(content="hm", signature="s")
    assert model.tool_calls == [ToolCallPart(id="c1", name="pay", arguments={"to": "bob"})]
    assert tool.role == "tool"
    assert tool.tool_responses[0].is_error


def test_langchain_messages_in_neutral_form_with_and_without_data():
    nested = [{"type": one["type"], "data": one} for one in LANGCHAIN]
    for messages in (LANGCHAIN, nested):
        user, model, tool = messages_of_chat(messages)
        assert (user.role, user.text) == ("user", "look")
        assert model.author == "buyer"
        assert model.tool_calls[0].arguments == {"to": "bob"}
        assert tool.tool_responses[0].id == "c1"


def test_arguments_that_are_no_object_are_kept_as_they_were_written():
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"to": '}}
    [message] = messages_of_chat([{"role": "assistant", "tool_calls": [call]}])
    assert message.tool_calls == [ToolCallPart(id="c1", name="pay", arguments=None, raw_arguments='{"to": ')]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
NAMES = ("role", "type", "content", "tool_calls", "tool_call_id", "name", "id", "data", "function", "source", "text")
MESSAGES = st.dictionaries(
    st.sampled_from(NAMES), JSON | st.sampled_from(["assistant", "tool", "ai", "image"]), max_size=6
)


@given(st.lists(MESSAGES | st.text(max_size=5), max_size=4))
def test_any_messages_give_a_transcript_that_is_json(messages: list[Any]):
    transcript = Transcript(messages=tuple(messages_of_chat(messages)))
    assert len(transcript) == len(messages)
    assert json.loads(json.dumps(transcript.to_json()))["messages"] is not None


def test_open_calls_are_those_without_an_answer():
    asked = TranscriptMessage(role="assistant", parts=(ToolCallPart(id="a", name="x"), ToolCallPart(id="b", name="y")))
    answered = TranscriptMessage(role="tool", parts=(ToolResponsePart(id="a"),))
    assert [call.id for call in Transcript(messages=(asked, answered)).open_calls] == ["b"]


def test_unknown_parts_keep_their_fields():
    [message] = messages_of_chat([{"role": "user", "content": [{"type": "audio", "format": "wav"}]}])
    assert message.parts == (GenericPart(type="audio", values={"format": "wav"}),)
    assert message.to_json()["parts"] == [{"type": "audio", "format": "wav"}]


def test_a_session_of_a_plain_loop_has_a_transcript(tmp_path: Path):
    with SyncClient.sqlite(tmp_path / "a.db") as client:
        client.save("agent", session_id="s", execution_state={"messages": OPENAI})
        assert [one.role for one in to_transcript(client.latest("s"))] == ["system", "user", "assistant", "tool"]
        client.save("agent", session_id="t", execution_state={"n": 1})
        assert len(to_transcript(client.latest("t"))) == 0
        client.save("agent", framework="strands", session_id="u", execution_state={"messages": OPENAI})
        assert len(to_transcript(client.latest("u"))) == 4  # there is no adapter for it


def _graph(store: str) -> None:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    from holdfast.langgraph import HoldfastSaver

    def agent(state: MessagesState) -> dict[str, Any]:
        call = {"id": "c1", "name": "pay", "args": {"to": "bob"}}
        return {"messages": [AIMessage("", tool_calls=[call]), ToolMessage("paid", tool_call_id="c1")]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", END)
    with HoldfastSaver.from_sqlite(store) as saver:
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"messages": [HumanMessage("pay bob")]}, {"configurable": {"thread_id": "t"}})


READ = """
import json, sys
from holdfast import SyncClient
from holdfast.transcript import to_transcript
assert not any(name.startswith("lang") for name in sys.modules)
with SyncClient.sqlite(sys.argv[1], on_unknown_type="plain") as client:
    print(json.dumps(to_transcript(client.latest(client.sessions()[0].session_id)).to_json()))
"""


@pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")
def test_a_langgraph_thread_has_a_transcript_with_and_without_langchain(tmp_path: Path):
    store = str(tmp_path / "a.db")
    _graph(store)
    with SyncClient.sqlite(store, on_unknown_type="plain") as client:
        here = to_transcript(client.latest(client.sessions()[0].session_id))
    assert [one.role for one in here] == ["user", "assistant", "tool"]
    assert here.messages[1].tool_calls == [ToolCallPart(id="c1", name="pay", arguments={"to": "bob"})]
    assert here.open_calls == []
    command = [sys.executable, "-W", "ignore", "-c", READ, store]
    elsewhere = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert [one["role"] for one in elsewhere["messages"]] == ["user", "assistant", "tool"]
    assert elsewhere["messages"][1]["parts"][0]["arguments"] == {"to": "bob"}


def test_items_of_the_responses_api_in_neutral_form():
    from holdfast.adapters.openai_agents.transcript import messages_of_answer, messages_of_state

    call = {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": '{"to": "bob"}'}
    items = [
        {"role": "user", "content": "pay bob"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "paid"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    found = messages_of_state({"messages": [*items, "odd"]})
    assert [one.role for one in found] == ["user", "assistant", "assistant", "tool", "assistant"]
    assert found[1].parts == (ReasoningPart(content="hm", provider="openai", encrypted="x"),)
    assert found[2].tool_calls == [ToolCallPart(id="c1", name="pay", arguments={"to": "bob"})]
    assert found[3].tool_responses == [ToolResponsePart(id="c1", content=(TextPart(content="paid"),))]
    assert found[4].text == "done"
    assert messages_of_answer({"output": [call]})[0].tool_calls == found[2].tool_calls
    assert messages_of_answer(None) == []
