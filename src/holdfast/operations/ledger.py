"""The ledger of a tree: reading, intents under a lease, and decisions about effects in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast.backends.port import Commit, CommitConflict, RowWrite
from holdfast.errors import CheckpointNotFoundError, ConflictError
from holdfast.format.rows import head, ledger
from holdfast.format.rows.ledger import LedgerEntry
from holdfast.model import ids
from holdfast.model.effect import IN_DOUBT, EffectRecord, EffectState
from holdfast.model.lease import LeaseTerms
from holdfast.operations import due, lookup
from holdfast.operations import lease as leasing
from holdfast.operations.context import StoreContext
from holdfast.operations.damaged_row import read_or_note
from holdfast.operations.gc_rows import LiveTrees, remove_row

MAX_ATTEMPTS = 200
PAGE = 500


async def load_entries(ctx: StoreContext, tree: bytes | None, *, damaged: list[str] | None = None) -> list[LedgerEntry]:
    """Return all entries of a tree, or of the store, in the order of their ids.

    See `read_or_note` for `damaged`.
    """
    found: list[LedgerEntry] = []
    after: bytes | None = None
    while page := await ctx.backend.scan(ledger.LEDGER, tree=tree, after=after, limit=PAGE):
        found += filter(None, (read_or_note(partial(ledger.unpack, key, row), damaged) for key, row in page))
        after = page[-1][0].key
    return found


async def find(ctx: StoreContext, id_: bytes, tree: bytes) -> LedgerEntry | None:
    key = ledger.key(id_, tree)
    [row] = await ctx.backend.rows([key])
    return ledger.unpack(key, row) if row is not None else None


async def put(
    ctx: StoreContext,
    lease: LeaseTerms,
    entry: LedgerEntry,
    following: LedgerEntry | None,
    *,
    extra_rows: Sequence[RowWrite] = (),
) -> LedgerEntry | None:
    """Write the entry, durably, if its row is unchanged and the lease holds at that very moment.

    Return None if the row, or one of `extra_rows`, was changed by another writer. They
    are written with it or not at all.
    """
    write = entry.write(following)
    session = head.session_key(lease.session_id)
    for _ in range(MAX_ATTEMPTS):
        tip = await leasing.load_held_tip(ctx, lease)
        commit = Commit(
            tree=entry.tree,
            rows=[write, *extra_rows],
            require_rows=[(head.head_key(session, entry.tree), tip.version)],
        )
        try:
            await ctx.backend.commit(commit)
        except CommitConflict as conflict:
            now = await find(ctx, entry.id, entry.tree)
            if now is not None and now.value == write.value:
                return now
            if conflict.detail in [other.key for other in extra_rows]:
                return None
            if (now.version if now else 0) != (following.version if following else 0):
                return None
            ctx.memory.drop(session)  # the head moved: a save of this process, a renewal, or the lease is lost
        else:
            return entry.follow_row(following)
    raise leasing.make_overtaken_error(lease.session_id)


# -- listing and resolution ------------------------------------------------------------------------------------------


async def effects(
    ctx: StoreContext, *, session_id: str | None = None, in_doubt: bool = False, damaged: list[str] | None = None
) -> list[EffectRecord]:
    """Return the effects of a session's tree, or of the store, the latest first.

    See `read_or_note` for `damaged`.
    """
    tree: bytes | None = None
    if session_id is not None:
        tree = await lookup.find_tree(ctx, head.session_key(session_id))
        if tree is None:
            raise CheckpointNotFoundError(
                f"there is no session {session_id!r:.200}. `sessions` lists those that are there"
            )
    found = [
        entry for entry in await load_entries(ctx, tree, damaged=damaged) if not in_doubt or entry.state in IN_DOUBT
    ]
    found.sort(key=lambda entry: entry.history[-1][1], reverse=True)
    return [entry.effect(ctx.codec) for entry in found]


async def load_entry(ctx: StoreContext, id_: bytes) -> LedgerEntry:
    page = await ctx.backend.scan(ledger.LEDGER, prefix=id_, limit=1)
    if not page:
        raise CheckpointNotFoundError(f"there is no effect {ids.to_text(id_)} here: `holdfast effects` lists them")
    return ledger.unpack(*page[0])


async def resolve(
    ctx: StoreContext, id_: bytes, *, outcome: str, result: Any, by: str, note: str | None
) -> EffectRecord:
    """Record a person's finding about an effect in doubt: carried out, with that result, or not."""
    for _ in range(MAX_ATTEMPTS):
        entry = await load_entry(ctx, id_)
        lacks_result = entry.is_not_kept and outcome == "done"
        if outcome != "acknowledge" and entry.state not in IN_DOUBT and not lacks_result:
            raise ConflictError(
                f"effect {ids.to_text(id_)} ({entry.tool!r:.60}) is not in doubt: it is {entry.state}. Nothing was "
                "changed"
            )
        if outcome != "acknowledge":
            await _refuse_in_flight(ctx, entry)
        decided = _resolve_entry(ctx, entry, outcome, result, by, note)
        try:
            hints = await due.make_hint(ctx, entry.tree, entry.session)
            await ctx.backend.commit(Commit(tree=entry.tree, rows=[decided.write(entry), *hints]))
        except CommitConflict:
            continue
        return decided.effect(ctx.codec)
    raise ConflictError(f"effect {ids.to_text(id_)} is being changed by too many at once: try again")


def _resolve_entry(
    ctx: StoreContext, entry: LedgerEntry, outcome: str, result: Any, by: str, note: str | None
) -> LedgerEntry:
    at = ctx.now_us()
    if outcome == "acknowledge":
        return entry.change("acknowledged", at, by, note, acknowledged=True)
    was_undoing = entry.state is EffectState.COMPENSATING
    if outcome == "done":
        if was_undoing:
            return entry.change("resolved: undone", at, by, note, state=EffectState.COMPENSATED)
        encoded = ctx.codec.encode(result, "result")
        return entry.change(
            "resolved: done", at, by, note, state=EffectState.DONE, result=encoded, error=None, checkpoint=None
        )
    state = EffectState.DONE if was_undoing else EffectState.FAILED
    return entry.change("resolved: not done", at, by, note, state=state)


async def is_in_flight(ctx: StoreContext, entry: LedgerEntry) -> bool:
    """Return whether it may still be running: the lease under which it was started is in force."""
    found = await lookup.find_head(ctx, head.session_key(entry.session), entry.tree)
    if found is None:
        return False
    held = found[0].lease
    return found[0].fence == entry.token and held is not None and leasing.is_alive(ctx, held)


async def _refuse_in_flight(ctx: StoreContext, entry: LedgerEntry) -> None:
    if entry.state is not EffectState.UNKNOWN and await is_in_flight(ctx, entry):
        raise ConflictError(
            f"effect {ids.to_text(entry.id)} ({entry.tool!r:.60}) is being carried out right now, by the run of "
            f"session {entry.session!r:.60}: wait until that run has ended"
        )


async def gc_ledger(ctx: StoreContext) -> None:
    """Remove the ledger entries of collected trees: these effects can't be called again. Part of `gc`.

    An entry in doubt stays until a person has resolved it.
    """
    live = LiveTrees(ctx)
    for entry in await load_entries(ctx, None):
        if entry.state not in IN_DOUBT and not await live.has(entry.tree):
            await remove_row(ctx, entry.key, entry.version)
