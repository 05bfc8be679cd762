"""pin, unpin, pins: checkpoints that are kept whatever their time to live or a policy says.

Expiring and pinning exclude each other in the store: a tombstone is committed only if there is no
hold on the record, and a hold only if the record is live. So exactly one of the two is done.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from holdfast.backends.port import ABSENT, Commit, CommitConflict, RowWrite
from holdfast.errors import ConflictError
from holdfast.format.rows import head, operation_log
from holdfast.format.rows import hold as holds
from holdfast.format.rows.hold import Hold
from holdfast.format.rows.operation_log import LoggedChange, Origin
from holdfast.format.state import record
from holdfast.format.state.record import EPOCH, StoredRecord
from holdfast.model import ids
from holdfast.model.pin import Pin
from holdfast.operations import lookup
from holdfast.operations import operation_log as log
from holdfast.operations.context import StoreContext
from holdfast.operations.damaged_row import read_or_note

PAGE = 200


async def pin(ctx: StoreContext, id_: bytes, note: str | None = None, *, origin: Origin | None = None) -> Pin:
    """Pin a live checkpoint. Pinning it again changes its note, if another one is given."""
    packed = None if note is None else head.session_key(note)

    def pinned(hold: Hold) -> Hold:
        since = ctx.now_us() if hold.pinned_at_us is None else hold.pinned_at_us
        return hold._replace(pinned_at_us=since, note=hold.note if packed is None else packed)

    while True:
        stored = await lookup.load_live_record(ctx, id_)
        try:
            _, hold = await change_hold(ctx, stored, pinned, "pin", origin)
        except CommitConflict:
            continue  # it has expired just now, or another caller was first
        return _pin(stored, hold)


async def unpin(ctx: StoreContext, id_: bytes, *, origin: Origin | None = None) -> bool:
    """Unpin a checkpoint; return whether it was pinned. Tags stay, and keep it as before."""
    while True:
        stored = await lookup.find_record(ctx, id_)
        if stored is None:
            return False
        try:
            before, _ = await change_hold(
                ctx, stored, lambda hold: hold._replace(pinned_at_us=None, note=None), "unpin", origin
            )
        except CommitConflict:
            continue  # another caller was first
        return before.pinned_at_us is not None


async def pins(ctx: StoreContext, session_id: str | None = None, *, damaged: list[str] | None = None) -> list[Pin]:
    """Return the pinned checkpoints, of all sessions or of one, the one pinned last first.

    See `read_or_note` for `damaged`.
    """
    found: list[Pin] = []
    after: bytes | None = None
    while page := await ctx.backend.scan(holds.PIN, after=after, limit=PAGE):
        after = page[-1][0].key
        pinned = [
            (key, hold)
            for key, row in page
            if (hold := read_or_note(partial(holds.unpack_hold, key, row), damaged)) is not None
            and hold.pinned_at_us is not None
        ]
        for (key, hold), stored in zip(pinned, await ctx.backend.records([key.key for key, _ in pinned]), strict=True):
            if stored is None:  # it is damaged: `verify` reports it
                continue
            pinned_record = read_or_note(partial(record.unpack, ctx.codec, stored.data, expected_id=key.key), damaged)
            if pinned_record is not None:
                found.append(_pin(pinned_record, hold))
    found = [item for item in found if session_id in (None, item.session_id)]
    return sorted(found, key=lambda item: item.pinned_at, reverse=True)


def _pin(stored: StoredRecord, hold: Hold) -> Pin:
    return Pin(
        checkpoint_id=ids.to_text(stored.id),
        session_id=stored.session,
        pinned_at=EPOCH + timedelta(microseconds=hold.pinned_at_us or 0),
        note=None if hold.note is None else head.session_name(hold.note),
    )


async def put_back(ctx: StoreContext, change: LoggedChange, origin: Origin) -> None:
    """Restore a pin as it was before a change, if it has not changed since."""
    _, id_, to, now = change

    def changed(hold: Hold) -> Hold:
        if pinned_of(hold) != now:
            raise ConflictError(
                f"{ids.to_text(id_)} was pinned, unpinned or given another note since: it is left as it is. `holdfast "
                "pin` lists what is pinned"
            )
        return (
            hold._replace(pinned_at_us=None, note=None) if to is None else hold._replace(pinned_at_us=to[0], note=to[1])
        )

    while True:
        stored = await lookup.find_record(ctx, id_)
        if stored is None or stored.is_tombstone:
            stored = await lookup.load_live_record(ctx, id_)  # raises an error that says why it can't be pinned
        try:
            await change_hold(ctx, stored, changed, "pin", origin)
        except CommitConflict:
            continue  # it has expired just now, or another caller was first
        return


async def change_hold(
    ctx: StoreContext, stored: StoredRecord, change: Callable[[Hold], Hold], kind: str, origin: Origin | None
) -> tuple[Hold, Hold]:
    """Change the hold on a live checkpoint; return it as it was before and after.

    Raises `CommitConflict` if the checkpoint has expired, or another caller was first.
    """
    key = holds.hold_key(stored.id, stored.tree)
    [row] = await ctx.backend.rows([key])
    before = holds.unpack_hold(key, row)
    after = change(before)
    if after != before:
        write = RowWrite(key, after.pack(key), row.version if row else ABSENT, row.value if row else None)
        changes = [LoggedChange(operation_log.PIN, stored.id, pinned_of(before), pinned_of(after))]
        logged = log.writes(ctx, origin, stored.tree, kind, changes, stored.session)
        await ctx.backend.commit(Commit(tree=stored.tree, rows=[write, *logged], require=[(stored.id, record.LIVE)]))
    return before, after


def pinned_of(hold: Hold) -> list[int | bytes | None] | None:
    """Return the pin of a hold, in the form of the log."""
    return None if hold.pinned_at_us is None else [hold.pinned_at_us, hold.note]
