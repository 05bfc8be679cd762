"""delegation: child sessions for other agents, their offers and their answers.

The row of a child, in the tree of the session that delegates it, comes first. The child is its own
session in its own tree. Its first checkpoint is the offer, its last one the answer. The offer's
entry in the inbox ends with the answer, or with a cancellation.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast import telemetry
from holdfast.backends.port import Commit, CommitConflict, Row, RowKey, RowWrite
from holdfast.errors import ConflictError, CorruptError, RunCancelledError
from holdfast.format.rows import delegation as rows
from holdfast.format.rows import head
from holdfast.format.rows import inbox as entries
from holdfast.format.rows import run as runs
from holdfast.format.rows.delegation import DelegationRow
from holdfast.format.rows.inbox import Entry, FollowUp, LastClaim
from holdfast.format.rows.run import CallRow, DueRow, RunRow
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.lease import LeaseTerms
from holdfast.operations import due, lookup
from holdfast.operations import lease as leasing
from holdfast.operations import restore as restoring
from holdfast.operations import save as saving
from holdfast.operations.context import StoreContext
from holdfast.operations.gc_rows import gc_rows
from holdfast.operations.validate import SaveRequest

PAGE = 500
LONGEST_REASON = 1_000
DONE, FAILED, CANCELLED = "done", "failed", "cancelled"


# -- children --------------------------------------------------------------------------------------------------------


async def list_children(ctx: StoreContext, tree: bytes, session_id: str) -> list[DelegationRow]:
    """Return the children that a session has delegated, oldest first."""
    found: list[DelegationRow] = []
    after: bytes | None = None
    while page := await ctx.backend.scan(rows.DELEGATION, tree=tree, after=after, limit=PAGE):
        found += [rows.unpack_delegation(key, row) for key, row in page]
        after = page[-1][0].key
    return sorted((item for item in found if item.session == session_id), key=lambda item: (item.at_us, item.offer))


class DelegatedCall(NamedTuple):
    """A named function that carries out delegated work: its version, and the encoded arguments."""

    function: str
    version: str
    arguments: bytes
    at_us: int

    def rows(self, stored: StoredRecord) -> list[RowWrite]:
        """Return the rows of the run, for the commit of the offer."""
        session, tree, at_us = head.session_key(stored.session), stored.tree, self.at_us
        run = RunRow(
            runs.READY, 0, at_us, function=self.function, version=self.version, due_us=at_us, started_us=at_us,
            digest=due.digest(self.function, self.arguments),
        )  # fmt: skip
        call = CallRow(self.function, self.arguments, is_delegated=True, trace=telemetry.traceparent())
        hint = DueRow(at_us, session, tree, self.function, self.version)
        return [run.write(session, tree), call.write(session, tree), hint.write()]


class OpenOffer(NamedTuple):
    """The inbox entry of an offer that a worker is to carry out; `version` is that of its row."""

    agent: str
    tree: bytes
    entry: Entry
    version: int

    @property
    def is_ended(self) -> bool:
        return isinstance(self.entry, FollowUp)

    def claim(self, taken: head.Head, at_us: int) -> RowWrite:
        """Return the write that says that a worker has it, for the commit that takes the lease."""
        assert taken.lease is not None
        key = entries.key_of(self.agent, self.tree, self.tree, entries.WAITING)
        claim = LastClaim(uuid.uuid4().bytes, taken.fence, at_us, taken.lease.holder, None)
        return RowWrite(key, entries.pack(key, claim), self.version)

    async def cancel(self, ctx: StoreContext, by: str) -> list[RowWrite]:
        """Return the writes that end it without an answer."""
        follow_up = FollowUp(b"", ctx.now_us(), head.session_key(by[:LONGEST_REASON].replace("\n", " ")), False)
        stored = await lookup.find_record(ctx, self.tree, self.tree)
        hints = [] if stored is None else await wake_joiner(ctx, stored)
        return [*entries.end(self.agent, self.tree, self.tree, follow_up), *hints]


async def offer_of(ctx: StoreContext, agent: str, tree: bytes) -> OpenOffer:
    """Return the entry of the offer whose tree this is."""
    waiting, done = (entries.key_of(agent, tree, tree, part) for part in (entries.WAITING, entries.DONE))
    [waits, ended] = await ctx.backend.rows([waiting, done])
    if ended is not None:
        return OpenOffer(agent, tree, entries.unpack(done, ended), ended.version)
    return OpenOffer(
        agent, tree, None if waits is None else entries.unpack(waiting, waits), waits.version if waits else 0
    )


async def wake_joiner(ctx: StoreContext, offered: StoredRecord) -> Sequence[RowWrite]:
    """Return the hint at the run that has delegated this work, for the commit that ends it."""
    origin = offered.header.get("origin")
    if origin is None:
        return ()
    tree = await lookup.find_tree(ctx, head.session_key(origin[0]))
    return () if tree is None else await due.make_hint(ctx, tree, origin[0])


async def declare(
    ctx: StoreContext, lease: LeaseTerms, tree: bytes, wanted: Sequence[DelegationRow]
) -> list[DelegationRow]:
    """Write the rows of children under the lease, and return them; rows that are there are kept."""
    session = head.session_key(lease.session_id)
    keys = [rows.delegation_key(item.child, tree) for item in wanted]
    for _ in range(leasing.MAX_ATTEMPTS):
        tip = await leasing.load_held_tip(ctx, lease)
        found = await ctx.backend.rows(keys)
        known = [
            None if row is None else rows.unpack_delegation(key, row) for key, row in zip(keys, found, strict=True)
        ]
        missing = [item for item, known_row in zip(wanted, known, strict=True) if known_row is None]
        if not missing:
            return [item for item in known if item is not None]
        commit = Commit(
            tree=tree,
            rows=[item.write(tree) for item in missing],
            require_rows=[(head.head_key(session, tree), tip.version)],
        )
        try:
            await ctx.backend.commit(commit)
        except CommitConflict:  # the head moved, the lease is lost, or another life has written them
            ctx.memory.drop(session)
            continue
        return [known_row or item for item, known_row in zip(wanted, known, strict=True)]
    raise leasing.make_overtaken_error(lease.session_id)


async def offer(ctx: StoreContext, row: DelegationRow, agent_id: str, item: Any, call: DelegatedCall | None) -> None:
    """Make a child with its offer, unless it is there. One that was cancelled before stays unmade.

    With the call of a named function it is a run that workers carry out, too.
    """
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
        extra_rows=None if call is None else call.rows,
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
    *,
    extra_rows: Sequence[RowWrite] = (),
) -> StoredRecord:
    """Save the answer as the last checkpoint of the child, and end its offer, in one commit."""
    hints = await wake_joiner(ctx, offered)

    def end(stored: StoredRecord) -> list[RowWrite]:
        by = head.session_key(lease.holder)
        follow_up = FollowUp(stored.id, stored.header["at"], by, False)
        return [*entries.end(offered.header["to"], offered.id, offered.tree, follow_up), *hints, *extra_rows]

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
        extra_rows=end,
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
    stored = await lookup.load_live_record(ctx, ended.next)
    checkpoint = await restoring.load_checkpoint(ctx, stored, migrate=False)
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
        await gc_rows(ctx, space)
