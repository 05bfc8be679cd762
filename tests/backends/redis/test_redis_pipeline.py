"""Pipelined requests on one connection: each gets its own reply, also when others fail."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator

import pytest
from redis.exceptions import ResponseError
from servers.running import ServerUnavailable
from servers.valkey import Valkey

from holdfast import SyncClient
from holdfast.backends.redis.connection import LostError
from holdfast.backends.redis.pool import RedisPool
from holdfast.errors import StoreError

pytestmark = pytest.mark.servers


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """One of its own: it is stopped and paused here."""
    try:
        server = Valkey()
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield server
    server.stop()


def connections(valkey: Valkey, *, limit: int = 1, timeout: float = 30.0) -> tuple[RedisPool, tuple[str, int]]:
    return RedisPool({}, valkey.url, limit, timeout), ("127.0.0.1", valkey.port)


def test_many_requests_share_a_connection_and_each_gets_its_reply(valkey):
    async def use() -> None:
        opened, node = connections(valkey)
        replies = await asyncio.gather(*(opened.exchange(node, [("ECHO", number), ("PING",)]) for number in range(300)))
        assert replies == [[b"%d" % number, b"PONG"] for number in range(300)]
        [said] = await opened.exchange(node, [("CLIENT", "LIST")])
        assert said.count(b"\n") == 1
        await opened.close()

    asyncio.run(use())


def test_a_reply_that_nobody_waits_for_any_longer_is_not_somebody_else_s(valkey):
    async def use() -> None:
        opened, node = connections(valkey)
        await opened.exchange(node, [("PING",)])
        slow = asyncio.create_task(opened.exchange(node, [("BLPOP", "nothing", "0.2"), ("ECHO", "late")]))
        await asyncio.sleep(0)  # it is sent
        slow.cancel()
        assert await opened.exchange(node, [("ECHO", "mine")]) == [b"mine"]
        with pytest.raises(asyncio.CancelledError):
            await slow
        await opened.close()

    asyncio.run(use())


def test_what_the_server_refuses_is_a_reply_among_others(valkey):
    async def use() -> None:
        opened, node = connections(valkey)
        first, refused, last = await opened.exchange(node, [("ECHO", "a"), ("NOSUCH",), ("ECHO", "b")])
        assert (first, last) == (b"a", b"b")
        assert isinstance(refused, ResponseError)
        await opened.close()

    asyncio.run(use())


def test_large_requests_and_replies_pass(valkey):
    async def use() -> None:
        opened, node = connections(valkey)
        data = os.urandom(8_000_000)
        assert await opened.exchange(node, [("SET", "k", data), ("GET", "k")]) == [b"OK", data]
        await opened.close()

    asyncio.run(use())


@pytest.mark.slow
def test_a_server_that_says_nothing_any_more_is_noticed(valkey):
    async def use() -> None:
        opened, node = connections(valkey, limit=2, timeout=4)
        await opened.exchange(node, [("PING",)])
        os.kill(valkey.server.pid, signal.SIGSTOP)
        try:
            [lost] = await opened.exchange(node, [("PING",)])
            assert isinstance(lost, LostError)
            assert "within 4 s" in str(lost)
        finally:
            os.kill(valkey.server.pid, signal.SIGCONT)
        await opened.close()

    asyncio.run(use())


@pytest.mark.slow
def test_every_call_to_a_stopped_server_ends_by_its_timeout(valkey):
    """A read is repeated after a cut connection, not after a silence."""
    with SyncClient.open(f"{valkey.url}?prefix=silent", timeout=8) as client:
        saved = client.save("a", session_id="s")
        os.kill(valkey.server.pid, signal.SIGSTOP)
        try:
            for call in (lambda: client.restore(saved), client.sessions):  # the second one by a new connection
                began = time.monotonic()
                with pytest.raises(StoreError):
                    call()
                assert 7.5 < time.monotonic() - began < 15.5  # asked twice it would be 16
        finally:
            os.kill(valkey.server.pid, signal.SIGCONT)
        assert client.restore(saved)


def test_what_was_under_way_when_the_server_died_is_lost_and_what_comes_later_is_told(valkey):
    async def use() -> None:
        opened, node = connections(valkey)
        await opened.exchange(node, [("PING",)])
        under_way = asyncio.create_task(opened.exchange(node, [("ECHO", "done"), ("BLPOP", "nothing", "0")]))
        await asyncio.sleep(0)
        os.kill(valkey.server.pid, signal.SIGKILL)
        *_, lost = await under_way
        assert isinstance(lost, LostError)
        with pytest.raises(StoreError, match="can't be reached"):
            await opened.exchange(node, [("PING",)])
        await opened.close()
        with pytest.raises(StoreError, match="closed"):
            await opened.exchange(node, [("PING",)])

    asyncio.run(use())
