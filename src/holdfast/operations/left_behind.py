"""The remains of a rollback or a fork in the world: effects, doubts, and agents that continued.

Moving a head takes none of them back. So they are reported, and `strict` refuses to continue until
each of them is acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from holdfast.backends.port import RowWrite
from holdfast.errors import UnacknowledgedError, UsageError
from holdfast.format.rows import head as rows
from holdfast.format.rows.ledger import LedgerEntry
from holdfast.format.state import record
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.effect import IN_DOUBT, EffectRecord, EffectState
from holdfast.model.handoff import Handoff, HandoffStatus
from holdfast.model.reports import ForkReport, LeftMessage, RollbackReport
from holdfast.operations import inbox, ledger, lookup
from holdfast.operations.context import StoreContext
from holdfast.operations.message_write import TOPIC, sent_ids
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
    published: tuple[LeftMessage, ...] = ()
    consumed: tuple[LeftMessage, ...] = ()


async def find_after_rollback(
    ctx: StoreContext, tree: bytes, session_id: str, head: bytes | None, to: bytes
) -> LeftBehind:
    """Return the remains between the session's head and the target of the rollback."""
    found, handed = await ledger.load_entries(ctx, tree), await _find_consumed(ctx, tree)
    has_topics = bool(await ctx.backend.scan(TOPIC, limit=1))
    if not found and not handed and not has_topics:
        return LeftBehind()
    kept = await path(ctx, tree, to)
    left = await path(ctx, tree, head, until=kept) - kept
    aftermath = _make_left_behind(
        ctx,
        [
            ledger_entry
            for ledger_entry in found
            if ledger_entry.checkpoint in left
            or (ledger_entry.checkpoint is None and ledger_entry.session == session_id)
        ],
        [handoff for handoff in handed if ids.from_text(handoff.handoff_id) in left],
    )
    if not has_topics:
        return aftermath
    published, consumed = await _messages(ctx, left)
    return replace(aftermath, published=published, consumed=consumed)


async def _messages(ctx: StoreContext, left: Collection[bytes]) -> tuple[tuple[LeftMessage, ...], ...]:
    """Return the messages that these checkpoints have published, and those that they have consumed."""
    from holdfast.operations.read_topic import SettledMessages  # few rollbacks need it

    known: dict[str, SettledMessages] = {}
    published: list[LeftMessage] = []
    consumed: list[LeftMessage] = []
    for stored in await _unpack_live(ctx, sorted(left)):
        consumed += [
            LeftMessage(message_id=ids.to_text(id_), topic=topic, groups=(group,))
            for topic, group, id_ in stored.header.get("took", ())
        ]
        for message in await _unpack_live(ctx, sent_ids(stored)):
            topic = message.header["topic"]
            if topic not in known:
                known[topic] = await SettledMessages.load(ctx, topic)
            groups = tuple(known[topic].groups_of(message.id))
            published.append(LeftMessage(message_id=ids.to_text(message.id), topic=topic, groups=groups))
    return tuple(published), tuple(consumed)


async def _unpack_live(ctx: StoreContext, wanted: Sequence[bytes]) -> list[StoredRecord]:
    """Return the live ones of these records."""
    found: list[StoredRecord] = []
    for start in range(0, len(wanted), PAGE):
        page = await ctx.backend.records(wanted[start : start + PAGE])
        found += [record.unpack(ctx.codec, item.data, expected_id=item.id) for item in page if item is not None]
    return [item for item in found if not item.is_tombstone]


async def find_after_fork(ctx: StoreContext, tree: bytes, source: bytes) -> LeftBehind:
    """Return the remains in the tree outside the path that leads to the fork."""
    found, handed = await ledger.load_entries(ctx, tree), await _find_consumed(ctx, tree)
    if not found and not handed:
        return LeftBehind()
    kept = await path(ctx, tree, source)
    return _make_left_behind(
        ctx,
        [ledger_entry for ledger_entry in found if ledger_entry.checkpoint not in kept],
        [handoff for handoff in handed if ids.from_text(handoff.handoff_id) not in kept],
    )


def _make_left_behind(ctx: StoreContext, found: Iterable[LedgerEntry], consumers: Iterable[Handoff]) -> LeftBehind:
    listed = sorted(found, key=lambda entry: entry.history[-1][1], reverse=True)
    done = [ledger_entry for ledger_entry in listed if ledger_entry.state is EffectState.DONE]
    doubted = [ledger_entry for ledger_entry in listed if ledger_entry.state in IN_DOUBT]
    return LeftBehind(
        entries=[*done, *doubted],
        effects=tuple(ledger_entry.effect(ctx.codec) for ledger_entry in done),
        unknown=tuple(ledger_entry.effect(ctx.codec) for ledger_entry in doubted),
        consumers=tuple(consumers),
    )


async def _find_consumed(ctx: StoreContext, tree: bytes) -> list[Handoff]:
    return [handoff for handoff in await inbox.list_handoffs(ctx, tree) if handoff.status in _CONSUMED]


async def path(
    ctx: StoreContext, tree: bytes, id_: bytes | None, *, until: Collection[bytes] = frozenset()
) -> set[bytes]:
    """Return the checkpoint and its ancestors, up to the first one that is in `until`.

    They are read in pages, since a path may be long.
    """
    found: set[bytes] = set()
    parents: dict[bytes, bytes | None] = {}
    tombstone_reader = TombstoneReader(ctx)
    while id_ is not None and id_ not in found and id_ not in until:
        found.add(id_)
        if id_ not in parents:
            stored = await lookup.find_record(ctx, id_, tree, tombstone_reader)
            if stored is None:
                break  # damage: `verify` finds it
            parents[id_] = stored.parent
            session = rows.session_key(stored.session)
            for session_record in await ctx.backend.session_records(session, before=stored.sequence, limit=PAGE):
                parents[session_record.id] = record.unpack(
                    ctx.codec, session_record.data, expected_id=session_record.id
                ).parent
        id_ = parents[id_]
    return found


def write_acknowledged(
    ctx: StoreContext, found: LeftBehind, acknowledge: Collection[str], by: str, note: str
) -> list[RowWrite]:
    """Return the writes that record that these effects may stay."""
    known = {effect.effect_id for effect in (*found.effects, *found.unknown)} | {
        consumer.handoff_id for consumer in found.consumers
    }
    for id_ in acknowledge:
        if id_ not in known:
            raise UsageError(
                f"acknowledge: {id_!r:.60} is not among what would be left behind: "
                f"{', '.join(sorted(known)) or 'nothing is'}"
            )
    return [
        entry.change("acknowledged", ctx.now_us(), by, note, acknowledged=True).write(entry)
        for entry in found.entries
        if ids.to_text(entry.id) in acknowledge and not entry.acknowledged
    ]


def write_rollback_marks(ctx: StoreContext, found: LeftBehind, acknowledge: Collection[str], by: str) -> list[RowWrite]:
    """Return the writes that record a rollback since these effects were left in doubt.

    A rollback may lead to the present head, and then no head shows it.
    """
    return [
        entry.change("rolled back", ctx.now_us(), by, rolled_back=True).write(entry)
        for entry in found.entries
        if entry.state in (EffectState.STARTED, EffectState.UNKNOWN)
        and not entry.rolled_back
        and ids.to_text(entry.id) not in acknowledge
    ]


def refuse_unacknowledged(report: RollbackReport | ForkReport, acknowledge: Collection[str], operation: str) -> None:
    """Raise an error with the report, if it has an entry that is not acknowledged."""
    open_effects = [
        effect
        for effect in (*report.effects, *report.unknown)
        if not effect.acknowledged and effect.effect_id not in acknowledge
    ]
    open_handoffs = [consumer for consumer in report.consumers if consumer.handoff_id not in acknowledge]
    if not open_effects and not open_handoffs:
        return
    items = [f"effect {effect.effect_id} ({effect.tool!r:.60}) is {effect.state}" for effect in open_effects]
    items += [
        f"agent {handoff.target_agent_id!r:.60} has gone on from handoff {handoff.handoff_id}"
        for handoff in open_handoffs
    ]
    more = f", and {len(items) - 5} more" if len(items) > 5 else ""
    refusal = (
        f"{operation} would leave behind what it can't take back: {'; '.join(items[:5])}{more}. Nothing was changed."
    )
    raise UnacknowledgedError(
        f"{refusal} Look at each, then name them in acknowledge=[...], or leave out strict=True", report, refusal
    )
