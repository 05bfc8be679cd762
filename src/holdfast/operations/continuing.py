"""Going on: a save of a run that adds to its journal, in the session where the run's last save left it.

It is a save like any other, made with less ado: what the general one finds out (`save.py`) is known here, or else it is
left to that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ormsgpack

from holdfast.backends.port import CommitConflict
from holdfast.codec import tags
from holdfast.errors import StoreError, UnsupportedValueError
from holdfast.model import ids
from holdfast.objects import continuing, rows
from holdfast.objects.manifest import Path
from holdfast.objects.record import Stored
from holdfast.operations import lease as leasing
from holdfast.operations.arguments import SaveRequest
from holdfast.operations.child import child, fields_of
from holdfast.operations.memory import Line
from holdfast.operations.services import Services

_packb = ormsgpack.packb


async def go_on(
    services: Services, request: SaveRequest, line: Line, path: Path, elements: Sequence[list[Any]], part: bytes
) -> Stored | None:
    """Saves the request with these plain elements after those of the list at that path, whose context ends with `part` (see
    `objects/continuing.py`). None if nothing was saved, because it takes a closer look or because somebody else was first."""
    tip, known = line.tip, line.lists.get(path)
    if tip is None or known is None or line.manifest is None or line.head.checkpoint != tip.id:
        return None
    assert request.lease is not None
    if not leasing.allows(services, line.head, request.lease):
        return None
    fields = fields_of(services, request)
    if (fields.get("sv"), fields["agent"]) != (tip.header.get("sv"), tip.header["agent"]):
        return None
    codec = services.codec
    try:
        fresh = [_packb(element, None, tags.PACK_OPTIONS) for element in elements]
        skeleton = continuing.skeleton(codec, request.execution_state, request.agent_context, part)
    except (TypeError, ValueError, UnsupportedValueError):
        return None  # what is wrong with it is for the general way to say
    if skeleton is None or max(map(len, fresh), default=0) > min(codec.limits.max_bytes, codec.limits.max_items):
        return None
    has_bytes = known.entry.has_bytes or any(map(codec.holds_bytes, fresh))
    planned = continuing.continued(line.manifest, known, skeleton, fresh, has_bytes=has_bytes)
    if planned is None:
        return None
    commit, stored, next_line = child(
        services,
        line,
        tip,
        fields,
        planned.manifest,
        lease=line.head.lease,
        claimed=request.lease.claimed,
        runs=planned.runs,
    )
    if request.beside is not None:
        commit.rows = [*commit.rows, *request.beside(stored)]
    next_line.lists[path] = planned.known
    session = rows.session_key(request.session_id)
    services.memory.put(session, next_line)
    try:
        await services.backend.commit(commit)
    except CommitConflict:
        services.memory.drop_failed(session, next_line)
        return None
    except StoreError as error:
        services.memory.drop_failed(session, next_line)
        error.checkpoint_id = ids.to_text(stored.id)
        raise
    except BaseException:
        services.memory.drop_failed(session, next_line)
        raise
    return stored
