"""SPUBLISH: followers hear of saves at once, and miss nothing where messages don't arrive."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator

import pytest
import redis
from servers.following import NEVER, Writer, follow
from servers.prefixes import delete_prefixes, prefix_name
from servers.writers import until

from holdfast import Client, SyncClient
from holdfast.backends.redis import pubsub
from holdfast.operations import events

pytestmark = pytest.mark.servers


@pytest.fixture
def prefix(redis_url: str, tmp_path) -> Iterator[str]:
    yield prefix_name(tmp_path)
    delete_prefixes(redis_url)


@pytest.fixture(params=[1, 5])
def url(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> str:
    return f"{redis_url}?prefix={prefix}&shards={request.param}"


@pytest.fixture
def writer(url: str) -> Iterator[Writer]:
    started = Writer(url)
    yield started
    started.end()


def listeners(redis_url: str, prefix: str) -> int:
    with redis.Redis.from_url(redis_url) as server:
        return server.execute_command("PUBSUB", "SHARDNUMSUB", f"{{{prefix}:0}}:news")[1]


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """By himself, in a test's lifetime: whatever comes was hinted at."""
    monkeypatch.setattr(events, "SHORTEST_WAIT", NEVER)


def hears_all(save: Callable[[], None], told: list[int], thread: threading.Thread, count: int) -> None:
    until(lambda: told == [1], "what was there before")
    for number in range(2, count + 1):
        save()
        until(lambda number=number: len(told) >= number, f"event {number}")
    thread.join()
    assert told == list(range(1, count + 1))


@pytest.mark.parametrize("with_await", [True, False])
def test_who_follows_is_woken_by_another_process(url, redis_url, prefix, writer, nobody_looks, with_await):
    told: list[int] = []
    thread = follow(url, 4, told, with_await=with_await)
    until(lambda: listeners(redis_url, prefix) == 1, "listening")
    hears_all(writer.save, told, thread, 4)
    until(lambda: listeners(redis_url, prefix) == 0, "the end of listening")


def test_a_save_that_is_no_plain_one_is_hinted_at(url, redis_url, prefix, writer, nobody_looks):
    """A handoff writes a row more."""
    told: list[int] = []
    thread = follow(url, 3, told, with_await=True)
    with SyncClient.open(url) as client:
        [first] = client.timeline(session_id="s")

        def hand_over() -> None:
            client.handoff(first.checkpoint_id, "b")

        hears_all(hand_over, told, thread, 3)


def test_on_a_cluster(redis_cluster, tmp_path, nobody_looks):
    url = f"{redis_cluster.url}?prefix={prefix_name(tmp_path)}"
    writer = Writer(url)
    try:
        told: list[int] = []
        thread = follow(url, 3, told, with_await=True)
        hears_all(writer.save, told, thread, 3)
    finally:
        writer.end()


def test_hints_that_are_lost_cost_time_only(url, redis_url, prefix, writer):
    """The connection that listens is ended again and again."""
    told: list[int] = []
    thread = follow(url, 20, told, with_await=True)
    with redis.Redis.from_url(redis_url) as server:
        while writer.saved < 20:
            writer.save()
            server.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    thread.join()
    assert told == list(range(1, 21))


def test_who_may_not_listen_finds_events_by_looking_and_saves(redis_url, prefix):
    rights = ["on", ">secret", "resetkeys", f"~{{{prefix}:*", "resetchannels", "+@all"]
    with redis.Redis.from_url(redis_url) as server:
        server.execute_command("ACL", "SETUSER", "deaf", *rights)
        try:
            url = redis_url.replace("redis://", "redis://deaf:secret@") + f"?prefix={prefix}"

            async def use() -> None:
                async with Client.open(url) as one, Client.open(url) as other:
                    stream = one.events(after="start", poll_seconds=0.05)
                    for number in (1, 2, 3):
                        following = asyncio.ensure_future(anext(stream))
                        if number > 1:
                            await asyncio.to_thread(until, lambda: not one._ctx.backend.backend._calls._may_listen)
                        await other.save("a", session_id="s", execution_state={"n": number})
                        assert (await following).checkpoint.sequence == number

            asyncio.run(use())
            assert listeners(redis_url, prefix) == 0
        finally:
            server.execute_command("ACL", "DELUSER", "deaf")


def test_the_connection_that_listens_stays_for_a_while(redis_url, prefix, monkeypatch):
    """And goes when nobody has followed for longer than that."""
    monkeypatch.setattr(pubsub, "LINGER_SECONDS", 0.05)

    async def use() -> None:
        async with Client.open(f"{redis_url}?prefix={prefix}") as client:
            stream = client.events(poll_seconds=NEVER)
            following = asyncio.ensure_future(anext(stream))
            await asyncio.to_thread(until, lambda: listeners(redis_url, prefix) == 1)
            await client.save("a", session_id="s")
            assert (await following).checkpoint.sequence == 1
            await asyncio.to_thread(until, lambda: listeners(redis_url, prefix) == 0)

    asyncio.run(use())


@pytest.mark.parametrize("turns", range(0, 40, 2))
def test_a_client_closed_while_it_begins_to_listen_leaves_no_connection(url: str, turns: int):
    async def main() -> None:
        client = Client.open(url)
        await client.save("a", session_id="s")

        async def follow() -> int:
            return len([event async for event in client.events(after="start", poll_seconds=NEVER)])

        following = asyncio.ensure_future(follow())
        while not client._ctx.backend._listeners:  # noqa: ASYNC110  # turns of the loop are what is counted
            await asyncio.sleep(0)
        for _ in range(turns):  # somewhere between asking for a connection and listening on it
            await asyncio.sleep(0)
        await client.close()
        assert await asyncio.wait_for(following, 240) == 1

    asyncio.run(main())
    gc.collect()  # what was not closed says so now
