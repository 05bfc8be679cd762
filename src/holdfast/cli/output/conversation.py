"""A conversation as people read it: messages by role, tool calls, and their answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from holdfast.cli.terminal.sanitize import escape
from holdfast.json_form.unregistered import UnregisteredObject
from holdfast.json_form.values import to_json
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    CompactionPart,
    MessagePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    TranscriptMessage,
)
from holdfast.model.framework import Framework

KEYS = ("messages", "history", "transcript", "conversation")  # where conversations are looked for, in this order
INDENT = "  "


def find_messages(state: Any) -> Sequence[Any] | None:
    """Return the conversation in a state, None if there is none."""
    state = _simplify_value(state)
    if not isinstance(state, Mapping):
        return state if _is_conversation(state) else None
    for key in KEYS:
        found = _simplify_value(state.get(key))
        if _is_conversation(found):
            return found  # type: ignore[no-any-return]  # a list, as was just seen
    channels = _simplify_value(state.get("channel_values"))  # LangGraph's
    return find_messages(channels) if isinstance(channels, Mapping) else None


def find_recorded_messages(checkpoint: Checkpoint) -> Sequence[Any] | None:
    """Return the conversation that a framework's adapter has saved, as chat messages; None without one.

    It has the calls of a turn that was cut off, which are in the journal, not in the state.
    """
    if checkpoint.framework is Framework.CUSTOM:
        return None  # its state has chat messages, if any
    from holdfast.transcript import to_transcript

    try:
        return [_chat_message(message) for message in to_transcript(checkpoint)] or None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # a state that no adapter has saved


def print_conversation(messages: Iterable[TranscriptMessage]) -> None:
    """Print a conversation in neutral form."""
    for _, line in format_messages([_chat_message(message) for message in messages]):
        click.echo(line)


def _chat_message(message: TranscriptMessage) -> dict[str, Any]:
    parts = message.parts
    answered = message.tool_responses
    texts = [part_text for part in parts if not isinstance(part, ToolCallPart) for part_text in _part_texts(part)]
    calls = [
        {"id": tool_call.id, "name": tool_call.name, "args": _get_arguments(tool_call)}
        for tool_call in message.tool_calls
    ]
    named = answered[0].name or answered[0].id if answered else message.author
    chat = {"role": message.role, "name": named, "content": "\n".join(texts), "tool_calls": calls}
    return {key: value for key, value in chat.items() if value or key == "content"}


def _get_arguments(call: ToolCallPart) -> Any:
    return call.raw_arguments if call.arguments is None else dict(call.arguments)


def _part_texts(part: MessagePart) -> Iterator[str]:
    if isinstance(part, ToolResponsePart):
        for item in part.content:
            yield from _part_texts(item)
    elif isinstance(part, TextPart | ReasoningPart | CompactionPart):
        yield part.content
    else:
        about = {key: value for key, value in part.to_json().items() if key != "data"}
        yield f"[{', '.join(str(value) for value in about.values())}]"


def _is_conversation(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(_simplify_value(item), str | Mapping) for item in value)
    )


def format_messages(messages: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines to print, each with its role ("" for continuation lines)."""
    for number, message in enumerate(messages):
        body = _simplify_value(message)
        if isinstance(body, str):
            body = {"content": body}
        body = (
            {**body, **_simplify_value(body["data"])}
            if isinstance(_simplify_value(body.get("data")), Mapping)
            else body
        )
        role = escape(str(body.get("role") or body.get("type") or "?"), 20)
        if isinstance(name := body.get("name") or body.get("tool_call_id"), str):
            role = f"{role} {escape(name, 40)}"
        texts = [*_content(body.get("content")), *_calls(body.get("tool_calls"))]
        yield role, f"{number} {role}"
        yield from (("", f"{INDENT}{escape(line)}") for text in texts for line in text.split("\n"))


def _content(content: Any) -> Iterator[str]:
    content = _simplify_value(content)
    if isinstance(content, str):
        if content:
            yield content
    elif isinstance(content, list | tuple):
        for block in map(_simplify_value, content):
            yield from _block(block)
    elif content is not None:
        yield _value(content)


def _block(block: Any) -> Iterator[str]:
    if isinstance(block, str):
        yield block
    elif not isinstance(block, Mapping):
        yield _value(block)
    elif block.get("type") == "tool_use":
        yield f"→ {block.get('name')}({_arguments(block.get('input'))})"
    elif block.get("type") == "tool_result":
        for text in _content(block.get("content")):
            yield f"← {text}"
    elif isinstance(block.get("text"), str):
        yield block["text"]
    else:
        yield f"[{block.get('type', 'block')}]"


def _calls(calls: Any) -> Iterator[str]:
    for call in map(_simplify_value, calls if isinstance(calls, list | tuple) else ()):
        if isinstance(call, Mapping):
            inner = _simplify_value(call.get("function"))
            of = inner if isinstance(inner, Mapping) else call
            yield f"→ {of.get('name')}({_arguments(of.get('arguments', of.get('args')))})"


def _arguments(given: Any) -> str:
    given = _simplify_value(given)
    if isinstance(given, str):  # JSON, as some models write it
        try:
            given = json.loads(given)
        except ValueError:
            return str(given)
    if not isinstance(given, Mapping):
        return "" if given is None else _value(given)
    return ", ".join(f"{key}={_value(value)}" for key, value in given.items())


def _value(value: Any) -> str:
    return json.dumps(to_json(value), ensure_ascii=False, default=str)


def _simplify_value(value: Any) -> Any:
    return value.parts if isinstance(value, UnregisteredObject) else value
