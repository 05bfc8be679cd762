"""The contract's own threads: an error of one is told, though others wait for it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import pytest

from holdfast.backends.memory import MemoryBackend
from holdfast.backends.port import BlockingBackend, Commit
from holdfast.testing import BackendContract
from holdfast.testing.contract_concurrency import run_in_threads

pytestmark = pytest.mark.slow  # in sum: processes, terminals, waits

HEALTHY = 10


class BrokenError(Exception):
    pass


class Breaking(MemoryBackend):
    """Refuses every commit after the first few."""

    carried_out = 0

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        self.carried_out += 1
        if self.carried_out > HEALTHY:
            return [BrokenError() for _ in commits]
        return super().commit_all(commits)


class OverBreaking(BackendContract):
    def open_backend(self, where: Path) -> BlockingBackend:
        return Breaking()


@pytest.mark.parametrize("test", [BackendContract.test_following_many_writers,
                                  BackendContract.test_what_a_reader_sees_of_a_commit_it_sees_whole,
                                  BackendContract.test_threads_racing_for_a_row])  # fmt: skip
def test_a_writer_that_fails_leaves_no_reader_waiting(test: Callable[[BackendContract], None]) -> None:
    contract = OverBreaking()
    contract.setup_method()
    try:
        with pytest.raises(BrokenError):
            test(contract)
    finally:
        contract.teardown_method()


def test_an_error_is_told_though_another_thread_never_ends() -> None:
    end = Event()

    def fail() -> None:
        raise BrokenError

    try:
        with pytest.raises(BrokenError):
            run_in_threads(lambda: end.wait() and None, fail)
    finally:
        end.set()
