"""Message lists that were converted, checked by the types that the providers' own libraries publish."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from framework_environments import is_installed

if not (is_installed("deepagents") and is_installed("openai_agents")):  # which bring the libraries
    pytest.skip("the libraries of Anthropic and OpenAI are not installed here", allow_module_level=True)

import pydantic
from anthropic.types import MessageParam
from conversations import NAMED, convert
from hypothesis import given, settings
from native_states import NATIVE
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from paths import ROOT

from holdfast import SyncClient
from holdfast.model.conversation import BlobPart, TextPart, Transcript, TranscriptMessage, UriPart
from holdfast.model.loss import KINDS
from holdfast.model.tool_map import ToolMap

sys.path.append(str(Path(ROOT) / "tests" / "adapters"))
from test_conversions import TRANSCRIPTS, decide

pytestmark = pytest.mark.filterwarnings("ignore:.*came back as plain data:holdfast.errors.HoldfastWarning")
STRICT = pydantic.ConfigDict(extra="forbid")
TYPES: dict[str, pydantic.TypeAdapter[Any]] = {
    "anthropic": pydantic.TypeAdapter(list[MessageParam], config=STRICT),
    "openai_chat": pydantic.TypeAdapter(list[ChatCompletionMessageParam], config=STRICT),
    "open_responses": pydantic.TypeAdapter(list[ResponseInputItemParam], config=STRICT),
}


def check(shape: str, messages: Any) -> None:
    read_all(TYPES[shape].validate_python(json.loads(json.dumps(messages))))


def read_all(value: Any) -> None:
    """Read lists to their end: pydantic checks the elements of an `Iterable` when they are read."""
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return
    for item in value.values() if isinstance(value, dict) else value:
        read_all(item)


@pytest.mark.parametrize("shape", TYPES)
def test_a_list_with_everything_has_the_types_of_its_provider(shape):
    check(shape, convert(NAMED, shape).converted.state["messages"])


@pytest.mark.parametrize("source", NATIVE)
@pytest.mark.parametrize("shape", TYPES)
def test_native_states_become_lists_with_the_types_of_their_provider(source, shape):
    framework, make_state, _ = NATIVE[source]
    with SyncClient.memory(on_unknown_type="plain") as client:
        client.save("a", framework, make_state(), session_id="s")
        new = client.resume_as("s", shape, accept=list(KINDS)).save("b")
        check(shape, client.latest(new).execution_state["messages"])


@settings(deadline=None)
@given(messages=TRANSCRIPTS)
def test_any_conversation_becomes_lists_with_the_types_of_their_providers(messages):
    decided = decide(messages, "answer", ToolMap(), cut=False)
    for shape in TYPES:
        check(shape, convert(decided, shape).converted.state["messages"])


MEDIA = [
    (BlobPart(mime_type="image/jpg", data=b"x"), {"media_types": {"openai_chat", "open_responses", "anthropic"}}),
    (BlobPart(mime_type="image/svg+xml", data=b"x"), {"images": {"openai_chat", "open_responses", "anthropic"}}),
    (BlobPart(mime_type="image/png", data=b""), {"images": {"openai_chat", "open_responses", "anthropic"}}),
    (BlobPart(mime_type="audio/wav", data=b"x"), {"files": {"openai_chat", "open_responses", "anthropic"}}),
    (BlobPart(mime_type="text/plain", data=b"x"), {"files": {"openai_chat"}}),
    (BlobPart(mime_type="text/csv", data=b"x"), {"files": {"openai_chat"}, "media_types": {"anthropic"}}),
    (BlobPart(mime_type="text/plain", data=b"\xff"), {"files": {"openai_chat", "anthropic"}}),
    (UriPart(uri="gs://a/x.png"), {"image_links": {"openai_chat", "open_responses", "anthropic"}}),
    (
        UriPart(uri="https://a.example/x.mp3", mime_type="audio/mp3"),
        {"files": {"openai_chat", "anthropic"}, "link_types": {"open_responses"}},
    ),
]


@pytest.mark.parametrize("shape", TYPES)
@pytest.mark.parametrize(("part", "lost"), MEDIA)
def test_media_that_a_provider_refuses_become_notes_and_are_said(shape, part, lost):
    said = Transcript(messages=(TranscriptMessage(role="user", parts=(TextPart(content="look"), part)),))
    moved = convert(said, shape)
    assert {one.kind for one in moved.losses} == {kind for kind, shapes in lost.items() if shape in shapes}
    check(shape, moved.converted.state["messages"])
