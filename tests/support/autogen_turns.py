"""Agents and models for the tests of AutoGen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autogen_agentchat.base import TaskResult
from autogen_core.models import FunctionExecutionResultMessage
from autogen_model import FunctionModel


def answer_once_called(*calls: Any) -> FunctionModel:
    """Return a model that makes these calls in each turn, one after the other, then says what they returned."""

    def answer(messages: Sequence[Any]) -> Any:
        results: list[Any] = []
        for message in reversed(messages):
            if message.type == "UserMessage":
                break
            if isinstance(message, FunctionExecutionResultMessage):
                results.insert(0, message.content[0].content)
        return [calls[len(results)]] if len(results) < len(calls) else f"done: {', '.join(results)}"

    return FunctionModel(answer)


def texts(result: TaskResult) -> list[str]:
    return [message.to_text() for message in result.messages]
