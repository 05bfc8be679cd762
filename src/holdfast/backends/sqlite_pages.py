"""The order in which many blobs are written, so that they fill SQLite's pages.

A row of a table is put whole into the last page, or, if it does not fit, into a new one; what is left of the page before
stays empty. With rows of half a page each, that is a quarter of the file. So the rows of a large commit are put together by
their sizes first, largest first, each into the fullest page that takes it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

PAGE = 4096
_USABLE = PAGE - 8  # of a leaf, without its header
_MOST = PAGE - 35  # of a row, in the page itself
_LEAST = (PAGE - 12) * 32 // 255 - 23  # what stays in the page of a row that goes on in others
_AROUND = 56  # hash, time, and what SQLite writes around a row
FEW = 16


def filling(blobs: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The same blobs, those of one page after each other."""
    if len(blobs) < FEW:
        return list(blobs.items())
    rows = sorted(((_in_page(len(data)), hash_) for hash_, data in blobs.items()), reverse=True)
    pages: list[list[bytes]] = []
    room: list[tuple[int, int]] = []  # what is free, and in which page; in order
    for size, hash_ in rows:
        at = bisect_left(room, (size, 0))
        if at == len(room):
            number = len(pages)
            pages.append([hash_])
            free = _USABLE - size
        else:
            free, number = room.pop(at)
            pages[number].append(hash_)
            free -= size
        insort(room, (free, number))
    return [(hash_, blobs[hash_]) for page in pages for hash_ in page]


def _in_page(size: int) -> int:
    """The bytes that a row with so much data takes in its leaf."""
    payload = size + _AROUND
    if payload <= _MOST:
        return payload
    local = _LEAST + (payload - _LEAST) % (PAGE - 4)
    return local if local <= _MOST else _LEAST
