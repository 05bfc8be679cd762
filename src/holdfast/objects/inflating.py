"""Inflating: the frames of one restore, of which another thread may take some.

zstd runs outside of Python's lock. So while the thread that wants a state works from its first frame on, hashing what it
inflates, one that has nothing to do can inflate from the last frame backwards. It takes many at a time: handing the lock over
after each takes as long as inflating it does. Neither waits for the other: a frame that the other one is still at is inflated
twice, and whoever needs it takes what is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import ceil

from holdfast.errors import CorruptError
from holdfast.objects import frame

_LARGE = 16 * 1024  # a compressed frame of that size takes longer to inflate than to hand over
_MANY = 4
_AT_ONCE = 8
_SHARE = 0.6  # of what is left, for the one that only inflates: the other one also hashes


class Inflating:
    """Gives what frames hold. Those it is told of beforehand may be inflated by `help`, in another thread."""

    __slots__ = ("_inflate", "_ready", "_untaken")

    def __init__(self, frames: Sequence[bytes] = ()) -> None:
        self._inflate: frame.Inflater | None = None
        large = [one for one in frames if len(one) >= _LARGE and one[:1] == frame.ZSTD]
        self._untaken = deque(large if len(large) >= _MANY else ())  # whoever pops a frame has taken it
        # A frame is kept beside what it holds: that is found by the frame's identity, which stays its own only as long.
        self._ready: dict[int, tuple[bytes, memoryview]] = {}

    def content(self, framed: bytes) -> memoryview:
        """What was framed, without a copy where it is stored as it is. It is not kept."""
        if framed[:1] == frame.RAW:
            return memoryview(framed)[1:]
        if self._inflate is None:
            self._inflate = frame.inflater()
        while (ready := self._ready.pop(id(framed), None)) is None:
            other = self._take_first()
            if other is None or other is framed:
                return memoryview(frame.content(framed, self._inflate))
            with suppress(CorruptError):  # which is for the one who asks for it
                self._ready[id(other)] = other, memoryview(frame.content(other, self._inflate))
        return ready[1]

    def help(self) -> Iterator[None]:
        """Inflates some frames for each step, until all are taken."""
        if not self._untaken:
            return
        inflate = frame.inflater()
        while taken := self._take_last(min(_AT_ONCE, ceil(len(self._untaken) * _SHARE))):
            for framed, content in zip(taken, frame.contents(taken, inflate), strict=True):
                self._ready[id(framed)] = framed, content
            yield

    def _take_first(self) -> bytes | None:
        with suppress(IndexError):
            return self._untaken.popleft()
        return None

    def _take_last(self, count: int) -> list[bytes]:
        taken: list[bytes] = []
        with suppress(IndexError):
            while len(taken) < count:
                taken.append(self._untaken.pop())
        return taken
