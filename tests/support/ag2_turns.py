"""Agents, turns and tools that tests of AG2 share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ag2.events import (
    BaseEvent,
    ModelRequest,
)
from ag2_model import results_of

from holdfast.adapters.base import session as sessions


class Killed(BaseException):
    """Stands for the end of the process."""


def run(test: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(test())


def restart() -> None:
    """Forget what this process has done, as a new one would not know it."""
    sessions._finished.clear()


def text_of(result: Any) -> str:
    return ", ".join(str(getattr(part, "content", getattr(part, "data", part))) for part in result.result.parts)


def call_once_each(*calls: Any) -> Callable[[Sequence[BaseEvent]], Any]:
    """Return a model that makes these calls in each turn, one after the other, then says what they returned."""

    def answer(events: Sequence[BaseEvent]) -> Any:
        results = results_of(events)
        return [calls[len(results)]] if len(results) < len(calls) else f"done: {', '.join(map(text_of, results))}"

    return answer


def count_requests(events: Sequence[BaseEvent]) -> str:
    return f"request {sum(isinstance(one, ModelRequest) for one in events)}"


async def _look() -> str:
    return "seen"
