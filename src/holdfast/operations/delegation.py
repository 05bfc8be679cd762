"""delegation: child sessions for other agents, their offers and their answers.

The row of a child, in the tree of the session that delegates it, comes first. The child is its own
session in its own tree. Its first checkpoint is the offer, its last one the answer. The offer's
entry in the inbox ends with the answer, or with a cancellation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.backends.port import Commit, CommitConflict, Row, RowKey, RowWrite
from holdfast.errors import ConflictError, CorruptError, RunCancelledError
from holdfast.format.rows import delegation as rows
from holdfast.format.rows import head
from holdfast.format.rows import inbox as entries
from holdfast.format.rows.delegation import DelegationRow
from holdfast.format.rows.inbox import Entry, FollowUp
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.lease import LeaseTerms
from holdfast.operations import lease as leasing
from holdfast.operations import ledger, lookup
from holdfast.operations import restore as restoring
from holdfast.operations import save as saving
from holdfast.operations.context import StoreContext
from holdfast.operations.validate import SaveRequest

PAGE = 500
DONE, FAILED, CANCELLED = "done", "failed", "cancelled"


# -- children --------------------------------------------------------------------------------------------------------


async def of_session(ctx: StoreContext, tree: bytes, session_id: str) -> list[DelegationRow]:
    """Return the children that a session has delegated, oldest first."""
    found: list[DelegationRow] = []
    after: bytes | None = None
    while page := await ctx.backend.scan(rows.DELEGATION, tree=tree, after=after, limit=PAGE):
        found += [rows.unpack_delegation(key, row) for key, row in page]
        after = page[-1][0].key
    return sorted((one for one in found if one.session == session_id), key=lambda one: (one.at_us, one.offer))


async def declare(
    ctx: StoreContext, lease: LeaseTerms, tree: bytes, wanted: Sequence[DelegationRow]
) -> list[DelegationRow]:
    """Write the rows of children under the lease, and return them; rows that are there are kept."""
    session = head.session_key(lease.session_id)
    keys = [rows.delegation_key(one.child, tree) for one in wanted]
    for _ in range(leasing.MAX_ATTEMPTS):
        line = await ledger.line_under(ctx, lease)
        found = await ctx.backend.rows(keys)
        known = [
            None if row is None else rows.unpack_delegation(key, row) for key, row in zip(keys, found, strict=True)
        ]
        missing = [one for one, there in zip(wanted, known, strict=True) if there is None]
        if not missing:
            return [one for one in known if one is not None]
        commit = Commit(
            tree=tree,
            rows=[one.write(tree) for one in missing],
            require_rows=[(head.head_key(session, tree), line.version)],
        )
        try:
            await ctx.backend.commit(commit)
        except CommitConflict:  # the head moved, the lease is lost, or another life has written them
            ctx.memory.drop(session)
            continue
        return [there or one for one, there in zip(wanted, known, strict=True)]
    raise leasing.overtaken(lease.session_id)


async def offer(ctx: StoreContext, row: DelegationRow, agent_id: str, item: Any) -> None:
    """Make a child with its offer, unless it is there. One that was cancelled before stays unmade."""
    tree = await lookup.find_tree(ctx, head.session_key(row.child))
    if tree is not None:
        if tree != row.offer:
            raise ConflictError(
                f"session {row.child!r:.100} exists already, and is not the work that {row.session!r:.60} delegates: "
                "give the delegation a key of its own"
            )
        return
    request = SaveRequest(
        agent_id=agent_id,
        session_id=row.child,
        execution_state=item,
        agent_context={},
        step_name=f"delegated_to_{row.agent}",
        checkpoint_id=row.offer,
        handoff_target=row.agent,
        handoff_schema=row.schema,
        origin=(row.session, row.checkpoint, row.returns),
    )
    try:
        await saving.save(ctx, request)
    except RunCancelledError:
        return


async def entry_of(ctx: StoreContext, row: DelegationRow) -> Entry:
    """Return the inbox entry of a child: None while it is offered or not made yet."""
    [done, waiting] = await ctx.backend.rows([row.done_key, row.waiting_key])
    if done is not None:
        return entries.unpack(row.done_key, done)
    return entries.unpack(row.waiting_key, waiting) if waiting is not None else None


# -- answers ---------------------------------------------------------------------------------------------------------


class DelegationAnswer(NamedTuple):
    """How delegated work ended: "done" with a value, "failed" or "cancelled" with class and message."""

    status: str
    value: Any = None
    label: str | None = None
    error: tuple[str, str] = ("", "")


async def answer(
    ctx: StoreContext,
    offered: StoredRecord,
    lease: LeaseTerms,
    agent_id: str,
    made: DelegationAnswer,
    checkpoint_id: bytes,
) -> StoredRecord:
    """Save the answer as the last checkpoint of the child, and end its offer, in one commit."""

    def end(stored: StoredRecord) -> list[RowWrite]:
        by = head.session_key(lease.holder)
        follow_up = FollowUp(stored.id, stored.header["at"], by, False)
        return entries.end(offered.header["to"], offered.id, offered.tree, follow_up)

    state = made.value if made.status == DONE else {"error": list(made.error)}
    request = SaveRequest(
        agent_id=agent_id,
        session_id=offered.session,
        execution_state=state,
        agent_context={},
        step_name="result" if made.status == DONE else "failed",
        checkpoint_id=checkpoint_id,
        lease=lease,
        answer=(made.status, made.label),
        beside=end,
    )
    return await saving.save(ctx, request)


async def find_answers(ctx: StoreContext, wanted: Sequence[RowKey]) -> list[FollowUp | None]:
    """Return how these offers ended, by the keys of their ended entries; None for those that wait."""
    found = await ctx.backend.rows(wanted)
    return [_follow_up(key, row) for key, row in zip(wanted, found, strict=True)]


def _follow_up(key: RowKey, row: Row | None) -> FollowUp | None:
    entry = entries.unpack(key, row) if row is not None else None
    return entry if isinstance(entry, FollowUp) else None


async def load_answer(ctx: StoreContext, ended: FollowUp) -> DelegationAnswer:
    """Return the answer that ended an offer."""
    by = head.session_name(ended.by)
    if not ended.next:
        return DelegationAnswer(CANCELLED, error=("RunCancelledError", f"cancelled by {by}"))
    stored = await lookup.live_record(ctx, ended.next)
    checkpoint = await restoring.loaded(ctx, stored, migrate=False)
    match stored.header.get("answer"), checkpoint.execution_state:
        case ["done", str() | None as label], state:
            return DelegationAnswer(DONE, state, label)
        case ["failed", _], {"error": [str(kind), str(message)]}:
            return DelegationAnswer(FAILED, error=(kind, message))
    raise CorruptError(
        f"checkpoint {ids.to_text(stored.id)} is said to be the answer of delegated work, and is none: the store was "
        "changed by another program. Run `verify`"
    )


# -- garbage ---------------------------------------------------------------------------------------------------------


async def gc_delegations(ctx: StoreContext) -> None:
    """Remove the children's rows and the waits of trees that were collected. Part of `gc`."""
    for space in (rows.DELEGATION, rows.WAIT):
        alive: set[bytes] = set()
        after: bytes | None = None
        while page := await ctx.backend.scan(space, after=after, limit=PAGE):
            for key, row in page:
                # The head is read after the row: a session that writes one has a head before.
                if key.tree not in alive and await ctx.backend.scan(head.HEAD, tree=key.tree, limit=1):
                    alive.add(key.tree)
                if key.tree not in alive:
                    try:
                        await ctx.backend.commit(Commit(tree=key.tree, rows=[RowWrite(key, None, row.version)]))
                    except CommitConflict:
                        continue
            after = page[-1][0].key
