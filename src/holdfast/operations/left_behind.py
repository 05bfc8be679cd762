"""The remains of a rollback or a fork in the world: effects, doubts, and agents that continued.

Moving a head takes none of them back. So they are reported, and `strict` refuses to continue until
each of them is acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from holdfast.backends.port import RowWrite
from holdfast.errors import UnacknowledgedError, UsageError
from holdfast.format.rows import head as rows
from holdfast.format.rows.ledger import LedgerEntry
from holdfast.format.state import record
from holdfast.model import ids
from holdfast.model.effect import IN_DOUBT, EffectRecord, EffectState
from holdfast.model.handoff import Handoff, HandoffStatus
from holdfast.model.reports import ForkReport, RollbackReport
from holdfast.operations import inbox, ledger, lookup
from holdfast.operations.context import StoreContext
from holdfast.operations.tombstones import TombstoneReader

PAGE = 500
_CONSUMED = (HandoffStatus.CLAIMED, HandoffStatus.TAKEN_UP, HandoffStatus.PASSED_ON)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """The remains, as entries of the ledger and as a report shows them."""

    entries: Sequence[LedgerEntry] = ()
    effects: tuple[EffectRecord, ...] = ()
    unknown: tuple[EffectRecord, ...] = ()
    consumers: tuple[Handoff, ...] = ()


async def of_rollback(ctx: StoreContext, tree: bytes, session_id: str, head: bytes | None, to: bytes) -> LeftBehind:
    """Return the remains between the session's head and the target of the rollback."""
    found, handed = await ledger.of_tree(ctx, tree), await _consumed(ctx, tree)
    if not found and not handed:
        return LeftBehind()
    kept = await path(ctx, tree, to)
    left = await path(ctx, tree, head, until=kept) - kept
    return _aftermath(
        ctx,
        [one for one in found if one.checkpoint in left or (one.checkpoint is None and one.session == session_id)],
        [one for one in handed if ids.from_text(one.handoff_id) in left],
    )


async def of_fork(ctx: StoreContext, tree: bytes, source: bytes) -> LeftBehind:
    """Return the remains in the tree outside the path that leads to the fork."""
    found, handed = await ledger.of_tree(ctx, tree), await _consumed(ctx, tree)
    if not found and not handed:
        return LeftBehind()
    kept = await path(ctx, tree, source)
    return _aftermath(
        ctx,
        [one for one in found if one.checkpoint not in kept],
        [one for one in handed if ids.from_text(one.handoff_id) not in kept],
    )


def _aftermath(ctx: StoreContext, found: Iterable[LedgerEntry], consumers: Iterable[Handoff]) -> LeftBehind:
    listed = sorted(found, key=lambda one: one.history[-1][1], reverse=True)
    done = [one for one in listed if one.state is EffectState.DONE]
    doubted = [one for one in listed if one.state in IN_DOUBT]
    return LeftBehind(
        entries=[*done, *doubted],
        effects=tuple(one.effect(ctx.codec) for one in done),
        unknown=tuple(one.effect(ctx.codec) for one in doubted),
        consumers=tuple(consumers),
    )


async def _consumed(ctx: StoreContext, tree: bytes) -> list[Handoff]:
    return [one for one in await inbox.of_tree(ctx, tree) if one.status in _CONSUMED]


async def path(
    ctx: StoreContext, tree: bytes, id_: bytes | None, *, until: Collection[bytes] = frozenset()
) -> set[bytes]:
    """Return the checkpoint and its ancestors, up to the first one that is in `until`.

    They are read in pages, since a path may be long.
    """
    found: set[bytes] = set()
    parents: dict[bytes, bytes | None] = {}
    graveyard = TombstoneReader(ctx)
    while id_ is not None and id_ not in found and id_ not in until:
        found.add(id_)
        if id_ not in parents:
            stored = await lookup.find_record(ctx, id_, tree, graveyard)
            if stored is None:
                break  # damage: `verify` finds it
            parents[id_] = stored.parent
            session = rows.session_key(stored.session)
            for one in await ctx.backend.session_records(session, before=stored.sequence, limit=PAGE):
                parents[one.id] = record.unpack(ctx.codec, one.data, expected_id=one.id).parent
        id_ = parents[id_]
    return found


def acknowledged(
    ctx: StoreContext, found: LeftBehind, acknowledge: Collection[str], by: str, note: str
) -> list[RowWrite]:
    """Return the writes that record that these effects may stay."""
    known = {one.effect_id for one in (*found.effects, *found.unknown)} | {one.handoff_id for one in found.consumers}
    for id_ in acknowledge:
        if id_ not in known:
            raise UsageError(
                f"acknowledge: {id_!r:.60} is not among what would be left behind: "
                f"{', '.join(sorted(known)) or 'nothing is'}"
            )
    return [
        entry.now("acknowledged", ctx.now_us(), by, note, acknowledged=True).write(entry)
        for entry in found.entries
        if ids.to_text(entry.id) in acknowledge and not entry.acknowledged
    ]


def marked(ctx: StoreContext, found: LeftBehind, acknowledge: Collection[str], by: str) -> list[RowWrite]:
    """Return the writes that record a rollback since these effects were left in doubt.

    A rollback may lead to the present head, and then no head shows it.
    """
    return [
        entry.now("rolled back", ctx.now_us(), by, rolled_back=True).write(entry)
        for entry in found.entries
        if entry.state in (EffectState.STARTED, EffectState.UNKNOWN)
        and not entry.rolled_back
        and ids.to_text(entry.id) not in acknowledge
    ]


def refuse_unacknowledged(report: RollbackReport | ForkReport, acknowledge: Collection[str], what: str) -> None:
    """Raise an error with the report, if it has an entry that is not acknowledged."""
    open_effects = [
        one for one in (*report.effects, *report.unknown) if not one.acknowledged and one.effect_id not in acknowledge
    ]
    open_handoffs = [one for one in report.consumers if one.handoff_id not in acknowledge]
    if not open_effects and not open_handoffs:
        return
    told = [f"effect {one.effect_id} ({one.tool!r:.60}) is {one.state}" for one in open_effects]
    told += [f"agent {one.target_agent_id!r:.60} has gone on from handoff {one.handoff_id}" for one in open_handoffs]
    more = f", and {len(told) - 5} more" if len(told) > 5 else ""
    refusal = f"{what} would leave behind what it can't take back: {'; '.join(told[:5])}{more}. Nothing was changed."
    raise UnacknowledgedError(
        f"{refusal} Look at each, then name them in acknowledge=[...], or leave out strict=True", report, refusal
    )
