"""events: what is saved, as it comes, in the order in which it became visible.

A stream reads on from a position of the store's `changes`. What it promises rests on the port alone: no position is given
twice, nothing appears at or below one that was read, and within a session positions rise with the sequence numbers. So
it misses nothing, repeats nothing and keeps the order, whatever polls, wakes or restarts it: waiting is only waiting.
"""

from __future__ import annotations

from collections import deque
from typing import Self

from holdfast.backends.port import Change
from holdfast.errors import HoldfastError, StoreError, UsageError
from holdfast.model.event import Cursor, Event
from holdfast.objects import record, rows, staged
from holdfast.operations import reading
from holdfast.operations.services import Services

PAGE = 200
SHORTEST_WAIT = 0.05


async def now(services: Services) -> Cursor:
    """The cursor after everything that is there."""
    last = await services.backend.last_change()
    found = await services.backend.changes(last - 1, 1) if last else []
    return Cursor.of(last, found[0].record.id) if found and found[0].position == last else Cursor(last)


async def checked(services: Services, cursor: Cursor) -> Cursor:
    """The cursor, if it can be one of this store."""
    position, ending = cursor
    found: list[Change] = []
    last = await services.backend.last_change()
    if ending is not None and 0 < position <= last:
        found = await services.backend.changes(position - 1, 1)
    if position > last or (found and found[0].position == position and found[0].record.id.hex()[-8:] != ending):
        raise UsageError(
            f"the cursor {cursor.text!r} is not one of {services.backend.capabilities.location}: it belongs to another "
            "store, or to what was lost when this one was put back from a backup. Begin again with after='start' or "
            "with what comes from now on"
        )
    return cursor


class EventStream:
    """Events, one after the other: `async for event in stream`. It can be left and gone on with at any time.

    Nothing is held while nobody iterates: a stream need not be closed. It is for one task at a time.
    """

    def __init__(
        self,
        services: Services,
        *,
        session_id: str | None,
        agent_id: str | None,
        after: Cursor | None,
        follow: bool,
        longest_wait: float,
    ) -> None:
        self._services = services
        self._session = None if session_id is None else rows.session_key(session_id)
        self._agent_id = agent_id
        self._after = after
        self._follow = follow
        self._longest_wait = longest_wait
        self._cursor: Cursor | None = None  # None until the place to begin at was looked at
        self._read: deque[Change] = deque()

    @property
    def cursor(self) -> str | None:
        """Where a later stream goes on to repeat nothing and to miss nothing: after the event given last, or further,
        past what this stream passes over. None before the first step of one that begins now."""
        place = self._cursor or self._after
        return place.text if place else None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """The next event; waits for it if the stream follows. A record that can't be read raises; the stream can be gone
        on with, and has then passed over it."""
        backend = self._services.backend
        wait = min(SHORTEST_WAIT, self._longest_wait)
        while True:
            while self._read:
                event = await self._next_read()
                if event is not None:
                    return event
            seen = backend.committed  # before reading: what is committed from here on ends the wait
            try:
                if self._cursor is None:
                    self._cursor = await (
                        now(self._services) if self._after is None else checked(self._services, self._after)
                    )
                self._read.extend(await backend.changes(self._cursor.position, PAGE))
            except StoreError:
                if self._follow and self._cursor is not None and not await backend.wait_for_commit(seen, 0):
                    raise StopAsyncIteration from None  # the client was closed meanwhile, by its owner
                raise
            if not self._read:
                if not self._follow or not await backend.wait_for_commit(seen, wait):
                    raise StopAsyncIteration
                # In small steps at first: somebody who saves now will often save again soon.
                wait = SHORTEST_WAIT if backend.committed != seen else wait * 2
                wait = min(wait, self._longest_wait)

    async def _next_read(self) -> Event | None:
        """The event of the next change that was read, None if the stream is not about it; the stream is past it then. Who
        is cancelled in here, or can't reach the store, meets it again."""
        change = self._read[0]
        try:
            event = await self._event(change)
        except StoreError:
            raise
        except HoldfastError:  # it is damaged, or too new: this would be so for ever
            self._pass(change)
            raise
        self._pass(change)
        return event

    def _pass(self, change: Change) -> None:
        self._read.popleft()
        self._cursor = Cursor.of(change.position, change.record.id)

    async def _event(self, change: Change) -> Event | None:
        services, found = self._services, change.record
        # A record that is too damaged to tell its session has none: it could be one of any.
        if self._session is not None and found.session not in (self._session, b""):
            return None
        stored = reading.listed_record(services, found)
        if staged.is_staged(stored):
            return None
        if self._session is not None and found.session != self._session:
            return None
        target = stored.header.get("to")
        if self._agent_id is not None and self._agent_id not in (stored.header["agent"], target):
            return None
        if await reading.is_over(services, stored):
            return None
        return Event(
            kind="checkpoint" if target is None else "handoff",
            checkpoint=record.checkpoint(services.codec, stored),
            cursor=Cursor.of(change.position, found.id).text,
        )
