"""Copies of messages, many at once: each checkpoint of a listing gets its own, and so does whoever loads what was put last.

To copy a message takes a dozen calls into C. Message by message, more time goes into getting from one to the next than into
themselves; so a whole stretch of messages is copied column by column: the attributes of all, then what they may not share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from holdfast.adapters.langgraph.messages import (
    MESSAGE_CLASSES,
    put_attributes,
    put_extra,
    put_private,
    put_were_set,
)
from holdfast.objects.witness import ATOMS

Anew = Callable[[int], Any]


class Copies:
    """Makes copies of values, as often as asked, that share with them nothing that can be changed. What there is to copy is found
    out once: the values must not change. `anew` makes one, by its number, of which this does not know how to copy it:
    one that holds something else than messages and plain data. Without it, that raises KeyError.

    Of a message, most attributes are texts and None, which are shared, or empty containers, which are made anew; what else there
    is, is copied attribute by attribute.
    """

    __slots__ = ("_attributes", "_beside", "_empty", "_extras", "_filled", "_kinds", "_numbers", "_others", "_were_set")

    def __init__(self, values: Sequence[Any], anew: Anew | None = None) -> None:
        self._others: list[tuple[int, Callable[[], Any]]] = []
        # Of the messages. All that follows counts these, and not the values.
        self._numbers: list[int] = []
        self._kinds: list[type[Any]] = []
        self._attributes: list[dict[str, Any]] = []
        self._were_set: list[set[str]] = []
        self._extras: list[dict[str, Any] | None] = []
        self._empty: dict[tuple[str, type[Any]], list[int]] = {}  # by name and type, whose they are
        self._filled: list[tuple[int, str, Any]] = []
        self._beside: list[tuple[int, Any, Any]] = []  # extra and private attributes, where there are any
        for number, value in enumerate(values):
            try:
                if type(value) in MESSAGE_CLASSES:
                    self._add(number, value)
                else:
                    copied(value)  # raises now what it would raise then
                    self._others.append((number, partial(copied, value)))
            except KeyError:
                if anew is None:
                    raise
                self._others.append((number, partial(anew, number)))

    def _add(self, number: int, message: Any) -> None:
        held = message.__dict__
        empty, filled = [], []
        for name, one in held.items():
            its = type(one)
            if its in ATOMS:
                continue
            if (its is list or its is dict) and not one:
                empty.append((name, its))
            else:
                copied(one)
                filled.append((name, one))
        extra, private = message.__pydantic_extra__, message.__pydantic_private__
        place = len(self._kinds)
        if extra or private is not None:
            copied(extra), copied(private)
            self._beside.append((place, extra, private))
        for name_and_type in empty:
            self._empty.setdefault(name_and_type, []).append(place)
        self._filled += [(place, name, one) for name, one in filled]
        self._numbers.append(number)
        self._kinds.append(type(message))
        self._attributes.append(held)
        self._were_set.append(message.__pydantic_fields_set__)
        self._extras.append(extra)

    def take(self, first: int, end: int) -> list[Any]:
        """Copies of the values from number `first` up to `end`."""
        if not self._others:
            return self._messages(first, end)
        taken: dict[int, Any] = {number: make() for number, make in _between(self._others, first, end, key=_number)}
        low, high = bisect_left(self._numbers, first), bisect_left(self._numbers, end)
        taken.update(zip(self._numbers[low:high], self._messages(low, high), strict=True))
        return [taken[number] for number in range(first, end)]

    def _messages(self, first: int, end: int) -> list[Any]:
        attributes = [held.copy() for held in self._attributes[first:end]]
        for (name, its), places in self._empty.items():
            for place in _between(places, first, end):
                attributes[place - first][name] = its()
        for place, name, one in _between(self._filled, first, end, key=_number):
            attributes[place - first][name] = copied(one)
        made = [*map(object.__new__, self._kinds[first:end])]
        _put(put_attributes, made, attributes)
        _put(put_were_set, made, [names.copy() for names in self._were_set[first:end]])
        _put(put_extra, made, [None if extra is None else {} for extra in self._extras[first:end]])
        _put(put_private, made, repeat(None))
        for place, extra, private in _between(self._beside, first, end, key=_number):
            put_extra(made[place - first], copied(extra))
            put_private(made[place - first], copied(private))
        return made


def copied(value: Any) -> Any:
    """One copy; KeyError if the value holds something else than messages and plain data."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is dict:
        return {name: one if type(one) in ATOMS else copied(one) for name, one in value.items()}
    if kind is list:
        return [one if type(one) in ATOMS else copied(one) for one in value]
    if kind in MESSAGE_CLASSES:
        return Copies([value]).take(0, 1)[0]
    raise KeyError(kind)


def _number(numbered: tuple[Any, ...]) -> Any:
    return numbered[0]


def _between(numbered: list[Any], first: int, end: int, key: Callable[[Any], int] | None = None) -> list[Any]:
    return numbered[bisect_left(numbered, first, key=key) : bisect_left(numbered, end, key=key)]


def _put(put: Callable[[Any, Any], object], messages: list[Any], contents: Iterable[Any]) -> None:
    deque(map(put, messages, contents), maxlen=0)
