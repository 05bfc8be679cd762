"""Matching: which stretches of a list stand for which of another, so that an insertion at the front is one insertion.

Elements are given by their encodings, so equal means equal in every type. What both begin and end with matches; between
these, elements that stand once on each side are matched where they keep their order (the longest such sequence), and
the stretches between them are treated the same way. It takes n log n steps whatever the lists are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple


class Stretch(NamedTuple):
    """`[old_first, old_end)` of the old list has become `[new_first, new_end)` of the new one."""

    old_first: int
    old_end: int
    new_first: int
    new_end: int


def changed(old: Sequence[bytes], new: Sequence[bytes]) -> list[Stretch]:
    """The stretches that differ, in order; what is between them is equal."""
    found: list[Stretch] = []
    waiting = [Stretch(0, len(old), 0, len(new))]
    while waiting:
        stretch = _trimmed(old, new, waiting.pop())
        if stretch.old_first == stretch.old_end and stretch.new_first == stretch.new_end:
            continue
        anchors = _anchors(old, new, stretch)
        if not anchors:
            found.append(stretch)
            continue
        old_first, new_first = stretch.old_first, stretch.new_first
        for old_place, new_place in anchors:
            waiting.append(Stretch(old_first, old_place, new_first, new_place))
            old_first, new_first = old_place + 1, new_place + 1
        waiting.append(Stretch(old_first, stretch.old_end, new_first, stretch.new_end))
    return sorted(found)


def _trimmed(old: Sequence[bytes], new: Sequence[bytes], stretch: Stretch) -> Stretch:
    old_first, old_end, new_first, new_end = stretch
    while old_first < old_end and new_first < new_end and old[old_first] == new[new_first]:
        old_first, new_first = old_first + 1, new_first + 1
    while old_first < old_end and new_first < new_end and old[old_end - 1] == new[new_end - 1]:
        old_end, new_end = old_end - 1, new_end - 1
    return Stretch(old_first, old_end, new_first, new_end)


def _anchors(old: Sequence[bytes], new: Sequence[bytes], stretch: Stretch) -> list[tuple[int, int]]:
    """Places of equal elements that stand once in the old stretch and once in the new, rising on both sides."""
    old_places = _single(old, stretch.old_first, stretch.old_end)
    new_places = _single(new, stretch.new_first, stretch.new_end)
    pairs = [(place, new_places[element]) for element, place in old_places.items() if element in new_places]
    return _longest_rising(pairs)


def _single(elements: Sequence[bytes], first: int, end: int) -> dict[bytes, int]:
    """The places of the elements that stand there once, in order."""
    places: dict[bytes, int] = {}
    twice: set[bytes] = set()
    for place in range(first, end):
        element = elements[place]
        if element in places:
            twice.add(element)
        else:
            places[element] = place
    for element in twice:
        del places[element]
    return places


def _longest_rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence whose second numbers rise, of pairs whose first numbers do."""
    ends: list[int] = []  # the lowest second number that ends a rising sequence of each length
    ended_by: list[int] = []  # and the pair it is of
    before: list[int] = []
    for number, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second)
        before.append(ended_by[length - 1] if length else -1)
        if length == len(ends):
            ends.append(second)
            ended_by.append(number)
        else:
            ends[length] = second
            ended_by[length] = number
    longest: list[tuple[int, int]] = []
    number = ended_by[-1] if ended_by else -1
    while number >= 0:
        longest.append(pairs[number])
        number = before[number]
    return longest[::-1]
