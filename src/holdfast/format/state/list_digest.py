"""The digest of a long list: a chain of hashes over blocks of its elements' encodings.

    link 0    32 zero bytes
    link n    SHA-256 of link n-1 and the nth block of `BLOCK` bytes
    digest    SHA-256 of the last link and the bytes after the last whole block

A manifest keeps the last link. So a process that appends to a list that it has never seen continues
from there: it reads the elements of the open block, at most `BLOCK` bytes and a little, and not the
list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash as Hasher

BLOCK = 16 * 1024
NO_LINK = bytes(32)


class Chain:
    """The chain over the bytes given to `update` so far."""

    __slots__ = ("_open", "_room", "link")

    def __init__(self, link: bytes = NO_LINK) -> None:
        self.link = link
        self._open: Hasher = hashlib.sha256(link)
        self._room = BLOCK

    def update(self, data: bytes | memoryview) -> None:
        if len(data) < self._room:
            self._open.update(data)
            self._room -= len(data)
            return
        view, size = memoryview(data), len(data)
        link, block, start, end = self.link, self._open, 0, self._room
        while end <= size:
            block.update(view[start:end])
            link = block.digest()
            block = hashlib.sha256(link)
            start, end = end, end + BLOCK
        block.update(view[start:])
        self.link, self._open, self._room = link, block, end - size

    def digest(self) -> bytes:
        return self._open.digest()

    def followed_by(self, pieces: Sequence[bytes]) -> Chain:
        """Return the chain over these as well; this one is not changed."""
        copy = Chain.__new__(Chain)
        copy.link, copy._open, copy._room = self.link, self._open.copy(), self._room
        for piece in pieces:
            copy.update(piece)
        return copy

    def copy(self) -> Chain:
        return self.followed_by(())


def chain_of(pieces: Iterable[bytes | memoryview]) -> Chain:
    chain = Chain()
    for piece in pieces:
        chain.update(piece)
    return chain


def open_from(before: int, length: int, size: int, fresh: Sequence[bytes]) -> int:
    """Return the index of the first element with bytes in the open block; the length if it is empty.

    The list has that length and size. `fresh` are its last elements; `before` is the result without
    them.
    """
    left = size % BLOCK
    for number in range(len(fresh) - 1, -1, -1):
        if left <= 0:
            return length - len(fresh) + number + 1
        left -= len(fresh[number])
    return before if left > 0 else length - len(fresh)
