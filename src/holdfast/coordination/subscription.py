"""Subscriptions: a group consumes a topic without a session. At least once, acknowledged by hand."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Any, Self

from holdfast.backends.bridge.step import run_inline
from holdfast.coordination.group_message import GroupMessage, MessageReader, check_batch
from holdfast.coordination.message_stream import check_contract, check_start
from holdfast.model.event import Cursor
from holdfast.model.group_state import Holder
from holdfast.model.message import check_topic
from holdfast.operations import events, validate
from holdfast.operations import group as groups
from holdfast.operations.context import StoreContext
from holdfast.operations.group import ClaimedMessage, TopicGroup
from holdfast.operations.group_memory import GroupMemory


class DeliveredMessage(GroupMessage):
    """A message that was delivered to a group, to be acknowledged: `await delivery.ack()`."""

    def __init__(self, subscription: Subscription, delivered: ClaimedMessage) -> None:
        super().__init__(delivered)
        self._subscription = subscription
        self._delivered = delivered
        self.is_settled = False

    async def ack(self) -> bool:
        """Settles the message; False if it was too late, and the message went to another consumer."""
        self.is_settled = True
        return await groups.acknowledge(*self._place, self._subscription.memory)

    async def release(self) -> None:
        """Opens the message again, for this or another consumer. No attempt is counted."""
        self.is_settled = True
        ctx, group, id_, token = self._place
        await groups.release(ctx, group, [(id_, token)], memory=self._subscription.memory)

    async def fail(self, reason: str) -> bool:
        """Counts a failed attempt: the message is delivered again after a pause, or dead after five."""
        self.is_settled = True
        return await groups.fail(*self._place, str(reason), memory=self._subscription.memory)

    async def reject(self, reason: str) -> bool:
        """Makes the message dead at once: it is not delivered again unless a person decides so."""
        self.is_settled = True
        return await groups.fail(*self._place, str(reason), is_final=True, memory=self._subscription.memory)

    async def renew(self) -> bool:
        """Extends the time for this message; False if it was over."""
        return await groups.renew(*self._place, self._subscription.until_us(), self._subscription.memory)

    @property
    def _place(self) -> tuple[StoreContext, TopicGroup, bytes, int]:
        given = self._delivered
        return self._subscription.ctx, self._subscription.group, given.stored.id, given.token


class Subscription:
    """The messages of a topic for a group: `async with client.subscribe(...) as messages:`."""

    def __init__(
        self,
        ctx: StoreContext,
        group: TopicGroup,
        reader: MessageReader,
        start: Cursor | None,
        *,
        batch: int,
        seconds: float,
        timeout: float | None,
        longest_wait: float,
    ) -> None:
        self.ctx = ctx
        self.group = group
        self._reader = reader
        self._start = start
        self._batch = batch
        self._seconds = seconds
        self._timeout = timeout
        self._longest_wait = longest_wait
        self._has_begun = False
        self.memory = GroupMemory()
        self._claimed: deque[ClaimedMessage] = deque()
        self._current: DeliveredMessage | None = None

    def until_us(self) -> int:
        return self.ctx.now_us() + round(self._seconds * 1e6)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> DeliveredMessage:
        """Return the next message; wait for it for at most `timeout` seconds."""
        self._current = None
        backend = self.ctx.backend
        wait = min(events.SHORTEST_WAIT, self._longest_wait)
        left = self._timeout
        is_poll = False  # nothing was committed since the last look
        while not self._claimed:
            seen = backend.committed  # before reading: any later commit ends the wait
            if not self._has_begun:
                await self._reader.begin(self.group, self._start)
                self._has_begun = True
            is_last = left is not None and left <= 0
            if not is_poll or is_last or not await self.memory.is_quiet(self.ctx, self.group.topic):
                await self._claim()
            if self._claimed:
                break
            if is_last:
                raise StopAsyncIteration
            wait = wait if left is None else min(wait, left)
            if not await backend.wait_for_commit(seen, wait):
                raise StopAsyncIteration
            left = None if left is None else left - wait
            is_poll = backend.committed == seen
            wait = min(wait * 2 if is_poll else events.SHORTEST_WAIT, self._longest_wait)
        self._current = DeliveredMessage(self, self._claimed.popleft())
        return self._current

    async def _claim(self) -> None:
        self._claimed += await groups.claim(
            self.ctx, self.group, self._holder, self._reader.read,
            count=self._batch, contract=self._reader.label, memory=self.memory,
        )  # fmt: skip

    def _holder(self, token: int) -> Holder:
        return Holder(token, b"", "", 0, self.until_us(), self.ctx.this_process())

    async def close(self, error: BaseException | None = None) -> None:
        """Count a failed attempt of the message that raised the error, and give back the others."""
        current, self._current = self._current, None
        if current is not None and not current.is_settled:
            if isinstance(error, Exception):
                shown = self.ctx.codec.redact_text(f"{type(error).__name__}: {error}", "exception")
                await current.fail(shown[:500])
            else:
                await current.release()
        claimed = [(message.stored.id, message.token) for message in self._claimed]
        self._claimed.clear()
        await groups.release(self.ctx, self.group, claimed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(error)


class SyncDeliveredMessage(GroupMessage):
    """`DeliveredMessage` without `await`."""

    def __init__(self, delivery: DeliveredMessage) -> None:
        super().__init__(delivery._delivered)
        self._delivery = delivery

    def ack(self) -> bool:
        """Settles the message; False if it was too late, and the message went to another consumer."""
        return run_inline(self._delivery.ack())

    def release(self) -> None:
        """Opens the message again, for this or another consumer. No attempt is counted."""
        run_inline(self._delivery.release())

    def fail(self, reason: str) -> bool:
        """Counts a failed attempt: the message is delivered again after a pause, or dead after five."""
        return run_inline(self._delivery.fail(reason))

    def reject(self, reason: str) -> bool:
        """Makes the message dead at once: it is not delivered again unless a person decides so."""
        return run_inline(self._delivery.reject(reason))

    def renew(self) -> bool:
        """Extends the time for this message; False if it was over."""
        return run_inline(self._delivery.renew())


class SyncSubscription:
    """`Subscription` without `await`: `with client.subscribe(...) as messages:`."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SyncDeliveredMessage:
        try:
            return SyncDeliveredMessage(run_inline(self._subscription.__anext__()))
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_inline(self._subscription.close(error))


def open_subscription(
    ctx: StoreContext,
    topic: Any,
    group: Any,
    contract: Any,
    from_: Any,
    *,
    batch: Any,
    seconds: Any,
    timeout: Any,
    poll_seconds: Any,
) -> Subscription:
    """Open a subscription with checked arguments."""
    return Subscription(
        ctx,
        TopicGroup(check_topic(topic), check_topic(group, "group")),
        MessageReader(ctx, check_contract(contract)),
        check_start(from_),
        batch=check_batch(batch),
        seconds=validate.seconds("seconds", seconds, least=0.001),
        timeout=None if timeout is None else validate.seconds("timeout", timeout, least=0),
        longest_wait=validate.seconds("poll_seconds", poll_seconds, least=0.001),
    )
