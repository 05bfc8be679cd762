"""The checkpoints that hold objects written ahead of their commit. They belong to no user.

They are removed soon: see `operations/staging.py`.
"""

from __future__ import annotations

from holdfast.format.state.record import StoredRecord
from holdfast.model import ids

IMPORTING = "importing"  # parts of a tree
SNAPSHOT = "snapshot"  # files of a workspace


def session_of(purpose: str, checkpoint: bytes) -> str:
    """Return the session of such a checkpoint."""
    return f"{purpose} {ids.to_text(checkpoint)}"


def is_staged(stored: StoredRecord) -> bool:
    return stored.session in (session_of(IMPORTING, stored.id), session_of(SNAPSHOT, stored.id))
