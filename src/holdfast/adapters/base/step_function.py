"""Functions for the steps of a turn: coroutine functions for an awaited run, else plain ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.runs.step import KNOWN_VALUE

LONGEST_NAME = 100


def as_is(value: Any) -> Any:
    return value


async def result_of(value: Any) -> Any:
    """Return what an awaited or a plain run answers."""
    return await value if inspect.isawaitable(value) else value


def step_name(name: Any) -> str:
    """Return a name for a checkpoint, of a name that the framework or the user has chosen."""
    return (str(name).strip() or "agent")[:LONGEST_NAME]


class StepFunctions:
    """Makes functions of the kind that a run calls without a thread."""

    def __init__(self, *, is_awaited: bool) -> None:
        self._is_awaited = is_awaited

    def record(
        self, call: Callable[..., Any], field: str, arguments: Mapping[str, Any], **about: Any
    ) -> Callable[[], Any]:
        """Return a function that calls, and returns the result in a record of the call."""
        given = dict(arguments)
        known = {name: value for name, value in about.items() if value is not None}

        async def awaited() -> dict[str, Any]:
            return {**known, field: await result_of(call(**given))}

        def plainly() -> dict[str, Any]:
            return {**known, field: call(**given)}

        return awaited if self._is_awaited else plainly

    def rename(self, call: Callable[..., Any], name: str | None) -> Callable[..., Any]:
        """Return a function of its own for a tool: the ledger compares functions by their names."""

        async def awaited(**arguments: Any) -> Any:
            return await result_of(call(**arguments))

        def plainly(**arguments: Any) -> Any:
            return call(**arguments)

        made: Callable[..., Any] = awaited if self._is_awaited else plainly
        made.__qualname__ = f"tool {name}"
        return made

    def constant(self, value: Any) -> Callable[..., Any]:
        """Return a function that returns `value`."""

        async def awaited(**_: Any) -> Any:
            return value

        made: Callable[..., Any] = awaited if self._is_awaited else lambda **_: value
        setattr(made, KNOWN_VALUE, True)
        return made
