"""The conversation of a session that no framework has saved, if its state has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.adapters.base.recorded import build_transcript
from holdfast.model.chat_messages import messages_of_chat
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import Transcript, TranscriptMessage

KEYS = ("messages", "history", "transcript", "conversation")
"""The keys of a state that are searched for a conversation, in this order."""


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(checkpoint, messages_of_state, lambda answer: messages_of_chat([answer]))


def messages_of_state(state: Any) -> Sequence[TranscriptMessage]:
    """Return the messages of the first key that holds a list of texts and dicts."""
    for key in KEYS:
        found = state.get(key) if isinstance(state, Mapping) else None
        if isinstance(found, list | tuple) and found and all(isinstance(one, str | Mapping) for one in found):
            return messages_of_chat(found)
    return ()
