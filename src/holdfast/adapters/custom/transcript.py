"""The conversation of a session that no framework has saved, if its state has one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.adapters.base.session import TURN
from holdfast.adapters.base.session_transcript import build_transcript
from holdfast.errors import UsageError
from holdfast.model.chat_lists import anthropic_of_messages, append_anthropic, chat_of_messages
from holdfast.model.chat_messages import messages_of_chat
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import Transcript, TranscriptMessage
from holdfast.model.conversion_target import ConversionOptions, ConvertedState
from holdfast.model.response_items import is_item, items_of_messages, messages_of_items

KEYS = ("messages", "history", "transcript", "conversation")
"""The keys of a state that are searched for a conversation, in this order."""
_SHAPES: dict[str, Callable[[Iterable[TranscriptMessage]], list[dict[str, Any]]]] = {
    "openai_chat": chat_of_messages,
    "open_responses": items_of_messages,
    "anthropic": anthropic_of_messages,
}
_BLOCKS: list[tuple[set[Any], set[str]]] = [  # types of blocks, and the shapes that have them
    ({"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"}, {"anthropic"}),
    ({"image_url", "input_audio", "file", "refusal"}, {"openai_chat"}),
    ({"input_text", "output_text", "input_image", "input_file"}, {"open_responses"}),
]


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(
        checkpoint, messages_of_state, lambda answer: messages_of_chat([answer]), state_of=_state_of
    )


def messages_of_state(state: Any) -> Sequence[TranscriptMessage]:
    """Return the messages of the first key that holds a list of texts and dicts."""
    key = _find_key(state)
    found = () if key is None else state[key]
    return list(messages_of_items(found)) if any(map(is_item, found)) else messages_of_chat(found)


def from_transcript(transcript: Transcript, options: ConversionOptions) -> ConvertedState:
    """Return the conversation as a list in one of the shapes, beside the values that are carried over."""
    native = {name: value for name, value in (options.native or {}).items() if name != TURN}
    key = _find_key(native) or KEYS[0]
    before = list(native.pop(key, ()))
    shape = options.shape or "openai_chat"
    if shape not in _shapes_of(before):
        raise UsageError(f"the earlier list does not have the shape {shape}")
    carried = {name: value for name, value in options.carried.items() if name != key}
    made = _SHAPES[shape](transcript)
    messages = append_anthropic(before, made) if shape == "anthropic" else [*before, *made]
    left = tuple(name for name in options.carried if name not in carried)
    return ConvertedState(state={**native, **carried, key: messages}, left=left)


def _find_key(state: Any) -> str | None:
    for key in KEYS:
        found = state.get(key) if isinstance(state, Mapping) else None
        if isinstance(found, list | tuple) and found and all(isinstance(item, str | Mapping) for item in found):
            return key
    return None


def _state_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    key = _find_key(state)
    return {str(name): value for name, value in state.items() if name != key}


def _shapes_of(messages: Sequence[Any]) -> set[str]:
    """Return the shapes that a list may have: plain texts are the same in all."""
    found = set(_SHAPES)
    for message in messages:
        if not isinstance(message, Mapping):
            continue
        if is_item(message):
            found &= {"open_responses"}
        elif message.get("role") in ("tool", "function") or message.get("tool_calls") or message.get("function_call"):
            found &= {"openai_chat"}
        elif message.get("role") in ("system", "developer"):
            found -= {"anthropic"}
        blocks = message.get("content")
        for block in blocks if isinstance(blocks, list | tuple) else ():
            kind = block.get("type") if isinstance(block, Mapping) else None
            known = next((shapes for kinds, shapes in _BLOCKS if isinstance(kind, str) and kind in kinds), found)
            found &= known
    return found
