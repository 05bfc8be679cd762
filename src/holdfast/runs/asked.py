"""A step or an effect that was asked for, to be awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Asked(Coroutine[Any, Any, Any]):
    """A coroutine that says so if it is ended before it has begun. Its place is taken when it is asked for, so that calls side by
    side are told apart by the order in which they were made; and whoever waits for one with a time limit may end it before its
    first turn, when no code of its own runs."""

    __slots__ = ("_coroutine", "_give_back")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], give_back: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._give_back: Callable[[], None] | None = give_back

    def __await__(self) -> Generator[Any, Any, Any]:
        self._give_back = None
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        self._give_back = None
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        self._end()
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._end()
        self._coroutine.close()

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()
