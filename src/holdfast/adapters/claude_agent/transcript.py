"""The conversation of a session of the Claude Agent SDK, in neutral form. Imports nothing of the SDK.

Sub-agents have transcripts of their own, which follow the main one with the sub-agent as author.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from holdfast.adapters.base.message_log import MESSAGES
from holdfast.adapters.base.session import TURN
from holdfast.adapters.claude_agent.entries import SYNTHETIC, read_blocks
from holdfast.model.chat_messages import content_parts
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    CompactionPart,
    GenericPart,
    MessagePart,
    ReasoningPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptCursor,
    TranscriptMessage,
)

PROVIDER = "anthropic"
_BOOKKEEPING = ("attachment", "queue-operation", "last-prompt", "mode", "cost-state", "tools-used", "atis-latch")


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    state = checkpoint.execution_state if isinstance(checkpoint.execution_state, Mapping) else {}
    messages = list(_messages(state.get(MESSAGES), None))
    for name, entries in state.items():
        if name not in (MESSAGES, TURN):
            messages += _messages(entries, str(name).rpartition("/")[2])
    turn = state.get(TURN)
    position = checkpoint.step_name if isinstance(turn, Mapping) else None
    cursor = TranscriptCursor(framework=str(checkpoint.framework), position=position, is_finished=turn is None)
    return Transcript(messages=tuple(messages), cursor=cursor)


def _messages(entries: Any, author: str | None) -> Iterator[TranscriptMessage]:
    """Yield the messages of a transcript. Entries that are blocks of one answer are joined."""
    names: dict[str, str] = {}
    last: TranscriptMessage | None = None
    for entry in entries if isinstance(entries, list | tuple) else ():
        for message in _messages_of(entry, names, author):
            if last is not None and message.id is not None and message.id == last.id:
                last = replace(message, parts=(*last.parts, *message.parts), created_at=last.created_at)
                continue
            if last is not None:
                yield last
            last = message
    if last is not None:
        yield last


def _messages_of(entry: Any, names: dict[str, str], author: str | None) -> Iterator[TranscriptMessage]:
    kind = entry.get("type") if isinstance(entry, Mapping) else None
    blocks = read_blocks(entry)
    if kind not in ("user", "assistant") or not blocks:
        if kind not in _BOOKKEEPING:
            values = dict(entry) if isinstance(entry, Mapping) else {"value": entry}
            yield TranscriptMessage(role="system", parts=(GenericPart(type=str(kind), values=values),), author=author)
        return
    about: dict[str, Any] = {"author": author, "created_at": _text(entry.get("timestamp"))}
    parts = [_part(part, names) for part in content_parts(blocks)]
    if entry.get("isCompactSummary") is True:
        parts = [CompactionPart(content="".join(str(block.get("text", "")) for block in blocks))]
    for part in parts:
        if isinstance(part, ToolResponsePart):  # a message for each
            yield TranscriptMessage(role="tool", parts=(part,), **about)
    spoken = tuple(part for part in parts if not isinstance(part, ToolResponsePart))
    if spoken:
        message = TranscriptMessage(role=kind, parts=spoken, **about)
        yield _with_model(message, entry["message"]) if kind == "assistant" else message


def _with_model(message: TranscriptMessage, given: Mapping[str, Any]) -> TranscriptMessage:
    """Return an answer with what the API says about it, unless the CLI has written it itself."""
    if given.get("model") == SYNTHETIC:
        return message
    usage = given.get("usage")
    return replace(
        message,
        id=_text(given.get("id")),
        model=_text(given.get("model")),
        provider=PROVIDER,
        finish_reason=_text(given.get("stop_reason")),
        usage=usage if isinstance(usage, Mapping) else None,
    )


def _part(part: MessagePart, names: dict[str, str]) -> MessagePart:
    """Return a part of the Messages API with what other messages say about it."""
    match part:
        case ToolCallPart():
            names[part.id] = part.name
        case ToolResponsePart():
            return replace(part, name=names.get(part.id, ""))
        case ReasoningPart():
            return replace(part, provider=PROVIDER)
        case GenericPart(type="redacted_thinking", values={"data": str() as data}):
            return ReasoningPart(provider=PROVIDER, encrypted=data)
        case GenericPart(type="server_tool_use", values=values):
            given = values.get("input")
            arguments = dict(given) if isinstance(given, Mapping) else None
            return ToolCallPart(
                id=str(values.get("id")), name=str(values.get("name")), arguments=arguments, hosted=True
            )
    return part


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
