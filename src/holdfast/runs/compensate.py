"""Compensation of effects by a rollback, outside of a run; recorded before and after each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.backends.port import Commit, CommitConflict
from holdfast.errors import ConflictError, UsageError
from holdfast.format.rows.ledger import LedgerEntry
from holdfast.model import ids
from holdfast.model.effect import EffectRecord, EffectState
from holdfast.model.reports import RollbackReport
from holdfast.operations import ledger
from holdfast.operations.context import StoreContext
from holdfast.runs import call_binding
from holdfast.runs.engine import Call


def check(undos: Mapping[str, Callable[..., Any]]) -> None:
    """Raise if an undo can't be called, before anything is recorded."""
    for tool, undo in undos.items():
        if not callable(undo):
            raise UsageError(f"compensate: {undo!r:.60}, for {tool!r:.60}, can't be called. Give a function")


async def compensate(
    ctx: StoreContext, planned: RollbackReport, undos: Mapping[str, Callable[..., Any]], call: Call, by: str
) -> tuple[EffectRecord, ...]:
    """Undo the effects that the rollback would leave done and that have an undo, the latest first.

    If an undo raises, its outcome is unknown, and the rest is not undone. Effects that another
    writer has undone since the rollback was planned are returned, too, and left alone.
    """
    wanted = [
        (ids.from_text(effect.effect_id), undos[effect.tool]) for effect in planned.effects if effect.tool in undos
    ]
    return tuple([await _undo(ctx, id_, undo, call, by) for id_, undo in wanted])


async def _undo(ctx: StoreContext, id_: bytes, undo: Callable[..., Any], call: Call, by: str) -> EffectRecord:
    entry = await ledger.load_entry(ctx, id_)
    if entry.state is EffectState.COMPENSATED:
        return entry.effect(ctx.codec)  # by another rollback, as wanted
    if entry.state is not EffectState.DONE:
        raise ConflictError(
            f"effect {ids.to_text(id_)} ({entry.tool!r:.60}) was done when the rollback began, and is {entry.state} "
            "now: another process is undoing it, or was cut off in that. It is not undone here, and the session stays "
            "where it was. Look at it (`holdfast effects`); if it stays in doubt, `holdfast resolve "
            f"{ids.short(ids.to_text(id_))}` says what became of it. Then roll back again"
        )
    undoing = entry.change("compensating", ctx.now_us(), by, state=EffectState.COMPENSATING, token=0)
    started = await _put(ctx, undoing, entry)
    result = ctx.codec.decode(entry.result) if entry.result is not None else None
    await call(undo, (result,), call_binding.make_key_argument(undo, f"{entry.provider_key}_undo"))
    ended = started.change("compensated", ctx.now_us(), by, state=EffectState.COMPENSATED)
    return (await _put(ctx, ended, started)).effect(ctx.codec)


async def _put(ctx: StoreContext, entry: LedgerEntry, following: LedgerEntry) -> LedgerEntry:
    try:
        await ctx.backend.commit(Commit(tree=entry.tree, rows=[entry.write(following)]))
    except CommitConflict:
        raise ConflictError(
            f"effect {ids.to_text(entry.id)} was changed by another process while it was being undone: look at it, "
            "then decide again"
        ) from None
    return entry.follow_row(following)
