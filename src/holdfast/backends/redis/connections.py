"""Connections to servers: for each event loop and node its own, opened when they are needed, at most so many.

They end with their loop: `asyncio.run` closes the async generators that were begun in it, and ours disconnects.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from holdfast.errors import StoreError

Node = tuple[str, int]
Command = tuple[Any, ...]


class LostError(Exception):
    """The connection broke before the reply came: the command may have been carried out, or not."""


@dataclass(slots=True)
class _Loop:
    """What belongs to one event loop."""

    pools: dict[Node, BlockingConnectionPool] = field(default_factory=dict)
    guard: AsyncGenerator[None] | None = None


# Held here, not by their clients: one that is dropped with its client in a loop's last moment would have no time to finish.
_guards: dict[object, tuple[int, asyncio.AbstractEventLoop, AsyncGenerator[None]]] = {}  # with process and loop
_LET_GO_SECONDS = 1.0


@atexit.register
def _disconnect_at_exit() -> None:
    """For clients that were never closed, and whose loops still run in threads that end with the program."""
    for process, loop, guard in list(_guards.values()):
        if process == os.getpid() and loop.is_running():
            with suppress(Exception):
                asyncio.run_coroutine_threadsafe(guard.aclose(), loop).result(_LET_GO_SECONDS)


async def _disconnect_at_the_end(key: object, pools: dict[Node, BlockingConnectionPool]) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        _guards.pop(key, None)
        for pool in pools.values():
            await pool.disconnect()
        pools.clear()


def _let_go(loop: asyncio.AbstractEventLoop, key: object) -> None:
    """The client was dropped and not closed. If its loop goes on, it disconnects in a moment; else at the loop's end."""
    if loop.is_closed():
        _guards.pop(key, None)
        return
    with suppress(RuntimeError):  # it was closed just now
        loop.call_soon_threadsafe(lambda: loop.call_later(_LET_GO_SECONDS, lambda: _guards.pop(key, None)))


class Connections:
    """All connections of one store, of whatever loop and thread. `settings` are redis-py's, for one connection."""

    def __init__(self, settings: dict[str, Any], where: str, limit: int, timeout: float) -> None:
        self._settings = {
            **settings,
            "protocol": 2,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            # Whether a command may be sent again is not for the driver to decide: the first one may have been carried out.
            "retry": Retry(NoBackoff(), 0),
        }
        self._where = where
        self._limit = limit
        self._lock = threading.Lock()
        self._is_closed = False
        self._process = os.getpid()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def talk(self, node: Node, commands: Sequence[Command]) -> list[Any]:
        """Sends these commands together, over one connection: a reply each. What the server refused is a
        `ResponseError`, what was not answered a `LostError`. Waits for a connection if all are in use."""
        pool: Any = await self._pool(node)
        try:
            connection = await pool.get_connection()
        except (RedisError, OSError) as error:
            raise StoreError(f"the store {self._where} can't be reached: {error}. Is the server running?") from error
        replies: list[Any] = []
        try:
            await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            for _ in commands:
                try:
                    replies.append(await connection.read_response(disable_decoding=True))
                except ResponseError as refusal:
                    replies.append(refusal)
        except (RedisError, OSError) as error:
            await _drop(connection)
            return replies + [LostError(str(error))] * (len(commands) - len(replies))
        except BaseException:  # cancelled: what comes next on this connection would be an answer to this
            await _drop(connection)
            raise
        finally:
            await pool.release(connection)
        return replies

    async def close(self) -> None:
        with self._lock:
            self._is_closed = True
            loops = list(self._loops.items()) if self._process == os.getpid() else []
            self._loops.clear()
        here = asyncio.get_running_loop()
        for loop, of_loop in loops:
            if of_loop.guard is None or loop.is_closed():
                continue
            if loop is here:
                await of_loop.guard.aclose()
            elif loop.is_running():
                with suppress(RuntimeError):  # it ended just now, and disconnected
                    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(of_loop.guard.aclose(), loop))

    async def _pool(self, node: Node) -> BlockingConnectionPool:
        if self._is_closed:
            raise StoreError(f"the store {self._where} was closed: open a new client")
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._process != os.getpid():  # a forked child leaves its parent's connections alone
                self._process = os.getpid()
                self._loops = WeakKeyDictionary()
            of_loop = self._loops.get(loop)
            if of_loop is None:
                for other in [other for other in self._loops if other.is_closed()]:
                    del self._loops[other]
                of_loop = self._loops[loop] = _Loop()
        if of_loop.guard is None:
            key = object()
            of_loop.guard = _disconnect_at_the_end(key, of_loop.pools)
            _guards[key] = (os.getpid(), loop, of_loop.guard)
            weakref.finalize(self, _let_go, loop, key).atexit = False
            await anext(of_loop.guard)
        pool = of_loop.pools.get(node)
        if pool is None:
            settings = {**self._settings, "host": node[0], "port": node[1]}
            pool = of_loop.pools[node] = BlockingConnectionPool(max_connections=self._limit, timeout=None, **settings)
        return pool


async def _drop(connection: Any) -> None:
    with suppress(Exception):
        await connection.disconnect(nowait=True)
