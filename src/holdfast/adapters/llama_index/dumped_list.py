"""A list that is dumped repeatedly; unchanged elements are the same objects in each dump.

So a save stores the new ones only, and notices if a step has changed an element in place.
"""

from __future__ import annotations

import marshal
import operator
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.adapters.base.loaded_list import fingerprint

_CHUNK = 32  # elements that are compared together: one fingerprint is faster than many


class DumpedList:
    """The last dump of a list, or what the store has of it; `elements` are what that was loaded as."""

    def __init__(self, dumped: Sequence[Any] = (), elements: Sequence[Any] = ()) -> None:
        self.dumped = list(dumped)
        self._prints = [fingerprint(chunk) for chunk in _chunks(elements)]

    def update(self, elements: Sequence[Any], dump: Callable[[Any], Any]) -> list[Any]:
        """Dump the list as it is now; elements that are as they were are not dumped again."""
        dumped: list[Any] = []
        prints = []
        for number, chunk in enumerate(_chunks(elements)):
            found = fingerprint(chunk)
            known = self.dumped[len(dumped) : len(dumped) + len(chunk)]
            is_known = found is not None and number < len(self._prints) and found == self._prints[number]
            dumped += known if is_known else _dump_chunk(chunk, known, dump)
            prints.append(found)
        self.dumped, self._prints = dumped, prints
        return dumped

    def count_since(self, before: Sequence[Any]) -> int | None:
        """Return how many elements the list has more than an earlier dump; None if those of it have changed."""
        is_longer = len(before) <= len(self.dumped) and all(map(operator.is_, before, self.dumped))
        return len(self.dumped) - len(before) if is_longer else None


def _chunks(elements: Sequence[Any]) -> list[list[Any]]:
    return [list(elements[start : start + _CHUNK]) for start in range(0, len(elements), _CHUNK)]


def _dump_chunk(chunk: list[Any], known: list[Any], dump: Callable[[Any], Any]) -> list[Any]:
    trees = list(map(dump, chunk))
    known += [None] * (len(trees) - len(known))
    return [old if _is_same(old, tree) else tree for old, tree in zip(known, trees, strict=True)]


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two dumps are the same plain data, of the same types."""
    try:
        return marshal.dumps(first, 2) == marshal.dumps(second, 2)  # a version without references between objects
    except ValueError:
        return False
