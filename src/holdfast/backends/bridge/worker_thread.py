"""Bridge that answers from one daemon thread: an event loop never waits for a blocking backend."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.backends.bridge.asyncio_base import AsyncioBridge
from holdfast.backends.bridge.inline import InlineBridge, drain
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.commit_outcomes import fail_each, separate
from holdfast.backends.port import Backend, BlockingBackend, Commit
from holdfast.errors import StoreError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class _Job(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    commit: Commit | None
    call: Callable[[], Any] | None


_Answer = tuple[_Job, Any, BaseException | None]


class ThreadBridge(AsyncioBridge):
    """A bridge that answers from one daemon thread, started by `get_ready` or at the first call.

    The calls that tasks make in one turn of an event loop go to the thread together, and their
    commits share a transaction.

    The thread is a daemon, so a program that never closes its client still ends: acknowledged
    commits are durable already.
    """

    def __init__(self, backend: BlockingBackend) -> None:
        super().__init__(backend)
        self._inline = InlineBridge(backend)  # for calls that run in the thread

    def _begin(self) -> None:
        super()._begin()
        self._queue: SimpleQueue[list[_Job] | None] = SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        # Whether the last handover was a single job, and the thread kept up: then no batching delay is
        # needed.
        self._is_alone = True
        self._starting = threading.Lock()
        self._thread_of: int | None = None  # the process that the thread runs in: a forked child needs its own

    async def _call(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        answer: T = await self._submit(None, lambda: method(*args, **kwargs))
        return answer

    async def batch_reads(self, read: Callable[[Backend], Coroutine[Any, Any, T]]) -> T:
        answer: T = await self._submit(None, lambda: run_inline(read(self._inline)))
        return answer

    def commit(self, commit: Commit) -> Awaitable[None]:
        return self._submit(commit, None)

    def get_ready(self) -> None:
        if self._thread_of != os.getpid():
            self._start(getattr(self.backend, "get_ready", None))

    async def close(self) -> None:
        await super().close()
        self._queue.put(None)  # ends the thread; a later call starts another, which raises that it is closed
        self._thread_of = None

    def _submit(self, commit: Commit | None, call: Callable[[], Any] | None) -> asyncio.Future[Any]:
        from asyncio import get_running_loop  # not at the top: the sync client and the command line do without asyncio

        loop = get_running_loop()
        future = loop.create_future()
        job = _Job(loop, future, commit, call)
        gathered = self._gathered.get(loop)
        if gathered is not None:
            gathered.append(job)
            return future
        self._gathered[loop] = [job]
        if self._is_alone:
            self._hand_over(loop)
        else:
            loop.call_soon(self._hand_over, loop)
        return future

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._thread_of != os.getpid():
            self._start()
        gathered = self._gathered.pop(loop)
        self._is_alone = len(gathered) == 1 and self._queue.empty()
        self._queue.put(gathered)

    def _start(self, first: Callable[[], None] | None = None) -> None:
        with self._starting:
            if self._thread_of != os.getpid():
                self._queue = SimpleQueue()
                thread = threading.Thread(target=self._work, args=(self._queue, first), name="holdfast", daemon=True)
                thread.start()
                self._thread_of = os.getpid()

    def _work(self, queue: SimpleQueue[list[_Job] | None], first: Callable[[], None] | None) -> None:
        if first is not None:
            # An error of the store is for the first call to raise, where a caller sees it.
            with suppress(Exception):
                first()
        while True:
            waiting = [queue.get(), *drain(queue)]
            jobs = [job for gathered in waiting if gathered is not None for job in gathered]
            commits = [job for job in jobs if job.commit is not None]
            calls = [job for job in jobs if job.call is not None]
            if commits:
                _deliver(self._commit(commits))
                self.count_commit()
            self._carry_out(calls)
            if None in waiting:
                return
            del waiting, jobs, commits, calls

    def _carry_out(self, calls: list[_Job]) -> None:
        for job in calls:
            answer = _answer(job)
            _deliver([answer])
            del answer

    def _commit(self, jobs: list[_Job]) -> list[_Answer]:
        try:
            outcomes = self.backend.commit_all([job.commit for job in jobs if job.commit is not None])
        except BaseException as error:
            outcomes = fail_each(error, len(jobs))
        outcomes = separate(outcomes)
        return [(job, None, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]


def _answer(job: _Job) -> _Answer:
    assert job.call is not None
    try:
        return job, job.call(), None
    except BaseException as error:
        return job, None, error


def _deliver(answers: list[_Answer]) -> None:
    """Hand the answers to their event loops, with one wake-up per loop."""
    loops = {answer[0].loop for answer in answers}
    for loop in loops:
        of_loop = answers if len(loops) == 1 else [answer for answer in answers if answer[0].loop is loop]
        try:
            loop.call_soon_threadsafe(_resolve, of_loop)
        except RuntimeError:  # the loop was closed meanwhile: no caller waits
            continue


def _resolve(answers: list[_Answer]) -> None:
    for job, value, error in answers:
        if job.future.done():  # cancelled by its waiter
            continue
        if error is None:
            job.future.set_result(value)
        elif isinstance(error, StopIteration):  # a future refuses it, and our code should never raise it
            job.future.set_exception(StoreError(f"the store stopped unexpectedly: {error!r}"))
        else:
            job.future.set_exception(error)
