"""The fair semaphore of a pool: never above its limit, first in first out, safe under cancellation."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast.backends.fair_semaphore import LoopPlaces, ThreadPlaces


def test_who_finds_none_free_gets_the_next_one_in_turn():
    async def use() -> list[int]:
        places, served = LoopPlaces(1), []
        assert places.take_at_once()
        assert not places.take_at_once()

        async def wait(number: int) -> None:
            await places.take()
            served.append(number)

        waiting = [asyncio.ensure_future(wait(number)) for number in range(3)]
        await asyncio.sleep(0)
        for _ in range(3):
            places.give_back()
            assert not places.take_at_once()  # it is somebody's already
        await asyncio.gather(*waiting)
        places.give_back()
        assert places.take_at_once()
        return served

    assert asyncio.run(use()) == [0, 1, 2]


@pytest.mark.parametrize("is_given_first", [False, True])
def test_a_place_is_not_lost_with_who_was_cancelled(is_given_first):
    async def use() -> None:
        places = LoopPlaces(1)
        assert places.take_at_once()
        cancelled, other = (asyncio.ensure_future(places.take()) for _ in range(2))
        await asyncio.sleep(0)
        if is_given_first:
            places.give_back()
        cancelled.cancel()
        if not is_given_first:
            await asyncio.wait([cancelled])
            places.give_back()
        await other
        assert cancelled.cancelled()
        places.give_back()
        assert places.take_at_once()
        assert not places.take_at_once()

    asyncio.run(use())


LONG = 60.0


def in_line(places: ThreadPlaces, count: int) -> None:
    """Returns when so many stand in line."""
    deadline = time.monotonic() + LONG
    while places.waiting != count:
        assert time.monotonic() < deadline, f"{places.waiting} stand in line, not {count}"
        time.sleep(0.001)


def test_a_thread_that_takes_one_again_at_once_lets_those_go_first_who_wait():
    places, served = ThreadPlaces(1), []

    def wait(number: int) -> None:
        assert places.take(LONG)
        served.append(number)
        places.give_back()

    assert places.take(0)
    threads = [threading.Thread(target=wait, args=(number,)) for number in range(3)]
    for already, thread in enumerate(threads):
        thread.start()
        in_line(places, already + 1)
    places.give_back()
    assert places.take(LONG)
    assert served == [0, 1, 2]
    for thread in threads:
        thread.join(LONG)
    assert not places.take(0)
    places.give_back()


def test_a_thread_that_waited_in_vain_leaves_the_line():
    places = ThreadPlaces(1)
    assert places.take(0)
    assert not places.take(0.001)
    assert places.waiting == 0
    places.give_back()
    assert places.take(0)
    assert not places.take(0)


def test_threads_never_have_more_places_than_there_are():
    places, most, inside = ThreadPlaces(3), [], set()

    def use(number: int) -> None:
        for _ in range(200):
            if places.take(0.0001 * (number % 3)):
                inside.add(number)
                most.append(len(inside))
                inside.remove(number)
                places.give_back()

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert max(most) <= 3
    assert [places.take(0) for _ in range(4)] == [True, True, True, False]
