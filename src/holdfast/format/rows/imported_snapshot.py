"""The marks of imported snapshots: rows of the store, written by an import, by snapshot reference.

A bundle can neither make nor remove such a row: rows of this space are never carried to another
store. A mark stays when its snapshot is collected, so that a snapshot that is imported again
meanwhile always has its mark.
"""

from __future__ import annotations

from holdfast.backends.port import STORE, RowKey, RowWrite
from holdfast.format.rows import head
from holdfast.model.ids import SCHEME

SPACE = "imported"
_CONTENT = b"\x01"


def key(reference: str) -> RowKey:
    """Return the key of a snapshot's mark."""
    return RowKey(SPACE, bytes.fromhex(reference.removeprefix(SCHEME)), STORE)


def mark(reference: str) -> RowWrite:
    row_key = key(reference)
    return RowWrite(row_key, head.protect(row_key, _CONTENT))
