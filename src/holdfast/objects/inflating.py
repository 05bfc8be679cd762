"""Inflating: the frames of one restore, of which another thread may take some.

zstd runs outside of Python's lock. So while the thread that wants a state works from its first frame on, hashing what it
inflates, one that has nothing to do can inflate from the last frame backwards. Neither waits for the other: a frame that the
other one is still at is inflated twice, and whoever needs it takes what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.objects import frame

_LARGE = 16 * 1024  # a compressed frame of that size takes longer to inflate than to hand over
_MANY = 4

_Content = bytes | None  # None: somebody who needs it has come to it


class Inflating:
    """Gives what frames hold. Those it is told of beforehand may be inflated by `help`, in another thread."""

    __slots__ = ("_ahead", "_inflate", "_large")

    def __init__(self, frames: Sequence[bytes] = ()) -> None:
        self._inflate: frame.Inflater | None = None
        large = [one for one in frames if len(one) >= _LARGE and one[:1] == frame.ZSTD]
        self._large = large if len(large) >= _MANY else []
        # By the identity of a frame, which stays its own as long as it is kept here.
        self._ahead: dict[int, _Content] = {}

    def content(self, framed: bytes) -> memoryview:
        """What was framed, without a copy where it is stored as it is."""
        if framed[:1] == frame.RAW:
            return memoryview(framed)[1:]
        ready = self._ahead.get(id(framed)) if self._large else None
        if ready is None:
            if self._large:
                self._ahead[id(framed)] = None
            if self._inflate is None:
                self._inflate = frame.inflater()
            ready = frame.content(framed, self._inflate)
        return memoryview(ready)

    def help(self) -> Iterator[None]:
        """Inflates from the end, a frame for each step, until it meets the one who needs them."""
        inflate = frame.inflater() if self._large else None
        for framed in reversed(self._large):
            if id(framed) in self._ahead:
                return
            self._ahead[id(framed)] = frame.content(framed, inflate)
            yield
