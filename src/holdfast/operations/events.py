"""events: new checkpoints as a stream, in the order in which they became visible.

A stream reads on from a position of the store's `changes`. Its guarantees rest on the port alone:
no position is given twice, nothing appears at or below one that was read, and within a session
positions rise with the sequence numbers. So it misses nothing, repeats nothing and keeps the order,
whatever polls, wakes or restarts it.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Generic, Self, TypeVar

from holdfast.backends.port import Change
from holdfast.errors import HoldfastError, KeyMissingError, StoreError, UsageError
from holdfast.format.rows import head, staging
from holdfast.format.state import record
from holdfast.model.event import Cursor, Event
from holdfast.operations import lookup
from holdfast.operations.context import StoreContext

PAGE = 200
SHORTEST_WAIT = 0.05
GROWTH = 1.3  # of the wait, each time that nothing has come: to a second within four
ASK_WHY_SECONDS = 2.0  # of waiting: then the store is asked whether it holds events back

E = TypeVar("E")
_log = logging.getLogger("holdfast")


async def get_end_cursor(ctx: StoreContext) -> Cursor:
    """Return the cursor after everything that is stored now."""
    last = await ctx.backend.last_change()
    found = await ctx.backend.changes(last - 1, 1) if last else []
    return Cursor.of(last, found[0].record.id) if found and found[0].position == last else Cursor(last)


async def check_cursor(ctx: StoreContext, cursor: Cursor) -> Cursor:
    """Return the cursor, if it can be one of this store."""
    position, ending = cursor
    found: list[Change] = []
    last = await ctx.backend.last_change()
    if ending is not None and 0 < position <= last:
        found = await ctx.backend.changes(position - 1, 1)
    if position > last or (found and found[0].position == position and found[0].record.id.hex()[-8:] != ending):
        raise UsageError(
            f"the cursor {cursor.text!r} is not one of {ctx.backend.capabilities.location}: it belongs to another "
            "store, or to what was lost when this one was put back from a backup. Begin again with after='start' or "
            "with what comes from now on"
        )
    return cursor


class ChangeStream(Generic[E]):
    """A stream over changes of the store. It can be left and resumed at any time.

    It holds no resources between steps, so it need not be closed. It is for one task at a time.
    """

    def __init__(self, ctx: StoreContext, *, after: Cursor | None, follow: bool, longest_wait: float) -> None:
        self._ctx = ctx
        self._after = after
        self._follow = follow
        self._longest_wait = longest_wait
        self._cursor: Cursor | None = None  # None until the starting position was read
        self._read: deque[Change] = deque()
        self.waits_for: str | None = None
        """Why the store holds back what was saved, as a sentence; None if it holds back nothing."""

    @property
    def cursor(self) -> str | None:
        """The cursor from which a later stream repeats nothing and misses nothing.

        It is after the last event returned, or further, past changes that this stream skips. None
        before the first step of a stream that begins now.
        """
        place = self._cursor or self._after
        return place.text if place else None

    @property
    def position(self) -> int:
        """The position of the cursor; 0 before the first step of a stream that begins now."""
        place = self._cursor or self._after
        return place.position if place else 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        """Return the next event; wait for it if the stream follows.

        A record that can't be read raises an error. The stream can be resumed, and has then skipped
        the record.
        """
        backend = self._ctx.backend
        wait = min(SHORTEST_WAIT, self._longest_wait)
        waited = 0.0
        while True:
            while self._read:
                self.waits_for = None
                event = await self._next_read()
                if event is not None:
                    return event
            seen = backend.committed  # before reading: any later commit ends the wait
            try:
                if self._cursor is None:
                    self._cursor = await (
                        get_end_cursor(self._ctx) if self._after is None else check_cursor(self._ctx, self._after)
                    )
                self._read.extend(await self._page(self._cursor.position))
            except StoreError:
                if self._follow and self._cursor is not None and not await backend.wait_for_commit(seen, 0):
                    raise StopAsyncIteration from None  # the client was closed meanwhile, by its owner
                raise
            if not self._read:
                if not self._follow or waited >= ASK_WHY_SECONDS:
                    waited = 0.0
                    await self._ask_why()
                if not self._follow or not await backend.wait_for_commit(seen, wait):
                    raise StopAsyncIteration
                waited += wait
                # In small steps at first: a writer that saves now will often save again soon.
                wait = SHORTEST_WAIT if backend.committed != seen else wait * GROWTH
                wait = min(wait, self._longest_wait)

    async def _ask_why(self) -> None:
        """Warn, once, that the store holds back saved checkpoints, and why."""
        why = await self._ctx.backend.why_undecided()
        if why is not None and self.waits_for is None:
            _log.warning("events of %s: %s", self._ctx.backend.capabilities.location, why)
        self.waits_for = why

    async def _page(self, after: int) -> list[Change]:
        return await self._ctx.backend.changes(after, PAGE)

    async def _event(self, change: Change) -> E | None:
        """Return the event of a change, None if it does not match the stream."""
        raise NotImplementedError  # each stream has its own

    async def _next_read(self) -> E | None:
        """Return the event of the next change that was read, None if it does not match the stream.

        The stream is past the change then. After a cancellation in here, or a failure to reach the
        store, the stream reads it again.
        """
        change = self._read[0]
        try:
            event = await self._event(change)
        except (StoreError, KeyMissingError):
            raise
        except HoldfastError:  # it is damaged, or too new, and always will be
            self._pass(change)
            raise
        self._pass(change)
        return event

    def _pass(self, change: Change) -> None:
        self._read.popleft()
        self._cursor = Cursor.of(change.position, change.record.id)


class EventStream(ChangeStream[Event]):
    """A stream of events: `async for event in stream`."""

    def __init__(
        self,
        ctx: StoreContext,
        *,
        session_id: str | None,
        agent_id: str | None,
        after: Cursor | None,
        follow: bool,
        longest_wait: float,
    ) -> None:
        super().__init__(ctx, after=after, follow=follow, longest_wait=longest_wait)
        self._session = None if session_id is None else head.session_key(session_id)
        self._agent_id = agent_id

    async def _event(self, change: Change) -> Event | None:
        ctx, found = self._ctx, change.record
        # A record that is too damaged to tell its session may be of any session.
        if self._session is not None and found.session not in (self._session, b""):
            return None
        stored = lookup.unpack_listed(ctx, found)
        if staging.is_staged(stored):
            return None
        if self._session is not None and found.session != self._session:
            return None
        target = stored.header.get("to")
        if self._agent_id is not None and self._agent_id not in (stored.header["agent"], target):
            return None
        if await lookup.is_expired(ctx, stored):
            return None
        return Event(
            kind="message" if "topic" in stored.header else "checkpoint" if target is None else "handoff",
            checkpoint=record.checkpoint(ctx.codec, stored),
            cursor=Cursor.of(change.position, found.id).text,
            topic=stored.header.get("topic"),
        )
