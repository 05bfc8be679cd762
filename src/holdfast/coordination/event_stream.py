"""Event streams, with checked arguments, and their sync twin."""

from __future__ import annotations

from typing import Any, Self

from holdfast.backends.bridge.step import run_inline
from holdfast.model.event import Cursor, Event
from holdfast.operations import validate
from holdfast.operations.context import StoreContext
from holdfast.operations.events import EventStream

__all__ = ["EventStream", "SyncEventStream", "open_stream"]


def open_stream(
    ctx: StoreContext, session_id: Any, agent_id: Any, after: Any, *, follow: bool, poll_seconds: Any
) -> EventStream:
    """Open a stream with checked arguments: an invalid cursor is refused here, not at the first step."""
    return EventStream(
        ctx,
        session_id=validate.optional_name("session_id", session_id),
        agent_id=validate.optional_name("agent_id", agent_id),
        after=None if after is None else Cursor.from_text(after),
        follow=follow,
        longest_wait=validate.seconds("poll_seconds", poll_seconds, least=0.001),
    )


class SyncEventStream:
    """`EventStream` without `await`: `for event in stream` blocks its own thread until there is one."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream

    @property
    def cursor(self) -> str | None:
        return self._stream.cursor

    @property
    def waits_for(self) -> str | None:
        return self._stream.waits_for

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        try:
            return run_inline(self._stream.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
