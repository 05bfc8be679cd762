"""fork, handoff: a child with the same state, in another session or for another agent. Nothing is copied."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any

from holdfast.backends.port import ABSENT, CommitConflict
from holdfast.errors import ConflictError, StoreError, UsageError
from holdfast.model import ids
from holdfast.model.lease import LeaseTerms
from holdfast.model.reports import ForkReport
from holdfast.objects import rows
from holdfast.objects.record import Stored
from holdfast.operations import aftermath, arguments, reading
from holdfast.operations import lease as leasing
from holdfast.operations.aftermath import Aftermath
from holdfast.operations.child import child
from holdfast.operations.memory import Line
from holdfast.operations.save import MAX_ATTEMPTS
from holdfast.operations.services import Services

_OF_THE_CALLER = ("agent", "fw", "ttl", "meta", "tasks", "ws", "app", "sv")


async def fork(
    services: Services,
    id_: bytes,
    session_id: str | None = None,
    *,
    new_id: bytes | None = None,
    strict: bool = False,
    acknowledge: Collection[str] = (),
    by: str = "",
) -> ForkReport:
    """A new session that begins with a child of that checkpoint, with the same state, at the same step."""
    source = await reading.live_record(services, id_)
    left = await aftermath.of_fork(services, source.tree, id_)
    known = await _repeated(services, source, new_id, session=session_id)
    if known is not None:
        return _report(known, source, left)
    acknowledgements = aftermath.acknowledged(services, left, acknowledge, by, "fork")
    session_id = session_id if session_id is not None else str(uuid.uuid4())
    session = rows.session_key(session_id)
    line = Line(tree=None, version=ABSENT, head=rows.Head(None, 0), head_value=None, tip=None)
    fields = _same(source) | {"session": session_id, "name": "fork"}
    commit, stored, _ = child(
        services, line, source, fields, source.manifest(), id_=new_id, step_index=source.header.get("step", 0)
    )
    report = _report(stored, source, left)
    if strict:
        aftermath.refuse_unacknowledged(report, acknowledge, "the fork")
    commit.rows = [*commit.rows, *acknowledgements]
    services.memory.drop(session)
    try:
        await services.backend.commit(commit)
    except CommitConflict as conflict:
        if conflict.kind == "require":
            await reading.live_record(services, id_)
        raise ConflictError(
            f"session {session_id!r:.60} exists already: a fork begins a new session. Choose another session_id, or "
            "leave it out; `rollback` moves the head of an existing one"
        ) from None
    except StoreError as error:
        error.checkpoint_id = ids.to_text(stored.id)
        raise
    return report


def _report(stored: Stored, source: Stored, left: Aftermath) -> ForkReport:
    return ForkReport(
        checkpoint_id=ids.to_text(stored.id),
        session_id=stored.session,
        source_id=ids.to_text(source.id),
        tree_id=ids.to_text(source.tree),
        effects=left.effects,
        unknown=left.unknown,
        consumers=left.consumers,
    )


async def _repeated(
    services: Services, source: Stored, new_id: bytes | None, *, session: str | None, target: str | None = None
) -> Stored | None:
    """The child that the same call made before, after an unclear failure perhaps; a conflict if it is another."""
    known = await reading.find_record(services, new_id) if new_id is not None else None
    if known is None:
        return None
    if known.parent != source.id or known.header.get("to") != target or session not in (None, known.session):
        raise ConflictError(
            f"checkpoint {ids.to_text(known.id)} is there already, and is something else. The stored one is untouched: "
            "leave out new_id to make a new one"
        )
    return known


async def handoff(
    services: Services,
    id_: bytes,
    target_agent_id: str,
    schema: str | None = None,
    *,
    new_id: bytes | None = None,
    lease: LeaseTerms | None = None,
) -> Stored:
    """A child of that checkpoint, in its session, addressed to another agent. It keeps the source's agent, metadata
    and time to live, and becomes the session's head. A lease under which it is made ends with it. A handoff can be handed
    on in the same way, back to where it came from too: it can't be claimed any more then."""
    source = await reading.live_record(services, id_)
    if target_agent_id == source.header["agent"] and "to" not in source.header:
        raise UsageError(f"{target_agent_id!r:.60} made this checkpoint itself: a handoff goes to another agent")
    fields = _same(source) | {"session": source.session, "name": f"handoff_to_{target_agent_id}", "to": target_agent_id}
    if schema is not None:
        fields["toschema"] = schema
    session = rows.session_key(source.session)
    arguments.session_under(lease, source.session)
    for _ in range(MAX_ATTEMPTS):
        known = await _repeated(services, source, new_id, session=source.session, target=target_agent_id)
        if known is not None:
            return known
        line = await reading.current_line(services, session)
        if not leasing.allows(services, line.head, lease):
            services.memory.drop(session)  # what this process remembers may be old
            line = await reading.current_line(services, session)
            leasing.refuse(services, source.session, line.head, lease)
        commit, stored, _ = child(services, line, source, fields, source.manifest(), id_=new_id)
        services.memory.drop(session)
        try:
            await services.backend.commit(commit)
        except CommitConflict:
            source = await reading.live_record(services, id_)
        except StoreError as error:
            error.checkpoint_id = ids.to_text(stored.id)
            raise
        else:
            return stored
    raise ConflictError(f"session {source.session!r:.60} is being written by too many at once: try again")


def _same(source: Stored) -> dict[str, Any]:
    return {name: source.header[name] for name in _OF_THE_CALLER if name in source.header}
