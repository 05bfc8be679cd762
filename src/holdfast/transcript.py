"""Conversations in neutral form, of any framework and back: `to_transcript`, `from_transcript`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.client.adapters import load_transcripts
from holdfast.errors import UsageError
from holdfast.model.chat_messages import messages_of_chat
from holdfast.model.conversation import (
    BlobPart,
    CompactionPart,
    FilePart,
    GenericPart,
    MessagePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptCursor,
    TranscriptInterrupt,
    TranscriptMessage,
    UriPart,
)
from holdfast.model.framework import Framework

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.loss import Loss

__all__ = [
    "BlobPart",
    "CompactionPart",
    "ConvertedTranscript",
    "FilePart",
    "GenericPart",
    "MessagePart",
    "ReasoningPart",
    "TextPart",
    "ToolCallPart",
    "ToolResponsePart",
    "Transcript",
    "TranscriptCursor",
    "TranscriptInterrupt",
    "TranscriptMessage",
    "UriPart",
    "from_transcript",
    "messages_of_chat",
    "to_transcript",
]


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    """Return the conversation of a checkpoint in neutral form.

    The framework that saved it need not be installed.
    """
    return load_transcripts(Framework.of(checkpoint.framework)).to_transcript(checkpoint)


class ConvertedTranscript(NamedTuple):
    """A conversation in the form of a framework or a provider: the state, and what it loses."""

    state: Mapping[str, Any]
    losses: Sequence[Loss]


def from_transcript(
    transcript: Transcript,
    framework: Framework | str,
    *,
    agent_id: str = "agent",
    session_id: str = "converted",
    accept: Iterable[str] = (),
) -> ConvertedTranscript:
    """Return a conversation as the state of a target. Needs no store, and writes nothing.

    `framework` is a target of `client.resume_as`. For "openai_chat", "open_responses" and
    "anthropic", `state["messages"]` is the list. Calls without results raise `OpenToolCallError`;
    losses of severity "meaning" raise `ConversionError` unless `accept` names their kinds. The
    transcript's `state` and `interrupts` are no part of the conversation.
    """
    from holdfast.client.conversion import read_accepted
    from holdfast.client.conversion_targets import find_target
    from holdfast.codec.codec import Codec
    from holdfast.model.conversion_target import ConversionOptions
    from holdfast.operations import validate
    from holdfast.operations.convert_transcript import convert_conversation

    if not isinstance(transcript, Transcript):
        raise UsageError(
            f"transcript is a {type(transcript).__name__}: it must be a Transcript, as to_transcript returns"
        )
    wrong = next((item for item in transcript.messages if not isinstance(item, TranscriptMessage)), None)
    if wrong is not None:
        raise UsageError(
            f"transcript has a {type(wrong).__name__}: its messages must be TranscriptMessages. messages_of_chat "
            "converts a list of dicts"
        )
    target = find_target(framework)
    session_id = validate.name("session_id", session_id)
    options = ConversionOptions(agent_id=validate.name("agent_id", agent_id), session_id=session_id, seed=session_id)
    codec = Codec(on_unknown_type="plain", warns=False)
    converter = load_transcripts(target.framework)
    measured = convert_conversation(codec, converter, transcript, target, options, read_accepted(accept))
    return ConvertedTranscript(measured.converted.state, tuple(measured.losses))
