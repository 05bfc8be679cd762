"""One session by its name. `client.sessions()` reads the heads of all of them, and fails with any that is damaged."""

from __future__ import annotations

from holdfast.backends.bridge import run_inline
from holdfast.model import ids
from holdfast.model.listing import Session
from holdfast.objects import record, rows
from holdfast.operations import reading
from holdfast.sync_client import SyncClient


def session_named(client: SyncClient, session_id: str) -> Session | None:
    """The session and its head, None if there is none or all of it has expired."""
    services = client._services
    line = run_inline(reading.current_line(services, rows.session_key(session_id)))
    if line.tree is None or line.tip is None:
        return None
    return Session(
        session_id=session_id,
        tree_id=ids.to_text(line.tree),
        head=record.checkpoint(services.codec, line.tip),
        saves=line.head.sequence,
    )
