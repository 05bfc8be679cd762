"""Agents and turns that tests of Strands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strands import Agent
from strands_model import FunctionModel, results_since_user


def make_agent(answer: Any, *tools: Any, **options: Any) -> Agent:
    model = answer if isinstance(answer, FunctionModel) else FunctionModel(answer)
    return Agent(model, tools=list(tools), callback_handler=None, **{"name": "a", **options})


def calls_then_text(*calls: Any) -> Any:
    """Return a model that makes these calls in each turn, one after the other, then says what they returned."""

    def answer(messages: Sequence[Any]) -> Any:
        results = results_since_user(messages)
        return [calls[len(results)]] if len(results) < len(calls) else f"done: {', '.join(results)}"

    return answer


def die_after(count: int, then: Any) -> Any:
    """Return a model that fails once so many results are there."""

    def answer(messages: Sequence[Any]) -> Any:
        if len(results_since_user(messages)) >= count:
            raise ConnectionError("away")
        return then(messages)

    return answer


def said(result: Any) -> str:
    return str(result).strip()
