"""A pipelined connection to one server: requests don't wait for replies, which come in order.

A fast path of ARCHITECTURE.md. redis-py connects and logs in, with TLS or without. From then on we
read and write the bytes: a reply resolves its future in the turn of the event loop in which it
arrives. redis-py's pool, streams and timeouts take six more turns of the loop for a request. Without
`USE_PIPELINE` requests go through redis-py's client.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import ConnectionError as BrokenError
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as SilentError

USE_PIPELINE = True
"""The switch (`benchmarks/fast_paths.py` measures both ways)."""

Command = tuple[bytes | str | int, ...]

NOT_YET = object()

_packed: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]  # its stub takes one word only


class LostError(Exception):
    """The connection broke before the reply came: the command may or may not have been carried out."""


class _Request:
    __slots__ = ("future", "replies", "wanted")

    def __init__(self, wanted: int, future: asyncio.Future[list[Any]]) -> None:
        self.wanted = wanted
        self.replies: list[Any] = []
        self.future = future


class RedisConnection(asyncio.Protocol):
    """A connection that takes over a connected one of redis-py's.

    A server that is silent for `timeout` seconds during a request counts as gone.
    """

    def __init__(self, connection: Any, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        # Private: redis-py has no public name for the errors that it makes of a server's answers.
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse, replyError=connection._parser.parse_error, notEnoughData=NOT_YET
        )
        self._requests: deque[_Request] = deque()
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_lost = False
        self._gone = asyncio.Event()
        self._transport: asyncio.Transport = connection._writer.transport
        self._transport.set_protocol(self)
        self._poll = select.poll()
        self._poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)

    @property
    def is_usable(self) -> bool:
        return not self.is_lost and not self._transport.is_closing()

    def has_news(self) -> bool:
        """Return whether unread bytes came: without a request, mostly the end of the connection."""
        return bool(self._poll.poll(0))

    @property
    def load(self) -> int:
        """Return the number of unanswered requests."""
        return len(self._requests)

    def ask(self, commands: Sequence[Command]) -> asyncio.Future[list[Any]]:
        """Send commands together and return a future of a reply each.

        A refused command is a `ResponseError`, an unanswered one a `LostError`.
        """
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        if not self.is_usable:
            future.set_result([LostError("it was closed")] * len(commands))
            return future
        if not self._requests:
            self._heard_at = self._loop.time()
            if self._timer is None:
                self._timer = self._loop.call_later(self._timeout, self._read_clock)
        self._requests.append(_Request(len(commands), future))
        self._transport.write(pack_commands(commands))
        return future

    def close(self, reason: str = "it was closed") -> None:
        """Close it; unanswered requests are lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.is_lost:
            self.is_lost = True
            self._connection._close()
        requests, self._requests = self._requests, deque()
        for request in requests:
            if not request.future.done():
                missing = request.wanted - len(request.replies)
                request.future.set_result(request.replies + [LostError(reason)] * missing)

    async def wait_closed(self) -> None:
        """Wait, after `close`, until the server has been notified."""
        await self._gone.wait()

    # -- what the event loop calls -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        while True:
            try:
                reply = reader.gets()
            except InvalidResponse as error:
                self.close(f"what came is not Redis's protocol: {error}")
                return
            if reply is NOT_YET:
                break
            if isinstance(reply, BrokenError):  # it loads its data, or has too many clients: as good as gone
                self.close(str(reply))
                return
            if not self._requests:
                self.close("the server said something unasked")
                return
            request = self._requests[0]
            request.replies.append(reply)
            if len(request.replies) == request.wanted:
                self._requests.popleft()
                if not request.future.done():  # else: the caller cancelled it
                    request.future.set_result(request.replies)
        self._heard_at = self._loop.time()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(str(exc) if exc else "the server closed it")
        self._gone.set()

    def _read_clock(self) -> None:
        self._timer = None
        if not self._requests:
            return
        left = self._heard_at + self._timeout - self._loop.time()
        if left <= 0:
            self.close(f"no answer within {self._timeout:g} s")
        else:
            self._timer = self._loop.call_later(left, self._read_clock)


class DriverClient:
    """The plain way: the same requests through redis-py's client and its pool."""

    def __init__(self, settings: dict[str, Any], limit: int) -> None:
        self._client = Redis.from_pool(BlockingConnectionPool(max_connections=limit, timeout=None, **settings))

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands together and return a reply each, as `RedisConnection.ask` does."""
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                replies: list[Any] = await pipeline.execute(raise_on_error=False)
        except (BrokenError, SilentError) as error:
            return [LostError(str(error))] * len(commands)
        return replies

    async def close(self) -> None:
        await self._client.aclose()


def pack_commands(commands: Sequence[Command]) -> bytes:
    """Return the commands in Redis's wire format."""
    return _packed(commands[0]) if len(commands) == 1 else b"".join(map(_packed, commands))
