"""Bridges: one way to await a store, whether there is an event loop or not.

Operations are coroutines that await the port and nothing else. `Inline` answers them on the spot, so a coroutine never
suspends and `run_inline` can step it without an event loop: that is the whole of the sync client. `Offload` answers
them from one daemon thread, so an event loop is never blocked: that is the async client. Either way the backend is the
same object, and commits that arrive together are committed together.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from holdfast.backends.inline import run_inline
from holdfast.backends.port import (
    AtOnce,
    Backend,
    BlobInfo,
    BlockingBackend,
    Capabilities,
    Change,
    Commit,
    Record,
    Row,
    RowKey,
    Run,
    RunInfo,
    Span,
    Usage,
)
from holdfast.errors import StoreError

if TYPE_CHECKING:
    import asyncio

__all__ = ["Bridge", "Inline", "LoopBridge", "Offload", "run_inline"]

T = TypeVar("T")


class Bridge:
    """The awaitable port over a backend; how a call is carried out is the subclass's."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.committed = 0  # batches; changed by whoever commits, and only one does at a time
        self._is_closed = False

    @property
    def capabilities(self) -> Capabilities:
        capabilities: Capabilities = self.backend.capabilities
        return capabilities

    async def _call(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        raise NotImplementedError

    def commit(self, commit: Commit) -> Awaitable[None]:
        raise NotImplementedError

    def turn(self, key: bytes) -> AbstractAsyncContextManager[object]:
        raise NotImplementedError

    async def aside(self, call: Callable[[], T]) -> T:
        return await self._call(call)

    async def apart(self, call: Callable[[], T]) -> T:
        return call()

    async def together(
        self,
        read: Callable[[Backend], Coroutine[Any, Any, T]],
        beside: Callable[[T], Iterator[None]] | None = None,  # noqa: ARG002 - there is no thread to do it
    ) -> T:
        return await read(self)

    @property
    def at_once(self) -> AtOnce | None:
        return None

    @property
    def is_idle(self) -> bool:
        return False

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    def wait_for_commit(self, seen: int, seconds: float) -> Awaitable[bool]:
        raise NotImplementedError

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        return await self._call(self.backend.records, ids)

    async def record_and_runs(self, id_: bytes) -> tuple[Record | None, Mapping[Span, list[Run]]]:
        ask = getattr(self.backend, "record_and_runs", None)
        if ask is not None:
            both: tuple[Record | None, Mapping[Span, list[Run]]] = await self._call(ask, id_)
            return both
        [found] = await self.records([id_])
        return found, {}

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]:
        return await self._call(self.backend.session_records, session, before=before, limit=limit)

    async def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        return await self._call(self.backend.find_ids, ending, limit)

    async def runs(self, spans: Sequence[Span]) -> list[list[Run]]:
        return await self._call(self.backend.runs, spans)

    async def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        return await self._call(self.backend.blobs, hashes)

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        return await self._call(self.backend.rows, keys)

    async def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        return await self._call(self.backend.scan, space, tree=tree, prefix=prefix, after=after, limit=limit)

    async def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        return await self._call(self.backend.page_records, after, limit)

    async def changes(self, after: int, limit: int) -> list[Change]:
        return await self._call(self.backend.changes, after, limit)

    async def last_change(self) -> int:
        return await self._call(self.backend.last_change)

    async def page_runs(self, after: tuple[int, int] | None, limit: int) -> list[RunInfo]:
        return await self._call(self.backend.page_runs, after, limit)

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        return await self._call(self.backend.page_blobs, after, limit)

    async def usage(self) -> Usage:
        return await self._call(self.backend.usage)

    async def compact(self) -> None:
        await self._call(self.backend.compact)

    def get_ready(self) -> None:
        """Does ahead, without making anybody wait, what the first calls would otherwise wait for."""

    def ask_to_collect(self, collect: Callable[[], None]) -> None:
        """Has the store call that method when it may be time to collect, if it can tell (`AsyncBackend`)."""
        ask = getattr(self.backend, "ask_to_collect", None)
        if ask is not None:
            ask(collect)

    async def take_turn_to_collect(self) -> bool:
        return await self._call(self.backend.take_turn_to_collect)

    async def was_collected(self) -> None:
        await self._call(self.backend.was_collected)

    async def close(self) -> None:
        await self._call(self.backend.close)


_Waiting = tuple[Commit, list[BaseException | None]]  # the outcome is an empty list until it is known


class ThreadTurn:
    """A lock that is awaited like any other, and blocks."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    async def __aenter__(self) -> None:
        self.lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.lock.release()


class Inline(Bridge):
    """Answers on the caller's thread. Threads that commit at the same time meet in a queue: whoever holds the lock
    leads and commits for all that wait."""

    def __init__(self, backend: BlockingBackend) -> None:
        super().__init__(backend)
        self._leading = threading.Lock()
        self._queue: SimpleQueue[_Waiting] = SimpleQueue()
        self._leading_turns = threading.Lock()
        self._turns: WeakValueDictionary[bytes, ThreadTurn] = WeakValueDictionary()
        self._listeners: set[threading.Event] = set()

    async def _call(self, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return method(*args, **kwargs)

    def commit(self, commit: Commit) -> Awaitable[None]:
        outcome: list[BaseException | None] = []
        self._queue.put((commit, outcome))
        return self._outcome(outcome)

    @property
    def at_once(self) -> AtOnce:
        return self

    def commit_at_once(self, commit: Commit) -> None:
        if not self._leading.acquire(blocking=False):
            run_inline(self._in_line(commit))
            return
        try:
            if not self._queue.empty():
                outcome: list[BaseException | None] = []
                self._queue.put((commit, outcome))
                self._lead()
            else:  # nobody else commits: then there is nobody to commit for, or to be told
                try:
                    outcome = self.backend.commit_all((commit,))
                finally:
                    self.committed += 1
                    if self._listeners:
                        self._tell()
        finally:
            self._leading.release()
        if outcome[0] is not None:
            raise outcome[0]

    async def _in_line(self, commit: Commit) -> None:
        await self.commit(commit)

    def turn(self, key: bytes) -> ThreadTurn:
        with self._leading_turns:
            known = self._turns.get(key)
            return self._turns.setdefault(key, ThreadTurn()) if known is None else known

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop

    async def wait_for_commit(self, seen: int, seconds: float) -> bool:
        news = threading.Event()
        self._listeners.add(news)
        hear = getattr(self.backend, "hear", None) if seconds > 0 else None
        stop = hear(self._hear) if hear is not None else None
        try:
            # Looked at after the listener is known, as those who commit count before they look for listeners: one of
            # the two sees the other.
            if self.committed == seen and not self._is_closed:
                news.wait(seconds)
        finally:
            self._listeners.discard(news)
            if stop is not None:
                stop()
        return not self._is_closed

    def _hear(self) -> None:
        self.committed += 1
        self._tell()

    async def close(self) -> None:
        self._is_closed = True  # first: who is told by the store that it was closed asks here whether by its owner
        try:
            await super().close()
        finally:
            self._tell()

    def _tell(self) -> None:
        for news in tuple(self._listeners):
            news.set()

    async def _outcome(self, mine: list[BaseException | None]) -> None:
        while not mine:
            with self._leading:  # who waits here is led by whoever holds it, or leads next
                if not mine:
                    self._lead()
        if mine[0] is not None:
            raise mine[0]

    def _lead(self) -> None:
        waiting = _drain(self._queue)
        try:
            outcomes = self.backend.commit_all([commit for commit, _ in waiting])
        except BaseException as error:
            outcomes = [error] * len(waiting)
            raise
        finally:
            for (_, known), outcome in zip(waiting, outcomes, strict=True):
                known.append(outcome)
            self.committed += 1
            if self._listeners:
                self._tell()


class _Job(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    commit: Commit | None
    call: Callable[[], Any] | None
    beside: Callable[[Any], Iterator[None]] | None = None  # what the thread goes on with, once the answer was given


_Answer = tuple[_Job, Any, BaseException | None]


class LoopBridge(Bridge):
    """What bridges have in common whose callers run in event loops, in one or in several."""

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        self._turns: WeakValueDictionary[tuple[int, bytes], asyncio.Lock] = WeakValueDictionary()
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = set()

    def turn(self, key: bytes) -> AbstractAsyncContextManager[object]:
        import asyncio

        # A lock serves one event loop, and is kept only while somebody uses it.
        return self._turns.setdefault((id(asyncio.get_running_loop()), key), asyncio.Lock())

    async def apart(self, call: Callable[[], T]) -> T:
        import asyncio

        running = asyncio.ensure_future(asyncio.to_thread(call))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # The thread goes on all the same, with files that whoever was cancelled would close: it is waited for.
            while not running.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            with suppress(BaseException):  # nobody asks any more what came of it
                running.result()
            raise

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)

    async def wait_for_commit(self, seen: int, seconds: float) -> bool:
        from asyncio import get_running_loop

        loop = get_running_loop()
        listener = loop, loop.create_future()
        timer = loop.call_later(seconds, _wake, listener[1])
        self._listeners.add(listener)
        try:
            # As in `Inline`: counting comes before looking for listeners, listening before looking at the count.
            if self.committed == seen and not self._is_closed:
                await listener[1]
        finally:
            self._listeners.discard(listener)
            timer.cancel()
        return not self._is_closed

    def _tell(self) -> None:
        for loop, future in tuple(self._listeners):
            try:
                loop.call_soon_threadsafe(_wake, future)
            except RuntimeError:  # the loop was closed, and whoever listened there is gone with it
                self._listeners.discard((loop, future))

    async def close(self) -> None:
        self._is_closed = True  # first: who is told by the store that it was closed asks here whether by its owner
        try:
            await super().close()
        finally:
            self._tell()


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
            waiting = [queue.get(), *_drain(queue)]
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

    def _count(self) -> None:
        self.committed += 1
        if self._listeners:
            self._tell()

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


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _drain(queue: SimpleQueue[Any]) -> list[Any]:
    return [queue.get() for _ in range(queue.qsize())]
