"""Approvals: a call waits for a person's decision, across processes and restarts.

`request` writes the row or finds it, `decide` ends the wait, `wait` polls until it has ended. `use`
returns the change of the row for the commit of the effect's intent: so exactly one effect uses an
approval, or neither exists.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import count
from typing import Any

from holdfast import telemetry
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
from holdfast.format.rows import approval as entries
from holdfast.format.rows import head
from holdfast.format.rows.approval import ApprovalRequest, ApprovalRow
from holdfast.model import ids
from holdfast.model.approval import Answer, Approval, ApprovalStatus, Call, Decision
from holdfast.operations import due, lookup
from holdfast.operations.context import StoreContext
from holdfast.operations.gc_rows import gc_rows
from holdfast.operations.tombstones import TombstoneReader
from holdfast.operations.wait import NotedWait

PAGE = 100
MAX_ATTEMPTS = 100
SHORTEST_WAIT = 0.02
_log = logging.getLogger("holdfast")


# -- request -----------------------------------------------------------------------------------------------------------


async def request(ctx: StoreContext, terms: ApprovalRequest) -> ApprovalRow:
    """Request approval of that call on that occasion, or return the existing one.

    A pending or granted one is found again; so is a rejection, if the occasion has a key of its own
    or the session has not moved since. A request at a checkpoint that the session has left no
    longer counts. If the same occasion requests another call now, the approval of the earlier one
    is void.
    """
    session = head.session_key(terms.session_id)
    tip = await lookup.revalidated_tip(ctx, session)
    if tip.tree is None:
        raise CheckpointNotFoundError(
            f"there is no session {terms.session_id!r:.200} that could ask: save to it first, or take its `lease`"
        )
    tree, current = tip.tree, tip.checkpoint.id if tip.checkpoint else None
    call = terms.call
    digest = entries.call_digest(ctx.codec, call.tool, call.identity, call.arguments, call.schema)
    for _ in range(MAX_ATTEMPTS):
        extra_rows: list[RowWrite] = []
        async for id_, held in _scan_occasion(ctx, tree, terms, digest):
            if held is None:
                write = entries.write_request(ctx.codec, tree, id_, terms, current, digest, ctx.now_us())
                with suppress(CommitConflict):  # another caller has made the request, or has decided
                    await ctx.backend.commit(Commit(tree=tree, rows=[write, *extra_rows]))
                break  # read again
            approval = held.approval
            is_same = approval.digest == digest or (terms.by_identity and approval.call.schema == call.schema)
            if is_same and approval.status in (*entries.OPEN, ApprovalStatus.REJECTED):
                is_current = approval.checkpoint_id == (current and ids.to_text(current))
                is_occasion = bool(terms.request_key) or approval.status is not ApprovalStatus.REJECTED
                if is_current or (is_occasion and await _is_on_path(ctx, held, current)):
                    return held
            if approval.status in entries.OPEN:
                extra_rows = entries.write_void(ctx.codec, held, ctx.now_us())
    raise ConflictError(f"session {terms.session_id!r:.60} asks for {call.tool!r:.60} too often at once: try again")


async def _scan_occasion(
    ctx: StoreContext, tree: bytes, terms: ApprovalRequest, digest: bytes
) -> AsyncIterator[tuple[bytes, ApprovalRow | None]]:
    """Yield all requests of that occasion, the first one first; and the next id, which is free."""
    for start in count(0, PAGE):
        numbers = range(start, start + PAGE)
        page = [entries.id_of(tree, terms.session_id, terms.request_key or digest, number) for number in numbers]
        keys = [entries.key(tree, id_, part) for id_ in page for part in (entries.WAITING, entries.DONE)]
        found = list(zip(keys, await ctx.backend.rows(keys), strict=True))
        for id_, *both in zip(page, found[::2], found[1::2], strict=True):
            key, row = next(((key, row) for key, row in both if row is not None), (None, None))
            if key is None or row is None:
                yield id_, None
                return
            yield id_, entries.unpack(ctx.codec, key, row, ctx.now_us())


async def wait(
    ctx: StoreContext, held: ApprovalRow, *, seconds: float | None = None, longest_poll: float = 1.0
) -> ApprovalRow:
    """Wait until the approval is no longer pending, and return it: decided, expired or void.

    Raises `ApprovalPendingError` after so many seconds.
    """
    deadline = None if seconds is None else ctx.now_us() + round(seconds * 1e6)
    backend, poll = ctx.backend, min(SHORTEST_WAIT, longest_poll)
    approval_id = held.approval.approval_id
    place = f"approval {approval_id}"
    noted = await NotedWait.begin(ctx, held.tree, held.approval.session_id, place, "approval", seconds)
    while True:
        seen = backend.committed  # before reading: any later commit ends the wait
        now = await read(ctx, held.tree, held.id)
        if now is None:
            raise _make_not_found_error(held.approval.approval_id)
        if not now.approval.is_pending:
            await noted.end()
            return now
        left = longest_poll if deadline is None else (deadline - ctx.now_us()) / 1e6
        if left <= 0:
            await noted.end()
            raise _pending(now.approval)
        await noted.note((approval_id,))
        if not await backend.wait_for_commit(seen, min(poll, left)):
            raise StoreError("the client was closed while it waited for an approval. The approval waits on")
        poll = min(poll * 2, longest_poll)


# -- lookup ------------------------------------------------------------------------------------------------------------


async def find(ctx: StoreContext, id_: bytes) -> ApprovalRow:
    """Return the approval of that id, in any tree."""
    for part in (entries.WAITING, entries.DONE):  # in this order: a row only moves from the first to the second
        for key, row in await ctx.backend.scan(entries.APPROVAL, prefix=part + id_, limit=1):
            return entries.unpack(ctx.codec, key, row, ctx.now_us())
    raise _make_not_found_error(ids.to_text(id_))


async def list_approvals(ctx: StoreContext, session_id: str | None = None, *, pending: bool = True) -> list[Approval]:
    """Return the pending approvals of all sessions or of one, oldest first; all with `pending=False`."""
    tree = None
    if session_id is not None:
        tree = await lookup.find_tree(ctx, head.session_key(session_id))
        if tree is None:
            return []
    found = [held.approval for held in await _load_all(ctx, tree, entries.WAITING if pending else b"")]
    return sorted(
        (
            approval
            for approval in found
            if (session_id is None or approval.session_id == session_id) and (approval.is_pending or not pending)
        ),
        key=lambda approval: (approval.requested_at, approval.approval_id),
    )


# -- decision ----------------------------------------------------------------------------------------------------------


@telemetry.trace_operation(telemetry.DECIDE)
async def decide(
    ctx: StoreContext,
    id_: bytes,
    answer: Answer,
    *,
    by: str,
    note: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Approval:
    """Decide about a pending approval. Of concurrent decisions, one wins.

    The same decision by the same person again is a no-op, so a decision with an unclear outcome can
    be repeated.
    """
    for _ in range(MAX_ATTEMPTS):
        held = await find(ctx, id_)
        approval, codec = held.approval, ctx.codec
        made = approval.decision
        if made is not None:
            if (made.answer, made.by, made.note, made.arguments) == (answer, by, note, arguments):
                return approval
            raise ConflictError(f"{_describe_decision(approval)}. A decision is final; ask again for another one")
        if not approval.is_pending:
            raise _refusal(approval)
        decision = Decision(answer=answer, by=by, at=entries.moment(ctx.now_us()), note=note, arguments=arguments)
        may_run = approval.digest if answer is Answer.APPROVE else None
        if arguments is not None:
            call = approval.call
            may_run = entries.call_digest(codec, call.tool, identity_with(call, arguments), arguments, call.schema)
        rows = [
            *entries.write_decision(codec, held, decision, may_run),
            *await due.make_hint(ctx, held.tree, approval.session_id),
        ]
        try:
            await ctx.backend.commit(Commit(tree=held.tree, rows=rows))
        except CommitConflict:
            continue  # another decision was first: report that one
        return (await find(ctx, id_)).approval
    raise ConflictError(f"approval {ids.to_text(id_)} is being decided by too many at once: try again")


def identity_with(call: Call, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a call whose arguments were changed, with the new arguments in it."""
    return {name: arguments.get(name, value) for name, value in call.identity.items()}


# -- use ---------------------------------------------------------------------------------------------------------------


async def use(ctx: StoreContext, held: ApprovalRow, *, session_id: str, digest: bytes, by: str) -> RowWrite:
    """Return the change that uses a granted approval, for the commit of the intent of the effect `by`.

    `digest` is `entries.call_digest` of the call as it will be made. Raises if the approval is for
    another call or session, was not granted, has expired, was used, or was requested at a
    checkpoint that the session has left. The commit fails (`CommitConflict` of the kind "row") if
    another effect has used it by then.
    """
    approval = held.approval
    if approval.session_id != session_id:
        raise ApprovalError(
            f"approval {approval.short_id} is for session {approval.session_id!r:.60}, not for {session_id!r:.60}: "
            "forks and other sessions inherit none. Ask for one",
            approval.approval_id,
        )
    if not approval.is_granted:
        raise _refusal(approval)
    if approval.may_run != digest:
        raise ApprovalError(
            f"approval {approval.short_id} is for another call of {approval.call.tool!r:.60} than this one: tool, "
            "identity and all arguments must be those that were approved. Ask for this call",
            approval.approval_id,
        )
    tip = await lookup.revalidated_tip(ctx, head.session_key(session_id))
    if not await _is_on_path(ctx, held, tip.checkpoint.id if tip.checkpoint else None):
        raise ApprovalError(
            f"approval {approval.short_id} was asked for at checkpoint {approval.checkpoint_id}, which session "
            f"{session_id!r:.60} has left since: what was approved there is not approved here. Ask again",
            approval.approval_id,
        )
    return entries.write_use(ctx.codec, held, by, ctx.now_us())


async def use_alone(ctx: StoreContext, id_: bytes, call: Call, *, session_id: str, by: str) -> Approval:
    """Use an approval in a commit of its own, for callers without a ledger. Exactly one caller gets it."""
    digest = entries.call_digest(ctx.codec, call.tool, call.identity, call.arguments, call.schema)
    for _ in range(MAX_ATTEMPTS):
        held = await find(ctx, id_)
        write = await use(ctx, held, session_id=session_id, digest=digest, by=by)
        try:
            await ctx.backend.commit(Commit(tree=held.tree, rows=[write]))
        except CommitConflict:
            continue  # used or voided meanwhile
        return (await find(ctx, id_)).approval
    raise ConflictError(f"approval {ids.to_text(id_)} is being used by too many at once: try again")


def check_granted(approval: Approval) -> Approval:
    """Return the approval if its call may be carried out now; else raise an error that says why not."""
    if approval.is_granted:
        return approval
    raise _refusal(approval)


# -- end ---------------------------------------------------------------------------------------------------------------


async def void_after(
    ctx: StoreContext, tree: bytes, session_id: str, to: bytes
) -> tuple[list[Approval], list[RowWrite]]:
    """Return the open approvals that a move of a session's head to `to` voids, and the changes for it.

    These were requested at checkpoints that the session leaves.
    """
    voided: list[Approval] = []
    writes: list[RowWrite] = []
    for held in await _load_all(ctx, tree, b""):
        approval = held.approval
        if approval.session_id == session_id and approval.status in entries.OPEN:
            if await _is_on_path(ctx, held, to):
                continue
            voided.append(approval)
            writes += entries.write_void(ctx.codec, held, ctx.now_us())
    return voided, writes


async def withdraw(ctx: StoreContext, held: ApprovalRow) -> None:
    """Void an open approval, unless another caller has used or voided it by now."""
    try:
        await ctx.backend.commit(Commit(tree=held.tree, rows=entries.write_void(ctx.codec, held, ctx.now_us())))
    except CommitConflict:
        return


async def withdraw_all(ctx: StoreContext, tree: bytes, session_id: str) -> int:
    """Void the open approvals of a session that is over, and return their number."""
    found = [held for held in await _load_all(ctx, tree, b"") if held.approval.session_id == session_id]
    still_open = [held for held in found if held.approval.status in entries.OPEN]
    for held in still_open:
        await withdraw(ctx, held)
    return len(still_open)


async def gc_approvals(ctx: StoreContext) -> None:
    """Remove the approvals of trees that were collected. Part of `gc`."""
    await gc_rows(ctx, entries.APPROVAL)


# -- rows --------------------------------------------------------------------------------------------------------------


async def read(ctx: StoreContext, tree: bytes, id_: bytes) -> ApprovalRow | None:
    """Return the approval of that id in that tree, as it is now."""
    keys = [entries.key(tree, id_, part) for part in (entries.WAITING, entries.DONE)]
    for key, row in zip(keys, await ctx.backend.rows(keys), strict=True):
        if row is not None:
            return entries.unpack(ctx.codec, key, row, ctx.now_us())
    return None


async def _load_all(ctx: StoreContext, tree: bytes | None, prefix: bytes) -> list[ApprovalRow]:
    found: list[ApprovalRow] = []
    page: list[tuple[RowKey, Row]]
    after: bytes | None = None
    while page := await ctx.backend.scan(entries.APPROVAL, tree=tree, prefix=prefix, after=after, limit=PAGE):
        for key, row in page:
            try:
                found.append(entries.unpack(ctx.codec, key, row, ctx.now_us()))
            except HoldfastError as error:  # an unreadable one must not hide the others
                _log.warning("approval %s is left out of the list: %s", ids.to_text(key.key[1:]), error)
        after = page[-1][0].key
    return found


async def _is_on_path(ctx: StoreContext, held: ApprovalRow, tip: bytes | None) -> bool:
    """Return whether the checkpoint of the request is `tip` or one of its ancestors."""
    if held.approval.checkpoint_id is None:
        return True  # requested before the first checkpoint
    anchor = ids.from_text(held.approval.checkpoint_id)
    if tip == anchor:
        return True
    tombstone_reader = TombstoneReader(ctx)
    first = await lookup.find_record(ctx, anchor, held.tree, tombstone_reader)
    while tip is not None and first is not None:
        stored = await lookup.find_record(ctx, tip, held.tree, tombstone_reader)
        if stored is None or (stored.session == first.session and stored.sequence <= first.sequence):
            return stored is not None and stored.id == anchor
        tip = stored.parent
    return False


# -- errors ------------------------------------------------------------------------------------------------------------


def _make_not_found_error(approval_id: str) -> CheckpointNotFoundError:
    return CheckpointNotFoundError(
        f"there is no approval {approval_id}: it was never asked for here, or its session was collected. "
        "`approvals(pending=False)`, or `holdfast approvals --all`, lists those that are there"
    )


def _pending(approval: Approval) -> ApprovalPendingError:
    approvers = f" by {approval.approvers!r:.60}" if approval.approvers else ""
    return ApprovalPendingError(
        f"{approval.call.tool!r:.60} of session {approval.session_id!r:.60} waits for approval{approvers}, until "
        f"{_time(approval.expires_at)}: `holdfast approve {approval.short_id}`, or `holdfast reject "
        f"{approval.short_id}`, then run the session again",
        approval.approval_id,
    )


def _describe_decision(approval: Approval) -> str:
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
            f"approval {approval.short_id} was used on {_time(approval.ended_at)} by {approval.used_by}: it counts "
            "once. Ask for another one",
            id_,
        )
    if approval.status is ApprovalStatus.VOID:
        return ApprovalError(
            f"approval {approval.short_id} is void: its session was rolled back or asked for another call in its "
            "place, or it was given with arguments that the tool does not take. Ask again",
            id_,
        )
    return ApprovalError(
        f"approval {approval.short_id} expired on {_time(approval.expires_at)}: ask again, with a longer time if "
        "people need it",
        id_,
    )


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
