"""pin, unpin, pins: keeping checkpoints whatever their time to live or a policy says.

Expiring and pinning meet in the store: a tombstone is committed only if there is no hold on the record, and a hold only
if the record is live. So of the two exactly one is done.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from holdfast.backends.port import ABSENT, Commit, CommitConflict, RowWrite
from holdfast.errors import ConflictError
from holdfast.model import ids
from holdfast.model.holds import Pin
from holdfast.objects import holds, oplog, record, rows
from holdfast.objects.holds import Hold
from holdfast.objects.oplog import Change, Origin
from holdfast.objects.record import EPOCH, Stored
from holdfast.operations import oplog as log
from holdfast.operations import reading
from holdfast.operations.services import Services

PAGE = 200


async def pin(services: Services, id_: bytes, note: str | None = None, *, origin: Origin | None = None) -> Pin:
    """Pins a live checkpoint. Pinning it again changes its note, if another one is given."""
    packed = None if note is None else rows.session_key(note)

    def pinned(hold: Hold) -> Hold:
        since = services.now_us() if hold.pinned_at_us is None else hold.pinned_at_us
        return hold._replace(pinned_at_us=since, note=hold.note if packed is None else packed)

    while True:
        stored = await reading.live_record(services, id_)
        try:
            _, hold = await change_hold(services, stored, pinned, "pin", origin)
        except CommitConflict:
            continue  # it has expired just now, or another was first
        return _pin(stored, hold)


async def unpin(services: Services, id_: bytes, *, origin: Origin | None = None) -> bool:
    """True if it was pinned. Tags stay, and keep it as they did."""
    while True:
        stored = await reading.find_record(services, id_)
        if stored is None:
            return False
        try:
            before, _ = await change_hold(
                services, stored, lambda hold: hold._replace(pinned_at_us=None, note=None), "unpin", origin
            )
        except CommitConflict:
            continue  # another was first
        return before.pinned_at_us is not None


async def pins(services: Services, session_id: str | None = None) -> list[Pin]:
    """The pinned checkpoints, of all sessions or of one, the one pinned last first."""
    found: list[Pin] = []
    after: bytes | None = None
    while page := await services.backend.scan(holds.PIN, after=after, limit=PAGE):
        after = page[-1][0].key
        pinned = [(key, hold) for key, row in page if (hold := holds.unpack_hold(key, row)).pinned_at_us is not None]
        for (key, hold), stored in zip(
            pinned, await services.backend.records([key.key for key, _ in pinned]), strict=True
        ):
            if stored is not None:  # else it is damaged: `verify` says so
                found.append(_pin(record.unpack(services.codec, stored.data, expected_id=key.key), hold))
    found = [one for one in found if session_id in (None, one.session_id)]
    return sorted(found, key=lambda one: one.pinned_at, reverse=True)


def _pin(stored: Stored, hold: Hold) -> Pin:
    return Pin(
        checkpoint_id=ids.to_text(stored.id),
        session_id=stored.session,
        pinned_at=EPOCH + timedelta(microseconds=hold.pinned_at_us or 0),
        note=None if hold.note is None else rows.session_name(hold.note),
    )


async def put_back(services: Services, change: Change, origin: Origin) -> None:
    """Makes a pin what it was before a change, if nobody has changed it since."""
    _, id_, to, now = change

    def changed(hold: Hold) -> Hold:
        if _pinned(hold) != now:
            raise ConflictError(
                f"{ids.to_text(id_)} was pinned, unpinned or given another note since: it is left as it is. `holdfast pin` "
                "lists what is pinned"
            )
        return (
            hold._replace(pinned_at_us=None, note=None) if to is None else hold._replace(pinned_at_us=to[0], note=to[1])
        )

    while True:
        stored = await reading.find_record(services, id_)
        if stored is None or stored.is_tombstone:
            stored = await reading.live_record(services, id_)  # says why it can't be pinned
        try:
            await change_hold(services, stored, changed, "pin", origin)
        except CommitConflict:
            continue  # it has expired just now, or another was first
        return


async def change_hold(
    services: Services, stored: Stored, change: Callable[[Hold], Hold], kind: str, origin: Origin | None
) -> tuple[Hold, Hold]:
    """Changes the hold on a live checkpoint: as it was, as it is. `CommitConflict` says that the checkpoint has expired,
    or that another was first."""
    key = holds.hold_key(stored.id, stored.tree)
    [row] = await services.backend.rows([key])
    before = holds.unpack_hold(key, row)
    after = change(before)
    if after != before:
        write = RowWrite(key, after.pack(key), row.version if row else ABSENT, row.value if row else None)
        changes = [Change(oplog.PIN, stored.id, _pinned(before), _pinned(after))]
        logged = log.writes(services, origin, stored.tree, kind, changes, stored.session)
        await services.backend.commit(
            Commit(tree=stored.tree, rows=[write, *logged], require=[(stored.id, record.LIVE)])
        )
    return before, after


def _pinned(hold: Hold) -> list[int | bytes | None] | None:
    """The pin of a hold, as the log has it."""
    return None if hold.pinned_at_us is None else [hold.pinned_at_us, hold.note]
