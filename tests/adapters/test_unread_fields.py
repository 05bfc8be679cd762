"""Fields that no reader of a framework's messages takes: they are said, never lost silently."""

from __future__ import annotations

import asyncio
import base64
import copy
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from native_states import IMAGE, NATIVE

from holdfast import Client, Framework, SyncClient
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import Transcript
from holdfast.model.loss import Severity
from holdfast.model.transcript_unread import find_unread, list_unread_losses
from holdfast.transcript import to_transcript

pytestmark = pytest.mark.filterwarnings("ignore:.*came back as plain data:holdfast.errors.HoldfastWarning")
MARK = "a text that is nowhere else"
FORM = {"type", "role", "kind", "part_kind", "block_type", "$type", "step", "outcome", "status", "class"}
FORM |= {"mime_type", "media_type", "image_mimetype", "format"}


def read(framework: str, state: Any) -> Transcript:
    return to_transcript(
        Checkpoint(checkpoint_id="", agent_id="", session_id="", framework=framework, execution_state=state)
    )


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, number))
    else:
        yield path, value


def with_value(state: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a state with another value at a path."""
    state = at = copy.deepcopy(state)
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return state


def is_told(framework: str, state: Any, mark: str) -> bool:
    transcript = read(framework, state)
    told = repr((transcript.messages, transcript.state, list_unread_losses(state, transcript)))
    return mark in told


@pytest.mark.parametrize("name", NATIVE)
def test_every_text_of_a_native_state_is_read_or_said(name):
    framework, make_state, _ = NATIVE[name]
    state = make_state()
    silent = [
        path
        for path, value in leaves(state)
        if isinstance(value, str) and path[-1] not in FORM and not value.startswith("data:")
        and not is_told(framework, with_value(state, path, MARK), MARK)
    ]  # fmt: skip
    assert not silent


@pytest.mark.parametrize("name", NATIVE)
def test_an_unknown_field_is_said_wherever_it_is(name):
    framework, make_state, _ = NATIVE[name]
    state = make_state()
    parents = {path[:end] for path, _ in leaves(state) for end in range(1, len(path))}
    for parent in parents:
        at = state
        for step in parent:
            at = at[step]
        if isinstance(at, dict):
            marked = with_value(state, (*parent, "novelty"), MARK)
            assert is_told(framework, marked, MARK), parent


@pytest.mark.parametrize(
    ("block", "path", "shown"),
    [
        ({"type": "file", "file": {"file_id": "f", "filename": "may.pdf"}}, "file.filename", "may.pdf"),
        ({"type": "text", "text": "x", "citations": [{"title": "t", "url": "u"}]}, "citations", "t"),
        ({"type": "text", "text": "x", "annotations": [{"url": "https://a.example"}]}, "annotations.0.url", "https"),
        (
            {"type": "document", "source": {"type": "text", "data": "x"}, "title": "Report of May"},
            "title",
            "Report of May",
        ),
    ],
)
def test_names_of_files_and_citations_are_a_loss_of_content(block, path, shown):
    with SyncClient.memory() as client:
        client.save("a", session_id="s", execution_state={"messages": [{"role": "user", "content": [block]}]})
        plan = client.resume_as("s", "anthropic", accept=["provider_files"])
    [loss] = [one for one in plan.losses if one.kind == "other_fields"]
    assert loss.severity is Severity.CONTENT and loss.what.startswith(shown)
    assert loss.path.startswith("state.messages.0.content.0.") and path in loss.path


def test_fields_of_a_message_are_content_unless_they_are_facts_about_it():
    said = {"role": "user", "content": "hi", "id": "m1", "messageId": "m2", "paid": "in full", "timestamp": "noon"}
    with SyncClient.memory() as client:
        client.save("a", session_id="s", execution_state={"messages": [said]})
        plan = client.resume_as("s", "anthropic")
    assert {(one.kind, one.path) for one in plan.losses} == {
        ("other_fields", "messages.0.paid"),
        *(("message_data", f"messages.0.{name}") for name in ("id", "messageId", "timestamp")),
    }


def test_ids_and_times_of_items_are_cosmetic():
    item = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}", "created_at": "now"}
    state = {"messages": [{"role": "user", "content": "hi"}, item]}
    found = list_unread_losses(state, read("custom", state))
    assert {(one.kind, one.path) for one in found} == {
        ("message_data", "state.messages.1.id"),
        ("message_data", "state.messages.1.created_at"),
    }


def test_what_is_read_in_another_form_is_not_said():
    encoded = base64.b64encode(IMAGE).decode()
    said = [
        {"type": "text", "text": "one\n\n  two"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}},
    ]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"deep": [{"a": "b"}]}'}}
    told = {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": '{"found": ["Grüße"]}'}]}
    state = {"messages": [{"role": "user", "content": said}, {"role": "assistant", "tool_calls": [call]}, told]}
    assert not list(find_unread(state, read("custom", state)))


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_any_state_is_compared(state):
    for found in find_unread(state, Transcript()):
        assert found.value or found.value == ""
    list_unread_losses(state, Transcript())


@pytest.mark.slow
def test_a_long_conversation_with_many_unknown_fields_is_quick():
    messages = [
        {"role": "user", "content": f"{number} " + "lorem " * 40, "mark": {"x": f"m{number}"}}
        for number in range(5_000)
    ]
    state = {"messages": messages}
    transcript = read("custom", {"messages": [{**one, "mark": None} for one in messages]})
    begun = time.perf_counter()
    assert len(list(find_unread(state, transcript))) == 5_000
    assert time.perf_counter() - begun < 60  # a search in all texts for each of them would take minutes


class Killed(BaseException):
    """Stands for the end of the process."""


def test_fields_of_an_answer_that_only_the_journal_has_are_said():
    cited = {"type": "text", "text": "Bob is here.", "citations": [{"title": "The yellow pages"}]}

    async def body(turn: FrameworkTurn) -> TurnEnd:
        async def ask() -> Any:
            return {"role": "assistant", "content": [cited]}

        await turn.call_model("agent", [], ask)
        raise Killed

    async def story() -> None:
        async with Client.memory() as client:
            target = ResumableSession(Framework.CUSTOM, session_id="s", store=client, tools=None)
            with pytest.raises(Killed):
                await target.take_turn("run", "Where is Bob?", None, body, str)
            plan = await client.resume_as("s", "anthropic")
        assert [one.text for one in plan.messages] == ["Where is Bob?", "Bob is here."]
        [loss] = plan.losses
        assert loss.kind == "other_fields" and loss.path == "journal.0.content.0.citations.0.title"

    asyncio.run(story())


# -- forms of calls that are read --------------------------------------------------------------------------------------


def test_a_call_of_a_tool_that_takes_a_text_is_read_in_both_shapes_of_openai():
    custom = {"id": "c1", "type": "custom", "custom": {"name": "run_sql", "input": "select 1"}}
    chat = [{"role": "assistant", "tool_calls": [custom]}, {"role": "tool", "tool_call_id": "c1", "content": "1"}]
    items = [
        {"type": "custom_tool_call", "call_id": "c1", "name": "run_sql", "input": "select 1"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"},
    ]
    for given_messages in (chat, items):
        with SyncClient.memory() as client:
            client.save("a", session_id="s", execution_state={"messages": given_messages})
            plan = client.resume_as("s", "anthropic")
        [asked] = [call for one in plan.messages for call in one.tool_calls]
        assert (asked.name, asked.arguments) == ("run_sql", {"raw_arguments": "select 1"})
        assert [part.content[0].content for one in plan.messages for part in one.tool_responses] == ["1"]


def test_a_call_at_an_mcp_server_moves_with_the_result_that_the_item_has():
    item = {"type": "mcp_call", "id": "m", "name": "lookup", "server_label": "crm", "arguments": '{"who": "bob"}'}
    with SyncClient.memory() as client:
        for session, more in (("ok", {"output": "is here"}), ("bad", {"error": "timeout"})):
            told = {"role": "user", "content": "look"}
            client.save("a", "openai_agents", {"messages": [told, {**item, **more}], "turn": None}, session_id=session)
        found, failed = (client.resume_as(session, "anthropic") for session in ("ok", "bad"))
    assert found.messages[1].tool_calls[0].arguments == {"who": "bob"}
    assert found.messages[2].tool_responses[0].content[0].content == "is here"
    assert failed.messages[2].tool_responses[0].is_error


def test_what_a_model_said_aloud_is_read():
    aloud = {"role": "assistant", "content": None, "audio": {"id": "a1", "transcript": "Bob is here."}}
    stored = {"role": "assistant", "content": None, "audio": {"id": "a1"}}
    assert read("custom", {"messages": [aloud]}).messages[0].text == "Bob is here."
    [part] = read("custom", {"messages": [stored]}).messages[0].parts
    assert (part.kind, part.file_id) == ("file", "a1")
