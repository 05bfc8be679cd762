"""Several loops over messages in one run: after a `break`, within a turn, and in parallel."""

from __future__ import annotations

import asyncio
import threading

import pytest
from stores import Store

from holdfast import SyncClient, UsageError

pytestmark = pytest.mark.every_store


def publish(client: SyncClient, count: int, **options: str) -> None:
    for n in range(count):
        client.publish("t", n, **options)


def test_what_a_loop_has_claimed_and_left_comes_in_the_next_one(store):
    client = store.client()
    publish(client, 4)
    with client.run("s", agent_id="a") as run:
        first = next(iter(run.receive("t", "g", batch=4, timeout=0))).value
        got = [message.value for message in run.receive("t", "g", timeout=0)]
    assert (first, got) == (0, [1, 2, 3])
    [group] = client.topics("t")[0].groups
    assert (group.waiting, group.in_flight, group.dead) == (0, 0, 0)


def test_messages_of_a_key_come_though_each_has_a_loop_of_its_own(store):
    client = store.client()
    publish(client, 3, key="k")
    with client.run("s", agent_id="a") as run:
        got = [next(iter(run.receive("t", "g", timeout=0))).value for _ in range(3)]
        assert len(run._core.turns.receivers) == 1
    assert got == [0, 1, 2]


def test_two_loops_that_take_turns_get_each_message_once(store):
    client = store.client()
    publish(client, 6)
    with client.run("s", agent_id="a") as run:
        loops = [iter(run.receive("t", "g", batch=2, timeout=0)) for _ in range(2)]
        got = [next(loops[n % 2]).value for n in range(6)]
    assert got == list(range(6))


def test_a_decision_about_a_turn_that_is_over_is_refused(store):
    """The loop within the turn has consumed its message: it must not seem to be given back."""
    client = store.client()
    publish(client, 1)
    client.publish("u", "inner")
    with client.run("s", agent_id="a") as run:
        outer = next(iter(run.receive("t", "g", timeout=0)))
        assert [message.value for message in run.receive("u", "g", timeout=0)] == ["inner"]
        for decide in (outer.release, lambda: outer.fail("late"), lambda: outer.reject("late")):
            with pytest.raises(UsageError, match="is over"):
                decide()


@pytest.mark.parametrize("when", ["in a turn", "waiting"])
def test_a_loop_in_another_task_is_refused_and_loses_nothing(store, when):
    publish(store.client(), 2 if when == "in a turn" else 0)

    async def work() -> list[int]:
        client = store.async_client()
        async with client.run("s", agent_id="a") as run:
            run.state["seen"] = []
            is_in_turn, go_on = asyncio.Event(), asyncio.Event()

            async def receive() -> None:
                async for message in run.receive("t", "g", timeout=120):
                    if message.value == "the end":
                        return
                    is_in_turn.set()
                    await go_on.wait()
                    run.state["seen"].append(message.value)

            first = asyncio.create_task(receive())
            await (is_in_turn.wait() if when == "in a turn" else asyncio.sleep(0.1))
            with pytest.raises(UsageError, match="session of its own"):
                await anext(aiter(run.receive("u", "g", timeout=0)))
            go_on.set()
            await client.publish("t", "the end")
            await first
        return (await client.latest("s")).execution_state["seen"]

    assert asyncio.run(work()) == ([0, 1] if when == "in a turn" else [])


def test_a_loop_in_another_thread_is_refused(store: Store):
    client = store.client()
    publish(client, 2)
    refused: list[BaseException] = []
    with client.run("s", agent_id="a") as run:

        def receive() -> None:
            try:
                next(iter(run.receive("t", "g", timeout=0)))
            except UsageError as error:
                refused.append(error)

        for message in run.receive("t", "g", timeout=0):
            thread = threading.Thread(target=receive)
            thread.start()
            thread.join()
            run.state["last"] = message.value
    assert len(refused) == 2
    assert client.latest("s").execution_state == {"last": 1}


def test_a_task_that_has_ended_leaves_its_turn_to_the_next_loop(store):
    publish(store.client(), 2)

    async def work() -> list[int]:
        async with store.async_client() as client, client.run("s", agent_id="a") as run:

            async def one() -> int:
                async for message in run.receive("t", "g", timeout=0):
                    return message.value
                return -1

            return [await asyncio.create_task(one()) for _ in range(2)]

    assert asyncio.run(work()) == [0, 1]


@pytest.mark.parametrize("loops", ["one loop", "a loop for each"])
def test_cancelling_a_receiver_at_any_moment_loses_and_repeats_nothing(store, loops):
    """The claim, or the commit of the turn before, may have happened: the same run finds out, and nobody waits."""
    count = 12
    publish(store.client(), count, key="k")

    async def work() -> tuple[list[int], list[int], int]:
        client = store.async_client()
        got, attempts, cancelled, in_vain = [], [], 0, 0
        async with client.run("s", agent_id="a") as run:
            run.state["seen"] = []
            messages = run.receive("t", "g")
            while len(got) < count:
                following = asyncio.ensure_future(anext(messages))
                await asyncio.sleep(in_vain * 0.0003)
                following.cancel()
                await asyncio.wait([following])
                if following.cancelled():
                    cancelled, in_vain = cancelled + 1, (in_vain + 1) % 200
                    if loops == "a loop for each":
                        messages = run.receive("t", "g")
                    continue
                got.append(following.result().value)
                attempts.append(following.result().attempts)
                run.state["seen"].append(got[-1])
                in_vain = 0
        assert (await client.latest("s")).execution_state["seen"] == got
        await client.close()
        return got, attempts, cancelled

    got, attempts, cancelled = asyncio.run(asyncio.wait_for(work(), 120))
    assert got == list(range(count))
    assert attempts == [0] * count
    assert cancelled >= count
    client = store.client()
    if store.kind != "memory":
        [group] = client.topics("t")[0].groups
        assert (group.waiting, group.in_flight, group.dead) == (0, 0, 0)
