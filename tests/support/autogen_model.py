"""A model client for AutoGen that needs no network: a function of the messages is its answer."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage

Answer = str | list[FunctionCall]


def call(name: str, call_id: str = "", **arguments: Any) -> FunctionCall:
    return FunctionCall(id=call_id or f"call-{name}", name=name, arguments=json.dumps(arguments))


class FunctionModel(ChatCompletionClient):
    """A model client that answers as a function says; `requests` has the messages it was asked with."""

    def __init__(self, answer: Callable[[Sequence[Any]], Answer]) -> None:
        self.answer = answer
        self.requests: list[list[Any]] = []

    async def create(self, messages: Sequence[Any], **options: Any) -> CreateResult:
        self.requests.append(list(messages))
        content = self.answer(messages)
        usage = RequestUsage(prompt_tokens=10 * len(messages), completion_tokens=5)
        reason = "stop" if isinstance(content, str) else "function_calls"
        return CreateResult(finish_reason=reason, content=content, usage=usage, cached=False)

    async def create_stream(self, messages: Sequence[Any], **options: Any) -> AsyncGenerator[Any, None]:
        answer = await self.create(messages)
        if isinstance(answer.content, str):
            for word in answer.content.split():
                yield word
        yield answer

    async def close(self) -> None:
        pass

    def actual_usage(self) -> RequestUsage:
        return RequestUsage(0, 0)

    def total_usage(self) -> RequestUsage:
        return RequestUsage(0, 0)

    def count_tokens(self, messages: Sequence[Any], **options: Any) -> int:
        return 0

    def remaining_tokens(self, messages: Sequence[Any], **options: Any) -> int:
        return 1000

    @property
    def capabilities(self) -> Any:
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(
            vision=False, function_calling=True, json_output=True, family="unknown", structured_output=True
        )
