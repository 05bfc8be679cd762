"""Offload: answers from one daemon thread, so that an event loop never waits for a blocking backend."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.backends.inline import Inline, drain
from holdfast.backends.loop_bridge import LoopBridge
from holdfast.backends.port import Backend, BlockingBackend, Commit
from holdfast.backends.stepping import run_inline
from holdfast.errors import StoreError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class _Job(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    commit: Commit | None
    call: Callable[[], Any] | None
    beside: Callable[[Any], Iterator[None]] | None = None  # what the thread goes on with, once the answer was given


_Answer = tuple[_Job, Any, BaseException | None]


class Offload(LoopBridge):
    """Answers from one daemon thread, started by `get_ready` or at the first call. What the tasks of an event loop ask for
    in one turn of the loop goes to the thread together, and its commits share a transaction.

    The thread is a daemon, so a program that never closes its client ends all the same: what was acknowledged is
    durable already.
    """

    def __init__(self, backend: BlockingBackend) -> None:
        super().__init__(backend)
        self._inline = Inline(backend)  # for what is carried out in the thread
        self._queue: SimpleQueue[list[_Job] | None] = SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        # Whether what was handed over last was a single job, and the thread kept up: then nobody is waited for.
        self._is_alone = True
        self._is_idle = True  # whether the thread carries out nothing: a hint
        self._starting = threading.Lock()
        self._thread_of: int | None = None  # the process the thread runs in: a forked child needs its own

    async def _call(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        answer: T = await self._submit(None, lambda: method(*args, **kwargs))
        return answer

    async def together(
        self, read: Callable[[Backend], Coroutine[Any, Any, T]], beside: Callable[[T], Iterator[None]] | None = None
    ) -> T:
        answer: T = await self._submit(None, lambda: run_inline(read(self._inline)), beside)
        return answer

    @property
    def is_idle(self) -> bool:
        return self._is_idle and not self._gathered and self._queue.empty()

    def commit(self, commit: Commit) -> Awaitable[None]:
        return self._submit(commit, None)

    def get_ready(self) -> None:
        if self._thread_of != os.getpid():
            self._start(getattr(self.backend, "get_ready", None))

    async def close(self) -> None:
        await super().close()
        self._queue.put(None)  # ends the thread; a call after this starts another, which says that it is closed
        self._thread_of = None

    def _submit(
        self,
        commit: Commit | None,
        call: Callable[[], Any] | None,
        beside: Callable[[Any], Iterator[None]] | None = None,
    ) -> asyncio.Future[Any]:
        loop = _running_loop()
        future = loop.create_future()
        job = _Job(loop, future, commit, call, beside)
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
            # What is wrong with the store is for the first call to find out, of which somebody hears.
            with suppress(Exception):
                first()
        while True:
            waiting = [queue.get(), *drain(queue)]
            self._is_idle = False
            committed = self._inline.committed
            jobs = [job for gathered in waiting if gathered is not None for job in gathered]
            commits = [job for job in jobs if job.commit is not None]
            calls = [job for job in jobs if job.call is not None]
            # It is idle before the last one hears its answer, for who asks for something next.
            if commits:
                answers = self._commit(commits)
                self._is_idle = not calls
                _deliver(answers)
                del answers
                self._count()
            self._carry_out(calls, queue)
            if self._inline.committed != committed:
                self._count()
            if None in waiting:
                return
            del waiting, jobs, commits, calls

    def _carry_out(self, calls: list[_Job], queue: SimpleQueue[list[_Job] | None]) -> None:
        for number, job in enumerate(calls, start=1):
            answer = _answer(job)
            self._is_idle = number == len(calls)
            _deliver([answer])
            if job.beside is not None and self._is_idle and answer[2] is None:
                _go_on(job.beside, answer[1], queue)
            del answer

    def _commit(self, jobs: list[_Job]) -> list[_Answer]:
        try:
            outcomes = self.backend.commit_all([job.commit for job in jobs if job.commit is not None])
        except BaseException as error:
            outcomes = [error] * len(jobs)
        return [(job, None, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]


def _go_on(beside: Callable[[Any], Iterator[None]], answer: Any, queue: SimpleQueue[Any]) -> None:
    """Steps through work that nobody waits for, until somebody waits for something else."""
    # What fails here fails again where it is needed, and is heard of there.
    with suppress(Exception):
        for _ in beside(answer):
            if not queue.empty():
                return


def _answer(job: _Job) -> _Answer:
    assert job.call is not None
    try:
        return job, job.call(), None
    except BaseException as error:
        return job, None, error


def _running_loop() -> asyncio.AbstractEventLoop:
    global _running_loop  # noqa: PLW0603 - the import is looked up once: the sync client and the command line do without
    from asyncio import get_running_loop

    _running_loop = get_running_loop
    return get_running_loop()


def _deliver(answers: list[_Answer]) -> None:
    """Hands the answers to their event loops, with one wake-up for each loop."""
    loops = {answer[0].loop for answer in answers}
    for loop in loops:
        of_loop = answers if len(loops) == 1 else [answer for answer in answers if answer[0].loop is loop]
        try:
            loop.call_soon_threadsafe(_resolve, of_loop)
        except RuntimeError:  # the loop was closed meanwhile: nobody waits any more
            continue


def _resolve(answers: list[_Answer]) -> None:
    for job, value, error in answers:
        if job.future.done():  # cancelled by its waiter
            continue
        if error is None:
            job.future.set_result(value)
        elif isinstance(error, StopIteration):  # a future refuses it, and nothing of ours should raise it
            job.future.set_exception(StoreError(f"the store stopped unexpectedly: {error!r}"))
        else:
            job.future.set_exception(error)
