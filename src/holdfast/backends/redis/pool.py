"""A pool of connections: for each event loop and node its own, opened on demand, up to a limit.

They end with their loop: `asyncio.run` closes the async generators that were begun in it, and ours
disconnects.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from redis.asyncio.connection import Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from holdfast.backends import fork_safety
from holdfast.backends.redis import connection as fast_path
from holdfast.backends.redis import errors
from holdfast.backends.redis.connection import Command, DriverClient, LostError, RedisConnection
from holdfast.backends.redis.pubsub import ChannelListener
from holdfast.backends.redis.sync_connection import BlockingPool, Node
from holdfast.errors import StoreError

__all__ = ["Command", "LostError", "Node", "RedisPool"]

L = TypeVar("L", bound=RedisConnection)


class _Links:
    """The connections to one node from one event loop, at most `limit`.

    A request takes an idle one, or a new one. At the limit, it queues behind the fewest others.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._links: list[RedisConnection] = []
        self._opening = 0
        self._opened = asyncio.Event()
        self._listening = asyncio.Lock()
        self._ear: ChannelListener | None = None
        self._driver: DriverClient | None = None
        self._is_closed = False

    def get_idle(self) -> RedisConnection | None:
        for link in reversed(self._links):
            if link.load == 0 and link.is_usable:
                return link
        return None

    async def acquire(self, settings: dict[str, Any]) -> RedisConnection:
        while True:
            link = self.get_idle()
            if link is not None:
                return link
            self._links = [link for link in self._links if link.is_usable]
            if len(self._links) + self._opening < self._limit:
                return await self._open(settings)
            if self._links:
                return min(self._links, key=lambda link: link.load)
            await self._opened.wait()  # the limit of connections is being opened

    async def _open(self, settings: dict[str, Any]) -> RedisConnection:
        self._opening += 1
        try:
            task = asyncio.current_task()
            cancelled = task.cancelling() if task else 0
            link = RedisConnection(await _connect_client(settings), settings["socket_timeout"])
            self._links.append(link)
            self._refuse_if_closed(link)
            _end_if_cancelled(task, cancelled)
            return link
        finally:
            self._opening -= 1
            self._opened.set()
            self._opened = asyncio.Event()

    async def ask_driver(self, settings: dict[str, Any], commands: Sequence[Command]) -> list[Any]:
        """Send commands the plain way."""
        if self._driver is None:
            self._driver = DriverClient(settings, self._limit)
        return await self._driver.ask(commands)

    async def get_listener(self, settings: dict[str, Any], channel: bytes) -> ChannelListener:
        """Return the one listening connection, which the limit does not count."""
        async with self._listening:
            if self._ear is None or not self._ear.is_usable:
                task = asyncio.current_task()
                cancelled = task.cancelling() if task else 0
                self._ear = ChannelListener(await _connect_client(settings), channel)
                self._refuse_if_closed(self._ear)
                _end_if_cancelled(task, cancelled)
            return self._ear

    def _refuse_if_closed(self, link: RedisConnection) -> None:
        """Raise if closed while it was being connected: nothing would close it after that."""
        if self._is_closed:
            link.close()
            raise ConnectionError("it was closed")

    async def close(self) -> None:
        self._is_closed = True
        links, self._links = self._links, []
        if self._ear is not None:
            links.append(self._ear)
        for link in links:
            link.close()
        if self._driver is not None:
            await self._driver.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LET_GO_SECONDS):
                for link in links:
                    await link.wait_closed()


async def _connect_client(settings: dict[str, Any]) -> Any:
    given = dict(settings)
    connection = given.pop("connection_class", Connection)(**given)
    try:
        await connection.connect()
    except BaseException:  # cancelled half way, it would stay open
        await connection.disconnect(nowait=True)
        raise
    return connection


def _end_if_cancelled(task: asyncio.Task[Any] | None, cancelled: int) -> None:
    """Raise `CancelledError` if a task was cancelled and the driver forgot it.

    Before Python 3.12, `asyncio.wait_for`, by which the driver connects, forgets a cancellation if
    the awaited future is done in the same turn of the loop: a follower of events would never end.
    """
    if task is not None and task.cancelling() > cancelled:
        raise asyncio.CancelledError


@dataclass(slots=True)
class _Loop:
    """The resources of one event loop."""

    nodes: dict[Node, _Links] = field(default_factory=dict)
    guard: AsyncGenerator[None] | None = None


# Held here, not by their clients: one that is dropped with its client in a loop's last moment would
# have no time to finish.
_guards: dict[object, tuple[int, asyncio.AbstractEventLoop, AsyncGenerator[None]]] = {}  # with process and loop
_LET_GO_SECONDS = 1.0


@atexit.register
def _disconnect_at_exit() -> None:
    """Disconnect clients that were never closed, whose loops still run in daemon threads."""
    for process, loop, guard in list(_guards.values()):
        if process == os.getpid() and loop.is_running():
            with suppress(Exception):
                asyncio.run_coroutine_threadsafe(guard.aclose(), loop).result(_LET_GO_SECONDS)


async def _disconnect_at_the_end(key: object, nodes: dict[Node, _Links]) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        _guards.pop(key, None)
        for links in nodes.values():
            await links.close()
        nodes.clear()


def _let_go(loop: asyncio.AbstractEventLoop, key: object) -> None:
    """Disconnect a client that was dropped and not closed: soon if its loop runs, else at the loop's end."""
    if loop.is_closed():
        _guards.pop(key, None)
        return
    with suppress(RuntimeError):  # it was closed just now
        loop.call_soon_threadsafe(lambda: loop.call_later(_LET_GO_SECONDS, lambda: _guards.pop(key, None)))


class RedisPool:
    """All connections of one store, of all loops and threads. `settings` are redis-py's."""

    def __init__(self, settings: dict[str, Any], where: str, limit: int, timeout: float) -> None:
        self._settings = {
            **settings,
            "protocol": 2,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            # The driver can't decide whether a command may be sent again: the first one may have been carried
            # out.
            "retry": Retry(NoBackoff(), 0),
        }
        self._where = where
        self._limit = limit
        self.timeout = timeout
        self._is_closed = False
        self._begin()
        fork_safety.begin_again_in_child(self, _begin_again)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()

    def without_loop(self) -> BlockingPool:
        """Return connections to the same nodes for callers without an event loop."""
        return BlockingPool(self._settings, self._where, self._limit, self.timeout)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def limited_to(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Limit how long the calls in an `async with` block may take."""
        return asyncio.timeout(seconds)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def exchange(self, node: Node, commands: Sequence[Command]) -> list[Any]:
        """Send commands together, over one connection, and return a reply each.

        A refused command is a `ResponseError`, an unanswered one a `LostError`.
        """
        links = await self._links(node)
        if not fast_path.USE_PIPELINE:
            return await links.ask_driver(self._settings_of(node), commands)
        link = links.get_idle()
        while link is not None and link.has_news():  # let the loop read it: probably the end
            await asyncio.sleep(0)
            link = links.get_idle()
        if link is None:
            link = await self._reach(links.acquire(self._settings_of(node)))
        return await link.ask(commands)

    async def get_listener(self, node: Node, channel: bytes) -> ChannelListener:
        """Return the listener to a channel of a server."""
        links = await self._links(node)
        return await self._reach(links.get_listener(self._settings_of(node), channel))

    def _settings_of(self, node: Node) -> dict[str, Any]:
        return {**self._settings, "host": node[0], "port": node[1]}

    async def _reach(self, connecting: Awaitable[L]) -> L:
        try:
            return await connecting
        except (RedisError, OSError) as error:
            raise errors.make_unreached_error(error, self._where) from error

    async def close(self) -> None:
        with self._lock:
            self._is_closed = True
            loops = list(self._loops.items())
            self._loops.clear()
        running = asyncio._get_running_loop()  # none, if a client without a loop closes both
        for loop, of_loop in loops:
            if of_loop.guard is None or loop.is_closed():
                continue
            if loop is running:
                await of_loop.guard.aclose()
            elif loop.is_running():
                with suppress(RuntimeError):  # it ended just now, and disconnected
                    closing = asyncio.run_coroutine_threadsafe(of_loop.guard.aclose(), loop)
                    if running is not None:
                        await asyncio.wrap_future(closing)
                    else:
                        with suppress(TimeoutError):
                            closing.result(_LET_GO_SECONDS)

    async def _links(self, node: Node) -> _Links:
        if self._is_closed:
            raise StoreError(f"the store {self._where} was closed: open a new client")
        loop = asyncio.get_running_loop()
        with self._lock:
            of_loop = self._loops.get(loop)
            if of_loop is None:
                for other in [other for other in self._loops if other.is_closed()]:
                    del self._loops[other]
                of_loop = self._loops[loop] = _Loop()
        if of_loop.guard is None:
            key = object()
            of_loop.guard = _disconnect_at_the_end(key, of_loop.nodes)
            _guards[key] = (os.getpid(), loop, of_loop.guard)
            weakref.finalize(self, _let_go, loop, key).atexit = False
            await anext(of_loop.guard)
        links = of_loop.nodes.get(node)
        if links is None:
            links = of_loop.nodes[node] = _Links(self._limit)
        return links


def _begin_again(connections: RedisPool) -> None:
    """Begin again in a forked child, which leaves the connections of its parent alone."""
    fork_safety.leave_to_parent(connections._loops, *connections._loops.items())
    connections._begin()
