"""Fair turns: in the order of asking, and nobody waits for a holder that was lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from holdfast.backends import session_queue
from holdfast.backends.bridge.inline import InlineBridge
from holdfast.backends.bridge.worker_thread import ThreadBridge
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.session_queue import ThreadQueue


def in_a_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_threads_get_their_turns_in_the_order_of_asking():
    queue, served = ThreadQueue(), []
    mine = object()
    assert queue.take(mine, 1)

    def wait(number: int) -> None:
        assert queue.take(number, 30)
        served.append(number)
        queue.give_back(number)

    threads = []
    for number in range(20):
        threads.append(in_a_thread(lambda number=number: wait(number)))
        until(lambda number=number: len(queue._waiting) == number + 1)
    queue.give_back(mine)
    for thread in threads:
        thread.join(30)
    assert served == list(range(20))


def test_who_waits_for_too_long_leaves_the_line():
    queue, holder = ThreadQueue(), object()
    in_a_thread(lambda: queue.take(holder, 1)).join()
    assert not queue.take(object(), 0.01)
    assert not queue.take(object(), -1)
    queue.give_back(holder)
    assert queue.take(object(), 0.01)


def test_a_holder_that_was_lost_is_passed_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session_queue, "PATIENCE_SECONDS", 0.05)
    queue, lost, mine = ThreadQueue(), object(), object()
    in_a_thread(lambda: queue.take(lost, 1)).join()
    assert queue.take(mine, 30)
    monkeypatch.setattr(session_queue, "PATIENCE_SECONDS", 60)  # the next holder is not lost, however slow the machine
    queue.give_back(lost)  # too late: it is no longer its own
    outcome: list[bool] = []
    in_a_thread(lambda: outcome.append(queue.take(object(), 0.02))).join()
    assert outcome == [False]
    queue.give_back(mine)


def test_a_thread_that_was_interrupted_does_not_wait_for_itself():
    queue = ThreadQueue()
    assert queue.take("first", 1)
    assert queue.take("second", 0)
    queue.give_back("first")
    queue.give_back("second")
    outcome: list[bool] = []
    in_a_thread(lambda: outcome.append(queue.take("third", 0.01))).join()
    assert outcome == [True]


def test_tasks_get_their_turns_in_the_order_of_asking_and_may_give_up():
    async def scenario() -> None:
        bridge, served = ThreadBridge(MemoryBackend()), []

        async def wait(number: int, seconds: float) -> None:
            async with bridge.fair_lock(b"s", seconds) as is_given:
                if is_given:
                    served.append(number)
                    await asyncio.sleep(0)

        async with bridge.fair_lock(b"s", 0) as is_given:
            assert is_given
            waiting = [asyncio.ensure_future(wait(number, 0.01 if number == 3 else 30)) for number in range(10)]
            await asyncio.sleep(0.1)
            waiting[5].cancel()
            async with bridge.fair_lock(b"another", 0) as other:
                assert other
        await asyncio.gather(*waiting, return_exceptions=True)
        assert served == [0, 1, 2, 4, 6, 7, 8, 9]

    asyncio.run(scenario())


def test_turns_of_other_keys_are_free():
    bridge = InlineBridge(MemoryBackend())

    async def both() -> list[bool]:
        async with bridge.fair_lock(b"a", 0) as first, bridge.fair_lock(b"b", 0) as second:
            return [first, second]

    with pytest.raises(StopIteration) as given:
        both().send(None)
    assert given.value.value == [True, True]
