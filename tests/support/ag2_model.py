"""A model for AG2 that needs no network: a function of the events is its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ag2.config import ModelConfig
from ag2.events import (
    BaseEvent,
    ModelMessage,
    ModelMessageChunk,
    ModelRequest,
    ModelResponse,
    ToolCallEvent,
    ToolCallsEvent,
    ToolResultsEvent,
    Usage,
)

Answer = str | list[ToolCallEvent] | ModelResponse | BaseException


def call(name: str, call_id: str = "", **arguments: Any) -> ToolCallEvent:
    return ToolCallEvent(name, id=call_id or f"call-{name}", arguments=json.dumps(arguments))


def of_turn(events: Sequence[BaseEvent]) -> list[BaseEvent]:
    """Return the events since the user's last message."""
    begins = max(number for number, event in enumerate(events) if isinstance(event, ModelRequest))
    return list(events[begins:])


def results_of(events: Sequence[BaseEvent]) -> list[Any]:
    """Return the results of the tools since the user's last message."""
    return [one for event in of_turn(events) if isinstance(event, ToolResultsEvent) for one in event.results]


class FunctionConfig(ModelConfig):
    """A model that answers as a function says; `requests` has the events that it was asked with.

    What `publish` returns is sent to the stream before the answer, as clients of providers do.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[BaseEvent]], Answer],
        *,
        publish: Callable[[Sequence[BaseEvent]], list[BaseEvent]] = lambda _: [],
        is_streamed: bool = False,
        api_key: str = "",
    ) -> None:
        self.answer = answer
        self.publish = publish
        self.is_streamed = is_streamed
        self.api_key = api_key
        self.requests: list[list[BaseEvent]] = []
        self.prompts: list[list[str]] = []

    @property
    def model(self) -> str:
        return "function"

    def copy(self) -> FunctionConfig:
        return self

    def create(self) -> Any:
        return self._ask

    async def _ask(self, messages: Sequence[BaseEvent], context: Any, **options: Any) -> ModelResponse:
        self.requests.append(list(messages))
        self.prompts.append(list(context.prompt))
        for event in self.publish(messages):
            await context.send(event)
        answer = self.answer(messages)
        if isinstance(answer, BaseException):
            raise answer
        usage = Usage(prompt_tokens=10 * len(messages), completion_tokens=5, total_tokens=10 * len(messages) + 5)
        if isinstance(answer, ModelResponse):
            return answer
        if isinstance(answer, str):
            for word in answer.split() if self.is_streamed else ():
                await context.send(ModelMessageChunk(word))
            message = ModelMessage(answer)
            await context.send(message)
            return ModelResponse(message, usage=usage, model="function", finish_reason="stop")
        return ModelResponse(tool_calls=ToolCallsEvent(answer), usage=usage, model="function")
