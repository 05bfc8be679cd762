"""Witnesses: proof, without encoding anything, that a list's elements are what they were when they were encoded.

A framework hands over the whole conversation at every step, and most of it is the very same objects as before. That alone
proves nothing: they can be changed in place. But what they are made of can be compared by identity: an object is what
it refers to, container by container, down to values that can't change (texts, numbers). The garbage collector lists what
containers refer to in one C call for many of them, and dicts tell by themselves (`dictwatch.py`), so looking at a message
costs a fiftieth of encoding it.

A witness keeps the elements and all that was found below them alive: an address is never reused behind its back. What it can't
judge, it does not witness: values of other types, keys that are no plain texts, classes that are not known to be *plain* (all
that their objects are encoded from is what the collector sees in them).
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

from holdfast.objects.addresses import addresses, addresses_in
from holdfast.objects.dictwatch import MARK, NOTHING, Dicts, Mark, Watch, watch

ATOMS = frozenset((str, int, float, bool, type(None), bytes, complex))  # they never change, and refer to nothing
MAX_LEVELS = 16
MAX_REFERENCES = 20_000  # of one witness: beyond it, encoding is the cheaper way
_CONTAINERS = frozenset((dict, list, tuple, set, frozenset))
_NAMES = frozenset((str,))
_attributes = attrgetter("__dict__")


class Witness:
    """Of some elements of a list, at one moment: the containers that they are and are made of, and what these referred to.

    As long as each container refers to the same things, the next ones are the same, too, and so on down: so all are looked at
    at once. Dicts have a watch of their own, and of what was empty nothing need be known but that it still is.
    """

    __slots__ = ("_containers", "_dicts", "_empty", "_expected", "_places", "_references", "_size", "elements")

    def __init__(
        self,
        elements: list[Any],
        *,
        containers: list[Any],
        references: list[Any],
        empty: list[Any],
        dicts: Watch,
        size: int,
    ) -> None:
        self.elements = elements
        self._places = addresses(elements)
        self._empty = empty
        self._dicts = dicts
        self._containers = (*containers,)  # objects and what else is not empty, but for dicts
        self._references = references  # of these; kept alive, so that their addresses stay theirs
        self._expected = addresses_in(references)
        self._size = size

    def followed_by(self, other: Witness) -> Witness | None:
        """One witness of both one's elements; None if that is too much for one."""
        if self._size + other._size > MAX_REFERENCES:
            return None
        both = Witness.__new__(Witness)
        both.elements = self.elements + other.elements
        both._places = self._places + other._places
        both._empty = self._empty + other._empty
        both._dicts = self._dicts.followed_by(other._dicts)
        both._containers = self._containers + other._containers
        both._references = self._references + other._references
        both._expected = self._expected + other._expected
        both._size = self._size + other._size
        return both

    def testifies(self, elements: Sequence[Any]) -> bool:
        """Whether these are the same elements, unchanged."""
        return self.is_of(elements) and self.is_unchanged()

    def is_of(self, elements: Sequence[Any]) -> bool:
        """Whether these are the same elements, changed or not."""
        return addresses(elements) == self._places

    def is_unchanged(self) -> bool:
        return (
            not any(self._empty)
            and self._dicts.are_unchanged()
            and addresses_in(gc.get_referents(*self._containers)) == self._expected
        )


def all_testify(witnesses: Sequence[Witness | None], elements: Sequence[Any]) -> bool:
    """Whether these are the elements of all the witnesses, one after the other, unchanged."""
    present = [one for one in witnesses if one is not None]
    return (
        len(present) == len(witnesses)
        and b"".join([one._places for one in present]) == addresses(elements)
        and all(one.is_unchanged() for one in present)
    )


def witness(elements: list[Any], plain: frozenset[type[Any]]) -> Witness | None:
    """A witness of these elements; None if it could not tell every change. `plain` are the classes whose objects are
    encoded from what they refer to, and from nothing else.

    Level by level. A mark stands behind each container, so that what one refers to can't be taken for what its neighbour does;
    objects need none, each refers to as many things as before."""
    leaves = _leaves(plain)
    empty: list[Any] = []
    containers: list[Any] = []
    references: list[Any] = []
    objects: list[Any] = []
    dicts: Dicts = []
    watched: Watch = NOTHING
    size = 0
    found = elements
    for _ in range(MAX_LEVELS):
        of_level: list[Any] = []
        marked: list[Any] = []
        dicts_of_level: Dicts = []
        for one in found:
            kind = type(one)
            if kind in leaves:
                continue
            if kind in _CONTAINERS:
                if not one:
                    empty.append(one)
                elif kind is dict:
                    dicts_of_level.append(one)
                else:
                    marked += (one, MARK)
            elif kind in plain:
                of_level.append(one)
            else:
                return None
        if of_level:
            objects += of_level
        of_level += marked
        if of_level:
            containers += of_level
            found = gc.get_referents(*of_level)
            references += found
        elif dicts_of_level:
            found = []
        elif _shows_every_change(objects, dicts):
            return Witness(
                elements, containers=containers, references=references, empty=empty, dicts=watched, size=size
            )
        else:
            return None
        if dicts_of_level:
            # First: what is put into a dict after it is watched shows as a change, whether it was looked into or not.
            watched = watched.followed_by(watch(dicts_of_level))
            dicts += dicts_of_level
            found = found + gc.get_referents(*dicts_of_level)
        size += len(found)
        if size > MAX_REFERENCES:
            return None
    return None


@cache
def _leaves(plain: frozenset[type[Any]]) -> frozenset[object]:
    """What is not looked into. An object refers to its class, too."""
    return ATOMS.union(map(type, plain), (Mark,))


def _shows_every_change(objects: list[Any], dicts: Dicts) -> bool:
    """Whether names are plain texts, and of each object the collector shows the dict of its attributes itself, not only what
    that holds."""
    return _NAMES.issuperset(map(type, chain.from_iterable(dicts))) and set(map(id, dicts)).issuperset(
        map(id, map(_attributes, objects))
    )
