"""Transcripts: the tool calls of a conversation and their answers, in the shapes of each provider.

Messages are plain dicts, in one of these shapes (one conversation may mix them):

    openai      {"role": "assistant", "tool_calls": [{"id", "type": "function", "function": {"name", "arguments"}}]}
                {"role": "tool", "tool_call_id", "content"}
    anthropic   {"role": "assistant", "content": [{"type": "tool_use", "id", "name", "input"}]}
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id", "content", "is_error"}]}
    langchain   {"type": "ai", "tool_calls": [{"id", "name", "args"}]}        or the same below "data"
                {"type": "tool", "tool_call_id", "content", "status"}         or the same below "data"

A *turn* is a message with calls and the messages after it, up to the next message of the model. An
answer belongs to the call with its id in its own turn, since some models restart their numbering in
each turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OPENAI, ANTHROPIC, LANGCHAIN, LANGCHAIN_DATA = "openai", "anthropic", "langchain", "langchain data"
Message = Mapping[str, Any]
DEEPEST_ARGUMENTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the model asked for.

    `arguments` is None if the model did not write an object: such a call can't be made.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | None = field(default_factory=dict)
    shape: str = OPENAI


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallGroup:
    """The calls of one message, at `index` of the transcript, and the position of each answer.

    A position is the index of the message and, in Anthropic's shape, the index of the block in it.
    None: the call is open.
    """

    index: int
    end: int  # of the messages that belong to it
    calls: Sequence[ToolCall]
    answers: Sequence[tuple[int, int] | None]
    repeated: Sequence[str] = ()  # ids that are answered more than once

    @property
    def open(self) -> list[ToolCall]:
        return [call for call, answer in zip(self.calls, self.answers, strict=True) if answer is None]


def split_turns(messages: Sequence[Message]) -> Iterator[ToolCallGroup]:
    """Yield the turns that have calls, in order."""
    index = 0
    while index < len(messages):
        calls = list_calls(messages[index])
        if not calls:
            index += 1
            continue
        end = index + 1
        while end < len(messages) and not is_models(messages[end]):
            end += 1
        found: dict[str, tuple[int, int]] = {}
        repeated = []
        for at in range(index + 1, end):
            for block, id_ in list_answers(messages[at]):
                if id_ in found:
                    repeated.append(id_)
                found.setdefault(id_, (at, block))
        yield ToolCallGroup(
            index=index,
            end=end,
            calls=calls,
            answers=[found.get(call.id) for call in calls],
            repeated=[id_ for id_ in repeated if any(call.id == id_ for call in calls)],
        )
        index = end


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls without an answer, in order."""
    return [call for turn in split_turns(messages) for call in turn.open]


def find_answer_place(messages: Sequence[Message], call: ToolCall) -> int:
    """Return where the answer of an open call belongs: after the previous call's answer or the calls."""
    for turn in split_turns(messages):
        place = turn.index + 1
        for tool_call, answered in zip(turn.calls, turn.answers, strict=True):
            if answered is not None:
                place = max(place, answered[0] + 1)
            elif tool_call.id == call.id:
                return place
    return len(messages)


def is_models(message: Message) -> bool:
    """Return whether the message is the model's."""
    return message.get("role") == "assistant" or message.get("type") in ("ai", "AIMessageChunk")


def list_calls(message: Message) -> list[ToolCall]:
    if not is_models(message):
        return []
    shape, body = _body(message)
    found = [_call(item, shape) for item in _list(body.get("tool_calls"))]
    if not found:  # LangChain repeats Anthropic's blocks in the content: its own list comes first
        found = [
            ToolCall(
                id=str(item.get("id")),
                name=str(item.get("name")),
                arguments=parse_object(item.get("input")),
                shape=ANTHROPIC,
            )
            for item in _list(body.get("content"))
            if item.get("type") == "tool_use"
        ]
    return found


def list_answers(message: Message) -> Iterator[tuple[int, str]]:
    """Yield the ids that a message answers, each with the index of its block (0 without blocks)."""
    _, body = _body(message)
    if message.get("role") == "tool" or message.get("type") == "tool":
        yield 0, str(body.get("tool_call_id"))
    elif message.get("role") == "user":
        for block, item in enumerate(_list(body.get("content"))):
            if item.get("type") == "tool_result":
                yield block, str(item.get("tool_use_id"))


def answer(call: ToolCall, text: str, *, is_error: bool) -> dict[str, Any]:
    """Return a message that answers a call, in the call's shape; for Anthropic, the block of one."""
    match call.shape:
        case "anthropic":
            block = {"type": "tool_result", "tool_use_id": call.id, "content": text}
            return {**block, "is_error": True} if is_error else block
        case "langchain" | "langchain data":
            status = "error" if is_error else "success"
            fields = {"content": text, "tool_call_id": call.id, "name": call.name, "status": status}
            return {"type": "tool", "data": fields} if call.shape == LANGCHAIN_DATA else {"type": "tool", **fields}
        case _:
            return {"role": "tool", "tool_call_id": call.id, "content": text}


def _body(message: Message) -> tuple[str, Message]:
    """Return the mapping that holds a message's fields, and its shape."""
    if "role" not in message and "type" in message:
        data = message.get("data")
        return (LANGCHAIN_DATA, data) if isinstance(data, Mapping) else (LANGCHAIN, message)
    return OPENAI, message


def _call(message: Message, shape: str) -> ToolCall:
    function = message.get("function")
    if isinstance(function, Mapping):
        return ToolCall(
            id=str(message.get("id")),
            name=str(function.get("name")),
            arguments=parse_object(function.get("arguments")),
            shape=shape,
        )
    custom = message.get("custom")
    if isinstance(custom, Mapping):  # OpenAI's, of a tool that takes a text
        return ToolCall(id=str(message.get("id")), name=str(custom.get("name")), arguments=None, shape=shape)
    return ToolCall(
        id=str(message.get("id")),
        name=str(message.get("name")),
        arguments=parse_object(message.get("args")),
        shape=shape,
    )


def parse_object(given: Any) -> Mapping[str, Any] | None:
    """Return arguments as an object, given as such or as JSON in a string; None if they are neither.

    The model wrote them: they may be anything.
    """
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}", parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return None
    return dict(given) if isinstance(given, Mapping) and _is_shallow(given) else None


def write_object(arguments: Mapping[Any, Any] | None) -> str | None:
    """Return arguments as JSON, with sorted keys; None if JSON has no such values, as for NaN or a date."""
    try:
        is_json = arguments is not None and _has_text_keys(arguments)
        return json.dumps(arguments, sort_keys=True, ensure_ascii=False, allow_nan=False) if is_json else None
    except (TypeError, ValueError, RecursionError):
        return None


def quote_object(arguments: Mapping[Any, Any]) -> str:
    """Return arguments as text that is like JSON, whatever they are."""
    try:
        return json.dumps(dict(arguments), default=str)
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return str(dict(arguments))
    except (ValueError, RecursionError):  # such as a number with thousands of digits
        return "arguments that can't be written as text"


def _has_text_keys(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _has_text_keys(item) for name, item in value.items())
    return all(map(_has_text_keys, value)) if isinstance(value, list | tuple) else True


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _is_shallow(given: Any) -> bool:
    """Return whether a value is shallow enough to handle without regard to the interpreter's stack."""
    level = [given]
    for _ in range(DEEPEST_ARGUMENTS):
        inner = [list(item.values()) if isinstance(item, Mapping) else item for item in level]
        level = [value for values in inner for value in values if isinstance(value, Mapping | list | tuple)]
        if not level:
            return True
    return False


def _list(given: Any) -> list[Message]:
    return [item for item in given if isinstance(item, Mapping)] if isinstance(given, list | tuple) else []
