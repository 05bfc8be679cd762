"""Restores by several processes, of which one is killed at a random moment: that of the restore, or a worker."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import restore_opening
from restore_trees import Tree, on_disk

from campaign import SOAK, randomness, tally
from holdfast.backends.stepping import run_inline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if SOAK else 300)]
KILLS = 200 if SOAK else 12
MOST = 10  # times as many, where few are met in the middle of it
PATIENCE = 60.0
MINE = b"mine"


class Restorer:
    """The process that forks those that restore."""

    def __init__(self, folder: Path) -> None:
        self.store, self.root = folder / "store.db", folder / "root"
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("shared_killing.py")), str(self.store), str(self.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.hear()
        self.whole = on_disk(self.root)

    def hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "it ended by itself"
        return line.strip()

    def start(self) -> int:
        """The number of a process that is about to restore."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self.hear())

    def is_done(self) -> bool:
        """Whether it was through; it has ended."""
        said = self.hear()
        if said == "done":
            assert self.hear() == "ended"
        return said == "done"

    def finish(self, rng: random.Random) -> tuple[bool, list[Tree]]:
        """Finishes what was cut off, at once, in one way or the other: whether there was anything, and what may be there then."""
        directory = restore_opening.open_directory(str(self.store), self.root)
        try:
            if run_inline(directory.restoring.interrupted()) is None:
                return False, [self.whole, self.nothing]
            if rng.random() < 0.5:
                run_inline(directory.restoring.resume())
                return True, [self.whole]
            run_inline(directory.restoring.roll_back())
            return True, [self.nothing]
        finally:
            directory.client.close()

    @property
    def nothing(self) -> Tree:
        return {MINE: self.whole[MINE]}

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def restorer(tmp_path: Path) -> Iterator[Restorer]:
    made = Restorer(tmp_path)
    yield made
    made.close()


def workers_of(pid: int) -> list[int]:
    try:
        return [int(one) for task in Path(f"/proc/{pid}/task").glob("*/children") for one in task.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def begun(restorer: Restorer, pid: int) -> list[int]:
    """Waits until its workers are there, and files of theirs; or until it is through."""
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        there = workers_of(pid)
        with suppress(FileNotFoundError):  # a directory that has just come to its place
            if there and any(restorer.root.glob(".holdfast-*/*/*")):
                return there
        time.sleep(0.001)
    return []


def test_a_kill_of_the_process_that_restores_leaves_what_can_be_finished(restorer: Restorer) -> None:
    rng = randomness("kills of shared restores")
    cut_off = done = 0
    for done in range(1, MOST * KILLS + 1):
        pid = restorer.start()
        workers = begun(restorer, pid)
        time.sleep(rng.random() * 0.05)
        with suppress(ProcessLookupError):  # it was through
            os.kill(pid, signal.SIGKILL)
        restorer.is_done()
        was_cut_off, may_be = restorer.finish(rng)  # at once, while workers may still be there
        assert on_disk(restorer.root) in may_be
        cut_off += was_cut_off and bool(workers)
        if cut_off >= KILLS // 2 and done >= KILLS:
            break
    tally("kills of shared restores", done=done, wrong=0, cut_off=cut_off)
    assert cut_off >= KILLS // 2, f"only {cut_off} of {done} were cut off while workers were there"


def test_a_kill_of_a_worker_is_not_noticed(restorer: Restorer) -> None:
    rng = randomness("kills of workers")
    killed = 0
    for done in range(1, MOST * KILLS + 1):
        pid = restorer.start()
        there = begun(restorer, pid)
        time.sleep(rng.random() * 0.03)
        for worker in there[: rng.randint(1, 2)]:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
                killed += 1
        assert restorer.is_done()
        assert on_disk(restorer.root) == restorer.whole
        if killed >= KILLS and done >= KILLS:
            break
    tally("kills of workers", done=done, wrong=0, killed=killed)
    assert killed >= KILLS // 2
