"""Approvals: a call waits until a person has decided about it, across processes and restarts.

`request` writes the row or finds it, `decide` ends the waiting, `wait` looks until it has ended. `use` gives the change of
the row that belongs into the commit of the effect's intent: then an approval is used up by exactly one effect, or neither
is there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdfast.backends.port import Commit, CommitConflict, Row, RowKey, RowWrite
from holdfast.errors import (
    ApprovalError,
    ApprovalPendingError,
    ApprovalRejectedError,
    CheckpointNotFoundError,
    ConflictError,
    HoldfastError,
    StoreError,
)
from holdfast.model import ids
from holdfast.model.approval import Answer, Approval, ApprovalStatus, Call, Decision
from holdfast.objects import approvals as entries
from holdfast.objects import rows
from holdfast.objects.approvals import Asked, Held
from holdfast.operations import reading
from holdfast.operations.graves import Graveyard
from holdfast.operations.services import Services

PAGE = 200
MAX_ATTEMPTS = 100
SHORTEST_WAIT = 0.02
_log = logging.getLogger("holdfast")


# -- asking ------------------------------------------------------------------------------------------------------------


async def request(services: Services, asked: Asked) -> Held:
    """The approval of that call on that occasion: as it stands, or newly asked for.

    One that waits or was granted is found again; so is a rejection, if the occasion has a key of its own or the session
    has not moved since. What was asked for at a place that the session has left counts no more. If the same occasion asks for another call now, the approval of the earlier one is void.
    """
    session = rows.session_key(asked.session_id)
    line = await reading.confirmed_line(services, session)
    if line.tree is None:
        raise CheckpointNotFoundError(
            f"there is no session {asked.session_id!r:.60} that could ask: save to it first, or take its `lease`"
        )
    tree, here = line.tree, line.tip.id if line.tip else None
    call = asked.call
    digest = entries.call_digest(services.codec, call.tool, call.identity, call.arguments, call.schema)
    also: list[RowWrite] = []
    attempt = 0
    for _ in range(MAX_ATTEMPTS):
        id_ = entries.id_of(tree, asked.session_id, asked.request_key or digest, attempt)
        held = await read(services, tree, id_)
        if held is None:
            write = entries.asked(services.codec, tree, id_, asked, here, digest, services.now_us())
            try:
                await services.backend.commit(Commit(tree=tree, rows=[write, *also]))
            except CommitConflict:
                also, attempt = [], 0  # another has asked, or has decided about what would be void: look again
            continue
        approval = held.approval
        if approval.digest == digest and approval.status in (*entries.OPEN, ApprovalStatus.REJECTED):
            is_here = approval.checkpoint_id == (here and ids.to_text(here))
            is_occasion = bool(asked.request_key) or approval.status is not ApprovalStatus.REJECTED
            if is_here or (is_occasion and await _is_on_path(services, held, here)):
                return held
        if approval.status in entries.OPEN:
            also = entries.voided(services.codec, held, services.now_us())
        attempt += 1
    raise ConflictError(f"session {asked.session_id!r:.60} asks for {call.tool!r:.60} too often at once: try again")


async def wait(services: Services, held: Held, *, seconds: float | None = None, longest_poll: float = 1.0) -> Held:
    """The approval once it no longer waits: decided, expired or void. `ApprovalPendingError` after so many seconds."""
    deadline = None if seconds is None else services.now_us() + round(seconds * 1e6)
    backend, poll = services.backend, min(SHORTEST_WAIT, longest_poll)
    while True:
        seen = backend.committed  # before reading: what is committed from here on ends the wait
        now = await read(services, held.tree, held.id)
        if now is None:
            raise _not_found(held.approval.approval_id)
        if not now.approval.is_pending:
            return now
        left = longest_poll if deadline is None else (deadline - services.now_us()) / 1e6
        if left <= 0:
            raise _pending(now.approval)
        if not await backend.wait_for_commit(seen, min(poll, left)):
            raise StoreError("the client was closed while it waited for an approval. The approval waits on")
        poll = min(poll * 2, longest_poll)


# -- looking -----------------------------------------------------------------------------------------------------------


async def find(services: Services, id_: bytes) -> Held:
    """The approval of that id, in whatever tree it is."""
    for part in (entries.WAITING, entries.DONE):  # in this order: a row only goes from the first to the second
        for key, row in await services.backend.scan(entries.APPROVAL, prefix=part + id_, limit=1):
            return entries.unpack(services.codec, key, row, services.now_us())
    raise _not_found(ids.to_text(id_))


async def listed(services: Services, session_id: str | None = None, *, pending: bool = True) -> list[Approval]:
    """The approvals that wait for a decision, of all sessions or of one; with `pending=False` all. The oldest first."""
    tree = None
    if session_id is not None:
        tree = await reading.find_tree(services, rows.session_key(session_id))
        if tree is None:
            return []
    found = [held.approval for held in await _all(services, tree, entries.WAITING if pending else b"")]
    return sorted(
        (
            one
            for one in found
            if (session_id is None or one.session_id == session_id) and (one.is_pending or not pending)
        ),
        key=lambda one: (one.requested_at, one.approval_id),
    )


# -- deciding ----------------------------------------------------------------------------------------------------------


async def decide(
    services: Services,
    id_: bytes,
    answer: Answer,
    *,
    by: str,
    note: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Approval:
    """Decides about an approval that waits; of many that do, one does. The same decision of the same person again is a
    no-op, so one of which it is unclear whether it was made can be repeated."""
    for _ in range(MAX_ATTEMPTS):
        held = await find(services, id_)
        approval, codec = held.approval, services.codec
        made = approval.decision
        if made is not None:
            if (made.answer, made.by, made.note, made.arguments) == (answer, by, note, arguments):
                return approval
            raise ConflictError(f"{_decided(approval)}. A decision is final; ask again for another one")
        if not approval.is_pending:
            raise _refusal(approval)
        decision = Decision(answer=answer, by=by, at=entries.moment(services.now_us()), note=note, arguments=arguments)
        may_run = approval.digest if answer is Answer.APPROVE else None
        if arguments is not None:
            call = approval.call
            may_run = entries.call_digest(codec, call.tool, identity_with(call, arguments), arguments, call.schema)
        try:
            await services.backend.commit(Commit(tree=held.tree, rows=entries.decided(codec, held, decision, may_run)))
        except CommitConflict:
            continue  # somebody was first: what they decided is to be told
        return (await find(services, id_)).approval
    raise ConflictError(f"approval {ids.to_text(id_)} is being decided by too many at once: try again")


def identity_with(call: Call, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of a call whose arguments were changed: what is among the arguments is as it is there now."""
    return {name: arguments.get(name, value) for name, value in call.identity.items()}


# -- using -------------------------------------------------------------------------------------------------------------


async def use(services: Services, held: Held, *, session_id: str, digest: bytes, by: str) -> RowWrite:
    """The change that uses up a granted approval, for the commit that writes down the intent of the effect `by`.

    `digest` is `entries.call_digest` of the call as it will be made. Raises if the approval is for another call or
    session, was not granted, has expired, was used, or was asked for at a place that the session has left. The commit
    fails (`CommitConflict` of the kind "row") if another effect has used it by then.
    """
    approval = held.approval
    if approval.session_id != session_id:
        raise ApprovalError(
            f"approval {approval.short_id} is for session {approval.session_id!r:.60}, not for {session_id!r:.60}: forks "
            "and other sessions inherit none. Ask for one",
            approval.approval_id,
        )
    if not approval.is_granted:
        raise _refusal(approval)
    if approval.may_run != digest:
        raise ApprovalError(
            f"approval {approval.short_id} is for another call of {approval.call.tool!r:.60} than this one: tool, identity "
            "and all arguments must be those that were approved. Ask for this call",
            approval.approval_id,
        )
    line = await reading.confirmed_line(services, rows.session_key(session_id))
    if not await _is_on_path(services, held, line.tip.id if line.tip else None):
        raise ApprovalError(
            f"approval {approval.short_id} was asked for at checkpoint {approval.checkpoint_id}, which session "
            f"{session_id!r:.60} has left since: what was approved there is not approved here. Ask again",
            approval.approval_id,
        )
    return entries.used(services.codec, held, by, services.now_us())


async def use_alone(services: Services, id_: bytes, call: Call, *, session_id: str, by: str) -> Approval:
    """Uses an approval up in a commit of its own: for who keeps no ledger. Exactly one caller gets it."""
    digest = entries.call_digest(services.codec, call.tool, call.identity, call.arguments, call.schema)
    for _ in range(MAX_ATTEMPTS):
        held = await find(services, id_)
        write = await use(services, held, session_id=session_id, digest=digest, by=by)
        try:
            await services.backend.commit(Commit(tree=held.tree, rows=[write]))
        except CommitConflict:
            continue  # used, or void, meanwhile
        return (await find(services, id_)).approval
    raise ConflictError(f"approval {ids.to_text(id_)} is being used by too many at once: try again")


def granted(approval: Approval) -> Approval:
    """The approval, if its call may be carried out now; else raises what says why not."""
    if approval.is_granted:
        return approval
    raise _refusal(approval)


# -- ending ------------------------------------------------------------------------------------------------------------


async def void_after(
    services: Services, tree: bytes, session_id: str, to: bytes
) -> tuple[list[Approval], list[RowWrite]]:
    """The open approvals of a session that a move of its head to `to` makes void, and the changes that say so: what was
    asked for at a place that the session leaves."""
    voided: list[Approval] = []
    writes: list[RowWrite] = []
    for held in await _all(services, tree, b""):
        approval = held.approval
        if approval.session_id == session_id and approval.status in entries.OPEN:
            if await _is_on_path(services, held, to):
                continue
            voided.append(approval)
            writes += entries.voided(services.codec, held, services.now_us())
    return voided, writes


async def withdraw(services: Services, held: Held) -> None:
    """Makes an open approval void, unless somebody has used it or made it void by now."""
    try:
        await services.backend.commit(
            Commit(tree=held.tree, rows=entries.voided(services.codec, held, services.now_us()))
        )
    except CommitConflict:
        return


async def forget(services: Services) -> None:
    """Removes the approvals of trees that were collected. Part of `gc`."""
    alive: set[bytes] = set()
    after: bytes | None = None
    while page := await services.backend.scan(entries.APPROVAL, after=after, limit=PAGE):
        for key, row in page:
            # The head is looked for after the approval was seen: who asks has one before.
            if key.tree not in alive and await services.backend.scan(rows.HEAD, tree=key.tree, limit=1):
                alive.add(key.tree)
            if key.tree not in alive:
                try:
                    await services.backend.commit(Commit(tree=key.tree, rows=[RowWrite(key, None, row.version)]))
                except CommitConflict:
                    continue
        after = page[-1][0].key


# -- reading -----------------------------------------------------------------------------------------------------------


async def read(services: Services, tree: bytes, id_: bytes) -> Held | None:
    """The approval of that id in that tree, as it is now."""
    keys = [entries.key(tree, id_, part) for part in (entries.WAITING, entries.DONE)]
    for key, row in zip(keys, await services.backend.rows(keys), strict=True):
        if row is not None:
            return entries.unpack(services.codec, key, row, services.now_us())
    return None


async def _all(services: Services, tree: bytes | None, prefix: bytes) -> list[Held]:
    found: list[Held] = []
    page: list[tuple[RowKey, Row]]
    after: bytes | None = None
    while page := await services.backend.scan(entries.APPROVAL, tree=tree, prefix=prefix, after=after, limit=PAGE):
        for key, row in page:
            try:
                found.append(entries.unpack(services.codec, key, row, services.now_us()))
            except HoldfastError as error:  # one that can't be read must not hide the others
                _log.warning("approval %s is left out of the list: %s", ids.to_text(key.key[1:]), error)
        after = page[-1][0].key
    return found


async def _is_on_path(services: Services, held: Held, tip: bytes | None) -> bool:
    """Whether the checkpoint at which it was asked for is `tip` or one of its ancestors."""
    if held.approval.checkpoint_id is None:
        return True  # asked for before there was any
    anchor = ids.from_text(held.approval.checkpoint_id)
    if tip == anchor:
        return True
    graveyard = Graveyard(services)
    first = await reading.find_record(services, anchor, held.tree, graveyard)
    while tip is not None and first is not None:
        stored = await reading.find_record(services, tip, held.tree, graveyard)
        if stored is None or (stored.session == first.session and stored.sequence <= first.sequence):
            return stored is not None and stored.id == anchor
        tip = stored.parent
    return False


# -- words -------------------------------------------------------------------------------------------------------------


def _not_found(approval_id: str) -> CheckpointNotFoundError:
    return CheckpointNotFoundError(
        f"there is no approval {approval_id}: it was never asked for here, or its session was collected. "
        "`approvals(pending=False)`, or `holdfast approvals --all`, lists those that are there"
    )


def _pending(approval: Approval) -> ApprovalPendingError:
    asked = f" by {approval.approvers!r:.60}" if approval.approvers else ""
    return ApprovalPendingError(
        f"{approval.call.tool!r:.60} of session {approval.session_id!r:.60} waits for approval{asked}, until "
        f"{_time(approval.expires_at)}: `holdfast approve {approval.short_id}`, or `holdfast reject {approval.short_id}`, "
        "then go on",
        approval.approval_id,
    )


def _decided(approval: Approval) -> str:
    made = approval.decision
    assert made is not None
    past = {Answer.APPROVE: "approved", Answer.REJECT: "rejected", Answer.MODIFY: "approved with other arguments"}
    return f"approval {approval.short_id} was {past[made.answer]} by {made.by!r:.60} on {_time(made.at)}"


def _refusal(approval: Approval) -> ApprovalError:
    if approval.status is ApprovalStatus.PENDING:
        return _pending(approval)
    id_ = approval.approval_id
    if approval.status is ApprovalStatus.REJECTED:
        made = approval.decision
        assert made is not None
        why = f": {made.note}" if made.note else ""
        return ApprovalRejectedError(
            f"{approval.call.tool!r:.60} was rejected by {made.by!r:.60} on {_time(made.at)}{why}",
            id_,
            made.by,
            made.note,
        )
    if approval.status is ApprovalStatus.USED:
        assert approval.ended_at is not None
        return ApprovalError(
            f"approval {approval.short_id} was used on {_time(approval.ended_at)} by {approval.used_by}: it counts once. "
            "Ask for another one",
            id_,
        )
    if approval.status is ApprovalStatus.VOID:
        return ApprovalError(
            f"approval {approval.short_id} is void: its session was rolled back or asked for another call in its place, or it "
            "was given with arguments that the tool does not take. Ask again",
            id_,
        )
    return ApprovalError(
        f"approval {approval.short_id} expired on {_time(approval.expires_at)}: ask again, with a longer time if people need "
        "it",
        id_,
    )


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
