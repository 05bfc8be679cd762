"""Adoption of a fork: its files and state become those of the directory and session it came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.backends.port import RowWrite
from holdfast.coordination import process
from holdfast.errors import CheckpointNotFoundError
from holdfast.format.rows import head as rows
from holdfast.format.rows import operation_log
from holdfast.format.rows.operation_log import LoggedChange, Origin
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.file_restore_report import AdoptReport
from holdfast.operations import adopt as adopting
from holdfast.operations import lookup, snapshot_read
from holdfast.operations import operation_log as log
from holdfast.operations import restore as restoring
from holdfast.operations.context import StoreContext
from holdfast.operations.validate import SaveRequest
from holdfast.workspace.restore.directory import DirectoryState
from holdfast.workspace.restore.engine import ADOPT, RestoreEngine
from holdfast.workspace.restore.request import RestoreOptions, RestoreTarget

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.workspace.core import WorkspaceCore


async def adopt(
    opened: WorkspaceCore,
    fork_opened: WorkspaceCore,
    fork_session: str,
    *,
    session_id: str | None,
    keep: str | None,
    force: bool,
) -> AdoptReport:
    """Adopt a fork's files and state as the next checkpoint of its parent session, atomically.

    A process that dies in between leaves the journal of the restore.
    """
    ctx = opened.ctx
    head = await restoring.latest(ctx, fork_session)
    if head is None:
        raise CheckpointNotFoundError(
            f"there is no session {fork_session!r:.200}. `sessions` lists those that are there"
        )
    stands = await lookup.load_live_record(ctx, ids.from_text(head.checkpoint_id))
    parent = session_id if session_id is not None else await adopting.parent_session(ctx, fork_session, stands)
    known = await _find_common(ctx, parent, fork_session, stands)
    last = ids.to_text((await fork_opened.taker.save(_copy_request(head, fork_session, "before it is adopted")))[0].id)
    directory = DirectoryState(opened)
    target = RestoreTarget(snapshot=await opened.snapshot_at(last), checkpoint_id=last, session_id=parent)
    options = RestoreOptions(keep="user" if keep else None, force=force, known=known, since="the fork was made")
    origin = Origin(process.default_holder(), ADOPT, id=ctx.new_id(None))
    files = await RestoreEngine(directory, origin).restore(target, options)
    assert directory.adopted is not None
    return AdoptReport(
        checkpoint_id=directory.adopted, session_id=parent, fork_id=last, files=replace(files, scope="files")
    )


async def adopt_state(opened: WorkspaceCore, session_id: str, fork_id: str, origin: Origin) -> str:
    """Return the session's next checkpoint: the fork's state, with the files as they are in the directory."""
    ctx = opened.ctx
    fork = await restoring.restore(ctx, ids.from_text(fork_id))
    request = _copy_request(fork, session_id, "adopted", adopted_from=fork_id, adopted_session=fork.session_id)
    saved, _, _ = await opened.taker.save(replace(request, extra_rows=_write_adopted(ctx, origin)))
    return ids.to_text(saved.id)


async def adopted_from(ctx: StoreContext, checkpoint_id: str) -> str | None:
    """Return the checkpoint of a fork whose state this one has taken over."""
    adopted: str | None = _metadata(ctx, await lookup.load_live_record(ctx, ids.from_text(checkpoint_id))).get(
        "adopted_from"
    )
    return adopted


async def _find_common(ctx: StoreContext, parent: str, fork_session: str, fork_head: StoredRecord) -> tuple[str, ...]:
    """Return the snapshots that the two directories have in common.

    They are the snapshot that the fork was made from, the parent's snapshot at that time, and the
    fork's own snapshot when it was last adopted. A file that is the same here as in one of them has
    not changed here since.
    """
    point, first = await adopting.fork_point(ctx, fork_session, fork_head)
    found, is_adopted = [point], False
    record = (await lookup.load_tip(ctx, rows.session_key(parent))).checkpoint
    while record is not None:
        metadata = _metadata(ctx, record)
        if metadata.get("adopted_session") == fork_session and "adopted_from" in metadata and not is_adopted:
            found.append(await lookup.find_record(ctx, ids.from_text(metadata["adopted_from"])))
            is_adopted = True
        if record.header["at"] <= first.header["at"]:
            # If the fork's first checkpoint has expired, that moment is unknown.
            found += [record] if first.sequence == 1 else []
            break
        record = await lookup.find_nearest_live(ctx, record.parent, record.tree)
    known = []
    for stored in found:
        snapshot = None if stored is None or stored.is_tombstone else await snapshot_read.find_nearest(ctx, stored)
        if snapshot is not None:
            known.append(snapshot.reference)
    return tuple(known)


def _metadata(ctx: StoreContext, stored: StoredRecord) -> dict[str, Any]:
    packed = stored.header.get("meta")
    return {} if packed is None else ctx.codec.decode(packed)


def _write_adopted(ctx: StoreContext, origin: Origin) -> Callable[[StoredRecord], list[RowWrite]]:
    """Return the session's part of the operation, for the commit that makes its next checkpoint."""

    def writes(stored: StoredRecord) -> list[RowWrite]:
        moved = LoggedChange(operation_log.HEAD, rows.session_key(stored.session), stored.parent, stored.id)
        return log.writes(ctx, origin._replace(part=1), stored.tree, ADOPT, [moved], stored.session)

    return writes


def _copy_request(head: Checkpoint, session_id: str, step_name: str, **metadata: str) -> SaveRequest:
    """Return what a checkpoint holds, to be saved in a session."""
    return SaveRequest(
        agent_id=head.agent_id,
        session_id=session_id,
        framework=head.framework,
        execution_state=head.execution_state,
        agent_context=head.agent_context,
        step_name=step_name,
        metadata={**head.metadata, **metadata},
        tasks=head.tasks,
        app_version=head.app_version,
        state_version=head.state_version,
    )
