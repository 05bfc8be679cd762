"""Reading single records and lines from the store: what every operation begins with."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.backends.port import ABSENT, Backend, Record, Row, RowKey, Run, Span
from holdfast.errors import CheckpointExpiredError, CheckpointNotFoundError, CorruptError
from holdfast.model import ids
from holdfast.objects import assemble, holds, plan, record, rows
from holdfast.objects.manifest import Manifest, Path
from holdfast.objects.record import EPOCH, Stored
from holdfast.operations import graves
from holdfast.operations.graves import Graveyard
from holdfast.operations.memory import Line
from holdfast.operations.services import Services

Parts = tuple[Sequence[Sequence[Run]], Sequence[bytes | None]]


async def find_record(
    services: Services, id_: bytes, tree: bytes | None = None, graveyard: Graveyard | None = None
) -> Stored | None:
    """The record of that id, live, expired or a tombstone; None if there is none. Who knows the tree of what may be
    buried, or asks for many, says so."""
    if graveyard is not None and (buried := graveyard.at_hand(id_)) is not None:
        return buried
    [found] = await services.backend.records([id_])
    return await _unpacked(services, id_, found, tree, graveyard)


async def _unpacked(
    services: Services, id_: bytes, found: Record | None, tree: bytes | None = None, graveyard: Graveyard | None = None
) -> Stored | None:
    if found is not None:
        return record.unpack(services.codec, found.data, expected_id=id_)
    return await (graveyard or Graveyard(services)).find(id_, tree)


def listed_record(services: Services, found: Record, session: bytes | None = None) -> Stored:
    """A record that was found by its session and sequence number, checked to be the one of these."""
    stored = record.unpack(services.codec, found.data, expected_id=found.id)
    if (rows.session_key(stored.session), stored.sequence) != (session or found.session, found.sequence):
        raise CorruptError(
            f"checkpoint {ids.to_text(found.id)} is stored under another session or sequence number than it was saved "
            "with: the store was changed by another program. Run `verify`"
        )
    return stored


async def live_record(services: Services, id_: bytes) -> Stored:
    """The record of that id, or the error that says why there is none."""
    return await _live(services, id_, await find_record(services, id_))


async def live_record_and_runs(services: Services, id_: bytes) -> tuple[Stored, Mapping[Span, list[Run]]]:
    """As `live_record`, with what of the runs of its state came along; for `load_parts`."""
    found, at_hand = await services.backend.record_and_runs(id_)
    return await _live(services, id_, await _unpacked(services, id_, found)), at_hand


async def _live(services: Services, id_: bytes, stored: Stored | None) -> Stored:
    if stored is None:
        raise CheckpointNotFoundError(
            f"there is no checkpoint {ids.to_text(id_)} in {services.backend.capabilities.location}: it was never "
            "saved here, or its whole tree was collected. `holdfast sessions` lists what is there"
        )
    if await is_over(services, stored):
        raise CheckpointExpiredError(_expiry(stored))
    return stored


async def is_over(services: Services, stored: Stored) -> bool:
    """Whether a checkpoint may no longer be read: it was expired, or its time to live is over, and neither a pin nor a tag
    nor one that can't be read without it holds it. That is looked up only then: a checkpoint without a time to live costs
    nothing here."""
    if stored.is_tombstone or not stored.is_expired(services.now_us()):
        return stored.is_tombstone
    until = holds.until_key(stored)
    hold, prolonged = await services.backend.rows([holds.hold_key(stored.id, stored.tree), until])
    return hold is None and (prolonged is None or services.now_us() >= holds.unpack_until(until, prolonged))


def _expiry(stored: Stored) -> str:
    header = stored.header
    if stored.is_tombstone:
        when = f"{_moment(header['when'])} ({header['why']})"
    else:
        assert stored.expires_at_us is not None
        when = f"{_moment(stored.expires_at_us)} (its TTL of {header['ttl']:g} s)"
    return (
        f"checkpoint {ids.to_text(stored.id)} of session {stored.session!r:.60} expired on {when}. "
        "`timeline` lists what is still there"
    )


def _moment(us: int) -> str:
    return f"{EPOCH + timedelta(microseconds=us):%Y-%m-%d %H:%M:%S} UTC"


async def load_state(services: Services, manifest: Manifest, *, verify: bool) -> tuple[Any, Any]:
    """The two parts of the state that a manifest describes."""
    stored, blobs = await load_parts(services.backend, manifest)
    return assemble.assemble(services.codec, manifest, stored, blobs, verify=verify)


async def load_parts(backend: Backend, manifest: Manifest, at_hand: Mapping[Span, list[Run]] | None = None) -> Parts:
    """What the store has for a manifest: the runs of its spans, and its blobs. Runs that are `at_hand` are not asked for."""
    spans = manifest.spans()
    stored: Sequence[Sequence[Run]]
    if at_hand and all(map(at_hand.get, spans)):
        stored = [at_hand[span] for span in spans]
    else:
        stored = await backend.runs(spans) if spans else []
    return stored, await backend.blobs([blob.hash for blob in manifest.blobs]) if manifest.blobs else []


async def find_tree(services: Services, session: bytes) -> bytes | None:
    """The tree a session belongs to, None if there is no such session."""
    key = RowKey(rows.SESSION, session)
    [row] = await services.backend.rows([key])
    return rows.content(key, row) if row else None


async def find_head(services: Services, session: bytes, tree: bytes) -> tuple[rows.Head, Row] | None:
    key = rows.head_key(session, tree)
    [row] = await services.backend.rows([key])
    return (rows.unpack_head(key, row), row) if row else None


async def nearest_live(
    services: Services, id_: bytes | None, tree: bytes | None = None, *, but_not: Container[bytes] = frozenset()
) -> Stored | None:
    """The checkpoint of that id or its nearest ancestor that has not expired, and is not `but_not`; None if all have."""
    graveyard = Graveyard(services)
    while id_ is not None:
        stored = await find_record(services, id_, tree, graveyard)
        if stored is None:
            raise CorruptError(
                f"checkpoint {ids.to_text(id_)} is not there, though it is the head or an ancestor of another: the store "
                "is damaged. Run `verify`; other checkpoints can still be restored by their ids"
            )
        if id_ not in but_not and not await is_over(services, stored):
            return stored
        id_ = stored.parent
    return None


async def standing(services: Services, session: bytes, to_append: Iterable[Path] = ()) -> Line:
    """Where a session stands, as the store says; with what a declared append to these lists needs.

    A session that has records but no head, or a head without its record, is damaged: taking it for a new one would make
    an agent start from scratch. It is looked at twice, since its tree may be collected between two looks.
    """

    async def read(backend: Backend) -> Line:
        line = await _standing(services.over(backend), session)
        spans = plan.to_append(line.manifest, to_append) if line.manifest is not None else []
        if spans:
            line.at_hand = dict(zip(spans, await backend.runs(spans), strict=True))
        return line

    return await services.backend.together(read)


async def _standing(services: Services, session: bytes) -> Line:
    for is_last in (False, True):
        tree = await find_tree(services, session)
        found = await find_head(services, session, tree) if tree is not None else None
        try:
            if found is None:
                if await _has_checkpoints(services, session, tree):
                    raise CorruptError(
                        f"session {rows.session_name(session)!r:.60} has checkpoints but no head: the store is damaged. "
                        "Run `verify`; its checkpoints can still be restored by their ids"
                    )
                return Line(tree=tree, version=ABSENT, head=rows.Head(None, 0), head_value=None, tip=None)
            head, row = found
            tip = await nearest_live(services, head.checkpoint, tree)
            return Line(
                tree=tree,
                version=row.version,
                head=head,
                head_value=row.value,
                tip=tip,
                manifest=tip.manifest() if tip else None,
            )
        except CorruptError:
            if is_last:
                raise
    raise AssertionError("unreachable")


async def _has_checkpoints(services: Services, session: bytes, tree: bytes | None) -> bool:
    """Whether there is one of that session, buried ones included."""
    if await services.backend.session_records(session, limit=1):
        return True
    return tree is not None and bool(await graves.numbers_of(services, tree, session))


async def confirmed_line(services: Services, session: bytes) -> Line:
    """Where a session stands, as the store says: what this process remembers is taken if the head's row is as it was."""
    line = remembered_line(services, session)
    if line is not None and line.tree is not None:
        [row] = await services.backend.rows([rows.head_key(session, line.tree)])
        if row is not None and row.value == line.head_value:
            return line
    return await standing(services, session)


def remembered_line(services: Services, session: bytes) -> Line | None:
    """Where a session stands, as this process remembers it; not if the time to live of its tip is over: the store
    knows whether something holds that."""
    line = services.memory.get(session)
    if line is None or line.tip is None or "ttl" not in line.tip.header:
        return line
    return None if line.tip.is_expired(services.now_us()) else line


async def current_line(services: Services, session: bytes, to_append: Iterable[Path] = ()) -> Line:
    """Where a session stands, as this process remembers it or as the store says."""
    return remembered_line(services, session) or await standing(services, session, to_append)
