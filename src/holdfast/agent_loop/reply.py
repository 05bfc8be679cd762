"""A model's reply, from any form that the function that calls it returns."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import ModelError, UsageError

OURS = ("id", "timestamp", "metadata")  # of a message in a state; models do not get them
ANTHROPIC_CONTENT = "anthropic_content"
"""Of a message: the blocks that Anthropic's API gave, where text and tool calls do not say all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A message of the model, what it cost, and what it thought."""

    message: Mapping[str, Any]
    usage: Mapping[str, Any] = field(default_factory=dict)
    reasoning: str | None = None


def reply_of(given: Any) -> Reply:
    """Return a reply from text, a message, an OpenAI-compatible response, or a `Reply`."""
    if isinstance(given, Reply):
        return Reply(message=_check_calls(given.message), usage=given.usage, reasoning=given.reasoning)
    if isinstance(given, str):
        return Reply(message={"role": "assistant", "content": given})
    dump = getattr(given, "model_dump", None)  # of the classes of clients of such endpoints
    if dump is not None:
        given = dump(exclude_none=True)
    if not isinstance(given, Mapping):
        raise UsageError(
            f"the model gave a {type(given).__name__}: it must give text, a message such as {{'role': 'assistant', "
            "'content': 'hello'}, or a response with choices"
        )
    if "choices" not in given:
        _refuse_nothing(given)
        return Reply(message=_check_calls(given), reasoning=_reasoning(given))
    choices = given["choices"]
    if not choices or "message" not in choices[0]:
        raise UsageError("the model's response has no message: its choices are empty")
    message = choices[0]["message"]
    return Reply(message=_check_calls(message), usage=given.get("usage") or {}, reasoning=_reasoning(message))


def _refuse_nothing(given: Mapping[str, Any]) -> None:
    """Refuse a value without any part of a message.

    It would be an empty message, which ends the turn as if all were well.
    """
    if any(key in given for key in ("role", "content", "tool_calls")):
        return
    if given.get("error"):
        raise ModelError(f"the model failed: {given['error']!r:.2000}")
    raise UsageError(
        f"the model gave {dict(given)!r:.200}, which is no message: it has no role, content or "
        "tool_calls, and is no response "
        "with choices"
    )


def _check_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of the assistant whose calls have ids: each answer must name one."""
    made = {"role": "assistant", **{key: value for key, value in message.items() if value is not None}}
    if made["role"] != "assistant":
        raise UsageError(f"the model gave a message of the role {made['role']!r:.60}: it must be 'assistant'")
    made.setdefault("content", None)
    made.pop("reasoning_content", None)
    calls = made.get("tool_calls")
    if isinstance(calls, Sequence):
        if not all(isinstance(call, Mapping) for call in calls):
            raise UsageError(f"the model gave tool_calls {calls!r:.100}: each must be an object with id and function")
        made["tool_calls"] = [{**call, "id": call.get("id") or f"call_{uuid.uuid4().hex}"} for call in calls]
        if not made["tool_calls"]:
            del made["tool_calls"]
    return made


def _reasoning(message: Mapping[str, Any]) -> str | None:
    found = message.get("reasoning_content") or message.get("reasoning")
    return found if isinstance(found, str) else None


def for_model(messages: Sequence[Mapping[str, Any]], system: str | None) -> list[dict[str, Any]]:
    """Return the conversation for a model: copies, without our own fields, after the system message."""
    from holdfast.model.frozen import thaw

    prepared = [{key: thaw(value) for key, value in message.items() if key not in OURS} for message in messages]
    return prepared if system is None else [{"role": "system", "content": system}, *prepared]


def added_usage(before: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Add usage: numbers are summed, at any depth; other values are replaced by the latest."""
    total = dict(before)
    for key, value in more.items():
        had = total.get(key)
        if isinstance(value, Mapping):
            total[key] = added_usage(had if isinstance(had, Mapping) else {}, value)
        elif isinstance(value, int | float) and isinstance(had, int | float):
            total[key] = had + value
        else:
            total[key] = value
    return total
