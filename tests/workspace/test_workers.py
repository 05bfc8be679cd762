"""Helper processes: they answer, they die without harm, and they are gone at the end."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import worker_jobs

from holdfast.errors import CorruptError
from holdfast.workspace import workers as module
from holdfast.workspace.workers import AT_ONCE, Outcome, Workers, worth_starting

PATIENCE = 240.0
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers inherit descriptors")


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No process, thread or descriptor is left behind."""
    before, processes = open_descriptors(), children()
    yield
    assert children() <= processes
    assert not [one for one in threading.enumerate() if one.name == "holdfast-worker"]
    assert set(open_descriptors()) <= set(before)  # what others left before may go meanwhile


def open_descriptors() -> list[str]:
    return sorted(one for one in os.listdir("/proc/self/fd") if Path("/proc/self/fd", one).exists())


def children() -> set[str]:
    """The processes that this one has started, those that nobody has waited for included."""
    return {pid for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()}


def ready(workers: Workers[Any]) -> Workers[Any]:
    wait(lambda: all(one.has_room for one in workers._workers))
    return workers


def wait(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "nothing happened for minutes"
        time.sleep(0.005)


def asked(workers: Workers[str], doing: str, value: Any = None) -> Any:
    assert workers.take((doing, value), doing)
    [outcome] = workers.rest()
    assert outcome.is_done
    return outcome.answer


def test_every_portion_is_answered_once_however_large_it_is(nothing_left: None) -> None:
    sizes = [0, 1, 100, 65_536, 3_000_000, 5_000_000]
    outcomes: list[Outcome[int]] = []
    with Workers[int](worker_jobs, ["a setup", 7, b"\xff"], [], 2) as workers:
        ready(workers)
        for number in range(60):
            data = os.urandom(1) * sizes[number % len(sizes)]
            while not workers.take(("echo", (data, number)), number):
                outcomes += workers.finished()
        outcomes += workers.rest()
    assert sorted(one.portion for one in outcomes) == list(range(60))
    for number, (setup, (data, said)), is_done in outcomes:
        assert (setup, len(data), said, is_done) == (["a setup", 7, b"\xff"], sizes[number % len(sizes)], number, True)


def test_a_worker_has_only_so_much_to_do(nothing_left: None, tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as said, Workers[str](worker_jobs, None, [said.fileno()], 1) as workers:
        ready(workers)
        taken = 0
        while workers.take(("stay", None), "stay"):
            taken += 1
        assert taken == AT_ONCE
        assert not workers.has_room
        assert list(workers.finished()) == []


def test_it_inherits_what_it_is_given_and_nothing_else(nothing_left: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with (tmp_path / "file").open("rb") as file, Workers[str](worker_jobs, None, [file.fileno()], 1) as workers:
        other = os.open(tmp_path, os.O_RDONLY)
        try:
            ready(workers)
            assert asked(workers, "read") == b"content"
            # The three standard ones, its two pipes, nothing twice, the file, and what lists them.
            assert len(asked(workers, "open descriptors")) == 3 + 3 + 1 + 1
        finally:
            os.close(other)


def test_nothing_is_imported_from_where_the_program_runs(
    nothing_left: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ormsgpack.py", "threading.py", "sitecustomize.py", "holdfast.py"):
        (tmp_path / name).write_text("raise SystemExit('this must not run')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Workers[str](worker_jobs, None, [], 1) as workers:
        path, where, _ = asked(ready(workers), "path")
        assert str(tmp_path) not in path
        assert "" not in path
        assert where == "/"


def test_its_start_is_light(nothing_left: None) -> None:
    with Workers[str](worker_jobs, None, [], 1) as workers:
        imported = set(asked(ready(workers), "modules"))
    assert not imported & {"asyncio", "sqlite3", "subprocess", "pickle", "multiprocessing", "holdfast.client", "click"}


def test_what_it_prints_is_no_answer(nothing_left: None) -> None:
    with Workers[str](worker_jobs, None, [], 1) as workers:
        assert asked(ready(workers), "print", 5) == 5
        assert asked(workers, "echo", 6) == [None, 6]


def test_what_a_worker_had_that_died_comes_back(nothing_left: None) -> None:
    with Workers[str](worker_jobs, None, [], 2) as workers:
        ready(workers)
        assert workers.take(("die", None), "first")
        [outcome] = workers.rest()
        assert outcome == ("first", None, False)
        wait(lambda: sum(one.has_room for one in workers._workers) == 1)
        assert asked(workers, "echo", 1) == [None, 1]  # the other one goes on


def test_a_worker_that_is_killed_from_outside_gives_back_all_that_it_had(nothing_left: None, tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as said, Workers[int](worker_jobs, None, [said.fileno()], 1) as workers:
        ready(workers)
        for number in range(AT_ONCE):
            assert workers.take(("stay", None), number)
        wait(lambda: (tmp_path / "said").stat().st_size)  # it works at the first one
        [worker] = workers._workers
        os.kill(worker._process.pid, signal.SIGKILL)
        assert sorted(workers.rest()) == [(number, None, False) for number in range(AT_ONCE)]
        assert not workers.take(("echo", 1), 9)


def test_what_the_system_and_the_store_say_is_raised(nothing_left: None) -> None:
    with Workers[str](worker_jobs, None, [], 1) as workers:
        ready(workers)
        assert workers.take(("full", None), "full")
        with pytest.raises(OSError, match="No space left") as told:
            list(workers.rest())
        assert told.value.filename == "a/\\xff"
        assert workers.take(("damaged", None), "damaged")
        with pytest.raises(CorruptError, match="a blob is damaged"):
            list(workers.rest())
        assert asked(workers, "echo", 1) == [None, 1]


def test_anything_else_that_goes_wrong_in_it_is_for_the_caller_to_do(nothing_left: None) -> None:
    with Workers[str](worker_jobs, None, [], 1) as workers:
        assert ready(workers).take(("confused", 1), "confused")
        assert list(workers.rest()) == [("confused", None, False)]


def test_one_that_does_not_start_takes_nothing(nothing_left: None) -> None:
    with Workers[str](worker_jobs, "no start", [], 2) as workers:
        wait(lambda: all(one._is_dead for one in workers._workers))
        assert not workers.has_room
        assert not workers.take(("echo", 1), "")
        assert list(workers.rest()) == []


@pytest.mark.parametrize("program", ["", "/usr/sbin/uwsgi", "/nowhere/python3"])
def test_where_there_is_no_interpreter_there_are_no_workers(
    nothing_left: None, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with Workers[str](worker_jobs, None, [], 2) as workers:
        assert not workers._workers
        assert not workers.take(("echo", 1), "")


def test_where_there_are_too_many_processes_there_are_no_workers(
    nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refused)
    with Workers[str](worker_jobs, None, [], 2) as workers:
        assert not workers.take(("echo", 1), "")


def test_where_there_are_too_many_threads_the_process_is_gone(
    nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with Workers[str](worker_jobs, None, [], 2) as workers:
        assert not workers._workers


@pytest.mark.skipif(
    sys.version_info < (3, 11, 4),
    reason="when Popen of this Python can't make its second pipe, the first one stays open",
)
def test_where_there_are_too_few_descriptors_there_are_no_workers(nothing_left: None) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(open_descriptors()) + 2, hard))
    try:
        with Workers[str](worker_jobs, None, [], 2) as workers:
            assert not workers._workers
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_leaving_ends_them_in_the_middle_of_what_they_do(nothing_left: None, tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        (tmp_path / "said").open("wb") as said,
        Workers[str](worker_jobs, None, [said.fileno()], 2) as workers,
    ):
        for _ in workers._workers:
            assert ready(workers).take(("stay", None), "stay")
        wait(lambda: (tmp_path / "said").stat().st_size)
        raise KeyboardInterrupt


PARENT = """
import fcntl, os, sys, time
sys.path.insert(0, {jobs!r})
import worker_jobs
from holdfast.workspace.workers import Workers
said = os.open({said!r}, os.O_RDWR)
fcntl.flock(said, fcntl.LOCK_SH)
workers = Workers(worker_jobs, None, [said], 2)
while not all(one.has_room for one in workers._workers): time.sleep(0.005)
for _ in workers._workers:
    assert workers.take(("stay", None), "stay")
forked = os.fork() if {forks} else None
if forked == 0:
    os.close(said)
    time.sleep(600)
while os.fstat(said).st_size == 0: time.sleep(0.005)
print(*[one._process.pid for one in workers._workers], *([forked] if forked else []), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("forks", [False, True], ids=["alone", "with a forked child that has the pipes, too"])
def test_they_end_with_the_process_that_is_killed_and_so_does_the_lock_that_they_hold(
    tmp_path: Path, forks: bool
) -> None:
    import fcntl

    said = tmp_path / "said"
    said.touch()
    program = PARENT.format(jobs=str(Path(__file__).parent), said=str(said), forks=forks)
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    forked: list[int] = []
    try:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2 + forks
        pids, forked = pids[:2], pids[2:]
        with said.open("rb") as mine, pytest.raises(BlockingIOError):
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        parent.kill()
        parent.wait()
        with said.open("rb") as mine:
            wait(lambda: locked(mine.fileno()))
        assert not [pid for pid in pids if runs(pid)]
    finally:
        parent.kill()
        parent.wait()
        for pid in forked:
            os.kill(pid, signal.SIGKILL)
        if parent.stdout is not None:
            parent.stdout.close()


def locked(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def runs(pid: int) -> bool:
    """A process that has ended and was not waited for by whoever adopted it runs no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False


def test_there_are_as_many_as_there_are_cores_and_portions_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_processors", lambda: 8)
    assert [worth_starting(portions) for portions in (0, 1, 2, 4, 100)] == [0, 0, 1, 2, 3]
    monkeypatch.setattr(module, "usable_processors", lambda: 64)
    assert worth_starting(1000) == module.MOST
    for few, expected in ((1, 0), (2, 1), (3, 1), (4, 1), (6, 2)):
        monkeypatch.setattr(module, "usable_processors", lambda few=few: few)
        assert worth_starting(1000) == expected
