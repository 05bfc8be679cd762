"""The order of a store's sessions, the one saved to last first, kept up to date with its changes."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast.backends.bridge.step import run_inline
from holdfast.errors import HoldfastError
from holdfast.format.rows import head
from holdfast.format.state import record

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient
    from holdfast.operations.context import StoreContext

PAGE = 500
MOST_CHANGES = 20_000  # more at once: the whole list is read again
OPERATIONS = 50  # more since the last time: everything is read again
REMOVING = ("expire", "unexpire", "retain", "undo", "redo")


class LogPosition(NamedTuple):
    """How far the operation log was read: its newest operation, and how many damaged rows it had."""

    newest: str | None = None
    damaged: int = 0


def follow_removals(ctx: StoreContext, last: LogPosition) -> tuple[LogPosition, bool]:
    """Return the position in the operation log, and whether nothing has expired or come back since `last`."""
    from holdfast.operations import operation_log

    damaged: list[str] = []
    found = run_inline(operation_log.operations(ctx, limit=OPERATIONS, damaged=damaged))
    names = [operation.operation_id for operation in found]
    since = found[: names.index(last.newest)] if last.newest in names else found
    is_all = last.newest in names or len(found) < OPERATIONS
    is_same = len(damaged) == last.damaged  # what a damaged one did is not known
    position = LogPosition(names[0] if names else None, len(damaged))
    return position, is_all and is_same and not any(operation.kind in REMOVING for operation in since)


class ListedSession(NamedTuple):
    session_id: str
    agent_id: str


class SessionIndex:
    """All sessions by name, in the order of their last saves. Reads the list once, then only changes."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._position: int | None = None
        self._operation = LogPosition()
        self._agents: dict[str, str] = {}  # the session saved to last is the last key

    def list(self) -> list[ListedSession]:
        """Return the sessions, the one saved to last first."""
        with self._lock:
            self._operation, is_same = follow_removals(self._client._ctx, self._operation)
            if self._position is None or not is_same or not self._follow():
                self._read()
            return [ListedSession(name, agent) for name, agent in reversed(self._agents.items())]

    def _read(self) -> None:
        self._position = run_inline(self._client._ctx.backend.last_change())
        found = self._client.sessions()
        listed = {session.session_id: session.agent_id for session in reversed(found)}
        self._agents = {**dict.fromkeys(self._list_unreadable(listed), ""), **listed}

    def _list_unreadable(self, listed: Container[str]) -> Iterator[str]:
        """Yield the sessions that a listing leaves out since their heads can't be read: the page names them."""
        after: bytes | None = None
        while page := run_inline(self._client._ctx.backend.scan(head.HEAD, after=after, limit=PAGE)):
            for key, _ in page:
                name = head.session_name(key.key)
                try:
                    if name not in listed:
                        self._client.session(name)  # None: it has expired
                except HoldfastError:
                    yield name
            after = page[-1][0].key

    def _follow(self) -> bool:
        """Apply the changes since the last time; False if there are too many."""
        ctx = self._client._ctx
        assert self._position is not None
        for _ in range(MOST_CHANGES // PAGE):
            page = run_inline(ctx.backend.changes(self._position, PAGE))
            for change in page:
                self._position = change.position
                try:
                    stored = record.unpack(ctx.codec, change.record.data, expected_id=change.record.id)
                except HoldfastError:
                    continue
                self._agents.pop(stored.session, None)
                self._agents[stored.session] = str(stored.header["agent"])
            if len(page) < PAGE:
                return True
        return False
