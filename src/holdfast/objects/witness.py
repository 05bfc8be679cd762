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
from itertools import chain, compress
from operator import is_
from typing import Any

ATOMS = frozenset((str, int, float, bool, type(None), bytes, complex))  # they never change, and refer to nothing
MAX_LEVELS = 16
MAX_REFERENCES = 20_000  # of one witness: beyond it, encoding is the cheaper way
_CONTAINERS = frozenset((dict, list, tuple, set, frozenset))
_NAMES = frozenset((str,))


class Witness:
    """Of some elements of a list, at one moment: the containers that they are and are made of, and what these referred to.

    As long as each container refers to the same things, the next ones are the same, too, and so on down: so all are looked at
    at once. Identity is compared for what they hold; the names, too, for dicts; and how many each holds, so that nothing can
    move from one to its neighbour.
    """

    __slots__ = ("_containers", "_dicts", "_empty", "_filled", "_names", "_references", "_sizes", "elements")

    def __init__(self, elements: list[Any], containers: list[Any], references: list[Any]) -> None:
        self.elements = elements
        self._references = references
        sized = [one for one in containers if type(one) in _CONTAINERS]
        self._empty = [one for one in sized if not one]
        self._filled = [one for one in sized if one]
        self._sizes = [*map(len, self._filled)]
        self._dicts = [one for one in self._filled if type(one) is dict]
        self._names = [*chain.from_iterable(self._dicts)]
        self._containers = [one for one in containers if type(one) not in _CONTAINERS or one]

    def testifies(self, elements: Sequence[Any]) -> bool:
        """Whether these are the same elements, unchanged."""
        return _are_same(elements, self.elements) and self.is_unchanged()

    def is_unchanged(self) -> bool:
        return (
            not any(self._empty)
            and _are_same(gc.get_referents(*self._containers), self._references)
            and [*map(len, self._filled)] == self._sizes
            # Equal will do for names: all were plain texts, and a dict that has other keys refers to these, too.
            and [*chain.from_iterable(self._dicts)] == self._names
        )


def witness(elements: list[Any], plain: Collection[type[Any]]) -> Witness | None:
    """A witness of these elements; None if it could not tell every change. `plain` are the classes whose objects are
    encoded from what they refer to, and from nothing else."""
    known = _CONTAINERS.union(plain)
    leaves = ATOMS.union(map(type, plain))  # an object refers to its class
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
        found = gc.get_referents(*level)
        containers += level
        references += found
        if len(references) > MAX_REFERENCES:
            return None
    return None


def _sworn(
    elements: list[Any], containers: list[Any], references: list[Any], plain: Collection[type[Any]]
) -> Witness | None:
    """The witness, if every change of these would show: names are plain texts, and of each object the collector shows the
    dict of its attributes itself, not only what that holds."""
    made = Witness(elements, containers, references)
    objects = [one for one in containers if type(one) in plain]
    shown = set(map(id, made._dicts)) if objects else set()
    is_sworn = _NAMES.issuperset(map(type, made._names)) and all(id(one.__dict__) in shown for one in objects)
    return made if is_sworn else None


def _are_same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    return len(found) == len(expected) and all(map(is_, found, expected))
