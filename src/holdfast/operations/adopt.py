"""adopt: the state of a fork becomes the next checkpoint of the session that it was forked from. Nothing is copied."""

from __future__ import annotations

from holdfast.backends.port import CommitConflict
from holdfast.errors import CheckpointNotFoundError, ConflictError, UsageError
from holdfast.model import ids
from holdfast.objects import oplog, rows
from holdfast.objects.oplog import Change, Origin
from holdfast.objects.record import Stored
from holdfast.operations import lease as leasing
from holdfast.operations import oplog as log
from holdfast.operations import reading
from holdfast.operations.child import child
from holdfast.operations.fork import _same
from holdfast.operations.save import MAX_ATTEMPTS
from holdfast.operations.services import Services


async def adopt(services: Services, fork_session: str, session_id: str | None, origin: Origin) -> tuple[Stored, Stored]:
    """The new checkpoint, a child of what the fork stands at, and that. Where the session stood before stays as a branch."""
    line = await reading.standing(services, rows.session_key(fork_session))
    if line.tip is None:
        raise CheckpointNotFoundError(
            f"there is no session {fork_session!r:.60}. `sessions` lists those that are there"
        )
    fork = line.tip
    parent = session_id if session_id is not None else await parent_session(services, fork_session, fork)
    if parent == fork_session:
        raise UsageError(
            f"session {parent!r:.60} can't adopt itself: name the fork, and the session that goes on with it"
        )
    session = rows.session_key(parent)
    adopted = services.codec.decode(fork.header["meta"]) if "meta" in fork.header else {}
    adopted = {**adopted, "adopted_from": ids.to_text(fork.id), "adopted_session": fork_session}
    fields = _same(fork) | {"session": parent, "name": "adopted", "meta": services.codec.encode(adopted, "metadata")}
    for _ in range(MAX_ATTEMPTS):
        line = await reading.standing(services, session)
        if line.tree is not None and line.tree != fork.tree:
            raise UsageError(
                f"session {parent!r:.60} is no relative of {fork_session!r:.60}: only a fork of it, or of one that it was forked "
                "from, can be adopted"
            )
        leasing.refuse(services, parent, line.head, None)
        commit, stored, _ = child(services, line, fork, fields, fork.manifest())
        moved = [Change(oplog.HEAD, session, line.head.checkpoint, stored.id)]
        commit.rows = [*commit.rows, *log.writes(services, origin, stored.tree, "adopt", moved, parent)]
        services.memory.drop(session)
        try:
            await services.backend.commit(commit)
        except CommitConflict:
            fork = await reading.live_record(services, fork.id)
        else:
            return stored, fork
    raise ConflictError(f"session {parent!r:.60} is being written by too many at once: try again")


async def parent_session(services: Services, fork_session: str, head: Stored) -> str:
    """The session that a fork came from."""
    point, _ = await fork_point(services, fork_session, head)
    if point is None:
        raise UsageError(f"session {fork_session!r:.60} was forked from none that is still there: say session_id")
    return point.session


async def fork_point(services: Services, fork_session: str, head: Stored) -> tuple[Stored | None, Stored]:
    """Where a fork began: the first checkpoint up from its head which is not its own, None if that is gone; and the one after it."""
    first = head
    above = await reading.nearest_live(services, head.parent, head.tree)
    while above is not None and above.session == fork_session:
        first, above = above, await reading.nearest_live(services, above.parent, above.tree)
    return above, first
