"""Inside of what a call is made: the function of a step or an effect, or one turn of a loop over tasks.

What is asked for there is known under that step, effect or task. Whoever finds it finished on a resume passes over it, and with it
over all that was asked for inside: were these known by the run alone, the calls behind would be taken for them.

Frames go where context variables go: into coroutines, their tasks, and `asyncio.to_thread`. A thread that a program starts by
itself has none, and what it asks for is known by the run alone.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Self

from holdfast.objects import journal

if TYPE_CHECKING:
    from holdfast.runs.core import Core


class Frame:
    """`path` is what the places of the calls inside begin with."""

    __slots__ = ("is_over", "outer", "path", "run")

    outer: Frame | None

    def __init__(self, run: Core, path: str) -> None:
        self.run = run
        self.path = path
        self.is_over = False
        outer = _inside.get()
        while outer is not None and outer.is_over:
            outer = outer.outer
        self.outer = outer


_inside: ContextVar[Frame | None] = ContextVar("holdfast_frame", default=None)


class Call(Frame):
    """`with Call(run, place + "/"):`, while the function of a step or an effect is called. If that raises, effects that were carried
    out inside of it are nobody's."""

    __slots__ = ("_since", "_token")

    _token: Token[Frame | None]

    def __enter__(self) -> Self:
        self._since = len(self.run.journal.entries)
        self._token = _inside.set(self)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            _inside.reset(self._token)
        except ValueError:  # a coroutine that nobody waits for any more is ended anywhere
            self.is_over = True
        if error is not None:
            self.run.places.abandon(self.path, self.run.journal.entries[self._since :], with_threads=True)


class Turn(Frame):
    """A turn of a loop, from now on. Nobody says when a loop is left, so it is marked as being over, rather than taken away."""

    __slots__ = ()

    def __init__(self, run: Core, path: str) -> None:
        super().__init__(run, path)
        _inside.set(self)

    def end(self) -> None:
        self.is_over = True
        if _inside.get() is self:
            outer = self.outer
            while outer is not None and outer.is_over:
                outer = outer.outer
            _inside.set(outer)


def path_from(run: Core, own: str) -> str:
    """Where a call is made by somebody (the run, a sub-agent) whose own path is given."""
    frame = _inside.get()
    while frame is not None and (frame.is_over or frame.run is not run):
        frame = frame.outer
    if frame is None or own.startswith(frame.path):  # of a sub-agent that was begun inside
        return own
    if frame.path.startswith(own):
        return frame.path
    return f"{frame.path}{beside(own)}"


def beside(own: str) -> str:
    """A sub-agent from outside, in the path of a step or task inside of which it is asked."""
    return f"@{journal.part(own)}/"
