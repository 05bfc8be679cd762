"""adopt: the files and the state of a fork go on as those of the directory and the session that it came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast import processes
from holdfast.backends.port import RowWrite
from holdfast.errors import CheckpointNotFoundError
from holdfast.model import ids
from holdfast.model.restore_report import AdoptReport
from holdfast.objects import oplog, rows
from holdfast.objects.oplog import Change, Origin
from holdfast.objects.record import Stored
from holdfast.operations import adopt as adopting
from holdfast.operations import oplog as log
from holdfast.operations import reading, snapshots
from holdfast.operations import restore as restoring
from holdfast.operations.arguments import SaveRequest
from holdfast.operations.services import Services
from holdfast.workspace.here import Here
from holdfast.workspace.restore_terms import Target, Wishes
from holdfast.workspace.restoring import ADOPT, Restoring

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.workspace.workspace import Opened


async def adopt(
    opened: Opened,
    fork_opened: Opened,
    fork_session: str,
    *,
    session_id: str | None,
    keep: str | None,
    force: bool,
) -> AdoptReport:
    """Brings the files and the state of a fork back, as the next checkpoint of the session that it was forked from: both, or
    neither. A process that dies in between leaves the journal of the restore."""
    services = opened.services
    head = await restoring.latest(services, fork_session)
    if head is None:
        raise CheckpointNotFoundError(
            f"there is no session {fork_session!r:.60}. `sessions` lists those that are there"
        )
    stands = await reading.live_record(services, ids.from_text(head.checkpoint_id))
    parent = session_id if session_id is not None else await adopting.parent_session(services, fork_session, stands)
    known = await _in_common(services, parent, fork_session, stands)
    last = ids.to_text((await fork_opened.taker.save(_same(head, fork_session, "before it is adopted")))[0].id)
    here = Here(opened)
    target = Target(snapshot=await opened.snapshot_at(last), checkpoint_id=last, session_id=parent)
    wishes = Wishes(keep="user" if keep else None, force=force, known=known, since="the fork was made")
    origin = Origin(processes.default_holder(), ADOPT, id=services.new_id(None))
    files = await Restoring(here, origin).restore(target, wishes)
    assert here.adopted is not None
    return AdoptReport(checkpoint_id=here.adopted, session_id=parent, fork_id=last, files=replace(files, scope="files"))


async def adopt_state(opened: Opened, session_id: str, fork_id: str, origin: Origin) -> str:
    """The next checkpoint of a session, with the state of a fork and the files as they are in the directory."""
    services = opened.services
    fork = await restoring.restore(services, ids.from_text(fork_id))
    request = _same(fork, session_id, "adopted", adopted_from=fork_id, adopted_session=fork.session_id)
    saved, _, _ = await opened.taker.save(replace(request, beside=_adopted(services, origin)))
    return ids.to_text(saved.id)


async def adopted_from(services: Services, checkpoint_id: str) -> str | None:
    """The checkpoint of a fork whose state this one has taken over."""
    said: str | None = _metadata(services, await reading.live_record(services, ids.from_text(checkpoint_id))).get(
        "adopted_from"
    )
    return said


async def _in_common(services: Services, parent: str, fork_session: str, fork_head: Stored) -> tuple[str, ...]:
    """What the two directories had in common: the snapshot that the fork was made of, that of what its parent stood at then, and the
    fork's own of the last time that it was adopted. What is here as in one of them was not changed here since."""
    point, first = await adopting.fork_point(services, fork_session, fork_head)
    found, is_adopted = [point], False
    one = (await reading.standing(services, rows.session_key(parent))).tip
    while one is not None:
        said = _metadata(services, one)
        if said.get("adopted_session") == fork_session and "adopted_from" in said and not is_adopted:
            found.append(await reading.find_record(services, ids.from_text(said["adopted_from"])))
            is_adopted = True
        if one.header["at"] <= first.header["at"]:
            # If the fork's first checkpoint has expired, nobody knows when that was.
            found += [one] if first.sequence == 1 else []
            break
        one = await reading.nearest_live(services, one.parent, one.tree)
    known = []
    for stored in found:
        snapshot = None if stored is None or stored.is_tombstone else await snapshots.nearest(services, stored)
        if snapshot is not None:
            known.append(snapshot.reference)
    return tuple(known)


def _metadata(services: Services, stored: Stored) -> dict[str, Any]:
    said = stored.header.get("meta")
    return {} if said is None else services.codec.decode(said)


def _adopted(services: Services, origin: Origin) -> Callable[[Stored], list[RowWrite]]:
    """The part of the operation that is about the session: by the commit that makes the next checkpoint of it."""

    def writes(stored: Stored) -> list[RowWrite]:
        moved = Change(oplog.HEAD, rows.session_key(stored.session), stored.parent, stored.id)
        return log.writes(services, origin._replace(part=1), stored.tree, ADOPT, [moved], stored.session)

    return writes


def _same(head: Checkpoint, session_id: str, step_name: str, **metadata: str) -> SaveRequest:
    """What a checkpoint holds, to be saved in a session."""
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
