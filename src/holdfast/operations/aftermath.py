"""What a rollback or a fork leaves behind in the world: effects that stay done, doubts, and agents that went on already.

Nothing of it is taken back by moving a head. So it is told, and `strict` refuses to go on before somebody has said that each
of them may stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from holdfast.backends.port import RowWrite
from holdfast.errors import UnacknowledgedError, UsageError
from holdfast.model import ids
from holdfast.model.effects import IN_DOUBT, Effect, EffectState
from holdfast.model.handoff import Handoff, HandoffStatus
from holdfast.model.reports import ForkReport, RollbackReport
from holdfast.objects import record, rows
from holdfast.objects.ledger import Entry
from holdfast.operations import inbox, ledger, reading
from holdfast.operations.graves import Graveyard
from holdfast.operations.services import Services

PAGE = 500
_CONSUMED = (HandoffStatus.CLAIMED, HandoffStatus.TAKEN_UP, HandoffStatus.PASSED_ON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """What is left behind, as entries of the ledger and as people see it."""

    entries: Sequence[Entry] = ()
    effects: tuple[Effect, ...] = ()
    unknown: tuple[Effect, ...] = ()
    consumers: tuple[Handoff, ...] = ()


async def of_rollback(services: Services, tree: bytes, session_id: str, head: bytes | None, to: bytes) -> Aftermath:
    """What lies between where the session stands and where it is to go."""
    found, handed = await ledger.of_tree(services, tree), await _consumed(services, tree)
    if not found and not handed:
        return Aftermath()
    kept = await path(services, tree, to)
    left = await path(services, tree, head, until=kept) - kept
    return _aftermath(
        services,
        [one for one in found if one.checkpoint in left or (one.checkpoint is None and one.session == session_id)],
        [one for one in handed if ids.from_text(one.handoff_id) in left],
    )


async def of_fork(services: Services, tree: bytes, source: bytes) -> Aftermath:
    """What was done in the tree beside the path that leads to the fork."""
    found, handed = await ledger.of_tree(services, tree), await _consumed(services, tree)
    if not found and not handed:
        return Aftermath()
    kept = await path(services, tree, source)
    return _aftermath(
        services,
        [one for one in found if one.checkpoint not in kept],
        [one for one in handed if ids.from_text(one.handoff_id) not in kept],
    )


def _aftermath(services: Services, found: Iterable[Entry], consumers: Iterable[Handoff]) -> Aftermath:
    listed = sorted(found, key=lambda one: one.history[-1][1], reverse=True)
    done = [one for one in listed if one.state is EffectState.DONE]
    doubted = [one for one in listed if one.state in IN_DOUBT]
    return Aftermath(
        entries=[*done, *doubted],
        effects=tuple(one.effect(services.codec) for one in done),
        unknown=tuple(one.effect(services.codec) for one in doubted),
        consumers=tuple(consumers),
    )


async def _consumed(services: Services, tree: bytes) -> list[Handoff]:
    return [one for one in await inbox.of_tree(services, tree) if one.status in _CONSUMED]


async def path(
    services: Services, tree: bytes, id_: bytes | None, *, until: Collection[bytes] = frozenset()
) -> set[bytes]:
    """The checkpoint and its ancestors, up to the first one that is in `until`. Read in pages: a path may be long."""
    found: set[bytes] = set()
    parents: dict[bytes, bytes | None] = {}
    graveyard = Graveyard(services)
    while id_ is not None and id_ not in found and id_ not in until:
        found.add(id_)
        if id_ not in parents:
            stored = await reading.find_record(services, id_, tree, graveyard)
            if stored is None:
                break  # damage: `verify` finds it
            parents[id_] = stored.parent
            session = rows.session_key(stored.session)
            for one in await services.backend.session_records(session, before=stored.sequence, limit=PAGE):
                parents[one.id] = record.unpack(services.codec, one.data, expected_id=one.id).parent
        id_ = parents[id_]
    return found


def acknowledged(
    services: Services, found: Aftermath, acknowledge: Collection[str], by: str, note: str
) -> list[RowWrite]:
    """What writes down that these effects may stay as they are."""
    known = {one.effect_id for one in (*found.effects, *found.unknown)} | {one.handoff_id for one in found.consumers}
    for id_ in acknowledge:
        if id_ not in known:
            raise UsageError(
                f"acknowledge: {id_!r:.60} is not among what would be left behind: {', '.join(sorted(known)) or 'nothing is'}"
            )
    return [
        entry.now("acknowledged", services.now_us(), by, note, acknowledged=True).write(entry)
        for entry in found.entries
        if ids.to_text(entry.id) in acknowledge and not entry.acknowledged
    ]


def refuse_unacknowledged(report: RollbackReport | ForkReport, acknowledge: Collection[str], what: str) -> None:
    """Raises, with the report, if it holds something that nobody has said may stay."""
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
