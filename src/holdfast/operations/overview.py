"""runs and overview: who is at work, and what waits. Rows and the records of heads are read, no states."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime

from holdfast.errors import HoldfastError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.overview import ALIVE, STOPPED, WAITING, Overview, RunStatus
from holdfast.objects import record, rows
from holdfast.operations import approvals, lease, reading
from holdfast.operations.services import Services

PAGE = 200
_log = logging.getLogger("holdfast")


async def overview(services: Services, *, sizes: bool = True) -> Overview:
    """Without `sizes`, which take as long as the store is large."""
    stored_bytes = (await services.backend.usage()).total_bytes if sizes else None
    capabilities = services.backend.capabilities
    found, sessions, saves = await _looked_at(services, only_alive=True)
    return Overview(
        backend=capabilities.name,
        location=capabilities.location,
        durability=capabilities.durability,
        sessions=sessions,
        saves=saves,
        stored_bytes=stored_bytes,
        approvals=len(await approvals.listed(services)),
        alive=tuple(found),
    )


async def runs(services: Services, *, alive: bool = False) -> list[RunStatus]:
    """Sessions that are or were held by a lease, those at work first, then those saved to last."""
    found, _, _ = await _looked_at(services, only_alive=alive)
    order = {ALIVE: 0, WAITING: 1, STOPPED: 2}
    oldest = datetime.min.replace(tzinfo=UTC)
    found.sort(key=lambda one: one.head.created_at if one.head else oldest, reverse=True)
    return sorted(found, key=lambda one: order[one.status])


async def _looked_at(services: Services, *, only_alive: bool) -> tuple[list[RunStatus], int, int]:
    """The runs, how many sessions stand at a checkpoint, and how many checkpoints were ever saved to them."""
    waiting = Counter(one.session_id for one in await approvals.listed(services))
    found: list[RunStatus] = []
    sessions = saves = 0
    after: bytes | None = None
    while page := await services.backend.scan(rows.HEAD, after=after, limit=PAGE):
        for key, row in page:
            name = rows.session_name(key.key)
            try:
                head = rows.unpack_head(key, row)
                sessions += head.checkpoint is not None
                saves += head.sequence
                held = head.lease if head.lease is not None and lease.is_alive(services, head.lease) else None
                if held is None and (only_alive or not head.fence):  # none that was ever leased has no fence
                    continue
                tip = await reading.nearest_live(services, head.checkpoint, key.tree)
                found.append(_status(name, head, held, _shown(services, tip), waiting[name]))
            except HoldfastError as error:  # one that can't be read must not hide the others
                _log.warning("session %r is left out of the list: %s", name, error)
        after = page[-1][0].key
    return found, sessions, saves


def _shown(services: Services, tip: record.Stored | None) -> Checkpoint | None:
    return None if tip is None else record.checkpoint(services.codec, tip)


def _status(
    name: str, head: rows.Head, held: rows.Lease | None, tip: Checkpoint | None, approvals_waiting: int
) -> RunStatus:
    return RunStatus(
        session_id=name,
        status=ALIVE if held else WAITING if approvals_waiting else STOPPED,
        head=tip,
        saves=head.sequence,
        approvals=approvals_waiting,
        holder=rows.session_name(held.holder) if held else None,
        expires_at=datetime.fromtimestamp(held.expires_at_us / 1e6, UTC) if held else None,
    )
