"""Transcripts: where a conversation has tool calls and where they are answered, in the shapes that models speak.

Messages are plain dicts, in one of these shapes (one conversation may mix them):

    openai      {"role": "assistant", "tool_calls": [{"id", "type": "function", "function": {"name", "arguments"}}]}
                {"role": "tool", "tool_call_id", "content"}
    anthropic   {"role": "assistant", "content": [{"type": "tool_use", "id", "name", "input"}]}
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id", "content", "is_error"}]}
    langchain   {"type": "ai", "tool_calls": [{"id", "name", "args"}]}        or the same below "data"
                {"type": "tool", "tool_call_id", "content", "status"}         or the same below "data"

A *turn* is a message with calls and what follows it up to the next message of the model: an answer belongs to the call of
its id in its own turn, since some models number their calls anew in each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OPENAI, ANTHROPIC, LANGCHAIN, LANGCHAIN_DATA = "openai", "anthropic", "langchain", "langchain data"
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the model asked for. `arguments` is None if what it wrote is no object: such a call can't be made."""

    id: str
    name: str
    arguments: Mapping[str, Any] | None = field(default_factory=dict)
    shape: str = OPENAI


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Calls of one message, at `index` of the transcript, and where each of them is answered: the index of the message
    and, in the shape of Anthropic, that of the block in it. None: it is open."""

    index: int
    end: int  # of the messages that belong to it
    calls: Sequence[ToolCall]
    answers: Sequence[tuple[int, int] | None]
    repeated: Sequence[str] = ()  # ids that are answered more than once

    @property
    def open(self) -> list[ToolCall]:
        return [call for call, answer in zip(self.calls, self.answers, strict=True) if answer is None]


def turns(messages: Sequence[Message]) -> Iterator[Turn]:
    """The turns that have calls, in order."""
    index = 0
    while index < len(messages):
        calls = calls_of(messages[index])
        if not calls:
            index += 1
            continue
        end = index + 1
        while end < len(messages) and not is_models(messages[end]):
            end += 1
        found: dict[str, tuple[int, int]] = {}
        repeated = []
        for at in range(index + 1, end):
            for block, id_ in answers_of(messages[at]):
                if id_ in found:
                    repeated.append(id_)
                found.setdefault(id_, (at, block))
        yield Turn(
            index=index,
            end=end,
            calls=calls,
            answers=[found.get(call.id) for call in calls],
            repeated=[id_ for id_ in repeated if any(call.id == id_ for call in calls)],
        )
        index = end


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls that nobody has answered, in order."""
    return [call for turn in turns(messages) for call in turn.open]


def place_of_answer(messages: Sequence[Message], call: ToolCall) -> int:
    """Where the answer of an open call belongs: after that of the call before it, or right after the calls."""
    for turn in turns(messages):
        place = turn.index + 1
        for one, answered in zip(turn.calls, turn.answers, strict=True):
            if answered is not None:
                place = max(place, answered[0] + 1)
            elif one.id == call.id:
                return place
    return len(messages)


def is_models(message: Message) -> bool:
    """Whether the model said it."""
    return message.get("role") == "assistant" or message.get("type") in ("ai", "AIMessageChunk")


def calls_of(message: Message) -> list[ToolCall]:
    if not is_models(message):
        return []
    shape, body = _body(message)
    found = [_call(one, shape) for one in _list(body.get("tool_calls"))]
    if not found:  # LangChain repeats Anthropic's blocks in the content: its own list comes first
        found = [
            ToolCall(
                id=str(one.get("id")), name=str(one.get("name")), arguments=_object(one.get("input")), shape=ANTHROPIC
            )
            for one in _list(body.get("content"))
            if one.get("type") == "tool_use"
        ]
    return found


def answers_of(message: Message) -> Iterator[tuple[int, str]]:
    """The ids that a message answers, each with the index of its block (0, where there are none)."""
    _, body = _body(message)
    if message.get("role") == "tool" or message.get("type") == "tool":
        yield 0, str(body.get("tool_call_id"))
    elif message.get("role") == "user":
        for block, one in enumerate(_list(body.get("content"))):
            if one.get("type") == "tool_result":
                yield block, str(one.get("tool_use_id"))


def answer(call: ToolCall, text: str, *, is_error: bool) -> dict[str, Any]:
    """A message that answers a call, in the shape of the call; in that of Anthropic the block for it."""
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
    """What holds a message's fields, and which shape that is."""
    if "role" not in message and "type" in message:
        data = message.get("data")
        return (LANGCHAIN_DATA, data) if isinstance(data, Mapping) else (LANGCHAIN, message)
    return OPENAI, message


def _call(one: Message, shape: str) -> ToolCall:
    function = one.get("function")
    if isinstance(function, Mapping):
        return ToolCall(
            id=str(one.get("id")),
            name=str(function.get("name")),
            arguments=_object(function.get("arguments")),
            shape=shape,
        )
    return ToolCall(id=str(one.get("id")), name=str(one.get("name")), arguments=_object(one.get("args")), shape=shape)


def _object(given: Any) -> Mapping[str, Any] | None:
    """Arguments as an object: as such, or as JSON in a string."""
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except ValueError:
            return None
    return dict(given) if isinstance(given, Mapping) else None


def _list(given: Any) -> list[Message]:
    return [one for one in given if isinstance(one, Mapping)] if isinstance(given, list | tuple) else []
