"""Undoing effects outside of a run: what a rollback is asked to compensate. Written down before and after each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from holdfast.backends.port import Commit, CommitConflict
from holdfast.errors import ConflictError, UsageError
from holdfast.model import ids
from holdfast.model.effects import Effect, EffectState
from holdfast.model.reports import RollbackReport
from holdfast.objects.ledger import Entry
from holdfast.operations import aftermath, ledger
from holdfast.operations.services import Services
from holdfast.runs import calling
from holdfast.runs.core import Call


def check(undos: Mapping[str, Callable[..., Any]]) -> None:
    """Before anything is written down as being undone."""
    for tool, undo in undos.items():
        if not callable(undo):
            raise UsageError(f"compensate: {undo!r:.60}, for {tool!r:.60}, can't be called. Give a function")


def refuse_the_rest(
    planned: RollbackReport, undos: Mapping[str, Callable[..., Any]], acknowledge: Collection[str]
) -> None:
    """A strict rollback undoes nothing, if it will be refused for something else."""
    left = replace(planned, effects=tuple(effect for effect in planned.effects if effect.tool not in undos))
    aftermath.refuse_unacknowledged(left, acknowledge, "the rollback")


async def compensate(
    services: Services, planned: RollbackReport, undos: Mapping[str, Callable[..., Any]], call: Call, by: str
) -> tuple[Effect, ...]:
    """Undoes what the rollback would leave done and what there is an undo for, the latest first. If one raises, it is in
    doubt whether it was undone, and nothing further is done. What somebody else has undone since it was planned is given,
    too, and left alone."""
    wanted = [
        (ids.from_text(effect.effect_id), undos[effect.tool]) for effect in planned.effects if effect.tool in undos
    ]
    return tuple([await _undo(services, id_, undo, call, by) for id_, undo in wanted])


async def _undo(services: Services, id_: bytes, undo: Callable[..., Any], call: Call, by: str) -> Effect:
    entry = await ledger.by_id(services, id_)
    if entry.state is EffectState.COMPENSATED:
        return entry.effect(services.codec)  # by another rollback: what was wanted is so
    if entry.state is not EffectState.DONE:
        raise ConflictError(
            f"effect {ids.to_text(id_)} ({entry.tool!r:.60}) was done when the rollback began, and is {entry.state} now: somebody "
            "else is undoing it, or was cut off in that. It is not undone here, and the session stays where it was. Look at it "
            f"(`holdfast effects`); if it stays in doubt, `holdfast resolve {ids.short(ids.to_text(id_))}` says what became of "
            "it. Then roll back again"
        )
    undoing = entry.now("compensating", services.now_us(), by, state=EffectState.COMPENSATING, token=0)
    started = await _put(services, undoing, entry)
    result = services.codec.decode(entry.result) if entry.result is not None else None
    await call(undo, (result,), calling.keyed(undo, f"{entry.provider_key}_undo"))
    ended = started.now("compensated", services.now_us(), by, state=EffectState.COMPENSATED)
    return (await _put(services, ended, started)).effect(services.codec)


async def _put(services: Services, entry: Entry, following: Entry) -> Entry:
    try:
        await services.backend.commit(Commit(tree=entry.tree, rows=[entry.write(following)]))
    except CommitConflict:
        raise ConflictError(
            f"effect {ids.to_text(entry.id)} was changed by somebody else while it was being undone: look at it, then decide "
            "again"
        ) from None
    return entry.stored(following)
