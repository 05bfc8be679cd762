"""A search for the elements that two stored lists share, by their positions, without reading them.

Elements of the same number of the same log are the same. So the spans of two lists tell which of
their elements must be read to compare the lists: an insertion at the front, at the end or at both
costs only the inserted elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.backends.port import Span
from holdfast.format.state.manifest import MAX_SPANS

MOST_PAIRS = MAX_SPANS * MAX_SPANS  # no list that was written has more spans; one that has is read as a whole
MOST_MATCHES = 256  # the longest ones: the order of these is found in as many steps squared


class Gap(NamedTuple):
    """Elements `[old_first, old_end)` and `[new_first, new_end)` of two lists, not known to be equal."""

    old_first: int
    old_end: int
    new_first: int
    new_end: int


class _Match(NamedTuple):
    """A number of equal elements, from these indexes on."""

    old: int
    new: int
    length: int


def find_gaps(old: Sequence[Span], new: Sequence[Span]) -> list[Gap]:
    """Return the gaps between the elements that two lists share, in order.

    Both lists are given by their spans.
    """
    ends = _length(old), _length(new)
    found: list[Gap] = []
    old_first = new_first = 0
    for match in (*_select_rising(_matches(old, new)), _Match(*ends, 0)):
        if match.old > old_first or match.new > new_first:
            found.append(Gap(old_first, match.old, new_first, match.new))
        old_first, new_first = match.old + match.length, match.new + match.length
    return found


def cut(spans: Sequence[Span], first: int, end: int) -> list[Span]:
    """Return the positions of the elements `[first, end)` of the list that is stored in these spans."""
    found, place = [], 0
    for span in spans:
        low, high = max(first - place, 0), min(end - place, span.end - span.first)
        if low < high:
            found.append(Span(span.log, span.first + low, span.first + high))
        place += span.end - span.first
    return found


def _length(spans: Sequence[Span]) -> int:
    return sum(span.end - span.first for span in spans)


def _matches(old: Sequence[Span], new: Sequence[Span]) -> list[_Match]:
    """Return the ranges that occur in both lists, wherever, by their index in the old one."""
    if len(old) * len(new) > MOST_PAIRS:
        return []
    found = []
    old_place = 0
    for log, first, end in old:
        new_place = 0
        for other in new:
            low, high = max(first, other.first), min(end, other.end)
            if log == other.log and low < high:
                found.append(_Match(old_place + low - first, new_place + low - other.first, high - low))
            new_place += other.end - other.first
        old_place += end - first
    if len(found) > MOST_MATCHES:
        found = sorted(found, key=lambda match: match.length, reverse=True)[:MOST_MATCHES]
    return sorted(found)


def _select_rising(matches: Sequence[_Match]) -> list[_Match]:
    """Return the matches that keep their order in both lists and have the most elements together.

    Where one overlaps the one before it, its beginning is left out.
    """
    most: list[int] = []  # elements of the best sequence that ends with each match
    before: list[int] = []
    for number, match in enumerate(matches):
        best, previous = match.length, -1
        for other in range(number):
            overlap = _overlap(matches[other], match)
            if match.length > overlap and most[other] + match.length - overlap > best:
                best, previous = most[other] + match.length - overlap, other
        most.append(best)
        before.append(previous)
    chosen: list[_Match] = []
    at = max(range(len(most)), key=most.__getitem__, default=-1)
    while at >= 0:
        match, previous = matches[at], before[at]
        overlap = _overlap(matches[previous], match) if previous >= 0 else 0
        chosen.append(_Match(match.old + overlap, match.new + overlap, match.length - overlap))
        at = previous
    return chosen[::-1]


def _overlap(match: _Match, following: _Match) -> int:
    return max(match.old + match.length - following.old, match.new + match.length - following.new, 0)
