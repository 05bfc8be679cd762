"""Connections to Redis for callers without an event loop: the calling thread waits.

A call to an event loop in another thread costs two thread switches and turns of the loop, as much as
all other work of a client for a small save. The verbs of the backend are the same coroutines here;
they never suspend. A cluster is asked in a loop: there, several nodes work at the same time.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ssl import SSLWantReadError
from typing import Any

import hiredis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError as BrokenError
from redis.exceptions import InvalidResponse, RedisError
from redis.retry import Retry

from holdfast.backends import fork_safety
from holdfast.backends.fair_semaphore import ThreadPlaces
from holdfast.backends.redis import errors
from holdfast.backends.redis.connection import NOT_YET, Command, LostError, pack_commands
from holdfast.errors import StoreBusyError, StoreError

Node = tuple[str, int]
_READ_SIZE = 1 << 16


class SyncRedisConnection:
    """A connection for one thread at a time, which takes over a connected one of redis-py's.

    A server that is silent for the timeout of its socket counts as gone.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection  # its end closes the socket
        self._socket = connection._sock
        # Private: redis-py has no public name for the errors that it makes of a server's answers.
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=connection._parser.parse_error, notEnoughData=NOT_YET
        )
        self._timeout = self._socket.gettimeout()
        self._poll = select.poll()
        self._poll.register(self._socket.fileno(), select.POLLIN)
        self.is_usable = True

    def has_ended(self) -> bool:
        """Return whether the server has closed it, or sent something unasked."""
        if not self._poll.poll(0):
            return False
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except (BlockingIOError, SSLWantReadError):  # news of the encryption alone: no bytes for a reader
            self._socket.settimeout(self._timeout)
            return False
        except OSError:
            return True
        return True

    def ask(self, commands: Sequence[Command], seconds: float | None) -> list[Any]:
        """Send commands together and return a reply each; the server may be silent for `seconds`.

        A refused command is a `ResponseError`, an unanswered one a `LostError`.
        """
        replies: list[Any] = []
        reader, socket = self._reader, self._socket
        try:
            if seconds is not None:
                socket.settimeout(seconds)
            socket.sendall(pack_commands(commands))
            while len(replies) < len(commands):
                reply = reader.gets()
                if reply is NOT_YET:
                    received = socket.recv(_READ_SIZE)
                    if not received:
                        raise BrokenError("the server closed it")
                    reader.feed(received)
                elif isinstance(reply, BrokenError):  # it loads its data, or has too many clients: as good as gone
                    raise reply
                else:
                    replies.append(reply)
            if seconds is not None:
                socket.settimeout(self._timeout)
        except (OSError, BrokenError, InvalidResponse) as error:
            reason = _describe(error, self._timeout if seconds is None else seconds)
            self.close()
            return replies + [LostError(reason)] * (len(commands) - len(replies))
        except BaseException:  # Ctrl-C: the reply that is left would be taken for that of the next request
            self.close()
            raise
        return replies

    def close(self) -> None:
        self.is_usable = False
        self._connection.disconnect()


def _describe(error: Exception, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    if isinstance(error, InvalidResponse):
        return f"what came is not Redis's protocol: {error}"
    return str(error)


class BlockingPool:
    """The connections of all threads to the nodes of one store, at most `limit`.

    If all are in use, a thread waits for one for `timeout` seconds. `settings` are those of
    `RedisPool`.
    """

    def __init__(self, settings: dict[str, Any], where: str, limit: int, timeout: float) -> None:
        mine = {name: value for name, value in settings.items() if name != "connection_class"}
        self._settings = {**mine, "retry": Retry(NoBackoff(), 0)}
        self._class = SSLConnection if "connection_class" in settings else Connection
        self._where = where
        self._limit = limit
        self.timeout = timeout
        self._is_closed = False
        self._begin()
        fork_safety.begin_again_in_child(self, _begin_again)

    def _begin(self) -> None:
        self._places = ThreadPlaces(self._limit)
        self._idle: dict[Node, list[SyncRedisConnection]] = {}  # append and pop are atomic
        self._of_thread = threading.local()  # `seconds` that a server may be silent

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def exchange(self, node: Node, commands: Sequence[Command]) -> list[Any]:
        """Send commands together, over one connection, and return a reply each.

        A refused command is a `ResponseError`, an unanswered one a `LostError`.
        """
        if self._is_closed:
            raise StoreError(f"the store {self._where} was closed: open a new client")
        if not self._places.take(self.timeout):
            raise StoreBusyError(
                f"the store {self._where} can't be reached: for {self.timeout:g} s all {self._limit} connections were "
                "in use. Raise `max_connections` or `timeout`"
            )
        try:
            connection = self._take_idle(node) or self._connect(node)
            replies = connection.ask(commands, getattr(self._of_thread, "seconds", None))
            if connection.is_usable:
                self._idle.setdefault(node, []).append(connection)
                if self.is_closed:  # checked after it was put there, as `close` looks there after setting the flag
                    self._drop_idle()
            return replies
        finally:
            self._places.give_back()

    def _take_idle(self, node: Node) -> SyncRedisConnection | None:
        """Return the connection that was used last, if any is alive."""
        idle = self._idle.get(node, [])
        while True:
            try:
                connection = idle.pop()
            except IndexError:
                return None
            if not connection.has_ended():
                return connection
            connection.close()

    def _connect(self, node: Node) -> SyncRedisConnection:
        connection: Any = self._class(**{**self._settings, "host": node[0], "port": node[1]})
        try:
            connection.connect()
        except (RedisError, OSError) as error:
            raise errors.make_unreached_error(error, self._where) from error
        return SyncRedisConnection(connection)

    @asynccontextmanager
    async def limited_to(self, seconds: float) -> AsyncIterator[None]:
        """Limit how long a server may be silent in the calls of an `async with` block."""
        self._of_thread.seconds = seconds
        try:
            yield
        finally:
            del self._of_thread.seconds

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop

    async def close(self) -> None:
        self._is_closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        for idle in list(self._idle.values()):
            while idle:
                try:
                    connection = idle.pop()
                except IndexError:  # another thread was quicker
                    break
                connection.close()


def _begin_again(pool: BlockingPool) -> None:
    """Begin again in a forked child, which leaves the connections of its parent alone."""
    fork_safety.leave_to_parent(pool._idle)
    pool._begin()
