"""The conversation of a LangGraph thread, in neutral form. Imports nothing of LangGraph.

Messages are LangChain's objects, or their stored fields where LangChain is not installed.
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast.adapters.langgraph import row_keys, view
from holdfast.adapters.langgraph.row_keys import ThreadNamespace
from holdfast.backends.port import RowKey, RowWrite
from holdfast.codec.unknown_types import UnknownValue, unknown_value
from holdfast.errors import UsageError
from holdfast.model.chat_messages import message_of_chat
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    BlobPart,
    MessagePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    Transcript,
    TranscriptCursor,
    TranscriptInterrupt,
    TranscriptMessage,
    UriPart,
)
from holdfast.model.conversion_target import ConversionOptions, ConvertedState
from holdfast.model.transcript_facets import is_image_link

PREFIX = "lg/"
"""The beginning of a thread's session."""
CHANNEL = "messages"
BRANCH, START, TASKS = "branch:to:", "__start__", "__pregel_tasks"  # channels of what waits
INTERRUPTS = "interrupts"
"""The key of a state that has the questions to people that wait."""
_POSITIONS = ("branch:", "start:", "join:", "__start__", "__pregel")
FIRST_VERSION = f"{1:032}.{0:016}"  # in the saver's form
_FIELDS_SET = ""  # where the stored form of a message names its fields; see message_fields.py
_TICKS_TO_1970 = 0x01B2_1DD2_1381_4000  # of 100 ns, from the calendar's beginning in UUIDs
KEYS = ("messages", "history", "__root__")
_TYPES = {"AI": "ai", "Human": "human", "System": "system", "Tool": "tool", "Function": "function", "Chat": "chat"}


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    """Return the conversation of a checkpoint that LangGraph or `LangGraphAdapter` has made."""
    state = checkpoint.execution_state
    values = state.get("values", view.channels(state)) if isinstance(state, Mapping) else state
    key, listed = _conversation(values)
    messages = [_message(item) for item in listed]
    pending = pending_nodes(state) if isinstance(state, Mapping) else []
    position = ", ".join(pending) if pending else checkpoint.step_name
    cursor = TranscriptCursor(
        framework=str(checkpoint.framework), position=position, is_finished=not pending, pending=tuple(pending)
    )
    fields = _fields_of(values) or {}
    others = {str(name): value for name, value in fields.items() if name != key}
    asked = state.get(INTERRUPTS) if isinstance(state, Mapping) else None
    interrupts = tuple(_interrupt(item) for item in asked) if isinstance(asked, list | tuple) else ()
    return Transcript(messages=tuple(messages), cursor=cursor, state=others, interrupts=interrupts)


def _interrupt(asked: Any) -> TranscriptInterrupt:
    # An object of LangGraph's class where LangGraph is loaded, its fields elsewhere.
    fields = _fields_of(asked) or {name: getattr(asked, name, None) for name in ("id", "value")}
    return TranscriptInterrupt(id=str(fields.get("id") or ""), kind="input", payload=fields.get("value"))


def pending_nodes(state: Mapping[str, Any]) -> list[str]:
    """Return the nodes that wait. A node that was sent several tasks is there several times."""
    waits = state.get("next")
    if isinstance(waits, list | tuple):
        return [str(wait) for wait in waits]
    channels = state.get("channel_values")
    if not isinstance(channels, Mapping):
        return []
    found = [name.removeprefix(BRANCH) for name in map(str, channels) if name.startswith(BRANCH)]
    if START in channels:
        found.append(START)
    sent = channels.get(TASKS)
    for item in sent if isinstance(sent, list | tuple) else ():
        parts = getattr(item, "parts", item)
        named = parts[0] if isinstance(parts, list | tuple) and parts else getattr(item, "node", None)
        found.append(str(named))
    return found


# -- to LangGraph ------------------------------------------------------------------------------------------------------


def from_transcript(transcript: Transcript, options: ConversionOptions) -> ConvertedState:
    """Return the conversation as the first checkpoint of a thread; its session is `lg/<thread>`.

    Messages are in the form in which the saver stores LangChain's. Values that are carried over are
    channels of the graph, but none that say which nodes are next.
    """
    native = dict(options.native or {})
    known = native.get("channel_values")
    if options.native is not None and not isinstance(known, Mapping):
        raise UsageError("the earlier state was saved by hand, and has no channels")
    channels = without_positions(known) if known is not None else {}
    if known is not None and channels.get(CHANNEL) is None and len(transcript):
        raise UsageError(f"the earlier state has no channel {CHANNEL!r}")
    before = channels.get(CHANNEL) or []
    made = [
        value
        for number, message in enumerate(transcript, len(before))
        for value in _native_messages(message, f"{options.seed}-{number}")
    ]
    left = tuple(name for name in options.carried if name == CHANNEL or name.startswith(_POSITIONS))
    carried = {name: value for name, value in options.carried.items() if name not in left}
    values = {**channels, **carried, CHANNEL: [*before, *made]}
    versions = dict(native.get("channel_versions") or {})
    place = ThreadNamespace(options.session_id.removeprefix(PREFIX), "")
    if place.session != f"{PREFIX}{place.thread}":
        raise UsageError(f"the thread's name is {place.thread!r:.60}: it must not have '/' or '%'. Choose another one")
    id_ = _id_of(options)
    state = {
        "v": native.get("v", 4),
        "id": id_,
        "ts": datetime.fromtimestamp(options.created_at, UTC).isoformat(),
        "channel_values": values,
        "channel_versions": {**dict.fromkeys(values, FIRST_VERSION), **versions},
        "versions_seen": dict(native.get("versions_seen") or {}),
        "updated_channels": sorted(values),
    }
    metadata = {
        "thread_id": place.thread,
        "checkpoint_ns": "",
        "langgraph_id": id_,
        "parent": None,
        "metadata": {"source": "update", "step": 0, "parents": {}},
    }

    def index_entry(stored: Any) -> list[RowWrite]:
        key = RowKey(row_keys.INDEX, row_keys.index_key(place, id_), stored.tree)
        return [RowWrite(key, row_keys.pack_entry(key, stored.id, None, None))]

    return ConvertedState(state=state, metadata=metadata, session_id=place.session, rows=index_entry, left=left)


def without_positions(channels: Mapping[str, Any]) -> dict[str, Any]:
    """Return channels without those that say which nodes are next."""
    return {name: value for name, value in channels.items() if not str(name).startswith(_POSITIONS)}


def _native_messages(message: TranscriptMessage, id_: str) -> Iterator[UnknownValue]:
    if message.role == "tool":
        for number, part in enumerate(message.tool_responses):
            status = "error" if part.is_error else "success"
            about = {"name": part.name, "tool_call_id": part.id, "status": status, "id": f"{id_}-{number}"}
            yield _make_stored_message("ToolMessage", {"content": _content(part.content), **about})
        return
    spoken = [part for part in message.parts if not isinstance(part, ToolCallPart | ReasoningPart)]
    fields: dict[str, Any] = {"content": _content(spoken), "id": id_}
    thoughts = [part.content for part in message.parts if isinstance(part, ReasoningPart)]
    if thoughts:  # where open models put it: providers that don't know it leave it out
        fields["additional_kwargs"] = {"reasoning_content": "\n\n".join(thoughts)}
    if message.author is not None:
        fields["name"] = message.author
    if message.tool_calls:
        fields["tool_calls"] = [
            {"name": call.name, "args": dict(call.arguments or {}), "id": call.id, "type": "tool_call"}
            for call in message.tool_calls
        ]
    yield _make_stored_message("AIMessage" if message.role == "assistant" else "HumanMessage", fields)


def _make_stored_message(kind: str, fields: dict[str, Any]) -> UnknownValue:
    """Return a message as the saver stores one of that class, without the class."""
    made = unknown_value(f"langchain:{kind}", {**fields, _FIELDS_SET: ",".join(sorted(fields))})
    assert made is not None
    return made


def _content(parts: Sequence[MessagePart]) -> Any:
    if all(isinstance(part, TextPart) for part in parts):
        return "\n\n".join(part.content for part in parts if isinstance(part, TextPart))
    return [_block(part) for part in parts]


def _block(part: MessagePart) -> dict[str, Any]:
    match part:
        case BlobPart():
            kind = "image" if part.mime_type.startswith("image/") else "file"
            return {"type": kind, "base64": base64.b64encode(part.data or b"").decode(), "mime_type": part.mime_type}
        case UriPart():
            kind = "image" if is_image_link(part) else "file"
            typed = {} if part.mime_type is None else {"mime_type": part.mime_type}
            return {"type": kind, "url": part.uri, **typed}
        case TextPart():
            return {"type": "text", "text": part.content}
        case _:
            return {"type": "text", "text": f"[{part.kind}]"}


def _id_of(options: ConversionOptions) -> str:
    """Return an id in the order of LangGraph's own: a UUID of version 6, of the time of the source."""
    ticks = int(options.created_at * 10_000_000) + _TICKS_TO_1970
    noise = hashlib.sha256(f"{options.seed} {options.session_id}".encode("utf-8", "surrogatepass")).digest()
    high = (ticks >> 12 & 0xFFFF_FFFF_FFFF) << 16 | 0x6000 | ticks & 0xFFF
    low = int.from_bytes(noise[:8], "big") & (1 << 62) - 1 | 1 << 63
    return str(uuid.UUID(int=high << 64 | low))


# -- from LangGraph ----------------------------------------------------------------------------------------------------


def _conversation(values: Any) -> tuple[str | None, Sequence[Any]]:
    """Return the conversation, and the channel that it is in."""
    fields = _fields_of(values)
    if fields is None:
        return None, values if isinstance(values, list | tuple) else ()
    for key in KEYS:
        found = fields.get(key)
        if isinstance(found, list | tuple) and found:
            return key, found
    return None, ()


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
        fields["tool_calls"] = [_fields_of(call) or {} for call in calls]
    return message_of_chat(fields)


def _fields_of(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a dict, an object, or an object of a class that is not known here."""
    if isinstance(value, Mapping):
        return value
    parts = getattr(value, "parts", None)
    if isinstance(parts, Mapping):
        return {name: item for name, item in parts.items() if name != _FIELDS_SET}
    kept = getattr(value, "__dict__", None)
    return kept if isinstance(kept, Mapping) and kept else None


def _type_of(message: Any) -> str:
    """Return the type of a message whose stored fields do not name it, by the name of its class."""
    name = re.split("[.:]", str(getattr(message, "type_name", type(message).__qualname__)))[-1]
    return next((kind for start, kind in _TYPES.items() if name.startswith(start)), "human")
