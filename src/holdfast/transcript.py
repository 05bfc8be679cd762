"""Conversations in neutral form, whatever framework saved them: `to_transcript(checkpoint)`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

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
    # Each module has `to_transcript` and imports no framework. `custom` is a loop of one's own, and stands for
    # frameworks without an adapter.
    name = f"holdfast.adapters.{checkpoint.framework}"
    adapter = import_module(f"{name if find_spec(name) else 'holdfast.adapters.custom'}.transcript")
    return adapter.to_transcript(checkpoint)  # type: ignore[no-any-return]  # as every adapter's is
