"""Helper processes for large jobs: the first snapshot of a directory, a restore of all its files.

What takes long there is Python between system calls, file by file, and threads don't share that. So the caller hands portions
of the job to processes beside it, as long as they have little to do, and does the others itself:

    with Workers(filling, setup, [root], count) as workers:
        for portion in portions:
            if not workers.take(request_of(portion), portion):
                do(portion)                       # all of them have enough to do, or there are none
            for done in workers.finished():
                note(done)
        for done in workers.rest():               # waits for what is still under way
            note(done)

A *job* is a module with a function `begin(setup, descriptors)`, which is called once in each worker and gives the function that is
called with each request; what that returns is the answer. Setup, requests and answers are plain values (None, bool, int, str,
bytes, lists and tuples of these; all sequences arrive as lists) and cross pipes as MessagePack: nothing is ever executed because a
message says so. `descriptors` are open files that the workers inherit, under the same numbers, and with them any `flock` that is
held through one of them: it lasts as long as the last of these processes.

A worker is a fresh interpreter: it imports the job and nothing else (keep that light), nothing of the program's, and nothing from
the current directory. None of this is ever needed: where no process can be started `take` takes nothing, and of a worker that died
each portion that it had comes back with `is_done` false: whether all, part or nothing of it was done is not known, but nobody works
at it any more, and the caller does it. Only what the system or the store says about the job itself is
raised here, by `finished` and `rest`: `OSError`, `CorruptError`, `NewerVersionError`, `StoreError`.

Leaving the `with` block ends all of them, at once, whatever they do, and waits until they have ended. If this process ends
without doing so (`kill -9`), they find out within a second, and end themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from holdfast.workspace import messages
from holdfast.workspace.processors import usable_processors

if TYPE_CHECKING:
    from typing import Self

AT_ONCE = 2  # portions that a worker has at most: one that it works at, and one so that it need not wait
MOST = 7  # workers: a file system that is written to by more of them does not become quicker
PIPE_BYTES = 1024 * 1024  # what a process may ask for without being root, usually
START = "import sys; sys.path[:0] = sys.argv[2:]; from holdfast.workspace.worker import main; main(sys.argv[1])"  # after `-I`, `-S`: neither the environment nor the current directory leads to other code

T = TypeVar("T")


class Outcome(NamedTuple, Generic[T]):
    """What became of a portion. One that is not done is for the caller to do; some of it may be there already."""

    portion: T
    answer: Any
    is_done: bool


def worth_starting(portions: int) -> int:
    """How many workers a job of so many portions can use on this machine, beside the caller, who works, too. Two processors are
    taken for one core, and one core is left to the caller; but where there are two or three there is one worker: 100,000 files took a sixth to
    a quarter less time with it, and a little less CPU (the threads of one process hand the GIL to and fro); a second one gained nothing.
    What they gain on more is reasoned, not measured."""
    processors = usable_processors()
    wanted = max(processors // 2 - 1, 1) if processors > 1 else 0
    return min(wanted, MOST, portions // AT_ONCE)


class Workers(Generic[T]):
    """Processes that carry out portions of one job. One thread at a time may use it."""

    def __init__(self, job: ModuleType, setup: object, descriptors: Sequence[int], count: int) -> None:
        self._outcomes: SimpleQueue[Outcome[T] | BaseException] = SimpleQueue()
        self._taken = 0
        self._workers: list[_Worker[T]] = []
        first = messages.packed([setup, list(descriptors), os.getpid()])
        try:
            while len(self._workers) < count:
                worker = _started(job, descriptors, first, self._outcomes)
                if worker is None:
                    break
                self._workers.append(worker)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, request: object, portion: T) -> bool:
        """Hands a request to a worker that has little to do; False if there is none. `portion` is whatever the caller will know
        it by."""
        free = min((one for one in self._workers if one.has_room), key=lambda one: len(one.waiting), default=None)
        if free is None or not free.give(messages.packed(request), portion):
            return False
        self._taken += 1
        return True

    @property
    def has_room(self) -> bool:
        """Whether `take` would take something now."""
        return any(one.has_room for one in self._workers)

    def finished(self) -> Iterator[Outcome[T]]:
        """The portions that became known since the last time, done or lost. It does not wait."""
        while self._taken:
            try:
                outcome = self._outcomes.get_nowait()
            except Empty:
                return
            yield self._judged(outcome)

    def rest(self) -> Iterator[Outcome[T]]:
        """All that were taken and are not known yet. It waits for them."""
        while self._taken:
            yield self._judged(self._outcomes.get())

    def _judged(self, outcome: Outcome[T] | BaseException) -> Outcome[T]:
        self._taken -= 1
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def close(self) -> None:
        """Ends them. What they have begun and not finished is left as it is."""
        for worker in self._workers:
            worker.end()
        for worker in self._workers:
            worker.join()
        self._workers.clear()


class _Worker(Generic[T]):
    """One process, and the thread that hears its answers."""

    def __init__(self, process: subprocess.Popen[bytes], outcomes: SimpleQueue[Outcome[T] | BaseException]) -> None:
        self.waiting: deque[T] = deque()  # in the order in which they were given, which is that of the answers
        self._process = process
        self._outcomes = outcomes
        self._changing = threading.Lock()
        self._writing = threading.Lock()  # so that no descriptor is closed, and used again, under who writes to it
        self._is_ready = False  # a worker that has not said anything yet might never
        self._is_dead = False
        self._thread = threading.Thread(target=self._hear, name="holdfast-worker", daemon=True)
        self._thread.start()

    @property
    def has_room(self) -> bool:
        return self._is_ready and not self._is_dead and len(self.waiting) < AT_ONCE

    def give(self, message: bytes, portion: T) -> bool:
        with self._changing:
            if self._is_dead:
                return False
            self.waiting.append(portion)
        assert self._process.stdin is not None
        with (
            self._writing,
            suppress(BrokenPipeError),
        ):  # it has died: the thread hears of it, and gives the portion back
            if not self._process.stdin.closed:
                messages.write(self._process.stdin.fileno(), message)
        return True

    def _hear(self) -> None:
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()
        try:
            self._is_ready = messages.read(source) == messages.READY
            while self._is_ready:
                answer = messages.read(source)
                self._outcomes.put(_outcome(self.waiting[0], answer))
                self.waiting.popleft()
        except (OSError, EOFError, ValueError, LookupError, TypeError):  # it is gone, or not in its right mind
            self._is_ready = False
        self.end()
        with self._changing:
            self._is_dead = True
            for portion in self.waiting:
                self._outcomes.put(Outcome(portion, None, is_done=False))
            self.waiting.clear()

    def end(self) -> None:
        """Nobody works at anything when this returns. From any thread, any number of times."""
        self._process.kill()
        self._process.wait()

    def join(self) -> None:
        self._thread.join()
        with self._writing:
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                pipe.close()


def _outcome(portion: T, answer: Any) -> Outcome[T] | BaseException:
    kind, value = answer
    if kind == messages.DONE:
        return Outcome(portion, value, is_done=True)
    error = messages.error_of(value) if kind == messages.FAILED else None
    # What is wrong with the worker alone goes well, or fails for all to see, when the caller does it.
    return Outcome(portion, None, is_done=False) if error is None else error


def _started(
    job: ModuleType, descriptors: Sequence[int], first: bytes, outcomes: SimpleQueue[Outcome[T] | BaseException]
) -> _Worker[T] | None:
    """A worker, if one can be had here."""
    command = _command(job)
    if command is None:
        return None
    try:
        process = subprocess.Popen(  # noqa: S603 - this very interpreter, and a command of our own
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C is for the caller, who ends them
        )
    except (OSError, ValueError):  # no memory, no more processes or descriptors, no such program
        return None
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        messages.enlarge(process.stdin.fileno(), PIPE_BYTES)
        messages.enlarge(process.stdout.fileno(), PIPE_BYTES)
        with suppress(BrokenPipeError):  # found out by the thread
            messages.write(process.stdin.fileno(), first)
        return _Worker(process, outcomes)
    except BaseException as error:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        if isinstance(error, RuntimeError):  # no more threads
            return None
        raise


def _command(job: ModuleType) -> list[str] | None:
    """What starts a worker; None where this program is no Python interpreter, or is not made of files."""
    import ormsgpack
    import zstandard

    program = sys.executable or ""
    if getattr(sys, "frozen", False) or not Path(program).name.startswith(("python", "pypy")):
        return None
    places = [_place(module) for module in (job, sys.modules[__name__], ormsgpack, zstandard)]
    if not all(place.is_dir() for place in places):
        return None
    silent = ["-B"] if sys.dont_write_bytecode else []
    return [program, "-I", "-S", *silent, "-c", START, job.__name__, *dict.fromkeys(map(str, places))]


def _place(module: ModuleType) -> Path:
    """The directory that a module is imported from, by its whole name."""
    return Path(module.__file__ or "").parents[module.__name__.count(".") + hasattr(module, "__path__")]
