"""Fork server for crash tests: imports a program once, forks a child for each life.

Importing a framework takes seconds, a fork takes none. Each life is a process of its own, killed by a real SIGKILL.
A line of JSON on standard input asks for a life (`Life`), one on standard output says how it ended. REPORT names a file
that gets a line for each connection that the program tried to make to another machine; the connection is refused.

A program is a script, run as `python PROGRAM STORE DIRECTORY`. Its imports must start no thread: a fork copies none.
It does its work under `if __name__ == "__main__":` only, and the server imports it without that.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import inspect
import ipaddress
import json
import mmap
import os
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import IO, Any

import call_log

LONGEST = 120  # seconds that a life may take: then it prints where its threads are, and ends
BACKENDS = {
    "sqlite": ("holdfast.backends.sqlite.backend", "SqliteBackend"),
    "file": ("holdfast.backends.files.backend", "FilesBackend"),
    "postgresql": ("holdfast.backends.postgres.backend", "PostgresBackend"),
    "postgres": ("holdfast.backends.postgres.backend", "PostgresBackend"),
    "redis": ("holdfast.backends.redis.backend", "RedisBackend"),
}


@dataclass(frozen=True, slots=True)
class Life:
    """One run of the program, until it ends by itself or is killed."""

    store: str
    directory: str
    output: str  # files that get its standard output and standard error
    errors: str
    point: str = ""  # "before commit 3", "after commit 3", "in call 3"
    seconds: float | None = None  # until it is killed, if it has not ended by then


class Points:
    """Counts commits and calls, and kills the process at the point that it was given."""

    def __init__(self, point: str, counted: mmap.mmap) -> None:
        self._point = point
        self._counted = counted  # shared with the server: the number of commits outlives a kill
        self._lock = threading.Lock()
        self._calls = 0

    def reach_call(self) -> None:
        with self._lock:
            self._calls += 1
            number = self._calls
        self._reach(f"in call {number}")

    def begin_commit(self) -> int:
        with self._lock:
            number = int.from_bytes(self._counted[:8], "little") + 1
            self._counted[:8] = number.to_bytes(8, "little")
        self._reach(f"before commit {number}")
        return number

    def end_commit(self, number: int) -> None:
        self._reach(f"after commit {number}")

    def _reach(self, point: str) -> None:
        if point == self._point:
            os.kill(os.getpid(), signal.SIGKILL)


def count_commits_of(backend: type[Any], points: Points) -> None:
    """Let each durable write of a kind of store pass by the points."""
    inner = backend.commit_all

    def commit_all(self: Any, commits: Any) -> Any:
        number = points.begin_commit()
        outcome = inner(self, commits)
        points.end_commit(number)
        return outcome

    async def commit_all_awaited(self: Any, commits: Any) -> Any:
        number = points.begin_commit()
        outcome = await inner(self, commits)
        points.end_commit(number)
        return outcome

    backend.commit_all = commit_all_awaited if inspect.iscoroutinefunction(inner) else commit_all


def load_backend(store: str) -> type[Any] | None:
    module, name = BACKENDS.get(store.partition(":")[0], ("", ""))
    return getattr(importlib.import_module(module), name) if module else None


def refuse_other_machines(report: Path) -> None:
    """Refuse every connection by Python's sockets that leaves this machine, and report it.

    A library may swallow the error; the report says that it tried.
    """

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event in {"socket.connect", "socket.sendto"}:
            address = arguments[1]
            host = address[0] if isinstance(address, tuple) else None  # else it is a Unix socket
        elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
            host = arguments[0]
        else:
            return
        if is_other_machine(host):
            callers = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_stack(limit=8)[:-1]]
            with report.open("a") as file:
                file.write(f"{event} {host!r} by {' < '.join(reversed(callers))}\n")
            raise ConnectionRefusedError(f"a test may not reach other machines: {event} {host!r}")

    sys.addaudithook(watch)


def is_other_machine(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host in {None, "", "localhost", socket.gethostname()}:
        return False
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return True  # a name: asking a name server is a connection, too
    return not (address.is_loopback or address.is_unspecified)


def load_program(path: Path) -> CodeType:
    """Import all that the program imports, without running it; return its code."""
    code = compile(path.read_bytes(), str(path), "exec")
    exec(code, ModuleType(path.stem).__dict__)
    return code


def run_as_script(code: CodeType, *arguments: str) -> None:
    """Run the code as `python PROGRAM ARGUMENTS` does."""
    sys.argv = [code.co_filename, *arguments]
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__dict__["__file__"] = code.co_filename
    exec(code, module.__dict__)


def count_threads() -> int:
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()


def live(code: CodeType, life: Life, counted: mmap.mmap) -> None:
    """Run the program in this process, which was forked for it."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, path in ((1, life.output), (2, life.errors)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, target)
        os.close(file)
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    os.chdir(life.directory)
    points = Points(life.point, counted)
    call_log.after_call = points.reach_call
    backend = load_backend(life.store)
    if backend is not None:
        count_commits_of(backend, points)
    run_as_script(code, life.store, life.directory)
    sys.stdout.flush()


def wait_for(child: int, seconds: float | None) -> int:
    """Return how the child ended; kill it if it has not ended after so many seconds."""
    if seconds is not None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def end_with(child: int) -> None:
    """End this process and the life that is under way: a test no longer waits for it."""
    for kill in (os.killpg, os.kill):  # the second for a child that has no group of its own yet
        with contextlib.suppress(ProcessLookupError):
            kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # it was waited for just before
        os.waitpid(child, 0)
    os._exit(1)


def serve(code: CodeType, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Fork a child for each life that is asked for. The child leaves this function, and ends as a script does."""
    for line in requests:
        life, counted = Life(**json.loads(line)), mmap.mmap(-1, 8)
        began = time.monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until it is known which child ends with us
        child = os.fork()
        if not child:
            requests.close()
            answers.close()
            live(code, life, counted)
            return
        signal.signal(signal.SIGTERM, lambda *_, child=child: end_with(child))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        status = wait_for(child, life.seconds)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        seconds = time.monotonic() - began
        with contextlib.suppress(ProcessLookupError):  # what it has started ends with it
            os.killpg(child, signal.SIGKILL)
        said = {
            "status": os.waitstatus_to_exitcode(status),
            "commits": int.from_bytes(counted[:8], "little"),
            "seconds": seconds,
        }
        answers.write(json.dumps(said).encode() + b"\n")
        answers.flush()


def take_standard_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Keep the pipes to the test for ourselves: a library that prints must not talk to it."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def run(program: Path, report: Path) -> None:
    requests, answers = take_standard_streams()
    refuse_other_machines(report)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of the pipe says when to stop
    warnings.filterwarnings("error", module=r"holdfast(\.|$)")  # those of a framework about itself are not ours
    code = load_program(program)
    for store in BACKENDS:  # once for all lives
        load_backend(store)
    gc.collect()
    gc.freeze()
    answers.write(json.dumps({"threads": count_threads()}).encode() + b"\n")
    answers.flush()
    serve(code, requests, answers)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))
