"""Time limits of functions: for steps, effects and probes."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from holdfast.errors import StepTimeoutError
from holdfast.operations import validate

F = TypeVar("F", bound=Callable[..., Any])


def time_limit(seconds: float) -> Callable[[F], F]:
    """Return a decorator: a call that takes longer raises `StepTimeoutError`.

    A coroutine is cancelled then. A plain function can't be stopped: it continues in a thread, and
    its late result is discarded. An effect that was cut off is in doubt.
    """
    limit = validate.seconds("seconds", seconds, least=0.001)

    def declare(function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wait(*args: Any, **kwargs: Any) -> Any:
                try:
                    async with asyncio.timeout(limit) as timer:
                        return await function(*args, **kwargs)
                except TimeoutError as error:
                    if timer.expired():
                        raise _make_late_error(function, limit) from error
                    raise

            return cast("F", wait)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            ended: list[tuple[bool, Any]] = []
            context = contextvars.copy_context()

            def work() -> None:
                try:
                    ended.append((True, context.run(function, *args, **kwargs)))
                except BaseException as error:
                    ended.append((False, error))

            thread = threading.Thread(target=work, name="holdfast time limit", daemon=True)
            thread.start()
            thread.join(limit)
            if not ended:
                raise _make_late_error(function, limit)
            is_done, outcome = ended[0]
            if is_done:
                return outcome
            raise outcome

        return cast("F", call)

    return declare


def _make_late_error(function: Callable[..., Any], limit: float) -> StepTimeoutError:
    name = getattr(function, "__name__", "the function")
    return StepTimeoutError(f"{name:.60} has taken longer than {limit:g} seconds: what it still does is discarded")
