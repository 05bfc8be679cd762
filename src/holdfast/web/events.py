"""Server-sent events: saves, handoffs, approvals and operations, from any process.

An event's id names the last save that was sent, the last operation, and a digest of the pending
approvals. So a browser that comes back gets what it missed: each save once, and the rest if it
changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import StreamingResponse

from holdfast.errors import HoldfastError, StoreError, UsageError
from holdfast.json_form.operation import operation_fields
from holdfast.json_form.values import format_time
from holdfast.model.event import Cursor
from holdfast.operations.events import check_cursor
from holdfast.web.answer import RefusedRequest
from holdfast.web.request import Parameter, read_query
from holdfast.web.routes.sessions import row_fields
from holdfast.web.routes.work import shown_approval

if TYPE_CHECKING:
    from holdfast.web.site import Site

POLL_SECONDS = 0.25
RARELY = 3  # polls between two looks for operations and approvals
ALIVE_SECONDS = 15.0
MOST_STREAMS = 32
MOST_OPERATIONS = 50
PAGE = 200
PARAMETERS = (
    Parameter("session", "text", "Only this session's checkpoints."),
    Parameter("agent", "text", "Only what this agent saved or was handed."),
    Parameter("after", "text", "The id of the last event received; `start` for all saves."),
)
_open: set[int] = set()


class _Place(NamedTuple):
    """The position of a stream: what it has sent."""

    cursor: str
    operation: str
    approvals: str

    @property
    def text(self) -> str:
        return "~".join(self)

    @classmethod
    def of(cls, text: str) -> _Place:
        parts = [*text.split("~"), "", ""][:3]
        Cursor.from_text(parts[0])  # refuse what is none before the stream begins
        return cls(*parts)


class _Poll:
    """Asks a store for what is new."""

    def __init__(self, site: Site, session: str | None, agent: str | None, place: _Place | None) -> None:
        self._site, self._session, self._agent = site, session, agent
        self._given = place
        self.place = place or _Place("start", "", "")
        self._seen: dict[str, str] = {}  # pending approvals
        self._has_missed = False  # decisions, while there was no connection
        self._polls = 0

    def begin(self) -> str:
        """Return the first event of a connection."""
        client = self._site.client
        self._seen = self._pending()
        if self._given is None or not self._given.approvals:  # a cursor alone: it names saves only
            newest = next(iter(self._site.operations([], limit=1)), None)
            operation = newest.operation_id if newest else ""
            cursor = client.cursor() if self._given is None else self._given.cursor
            self.place = _Place(cursor, operation, _digest(self._seen))
        else:
            self._has_missed = self._given.approvals != _digest(self._seen)
        fields = {"cursor": self.place.cursor, "started": format_time(self._site.started)}
        return self._event("hello", {**fields, "resumed": self._given is not None})

    def next(self) -> list[str]:
        """Return what is new, at most a page of saves."""
        self._polls += 1
        saves = list(self._saves())
        if self._polls % RARELY:  # the others cost a listing each
            return saves
        return [*saves, *self._operations(), *self._decisions()]

    def _saves(self) -> Iterator[str]:
        stream = self._site.client.events(self._session, self._agent, self.place.cursor, follow=False)
        for _ in range(PAGE):
            try:
                event = next(stream, None)
            except StoreError:
                raise
            except HoldfastError as error:  # a record that can't be read: the stream is past it
                self._pass(stream.cursor)
                yield self._event("damaged", {"message": str(error)})
                continue
            if event is None:
                break
            self._pass(event.cursor)
            fields = {"cursor": event.cursor, "kind": event.kind, "checkpoint": row_fields(event.checkpoint)}
            yield self._event(event.kind, fields)
        self._pass(stream.cursor)

    def _pass(self, cursor: str | None) -> None:
        if cursor is not None:
            self.place = self.place._replace(cursor=cursor)

    def _operations(self) -> Iterator[str]:
        found = []
        for operation in self._site.operations([], limit=MOST_OPERATIONS):
            if operation.operation_id == self.place.operation:
                break
            found.append(operation)
        for operation in reversed(found):
            self.place = self.place._replace(operation=operation.operation_id)
            yield self._event("operation", operation_fields(operation))

    def _pending(self) -> dict[str, str]:
        """Return the pending approvals: all others would be ever more to read."""
        return {approval.approval_id: str(approval.status) for approval in self._site.client.approvals()}

    def _decisions(self) -> Iterator[str]:
        now, seen = self._pending(), self._seen
        if self._has_missed:
            changed = [approval.approval_id for approval in self._site.client.approvals(pending=False)]
        else:
            changed = [*(seen.keys() - now.keys()), *(id_ for id_ in now if id_ not in seen)]
        self._seen, self._has_missed = now, False
        self.place = self.place._replace(approvals=_digest(now))
        for id_ in changed[-MOST_OPERATIONS:]:
            try:
                approval = self._site.client.approval(id_)
            except StoreError:
                raise
            except HoldfastError:
                continue  # its tree was collected, or it is damaged
            yield self._event("approval", shown_approval(approval))

    def _event(self, kind: str, fields: Any) -> str:
        data = json.dumps(fields, allow_nan=False, separators=(",", ":"))
        return f"event: {kind}\nid: {self.place.text}\ndata: {data}\n\n"


def _digest(statuses: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(statuses.items())).encode()).hexdigest()[:12]


def _find_place(site: Site, last: str | None, after: str | None) -> _Place | None:
    """Return the place to resume from.

    A browser may bring one of another store that was served here before: it begins from now on.
    """
    text = last or after
    if text is None:
        return None
    try:
        place = _Place.of(text)
        site.run(check_cursor(site.client._ctx, Cursor.from_text(place.cursor)))
    except UsageError:
        if last:
            return None
        raise
    return place


async def stream(site: Site, request: Request) -> StreamingResponse:
    query = read_query(request.scope["query_string"], PARAMETERS)
    last = request.headers.get("last-event-id")
    place = await anyio.to_thread.run_sync(_find_place, site, last, query["after"])
    poll = _Poll(site, query["session"], query["agent"], place)
    if len(_open) >= MOST_STREAMS:
        raise RefusedRequest(503, "too_many_streams", f"the server has {MOST_STREAMS} open streams", "Close other tabs")
    return StreamingResponse(_follow(poll), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def _follow(poll: _Poll) -> AsyncIterator[str]:
    if len(_open) >= MOST_STREAMS:  # many were asked for at the same moment
        return
    mark = id(poll)
    _open.add(mark)
    quiet = 0.0
    try:
        yield "retry: 2000\n\n" + await anyio.to_thread.run_sync(poll.begin)
        while True:
            try:
                found = await anyio.to_thread.run_sync(poll.next)
            except StoreError:  # busy, or away for a moment: the browser keeps its place and asks again
                return
            if found:
                quiet = 0.0
                yield "".join(found)
            elif quiet >= ALIVE_SECONDS:
                quiet = 0.0
                yield ": alive\n\n"
            await asyncio.sleep(POLL_SECONDS)
            quiet += POLL_SECONDS
    finally:
        _open.discard(mark)
