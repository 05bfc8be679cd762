"""Places in a pool: never more than there are, in the order of asking, and none is lost with who was cancelled."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.backends.postgres.connections import _Places


def test_who_finds_none_free_gets_the_next_one_in_turn():
    async def use() -> list[int]:
        places, served = _Places(1), []
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
        places = _Places(1)
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
