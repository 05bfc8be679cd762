"""Opening a stream of events, and the same without `await`."""

from __future__ import annotations

from typing import Any, Self

from holdfast.backends.stepping import run_inline
from holdfast.model.event import Cursor, Event
from holdfast.operations import arguments
from holdfast.operations.events import EventStream
from holdfast.operations.services import Services

__all__ = ["EventStream", "SyncEventStream", "open_stream"]


def open_stream(
    services: Services, session_id: Any, agent_id: Any, after: Any, *, follow: bool, poll_seconds: Any
) -> EventStream:
    """A stream with checked arguments: a cursor that can't be one is refused here, not at the first step."""
    return EventStream(
        services,
        session_id=arguments.optional_name("session_id", session_id),
        agent_id=arguments.optional_name("agent_id", agent_id),
        after=None if after is None else Cursor.from_text(after),
        follow=follow,
        longest_wait=arguments.seconds("poll_seconds", poll_seconds, least=0.001),
    )


class SyncEventStream:
    """`EventStream` without `await`: `for event in stream` blocks its thread, and only that, until there is one."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream

    @property
    def cursor(self) -> str | None:
        return self._stream.cursor

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        try:
            return run_inline(self._stream.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
