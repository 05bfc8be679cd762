"""Automatic gc: removes what has outlived its TTL and nothing else, on a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
import redis
from servers.prefixes import delete_prefixes, prefix_name
from servers.writers import until
from stores import messages

from holdfast import CheckpointExpiredError, CheckpointNotFoundError, Client, SyncClient, UsageError
from holdfast.backends.redis import gc_trigger, open_redis
from holdfast.client import background_gc

pytestmark = pytest.mark.servers

T = TypeVar("T")
GONE = (CheckpointExpiredError, CheckpointNotFoundError)


@pytest.fixture
def prefix(redis_url: str, tmp_path) -> Iterator[str]:
    yield prefix_name(tmp_path)
    delete_prefixes(redis_url)


@pytest.fixture(params=[1, 5])
def shards(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(autouse=True)
def turns_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One collection may follow another at once; who looks is told by each test."""
    monkeypatch.setattr(gc_trigger, "TURN_SECONDS", 0.001)


@pytest.fixture
def always_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_trigger, "FIRST_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(gc_trigger, "CHECK_SECONDS", 0.0)


def state(name: str, count: int = 40) -> dict[str, Any]:
    """Has a log, a blob and something small."""
    return {"name": name, "messages": messages(count), "text": name * 3000}


async def in_time(story: Callable[[float], Awaitable[T]]) -> T:
    """What `story` gives, which must be done with a checkpoint before its time to live is over. On
    a machine that is too slow for that, with a longer one."""
    for ttl in (1, 4, 16, 64):
        try:
            return await story(ttl)
        except CheckpointExpiredError:
            continue
    pytest.fail("a minute was not enough")


async def is_over(client: Client, checkpoint: str) -> None:
    """Waits for it."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            await client.restore(checkpoint)
        except GONE:
            return
        await asyncio.sleep(0.05)
    pytest.fail("its time to live never ended")


async def tidied(client: Client) -> None:
    """What a client does when it looks."""
    await background_gc.tidy(client._ctx, client._ctx.backend)


def kept(url: str, prefix: str) -> dict[str, int]:
    """What the server has: how many of each kind, and the bytes of all keys."""
    counts = {"ids": 0, "order": 0, "due": 0, "blob": 0, "record": 0, "runs": 0, "session": 0, "bytes": 0}
    with redis.Redis.from_url(url) as server:
        for key in server.scan_iter(match=f"{{{prefix}:*", count=10_000):
            kind = key.decode().partition("}:")[2].partition(":")[0]
            counts["bytes"] += server.memory_usage(key, samples=0) or 0  # it may be gone by now
            if kind in {"ids", "order", "due"}:
                counts[kind] += server.zcard(key)
            elif kind in {"blob", "record"}:
                counts[kind] += server.hlen(key)
            elif kind in {"runs", "session"}:
                counts[kind] += 1
    return counts


def has_nothing(url: str, prefix: str) -> bool:
    """Whether all is gone. A collection takes several commits: what it removes last may be there for a moment."""
    left = kept(url, prefix)
    return all(left[kind] == 0 for kind in ("ids", "runs", "blob", "session", "due"))


def opened(url: str, prefix: str, shards: int = 1, **options: Any) -> Client:
    return Client(open_redis(url, prefix=prefix, shards=shards, **options))


class TestWhatIsOver:
    def test_goes_from_the_server_and_leaves_what_is_permanent(self, redis_url, prefix, shards):
        async def story() -> None:
            async with opened(redis_url, prefix, shards) as client:
                before = await client.save("a", session_id="before", execution_state=state("before"))
                alone = kept(redis_url, prefix)
                temporary = [
                    await client.save("a", session_id=f"t{n}", execution_state=state(f"t{n}"), ttl_seconds=0.05)
                    for n in range(6)
                ]
                full = kept(redis_url, prefix)
                assert full["ids"] == full["record"] == 7
                assert full["due"] == 6
                assert full["bytes"] > 3 * alone["bytes"]
                for one in temporary:
                    await is_over(client, one)
                await tidied(client)
                left = kept(redis_url, prefix)
                assert {**left, "bytes": 0} == {**alone, "bytes": 0}
                assert left["bytes"] < 2 * alone["bytes"]
                assert (await client.restore(before)).execution_state == state("before")
                for one in temporary:
                    with pytest.raises(CheckpointNotFoundError):
                        await client.restore(one)
                assert [session.session_id for session in await client.sessions()] == ["before"]
                assert (await client.verify()).ok
                # A session of the same name is a new one.
                again = await client.save("a", session_id="t0", execution_state=state("again"))
                assert (await client.restore(again)).execution_state == state("again")

        asyncio.run(story())

    def test_goes_beside_permanent_ones_of_the_same_session(self, redis_url, prefix, shards):
        async def story() -> None:
            async with opened(redis_url, prefix, shards) as client:

                async def save(count: int, ttl: float | None = None) -> str:
                    given = {"messages": messages(count), "text": f"{count}" * 3000}
                    return await client.save("a", session_id="s", execution_state=given, ttl_seconds=ttl)

                first = await save(40)
                ended = [await save(41, 0.05), await save(42, 0.05)]
                last = await save(43)
                for one in ended:
                    await is_over(client, one)
                full = kept(redis_url, prefix)
                await tidied(client)
                left = kept(redis_url, prefix)
                assert (left["due"], left["record"], left["blob"]) == (0, 2, 2)  # the tombstones are packed
                assert full["blob"] == 4
                assert left["bytes"] < full["bytes"]
                assert (await client.restore(first)).execution_state["messages"] == messages(40)
                assert (await client.restore(last)).execution_state["messages"] == messages(43)
                for one in ended:
                    with pytest.raises(CheckpointExpiredError):
                        await client.restore(one)
                assert [one.checkpoint_id for one in await client.timeline("s", agent_id="a")][:1] == [last]
                assert (await client.verify()).ok
                following = await client.save("a", session_id="s", append={"messages": messages(1, 43)})
                assert (await client.restore(following)).execution_state["messages"] == messages(44)

        asyncio.run(story())

    def test_is_collected_by_whoever_uses_the_store(self, redis_url, prefix, always_looking):
        async def story() -> None:
            async with opened(redis_url, prefix) as client:
                await client.save("a", session_id="t", execution_state=state("t"), ttl_seconds=0.05)
            async with opened(redis_url, prefix) as another:
                deadline = time.monotonic() + 240
                while not has_nothing(redis_url, prefix):
                    assert time.monotonic() < deadline, kept(redis_url, prefix)
                    await another.sessions()  # it only reads
                    await asyncio.sleep(0.02)

        asyncio.run(story())

    def test_is_collected_for_who_has_no_event_loop(self, redis_url, prefix, always_looking):
        with SyncClient(open_redis(redis_url, prefix=prefix)) as client:
            client.save("a", session_id="t", execution_state=state("t"), ttl_seconds=0.05)
            until(lambda: [client.sessions(), has_nothing(redis_url, prefix)][1], "the end of what is over")


class TestWhatIsHeld:
    def test_stays_for_forks_pins_and_tags(self, redis_url, prefix, shards):
        async def story() -> None:
            async with opened(redis_url, prefix, shards) as client:

                async def made(ttl: float) -> list[str]:
                    async def save(name: str) -> str:
                        session = f"{name} {ttl}"
                        return await client.save("a", session_id=session, execution_state=state(name), ttl_seconds=ttl)

                    base, pinned, tagged = await save("base"), await save("pin"), await save("tag")
                    await client.pin(pinned)
                    await client.tag(f"tag {ttl}", tagged)
                    await client.fork(base, session_id=f"fork {ttl}")
                    on = await client.save("a", session_id=f"fork {ttl}", execution_state=state("base", 41))
                    return [base, pinned, tagged, on, await save("last")]

                base, pinned, tagged, on, last = await in_time(made)
                await is_over(client, last)  # and with it all that were saved before
                await tidied(client)
                assert (await client.restore(on)).execution_state == state("base", 41)
                assert (await client.restore(pinned)).execution_state == state("pin")
                assert (await client.restore(tagged)).execution_state == state("tag")
                for one in (base, last):
                    with pytest.raises(GONE):
                        await client.restore(one)
                assert (await client.verify()).ok
                # What is held is over, and no reason to collect again.
                assert kept(redis_url, prefix)["due"] >= 2
                assert not await client._ctx.backend.take_turn_to_collect()

        asyncio.run(story())

    def test_stays_while_somebody_has_the_lease(self, redis_url, prefix, shards):
        async def story() -> None:
            async with opened(redis_url, prefix, shards) as client:
                ended = await client.save("a", session_id="s", execution_state=state("s"), ttl_seconds=0.05)
                async with client.lease("s", seconds=600) as lease:
                    await is_over(client, ended)
                    await tidied(client)
                    following = await client.save("a", execution_state=state("on"), lease=lease)
                assert (await client.restore(following)).execution_state == state("on")

        asyncio.run(story())

    def test_what_was_expired_by_hand_can_still_be_undone(self, redis_url, prefix, shards):
        async def story() -> None:
            async with opened(redis_url, prefix, shards) as client:
                permanent = await client.save("a", session_id="s", execution_state=state("s"))
                await client.expire(permanent)
                ended = await client.save("a", session_id="t", execution_state=state("t"), ttl_seconds=0.05)
                await is_over(client, ended)
                await tidied(client)
                assert kept(redis_url, prefix)["due"] == 0
                await client.undo()
                assert (await client.restore(permanent)).execution_state == state("s")

        asyncio.run(story())


class TestWhoCollects:
    def test_a_client_that_was_away_goes_on(self, redis_url, prefix, shards):
        async def story() -> None:
            async with opened(redis_url, prefix, shards) as away, opened(redis_url, prefix, shards) as client:
                ended = await away.save("a", session_id="s", execution_state=state("s"), ttl_seconds=0.05)
                await is_over(client, ended)
                await tidied(client)
                assert kept(redis_url, prefix)["ids"] == 0
                on = await away.save("a", session_id="s", execution_state=state("s", 41))
                assert (await client.restore(on)).execution_state == state("s", 41)
                assert (await client.verify()).ok

        asyncio.run(story())

    def test_nobody_as_long_as_little_is_over(self, redis_url, prefix, shards):
        async def story() -> None:
            async with opened(redis_url, prefix, shards) as client:
                turn = client._ctx.backend.take_turn_to_collect
                assert not await turn()
                for n in range(gc_trigger.PART_OF_ALL):
                    await client.save("a", session_id=f"s{n}", execution_state={"n": n})
                await is_over(client, await client.save("a", session_id="t", ttl_seconds=0.05))
                assert not await turn()
                await is_over(client, await client.save("a", session_id="t", ttl_seconds=0.05))
                assert await turn()

        asyncio.run(story())

    def test_one_at_a_time(self, redis_url, prefix, shards, monkeypatch):
        monkeypatch.setattr(gc_trigger, "TURN_SECONDS", 600.0)

        async def story() -> None:
            async with opened(redis_url, prefix, shards) as one, opened(redis_url, prefix, shards) as two:
                await is_over(one, await one.save("a", session_id="t", ttl_seconds=0.05))
                asked = [client._ctx.backend.take_turn_to_collect() for client in (one, two, one)]
                assert sorted(await asyncio.gather(*asked)) == [False, False, True]

        asyncio.run(story())

    def test_nobody_who_does_not_want_to(self, redis_url, prefix, always_looking):
        async def story() -> None:
            async with opened(redis_url, prefix, auto_gc=False) as client:
                await is_over(client, await client.save("a", session_id="t", ttl_seconds=0.05))
                assert not await client._ctx.backend.take_turn_to_collect()
                assert kept(redis_url, prefix)["due"] == 1

        asyncio.run(story())

    def test_in_a_url(self, redis_url):
        with SyncClient.open(f"{redis_url}?auto_gc=no"), pytest.raises(UsageError, match="auto_gc='perhaps'"):
            SyncClient.open(f"{redis_url}?auto_gc=perhaps")
