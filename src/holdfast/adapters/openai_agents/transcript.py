"""The conversation of an OpenAI Agents session, in neutral form. Imports nothing of the SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.adapters.base.conversion import native_messages, place_messages
from holdfast.adapters.base.session_transcript import build_transcript
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import Transcript, TranscriptMessage
from holdfast.model.conversion_target import ConversionOptions, ConvertedState
from holdfast.model.response_items import items_of_messages, messages_of_items


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(checkpoint, messages_of_state, messages_of_answer, state_of=lambda _: {})


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    return list(messages_of_items(state.get("messages")))


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the messages of one answer of the model."""
    return list(messages_of_items(answer.get("output") if isinstance(answer, Mapping) else None))


def from_transcript(transcript: Transcript, options: ConversionOptions) -> ConvertedState:
    """Return the conversation as the state that `resumable(agent, session_id=...)` continues."""
    items = [*native_messages(options), *items_of_messages(transcript)]
    return place_messages(items, options, {"agent": None})
