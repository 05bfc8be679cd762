"""The checkpoints that hold what was written ahead of the commit it is for: nobody's, and soon gone. See
`operations/staging.py`."""

from __future__ import annotations

from holdfast.model import ids
from holdfast.objects.record import Stored

IMPORTING = "importing"  # parts of a tree
SNAPSHOT = "snapshot"  # files of a workspace


def session_of(purpose: str, checkpoint: bytes) -> str:
    """The session of its own that such a checkpoint is in."""
    return f"{purpose} {ids.to_text(checkpoint)}"


def is_staged(stored: Stored) -> bool:
    return stored.session in (session_of(IMPORTING, stored.id), session_of(SNAPSHOT, stored.id))
