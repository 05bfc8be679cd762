"""Writing to the disk goes on beside what is being written, and what fails there is heard."""

from __future__ import annotations

import threading

import pytest

from holdfast.workspace.restore.writeback import ENOUGH, Writeback

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
        writeback.add(ENOUGH - 1)
        writeback.finish()
    assert disk.calls == 0


def test_there_is_one_at_a_time() -> None:
    disk = Disk()
    with Writeback(disk.sync) as writeback:
        writeback.add(ENOUGH)
        assert disk.begun.acquire(timeout=DEADLINE)
        writeback.add(ENOUGH)
        writeback.add(ENOUGH)
        disk.go_on.release()
        writeback.finish()
        assert disk.calls == 1
        disk.go_on.release()
        writeback.add(1)  # what came meanwhile is enough
        writeback.finish()
    assert disk.calls == 2


def test_what_fails_is_raised() -> None:
    def fail() -> None:
        raise OSError(5, "Input/output error")

    with Writeback(fail) as writeback:
        writeback.add(ENOUGH)
        with pytest.raises(OSError, match="Input/output"):
            writeback.finish()


def test_who_fails_otherwise_does_not_wait_for_the_disk() -> None:
    disk = Disk()
    with pytest.raises(KeyError), Writeback(disk.sync) as writeback:
        writeback.add(ENOUGH)
        assert disk.begun.acquire(timeout=DEADLINE)
        raise KeyError("something else")
    disk.go_on.release()


def test_something_else_is_done_while_the_last_of_it_goes_to_the_disk() -> None:
    disk = Disk()
    seen: list[int] = []

    def meanwhile() -> None:
        assert disk.begun.acquire(timeout=DEADLINE)
        seen.append(disk.calls)
        disk.go_on.release()

    with Writeback(disk.sync) as writeback:
        writeback.add(ENOUGH)
        assert disk.begun.acquire(timeout=DEADLINE)
        disk.go_on.release()
        writeback.finish()
        writeback.sync_all(meanwhile)  # it would never end if the disk came first
    assert seen == [2]


def test_little_is_on_the_disk_at_the_end_too() -> None:
    order: list[str] = []
    with Writeback(lambda: order.append("on the disk")) as writeback:
        writeback.add(ENOUGH - 1)
        writeback.sync_all(lambda: order.append("looked at"))
    assert sorted(order) == ["looked at", "on the disk"]


@pytest.mark.parametrize("much", [True, False])
def test_what_is_found_meanwhile_is_raised(much: bool) -> None:
    synced: list[int] = []

    def found() -> None:
        raise KeyError("not as it was written")

    with Writeback(lambda: synced.append(1)) as writeback:
        writeback.add(ENOUGH if much else 1)
        with pytest.raises(KeyError):
            writeback.sync_all(found)


def test_a_disk_that_fails_at_last_is_heard_once_nobody_works_any_more() -> None:
    ended: list[int] = []
    calls: list[int] = []

    def sync() -> None:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(5, "Input/output error")

    with Writeback(sync) as writeback:
        writeback.add(ENOUGH)
        writeback.finish()
        with pytest.raises(OSError, match="Input/output"):
            writeback.sync_all(lambda: ended.append(1))
        assert ended
