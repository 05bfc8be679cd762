"""Leases: who may write to a session, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

DEFAULT_SECONDS = 15.0


class Process(NamedTuple):
    """A process, so that others on the same machine can tell whether it still runs.

    `place` names machine, boot and process table: within one place, `pid` and `started` name a process for good. It is
    empty where that can't be told.
    """

    place: str
    pid: int
    started: int


class LeaseTerms:
    """The terms of a lease, for its holder: pass it to `save`, `rollback` and `handoff` as `lease`."""

    claimed: bytes | None = None
    """The handoff that it was taken with, by `claim`."""
    at_release: Sequence[Any] = ()
    """Changes of rows that are made with its release."""

    def __init__(self, session_id: str, holder: str, seconds: float, token: int, expires_at_us: int) -> None:
        self.session_id = session_id
        self.holder = holder
        self.seconds = seconds
        self.token = token
        """Rises with each lease of a session: another store can refuse a writer with a lower one."""
        self.expires_at_us = expires_at_us

    @property
    def expires_at(self) -> datetime:
        """When it ends unless it is renewed, by the clock of the process that took it."""
        from datetime import UTC, datetime

        return datetime.fromtimestamp(self.expires_at_us / 1e6, UTC)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.session_id!r:.60} held by {self.holder!r:.60} until "
            f"{self.expires_at:%Y-%m-%d %H:%M:%S} UTC>"
        )
