"""Inside of what a call is made: the function of a step or an effect, or one turn of a loop over tasks.

What is asked for there is known under that step, effect or task. Whoever finds it finished on a resume passes over it, and with it
over all that was asked for inside: were these known by the run alone, the calls behind would be taken for them.

Frames go where context variables go: into coroutines, their tasks, and `asyncio.to_thread`. A thread that a program starts by
itself has none, and what it asks for is known by the run alone.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Self

from holdfast.objects import journal

if TYPE_CHECKING:
    from holdfast.runs.core import Core


class Frame:
    """`path` is what the places of the calls inside begin with."""

    __slots__ = ("is_over", "outer", "path", "run")

    def __init__(self, run: Core, path: str) -> None:
        self.run = run
        self.path = path
        self.outer = _live(_inside.get())
        self.is_over = False


_inside: ContextVar[Frame | None] = ContextVar("holdfast_frame", default=None)


class Call:
    """`with Call(run, place):`, while the function of a step or an effect is called. If that raises, effects that were carried out
    inside of it are nobody's."""

    __slots__ = ("_frame", "_since", "_token")

    _token: Token[Frame | None]

    def __init__(self, run: Core, place: str) -> None:
        self._frame = Frame(run, f"{place}/")

    def __enter__(self) -> Self:
        self._since = len(self._frame.run.journal)
        self._token = _inside.set(self._frame)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        run = self._frame.run
        with suppress(ValueError):  # a coroutine that nobody waits for any more is ended anywhere
            _inside.reset(self._token)
        if error is not None and len(run.journal) > self._since:
            run.places.abandon(self._frame.path, run.journal.entries[self._since :])


class Turn:
    """A turn of a loop. Nobody says when a loop is left, so a frame is marked as being over, rather than taken away."""

    __slots__ = ("_frame",)

    def __init__(self, run: Core, path: str) -> None:
        self._frame = Frame(run, path)
        _inside.set(self._frame)

    def end(self) -> None:
        self._frame.is_over = True
        if _inside.get() is self._frame:
            _inside.set(self._frame.outer)


def path_from(run: Core, own: str) -> str:
    """Where a call is made by somebody (the run, a sub-agent) whose own path is given."""
    frame = _inside.get()
    while frame is not None and (frame.is_over or frame.run is not run):
        frame = frame.outer
    if frame is None or own.startswith(frame.path):  # of a sub-agent that was begun inside
        return own
    if frame.path.startswith(own):
        return frame.path
    return f"{own}@{journal.part(frame.path)}/"  # somebody from outside is asked, inside of another's step


def _live(frame: Frame | None) -> Frame | None:
    while frame is not None and frame.is_over:
        frame = frame.outer
    return frame
