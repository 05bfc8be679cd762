"""Models for Haystack that are functions of their messages. Importing it turns telemetry off."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

# Haystack reads it when it is imported, and would write to the home directory.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack import component
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import ToolsType


@component
class FunctionModel:
    """Answers with what the function makes of the messages: a text, or a message. `asked` counts the requests."""

    def __init__(self, answer: Callable[[Sequence[ChatMessage]], str | ChatMessage]) -> None:
        self.answer = answer
        self.asked = 0

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage],
        tools: ToolsType | None = None,
        streaming_callback: Any = None,
        generation_kwargs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        self.asked += 1
        said = self.answer(messages)
        return {"replies": [ChatMessage.from_assistant(said) if isinstance(said, str) else said]}


def call(tool: str, id_: str | None = None, **arguments: Any) -> ToolCall:
    return ToolCall(tool, arguments, id=id_ or f"call-{tool}")


def results_of(messages: Sequence[ChatMessage]) -> list[str]:
    """Return what the tools have answered since the last message of the user."""
    begins = max((number for number, one in enumerate(messages) if one.is_from("user")), default=0)
    return [str(result.result) for one in messages[begins:] for result in one.tool_call_results]


def answer_once_called(*calls: ToolCall | Sequence[ToolCall]) -> FunctionModel:
    """Return a model that makes these calls in each run, step by step, then says what they returned."""

    def answer(messages: Sequence[ChatMessage]) -> str | ChatMessage:
        begins = max(number for number, one in enumerate(messages) if one.is_from("user"))
        step = sum(one.is_from("assistant") for one in messages[begins:])
        if step == len(calls):
            return f"done: {', '.join(results_of(messages))}"
        wanted = calls[step]
        return ChatMessage.from_assistant(tool_calls=[wanted] if isinstance(wanted, ToolCall) else list(wanted))

    return FunctionModel(answer)


def refuse() -> FunctionModel:
    """Return a model that must not be asked."""

    def answer(messages: Sequence[ChatMessage]) -> str:
        raise AssertionError(f"it was asked: {[one.text for one in messages]}")

    return FunctionModel(answer)


def echo() -> FunctionModel:
    """Return a model that says how many messages of the user it has been sent."""
    return FunctionModel(lambda messages: f"{sum(one.is_from('user') for one in messages)} heard")
