"""The end of a life that the run itself asks for: it waits without a process, or hands back its work."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.format.rows.run import WaitedFor
from holdfast.operations.delegation import DelegationAnswer
from holdfast.operations.wait import NotedWait

if TYPE_CHECKING:
    from holdfast.runs.engine import RunEngine
    from holdfast.runs.runnable import Runnable, Runnables

AT_ONCE = 1.0  # a shorter wait is waited for in the process: another worker would take longer
QUIET_SECONDS = 1.0  # without a step at work: then a wait in a parallel branch ends the life, too


class RunSuspension(BaseException):
    """Ends a life of a run under a worker. It is no error, so `except Exception` does not catch it.

    Without waits the run is handed back: any worker takes it at once.
    """

    def __init__(self, waits: Sequence[WaitedFor] = ()) -> None:
        super().__init__(f"the run is suspended: {', '.join(wait.kind for wait in waits) or 'handed back'}")
        self.waits = tuple(waits)


class WorkedLife:
    """What a worker knows of a life that it carries out, and what the life must know of the worker.

    A life that is suspended begins no further step: a parallel branch of the program may still run
    when the lease is released.
    """

    def __init__(self, runnable: Runnable[Any], runnables: Runnables) -> None:
        self.runnable = runnable
        self.runnables = runnables
        self.is_stopping = False  # the worker ends: the next step is another worker's
        self.suspension: RunSuspension | None = None
        self.notify: Callable[[float, float | None, str | None], None] | None = None  # of its progress
        self.answer: DelegationAnswer | None = None  # of delegated work, once the function has returned
        self.finished: Counter[tuple[str, str, str]] = Counter()  # turns of agents, by store, session and input
        self.main: object = None  # the task or thread that has called the function
        self.calls = 0  # steps and effects at work, which a suspension would cut off
        self.busy_at = time.monotonic()  # when the last one began or ended
        self.waits: dict[str, WaitedFor] = {}  # by place: what the run waits for now

    def can_suspend(self) -> bool:
        """Return whether a wait may end the life now.

        A parallel branch may be between two steps. So only the function itself suspends at once; a
        wait in a branch lets the others begin their next step first.
        """
        if self.calls:
            return False
        is_quiet = time.monotonic() >= self.busy_at + QUIET_SECONDS
        return self.is_stopping or is_quiet or get_current() is self.main


def get_current() -> threading.Thread | asyncio.Task[Any]:
    """Return the task that runs now, or else the thread."""
    try:
        task: asyncio.Task[Any] | None = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.current_thread() if task is None else task


@contextmanager
def call(core: RunEngine) -> Iterator[None]:
    """A step or an effect at work: no suspension cuts it off. Raise if the life is to end before it."""
    life = core.life
    if life is None:
        yield
        return
    with core.lock:
        if life.suspension is None and life.is_stopping and not life.calls:
            life.suspension = RunSuspension()
        if life.suspension is not None:
            raise life.suspension
        life.calls += 1
        life.busy_at = time.monotonic()
    try:
        yield
    finally:
        with core.lock:
            life.calls -= 1
            life.busy_at = time.monotonic()


def refuse_if_stopping(core: RunEngine) -> None:
    """Raise before another attempt of a step, if the worker ends."""
    if core.life is not None and core.life.is_stopping:
        core.life.suspension = core.life.suspension or RunSuspension()
        raise core.life.suspension


@contextmanager
def note_wait(core: RunEngine, place: str) -> Iterator[None]:
    """A wait at a place of the program: what `suspend` notes of it counts until its end."""
    try:
        yield
    finally:
        if core.life is not None:
            core.life.waits.pop(place, None)


def suspend(core: RunEngine, place: str, wait: WaitedFor) -> None:
    """End the life of a worker's run until what it waits for has come, unless other work continues."""
    life = core.life
    if life is None:
        return
    with core.lock:
        life.waits[place] = wait
        if life.suspension is None and life.can_suspend():
            life.suspension = RunSuspension(() if life.is_stopping else [*life.waits.values()])
        if life.suspension is not None:
            raise life.suspension


async def pause(
    core: RunEngine, place: str, wait: NotedWait, seen: int, targets: tuple[str, ...], *, group: str | None = None,
    mark: int = 0,
) -> None:  # fmt: skip
    """Wait for the next commit after `seen`, or a moment; under a worker, suspend the run instead."""
    life = core.life
    if life is not None and (life.is_stopping or not wait.ends_within(AT_ONCE)):
        await wait.note(targets, at_once=True)
        about = targets if group is None else (*targets, group)
        suspend(core, place, WaitedFor(wait.kind, about, wait.until_us, mark))
    await wait.pause(seen, targets)
