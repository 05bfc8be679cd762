"""Inflating: the frames of one restore, of which another thread may take some.

zstd runs outside of Python's lock. So while the thread that wants a state works from its first frame on, hashing what was
inflated, one that has nothing to do can inflate, too. Each takes the next frame that nobody has taken. The one who wants a
frame that the other is still at takes another one meanwhile, so both are busy until the last. Neither waits for the other:
what the other is at when there is nothing else to do is inflated twice.

Taking many at a time, in one call of zstd, spares Python's lock some changes of hands, and a few percent of the CPU. It leaves more to
hash at the end, and was slower by the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

from holdfast.errors import CorruptError
from holdfast.objects import frame

_LARGE = 16 * 1024  # a compressed frame of that size takes longer to inflate than to hand over
_MANY = 4


class Inflating:
    """Gives what frames hold. Those it is told of beforehand may be inflated by `help`, in another thread."""

    __slots__ = ("_inflate", "_ready", "_untaken")

    def __init__(self, frames: Sequence[bytes] = ()) -> None:
        self._inflate: frame.Inflater | None = None
        large = [one for one in frames if len(one) >= _LARGE and one[:1] == frame.ZSTD]
        # A frame is kept with what it holds: that is found by the frame's identity, which is its own only as long.
        self._ready: dict[int, tuple[bytes, bytes]] = {}
        self._untaken = deque(large if len(large) >= _MANY else ())  # whoever pops a frame has taken it

    def content(self, framed: bytes) -> memoryview:
        """What was framed, without a copy where it is stored as it is. It is not kept."""
        if framed[:1] == frame.RAW:
            return memoryview(framed)[1:]
        if self._inflate is None:
            self._inflate = frame.inflater()
        while True:
            ready = self._ready.pop(id(framed), None)
            if ready is not None:
                return memoryview(ready[1])
            other = self._take()
            if other is None or other is framed:
                return memoryview(frame.content(framed, self._inflate))
            with suppress(CorruptError):  # which is for the one who asks for it
                self._ready[id(other)] = other, frame.content(other, self._inflate)

    def help(self) -> Iterator[None]:
        """Inflates a frame for each step, until all are taken."""
        inflate = frame.inflater() if self._untaken else None
        while (framed := self._take()) is not None:
            self._ready[id(framed)] = framed, frame.content(framed, inflate)
            yield

    def _take(self) -> bytes | None:
        try:
            return self._untaken.popleft()
        except IndexError:
            return None
