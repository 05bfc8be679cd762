"""Pins and tags, as they are listed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A checkpoint that is kept until it is unpinned.

    It can't be expired, no policy chooses it, and its time to live does not end it.
    """

    checkpoint_id: str
    session_id: str
    pinned_at: datetime
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A name for a checkpoint, which is kept like a pinned one as long as it has the name."""

    name: str
    checkpoint_id: str
    tagged_at: datetime
