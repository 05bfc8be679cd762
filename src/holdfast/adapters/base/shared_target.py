"""An object of a framework that several sessions use, one after the other.

Such an object has one conversation in its memory. So a turn holds it alone, and a session begins
with what the object had before any session used it, never with what another session has left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from holdfast.errors import UsageError

T = TypeVar("T")
_held: set[int] = set()  # ids of objects that are in a turn
_held_lock = threading.Lock()


@contextmanager
def hold(targets: Iterable[Any], kind: str, error: type[Exception] = UsageError) -> Iterator[None]:
    """Hold objects for one turn; raise if another turn has one of them."""
    ids = {id(target) for target in targets}
    with _held_lock:
        if ids & _held:
            raise error(
                f"the {kind} is in the middle of another turn, and it has one memory only. Let that turn end, close "
                f"its stream, or make the {kind} again for each session. Nothing was asked"
            )
        _held.update(ids)
    try:
        yield
    finally:
        with _held_lock:
            _held.difference_update(ids)


class FirstStates(Generic[T]):
    """What each object was when a session first met it in this process.

    A state must not refer to its object, or neither would ever be collected.
    """

    def __init__(self) -> None:
        self._states: WeakKeyDictionary[Any, T] = WeakKeyDictionary()
        self._lock = threading.RLock()  # states of objects within an object are taken, too

    def find(self, target: Any) -> T | None:
        """Return the state of an object; None if no session has met it."""
        with self._lock:
            return self._states.get(target)

    def take(self, target: Any, make: Callable[[], T]) -> T:
        """Return the state of an object, which `make` returns if no session has met it."""
        with self._lock:
            if target not in self._states:
                self._states[target] = make()
            return self._states[target]
