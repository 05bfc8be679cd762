"""The conversation of a LangGraph thread, in neutral form. Imports nothing of LangGraph.

Messages are LangChain's objects, or their stored fields where LangChain is not installed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.adapters.langgraph import view
from holdfast.model.chat_messages import message_of_chat
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import Transcript, TranscriptCursor, TranscriptMessage

KEYS = ("messages", "history", "__root__")
_TYPES = {"AI": "ai", "Human": "human", "System": "system", "Tool": "tool", "Function": "function", "Chat": "chat"}


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    """Return the conversation of a checkpoint that LangGraph or `LangGraphAdapter` has made."""
    state = checkpoint.execution_state
    values = state.get("values", view.channels(state)) if isinstance(state, Mapping) else state
    messages = [_message(one) for one in _conversation(values)]
    waits = state.get("next") if isinstance(state, Mapping) else None
    position = ", ".join(map(str, waits)) if isinstance(waits, list | tuple) and waits else checkpoint.step_name
    return Transcript(
        messages=tuple(messages), cursor=TranscriptCursor(framework=str(checkpoint.framework), position=position)
    )


def _conversation(values: Any) -> Sequence[Any]:
    fields = _fields_of(values)
    if fields is None:
        return values if isinstance(values, list | tuple) else ()
    for key in KEYS:
        found = fields.get(key)
        if isinstance(found, list | tuple) and found:
            return found
    return ()


def _message(given: Any) -> TranscriptMessage:
    if isinstance(given, str):
        return message_of_chat({"role": "user", "content": given})
    if isinstance(given, list | tuple) and len(given) == 2:  # ("user", "text"), as LangGraph takes it
        return message_of_chat({"role": str(given[0]), "content": given[1]})
    fields = dict(_fields_of(given) or {"content": str(given)})
    if "role" not in fields and not isinstance(fields.get("type"), str):
        fields["type"] = _type_of(given)
    calls = fields.get("tool_calls")
    if isinstance(calls, list | tuple):
        fields["tool_calls"] = [_fields_of(one) or {} for one in calls]
    return message_of_chat(fields)


def _fields_of(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a dict, an object, or an object of a class that is not known here."""
    if isinstance(value, Mapping):
        return value
    parts = getattr(value, "parts", None)
    if isinstance(parts, Mapping):
        return parts
    kept = getattr(value, "__dict__", None)
    return kept if isinstance(kept, Mapping) and kept else None


def _type_of(message: Any) -> str:
    """Return the type of a message whose stored fields do not name it, by the name of its class."""
    name = re.split("[.:]", str(getattr(message, "type_name", type(message).__qualname__)))[-1]
    return next((kind for start, kind in _TYPES.items() if name.startswith(start)), "human")
