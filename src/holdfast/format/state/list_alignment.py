"""Alignment of an edited list with its stored version: which elements are stored already."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

_AT_ONCE = 64  # elements


class Range(NamedTuple):
    """A change: `[old_first, old_end)` of the old list became `[new_first, new_end)` of the new."""

    old_first: int
    old_end: int
    new_first: int
    new_end: int


def find_changed(old: Sequence[bytes], new: Sequence[bytes]) -> list[Range]:
    """Return the ranges that differ, in order; the elements between them are equal."""
    found: list[Range] = []
    waiting = [Range(0, len(old), 0, len(new))]
    while waiting:
        stretch = _trim_range(old, new, waiting.pop())
        if stretch.old_first == stretch.old_end and stretch.new_first == stretch.new_end:
            continue
        anchors = _anchors(old, new, stretch)
        if not anchors:
            found.append(stretch)
            continue
        old_first, new_first = stretch.old_first, stretch.new_first
        for old_place, new_place in anchors:
            waiting.append(Range(old_first, old_place, new_first, new_place))
            old_first, new_first = old_place + 1, new_place + 1
        waiting.append(Range(old_first, stretch.old_end, new_first, stretch.new_end))
    return sorted(found)


def _trim_range(old: Sequence[bytes], new: Sequence[bytes], stretch: Range) -> Range:
    old_first, old_end, new_first, new_end = stretch
    room = min(old_end - old_first, new_end - new_first)
    shared = 0
    while shared < room:  # as many at once as can be: comparing slices takes a tenth of the time
        step = min(_AT_ONCE, room - shared)
        left, right = old_first + shared, new_first + shared
        if old[left : left + step] == new[right : right + step]:
            shared += step
            continue
        while old[old_first + shared] == new[new_first + shared]:
            shared += 1
        break
    old_first, new_first, room = old_first + shared, new_first + shared, room - shared
    shared = 0
    while shared < room:
        step = min(_AT_ONCE, room - shared)
        left, right = old_end - shared, new_end - shared
        if old[left - step : left] == new[right - step : right]:
            shared += step
            continue
        while old[old_end - 1 - shared] == new[new_end - 1 - shared]:
            shared += 1
        break
    return Range(old_first, old_end - shared, new_first, new_end - shared)


def _anchors(old: Sequence[bytes], new: Sequence[bytes], stretch: Range) -> list[tuple[int, int]]:
    """Return the indexes of equal elements that occur once on each side, rising on both sides."""
    old_places = _single(old, stretch.old_first, stretch.old_end)
    new_places = _single(new, stretch.new_first, stretch.new_end)
    pairs = [(place, new_places[element]) for element, place in old_places.items() if element in new_places]
    return _longest_rising(pairs)


def _single(elements: Sequence[bytes], first: int, end: int) -> dict[bytes, int]:
    """Return the indexes of the elements that occur there once, in order."""
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
    """Return the longest subsequence whose second numbers rise, of pairs whose first numbers do."""
    ends: list[int] = []  # the lowest second number that ends a rising sequence of each length
    ended_by: list[int] = []  # the pair that it belongs to
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


_TOO_SMALL_TO_SHARE = 24  # a reference costs about as much


class Kept(NamedTuple):
    """Elements `[first, end)` of the old list."""

    first: int
    end: int


Piece = Kept | list[bytes]


def align(old: Sequence[bytes], new: Sequence[bytes]) -> list[Piece]:
    """Return the new list as pieces of the old one and new elements between them, in order.

    The common beginning and end are kept. Between these, an element is kept wherever it was, if it
    is not tiny. Elements are compared by their encodings: `1`, `1.0` and `True` are different.
    """
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    places = {
        element: place
        for place, element in enumerate(old[start : len(old) - end], start)
        if len(element) > _TOO_SMALL_TO_SHARE
    }
    pieces: list[Piece] = []
    if start:
        pieces.append(Kept(0, start))
    for element in new[start : len(new) - end]:
        place = places.get(element)
        last = pieces[-1] if pieces else None
        if place is None:
            if isinstance(last, list):
                last.append(element)
            else:
                pieces.append([element])
        elif isinstance(last, Kept) and last.end == place:
            pieces[-1] = Kept(last.first, place + 1)
        else:
            pieces.append(Kept(place, place + 1))
    if end:
        pieces.append(Kept(len(old) - end, len(old)))
    return pieces
