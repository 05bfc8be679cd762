"""Agents and runs that tests of smolagents share."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console
from smolagents import (
    AgentLogger,
    LogLevel,
    Tool,
    ToolCallingAgent,
)
from smolagents_model import FunctionModel


class Interrupted(BaseException):
    """What a kill does, in a test that stays in its process."""


def make_agent(answer: Any, *tools: Any, **options: Any) -> ToolCallingAgent:
    model = answer if isinstance(answer, FunctionModel) else FunctionModel(answer)
    logger = AgentLogger(LogLevel.OFF, Console(quiet=True))
    return ToolCallingAgent(tools=list(tools), model=model, logger=logger, **options)


def never(_: Any) -> Any:
    pytest.fail("the model was asked again")


def interrupt(*_: Any) -> Any:
    raise Interrupted


def interrupted_at(step: int, answer: Any) -> Any:
    """Return a model that is cut off when it is asked for the step with this number."""
    asked: list[int] = []

    def answer_until(messages: Any) -> Any:
        asked.append(1)
        return interrupt() if len(asked) > step else answer(messages)

    return answer_until


# -- tools -------------------------------------------------------------------------------------------------------------


class Look(Tool):
    name, description, inputs, output_type = "look", "Looks.", {}, "string"

    def forward(self) -> str:
        return "seen"
