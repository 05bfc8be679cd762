"""A connection that only listens to the channel of the first shard (SPUBLISH).

Scripts that make records visible publish there. A message is a hint: it may be lost, come late or
be spurious. Polling finds the events; a hint only makes it sooner.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import InvalidResponse

from holdfast.backends.redis.connection import NOT_YET, LostError, RedisConnection, pack_commands

LINGER_SECONDS = 5.0  # it stays open after the last waiter: a follower waits again and again


class ChannelListener(RedisConnection):
    """A listener to one channel, over a connected connection of redis-py's."""

    def __init__(self, connection: Any, channel: bytes) -> None:
        super().__init__(connection, timeout=0)
        self.refusal: Exception | None = None  # the server's answer if we may not listen
        self._is_news = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._letting_go: asyncio.TimerHandle | None = None
        self._transport.write(pack_commands([("SSUBSCRIBE", channel)]))

    async def wait_for_notify(self) -> None:
        """Return when a message came since the last time, and as soon as it listens.

        Messages from before that may be news, too. Raise `LostError` if the connection has ended.
        """
        if self._letting_go is not None:
            self._letting_go.cancel()
            self._letting_go = None
        notified: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(notified)
        try:
            if not self._is_news and self.is_usable:
                await notified
            if not self._is_news and not self.is_usable:
                raise LostError("it was closed")
            self._is_news = False
        finally:
            self._waiting.discard(notified)
            if not self._waiting and self.is_usable:
                self._letting_go = self._loop.call_later(LINGER_SECONDS, self.close)

    def close(self, reason: str = "it was closed") -> None:
        if self._letting_go is not None:
            self._letting_go.cancel()
            self._letting_go = None
        super().close(reason)
        self._wake()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while True:
            try:
                reply = self._reader.gets()
            except InvalidResponse as error:
                self.close(f"what came is not Redis's protocol: {error}")
                return
            if reply is NOT_YET:
                return
            if isinstance(reply, list) and reply[:1] in ([b"ssubscribe"], [b"smessage"]):
                self._is_news = True
                self._wake()
                continue
            # An error, or the end of it: the channel's slot has moved to another node.
            self.refusal = reply if isinstance(reply, Exception) else None
            self.close(str(reply))
            return

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
