"""Writing to the disk goes on beside what is being written, and what fails there is heard."""

from __future__ import annotations

import threading

import pytest

from holdfast.workspace.writeback import ENOUGH, Writeback

DEADLINE = 60


class Disk:
    """A disk that takes until it is told to go on."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.calls = 0

    def sync(self) -> None:
        self.calls += 1
        self.begun.release()
        assert self.go_on.acquire(timeout=DEADLINE)


def test_little_needs_no_thread() -> None:
    disk = Disk()
    with Writeback(disk.sync) as writeback:
        writeback.wrote(ENOUGH - 1)
        writeback.finish()
    assert disk.calls == 0


def test_there_is_one_at_a_time() -> None:
    disk = Disk()
    with Writeback(disk.sync) as writeback:
        writeback.wrote(ENOUGH)
        assert disk.begun.acquire(timeout=DEADLINE)
        writeback.wrote(ENOUGH)
        writeback.wrote(ENOUGH)
        disk.go_on.release()
        writeback.finish()
        assert disk.calls == 1
        disk.go_on.release()
        writeback.wrote(1)  # what came meanwhile is enough
        writeback.finish()
    assert disk.calls == 2


def test_what_fails_is_raised() -> None:
    def fail() -> None:
        raise OSError(5, "Input/output error")

    with Writeback(fail) as writeback:
        writeback.wrote(ENOUGH)
        with pytest.raises(OSError, match="Input/output"):
            writeback.finish()


def test_who_fails_otherwise_does_not_wait_for_the_disk() -> None:
    disk = Disk()
    with pytest.raises(KeyError), Writeback(disk.sync) as writeback:
        writeback.wrote(ENOUGH)
        assert disk.begun.acquire(timeout=DEADLINE)
        raise KeyError("something else")
    disk.go_on.release()
