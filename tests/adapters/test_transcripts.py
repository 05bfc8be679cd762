"""Conversations in neutral form: the shapes of providers, and LangGraph's threads."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Client, Effect, Framework, SyncClient
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.codec.redaction_rules import Redact
from holdfast.errors import OpenToolCallError
from holdfast.model.transcript_moves import unique_ids
from holdfast.redaction import by_path
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
from holdfast import Client, Effect, Framework, SyncClient
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.errors import OpenToolCallError
from holdfast.model.transcript_moves import unique_ids
from holdfast.codec.redaction_rules import Redact
from holdfast.redaction import by_path
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


class Killed(BaseException):
    """Stands for the end of the process."""


def pay_at_once(
    calls: Sequence[dict[str, Any]],
    ended: Sequence[int],
    *,
    ids: Sequence[str],
    tools: Any,
    has_ids: bool = True,
    redact: Redact = (),
) -> tuple[dict[str, str], dict[str, str] | str]:
    """Make calls at once, which end in an order, and then the process ends.

    Return the results by the first argument of their calls: of the transcript, and after a move.
    """
    session = f"s{next(NUMBERS)}"

    async def body(turn: FrameworkTurn) -> TurnEnd:
        async def ask() -> Any:
            asked = [{"id": id_, "name": "pay", "args": one} for id_, one in zip(ids, calls, strict=True)]
            return {"role": "assistant", "content": "", "tool_calls": asked}

        async def pay(to: str, by: str) -> str:
            return f"paid {to}"

        await turn.call_model("agent", [], ask)
        for number in ended:
            await turn.call_tool("pay", calls[number], pay, call_id=ids[number] if has_ids else None)
        raise Killed

    def read(messages: Iterable[TranscriptMessage]) -> dict[str, str]:
        parts = [part for one in messages for part in one.parts]
        asked = {
            part.id: part.id if redact else part.arguments["to"] for part in parts if isinstance(part, ToolCallPart)
        }
        told = {part.id: part.content[0] for part in parts if isinstance(part, ToolResponsePart)}
        return {asked[id_]: part.content for id_, part in told.items()}

    async def story() -> Any:
        async with Client.memory(redact=redact) as client:
            target = ResumableSession(Framework.CUSTOM, session_id=session, store=client, tools=tools)
            with pytest.raises(Killed):
                await target.take_turn("run", "go", None, body, str)
            seen = to_transcript(await client.latest(session))
            try:
                plan = await client.resume_as(session, "openai_chat")
            except OpenToolCallError as error:
                return read(unique_ids(seen.messages)[0]), ",".join(error.call_ids)
            return read(unique_ids(seen.messages)[0]), read(plan.messages)

    return asyncio.run(story())


NUMBERS = itertools.count()
BOTH = [{"to": "bob", "by": "card"}, {"to": "carol", "by": "card"}]
PAID = {"bob": "paid bob", "carol": "paid carol"}


@pytest.mark.parametrize("ids", [("c0", "c1"), ("0", "0")], ids=str)
@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize(
    "tools",
    [None, {"pay": "read"}, {"pay": "irreversible"}, {"pay": Effect("irreversible", key="to")},
     {"pay": Effect("irreversible", key=lambda to, by: f"{to} by {by}")}],
    ids=["undeclared", "read", "irreversible", "key", "computed key"],
)  # fmt: skip
def test_results_of_calls_that_were_made_at_once_are_their_own(tools, has_ids, ids):
    for ended in ([0, 1], [1, 0]):
        seen, moved = pay_at_once(BOTH, ended, ids=ids, tools=tools, has_ids=has_ids)
        assert moved == PAID
        assert seen.items() <= PAID.items()
    seen, moved = pay_at_once(BOTH, [1], ids=ids, tools=tools, has_ids=has_ids)
    assert seen.items() <= {"carol": "paid carol"}.items() and moved == ids[0]


def test_a_result_that_may_be_of_either_call_is_given_by_the_ledger():
    calls = [{"to": "1", "by": "2"}, {"to": "2", "by": "1"}]  # the key of each is a value of the other
    tools = {"pay": Effect("irreversible", key="to")}
    seen, moved = pay_at_once(calls, [1, 0], ids=("a", "b"), tools=tools)
    assert seen == {} and moved == {"1": "paid 1", "2": "paid 2"}


@pytest.mark.parametrize("kind", [None, "read", "idempotent", "irreversible"])
def test_a_result_is_never_that_of_a_call_which_redaction_has_made_equal(kind):
    tools = None if kind is None else {"pay": kind}
    right = {"a": "paid bob", "b": "paid carol"}
    for ended in ([1], [0, 1], [1, 0]):
        seen, moved = pay_at_once(BOTH, ended, ids=("a", "b"), tools=tools, redact=by_path("**.to"))
        assert seen.items() <= right.items()
        assert seen or kind not in (None, "read")  # their records have the ids of the calls
        assert isinstance(moved, str) or moved.items() <= right.items()
