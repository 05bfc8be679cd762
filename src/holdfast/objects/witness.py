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
from collections.abc import Collection, Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

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

    def __init__(self, elements: list[Any], seen: _Seen) -> None:
        self.elements = elements
        self._places = addresses(elements)
        self._empty = seen.empty
        self._dicts = seen.dicts
        self._containers = (*seen.containers,)
        self._references = seen.references  # kept alive, so that their addresses stay theirs
        self._expected = addresses_in(seen.references)
        self._size = seen.size

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


def witness(elements: list[Any], plain: Collection[type[Any]]) -> Witness | None:
    """A witness of these elements; None if it could not tell every change. `plain` are the classes whose objects are
    encoded from what they refer to, and from nothing else."""
    leaves = _leaves(frozenset(plain))
    seen = _Seen()
    found = elements
    for _ in range(MAX_LEVELS):
        level = _sorted(found, plain, leaves)
        if level is None:
            return None
        found = seen.looked_into(level)
        if not found:
            return Witness(elements, seen) if seen.would_show_every_change() else None
        if seen.size > MAX_REFERENCES:
            return None
    return None


@cache
def _leaves(plain: frozenset[type[Any]]) -> frozenset[object]:
    """What is not looked into. An object refers to its class, too."""
    return ATOMS.union(map(type, plain), (Mark,))


class _Level(NamedTuple):
    """What is looked into together, by how."""

    objects: list[Any]
    dicts: Dicts
    others: list[Any]  # with a mark behind each
    empty: list[Any]


def _sorted(found: list[Any], plain: Collection[type[Any]], leaves: frozenset[object]) -> _Level | None:
    level = _Level([], [], [], [])
    objects, dicts, others, empty = level
    for one in found:
        kind = type(one)
        if kind in leaves:
            continue
        if kind in _CONTAINERS:
            if not one:
                empty.append(one)
            elif kind is dict:
                dicts.append(one)
            else:
                others += (one, MARK)
        elif kind in plain:
            objects.append(one)
        else:
            return None
    return level


class _Seen:
    """What a witness has come upon so far, from level to level."""

    __slots__ = ("all_dicts", "containers", "dicts", "empty", "objects", "references", "size")

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.empty: list[Any] = []
        self.all_dicts: Dicts = []
        self.dicts: Watch = NOTHING
        self.containers: list[Any] = []  # the objects and what else is not empty, but for dicts
        self.references: list[Any] = []  # of these containers
        self.size = 0

    def looked_into(self, level: _Level) -> list[Any]:
        """What these refer to. The marks are there so that what one refers to can't be taken for what its neighbour does."""
        self.empty += level.empty
        self.objects += level.objects
        references: list[Any] = []
        if level.objects or level.others:
            containers = level.objects + level.others
            references = gc.get_referents(*containers)
            self.containers += containers
            self.references += references
        if level.dicts:
            # First: what is put into a dict after it is watched shows as a change, whether it was looked into or not.
            self.dicts = self.dicts.followed_by(watch(level.dicts))
            self.all_dicts += level.dicts
            references = references + gc.get_referents(*level.dicts)
        self.size += len(references)
        return references

    def would_show_every_change(self) -> bool:
        """Whether names are plain texts, and of each object the collector shows the dict of its attributes itself, not only
        what that holds."""
        shown = set(map(id, self.all_dicts))
        return _NAMES.issuperset(map(type, chain.from_iterable(self.all_dicts))) and shown.issuperset(
            map(id, map(_attributes, self.objects))
        )
