"""Storage of many steps: sealed from memory, exact beside other writers, one commit each."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from stores import Store

from holdfast import StoreError, SyncClient
from holdfast.backends.port import Commit

LARGE = "r" * 3000  # so that a few dozen of them are sealed
COUNT = 90


def result(number: int) -> str:
    return f"{number} {LARGE}"


def resumed(client: SyncClient, count: int = COUNT) -> list[str]:
    """What the next life is given for these steps. Nothing is called again."""
    with client.run("s") as run:
        return [run.step(f"step {number}", str, "called again") for number in range(count)]


def is_sealing(commit: Commit) -> bool:
    return any(run.first < run.tail for run in commit.segments)


def test_steps_are_sealed_from_memory_without_reading_them_again(store: Store):
    client, recorder = store.recorded()
    with client.run("s") as run:
        for number in range(COUNT):
            if number == COUNT // 2:
                recorder.forget()
            run.step(f"step {number}", lambda number=number: result(number))
        assert any(map(is_sealing, recorder.commits))
        assert recorder.calls["runs"] == 0
    assert resumed(store.client()) == [result(number) for number in range(COUNT)]
    assert store.client().verify().ok


@pytest.mark.parametrize("is_carried_out", [False, True], ids=["refused", "lost answer"])
def test_what_a_failed_commit_would_have_added_is_not_sealed(store: Store, is_carried_out: bool):
    client, recorder = store.recorded()

    def fail(commits: Sequence[Commit]) -> None:
        recorder.before_commit = None
        if is_carried_out:
            recorder.inner.commit_all(commits)
        raise StoreError("the line is cut")

    with client.run("s", on_save_error="warn") as run:
        for number in range(COUNT):
            if number % 7 == 5:
                recorder.before_commit = fail
            run.step(f"step {number}", lambda number=number: result(number))
    assert any(map(is_sealing, recorder.commits))
    assert resumed(store.client()) == [result(number) for number in range(COUNT)]
    assert store.client().verify().ok


def test_other_writers_of_the_session_and_of_the_log_are_noticed(store: Store):
    """A lease that is renewed changes the head's row, a fork may go on in the journal's log: a step
    follows what there is."""
    client, other = store.client(), store.client()
    with client.run("s") as run:
        for number in range(COUNT):
            run.step(f"step {number}", lambda number=number: result(number))
            if number % 9 == 4:
                run.lease.renew()
            if number % 11 == 6:
                fork = other.fork(run.checkpoint_id, session_id=f"fork {number}")
                with other.run(f"fork {number}") as branch:
                    branch.step("elsewhere", str, fork.session_id)
    assert resumed(store.client()) == [result(number) for number in range(COUNT)]
    assert store.client().verify().ok


def test_threads_that_share_a_run_and_a_store(store: Store):
    client = store.client()
    with client.run("s") as run:
        for number in range(10):
            run.step(f"step {number}", lambda number=number: result(number))

        def work(of_thread: int) -> None:
            for number in range(10 + of_thread, 50, 4):
                run.step(f"step {number}", lambda number=number: result(number))
                client.save(agent_id="a", session_id=f"beside {of_thread}", execution_state={"n": number})

        threads = [threading.Thread(target=work, args=(of_thread,)) for of_thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert resumed(store.client(), 50) == [result(number) for number in range(50)]
    assert store.client().verify().ok


def test_one_commit_a_step_and_no_reading(store: Store):
    client, recorder = store.recorded()
    with client.run("s") as run:
        for number in range(30):
            run.step(f"step {number}", lambda number=number: result(number))
        recorder.forget()
        for number in range(30, 35):
            run.step(f"step {number}", lambda number=number: result(number))
        assert recorder.calls == {"commit_all": 5}
