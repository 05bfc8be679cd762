"""Witnesses: proof, without encoding anything, that a list's elements are what they were when they were encoded.

A framework hands over the whole conversation at every step, and most of it is the very same objects as before. That alone
proves nothing: they can be changed in place. But what they are made of can be compared by identity: an object is what
it refers to, container by container, down to values that can't change (texts, numbers). The garbage collector lists what
containers refer to in one C call for many of them, so looking at a message costs a twentieth of encoding it.

A witness keeps the elements and all that was found below them alive: an address is never reused behind its back. What it can't
judge, it does not witness: values of other types, keys that are no plain texts, classes that are not known to be *plain* (all
that their objects are encoded from is what the collector sees in them).
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Sequence
from functools import cache
from itertools import chain, compress, filterfalse, repeat
from operator import attrgetter
from typing import Any

from holdfast.objects.addresses import addresses

ATOMS = frozenset((str, int, float, bool, type(None), bytes, complex))  # they never change, and refer to nothing
MAX_LEVELS = 16
MAX_REFERENCES = 20_000  # of one witness: beyond it, encoding is the cheaper way
_CONTAINERS = frozenset((dict, list, tuple, set, frozenset))
_NAMES = frozenset((str,))
_attributes = attrgetter("__dict__")


class _Mark:
    """What nothing else refers to."""

    __slots__ = ()


_MARK = (_Mark(),)


class Witness:
    """Of some elements of a list, at one moment: the containers that they are and are made of, and what these referred to.

    As long as each container refers to the same things, the next ones are the same, too, and so on down: so all are looked at
    at once. Identity is compared for what they hold; the names, too, for dicts.
    """

    __slots__ = ("_containers", "_dicts", "_expected", "_names", "_places", "_references", "elements")

    def __init__(self, elements: list[Any], containers: list[Any], references: list[Any]) -> None:
        self.elements = elements
        self._places = addresses(elements)
        self._containers = containers
        self._references = references  # kept alive, so that their addresses stay theirs
        self._expected = addresses(references)
        self._dicts = [one for one in containers if type(one) is dict and one]
        self._names = [*chain.from_iterable(self._dicts)]

    def followed_by(self, other: Witness) -> Witness | None:
        """One witness of both one's elements; None if that is too much for one."""
        if len(self._references) + len(other._references) > MAX_REFERENCES:
            return None
        both = Witness.__new__(Witness)
        both.elements = self.elements + other.elements
        both._places = self._places + other._places
        both._containers = self._containers + other._containers
        both._references = self._references + other._references
        both._expected = self._expected + other._expected
        both._dicts = self._dicts + other._dicts
        both._names = self._names + other._names
        return both

    def testifies(self, elements: Sequence[Any]) -> bool:
        """Whether these are the same elements, unchanged."""
        return addresses(elements) == self._places and self.is_unchanged()

    def is_unchanged(self) -> bool:
        return (
            addresses(gc.get_referents(*self._containers)) == self._expected
            # Equal will do for names: all were plain texts, and a dict that has other keys refers to these, too.
            and [*chain.from_iterable(self._dicts)] == self._names
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
    known, leaves = _kinds(frozenset(plain))
    containers: list[Any] = []
    references: list[Any] = []
    found = elements
    for _ in range(MAX_LEVELS):
        kinds = set(map(type, found))
        if not (kinds <= known or kinds - known <= leaves):
            return None
        level = [*compress(found, map(known.__contains__, map(type, found)))]
        if not level:
            return _sworn(elements, containers, references, plain)
        marked = _marked(level)
        found = gc.get_referents(*marked)
        containers += marked
        references += found
        if len(references) > MAX_REFERENCES:
            return None
    return None


@cache
def _kinds(plain: frozenset[type[Any]]) -> tuple[frozenset[object], frozenset[object]]:
    """What is looked into, and what is not. An object refers to its class, too."""
    return _CONTAINERS.union(plain), ATOMS.union(map(type, plain), (_Mark,))


def _marked(level: list[Any]) -> list[Any]:
    """These containers with a mark behind each that holds something, and behind the empty ones, which come last: so what one
    refers to can't be taken for what its neighbour does."""
    objects: list[Any] = []
    if not _CONTAINERS.issuperset(map(type, level)):
        objects = [one for one in level if type(one) not in _CONTAINERS]
        level = [one for one in level if type(one) in _CONTAINERS]
    filled = filter(None, level)
    return [*objects, *chain.from_iterable(zip(filled, repeat(_MARK), strict=False)), *filterfalse(None, level), _MARK]


def _sworn(
    elements: list[Any], containers: list[Any], references: list[Any], plain: Collection[type[Any]]
) -> Witness | None:
    """The witness, if every change of these would show: names are plain texts, and of each object the collector shows the
    dict of its attributes itself, not only what that holds."""
    made = Witness(elements, containers, references)
    objects = [one for one in containers if type(one) in plain]
    shown = set(map(id, made._dicts)) if objects else set()
    is_sworn = _NAMES.issuperset(map(type, made._names)) and shown.issuperset(map(id, map(_attributes, objects)))
    return made if is_sworn else None
