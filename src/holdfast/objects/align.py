"""Aligning: which elements of an edited list are stored already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_TOO_SMALL_TO_SHARE = 24  # a reference costs about as much


class Kept(NamedTuple):
    """Elements `[first, end)` of the old list."""

    first: int
    end: int


Piece = Kept | list[bytes]


def align(old: Sequence[bytes], new: Sequence[bytes]) -> list[Piece]:
    """The new list as pieces of the old one and new elements between them, in order.

    What both begin and end with is kept; between these, an element is kept wherever it stood, if it is not tiny.
    Elements are compared by their encodings: `1`, `1.0` and `True` are different.
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
