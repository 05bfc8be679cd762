"""Conversations in neutral form, whatever framework saved them: `to_transcript(checkpoint)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.client.adapters import load_transcripts
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

__all__ = [
    "BlobPart",
    "CompactionPart",
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
    "messages_of_chat",
    "to_transcript",
]


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    """Return the conversation of a checkpoint in neutral form.

    The framework that saved it need not be installed.
    """
    return load_transcripts(Framework.of(checkpoint.framework)).to_transcript(checkpoint)
