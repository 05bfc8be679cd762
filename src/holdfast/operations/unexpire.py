"""unexpire: undoes an expiry, as long as nothing was collected since."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.port import Commit, CommitConflict, RecordWrite, RowKey, RowWrite
from holdfast.errors import CheckpointExpiredError, CheckpointNotFoundError
from holdfast.model import ids
from holdfast.objects import oplog, record, rows
from holdfast.objects.oplog import Change, Origin
from holdfast.operations import lease as leasing
from holdfast.operations import oplog as log
from holdfast.operations import reading
from holdfast.operations.services import Services


async def unexpire(services: Services, id_: bytes, *, origin: Origin | None = None) -> bool:
    """True if it can be read again, False if it had not expired. Heads stay where they are."""
    while True:
        commit = await bringing_back(services, id_)
        if commit is None:
            return False
        changes = [Change(oplog.LIFE, id_, False, True)]
        commit.rows = log.writes(services, origin, commit.tree, "unexpire", changes, _session(commit))
        try:
            await services.backend.commit(commit)
        except CommitConflict:
            continue  # collected, or undone by another: look again
        return True


async def with_heads(services: Services, id_: bytes, moved: Sequence[Change], origin: Origin) -> tuple[bool, list[str]]:
    """The same, and the heads that its expiry has moved go back to it. A session that has gone on since, or that somebody
    holds the lease of, stays where it is: these are named."""
    while True:
        commit = await bringing_back(services, id_)
        if commit is None:
            return False, []
        changes = [Change(oplog.LIFE, id_, False, True)]
        writes: list[RowWrite] = []
        left: list[str] = []
        for _, session, to, now in moved:
            found = await reading.find_head(services, session, commit.tree)
            name = rows.session_name(session)
            if found is None or found[0].checkpoint != now:
                left.append(f"session {name!r:.60} has gone on since, and stays where it stands")
            elif not leasing.allows(services, found[0], None):
                left.append(f"session {name!r:.60} is being written to under a lease, and stays where it stands")
            else:
                head, row = found
                key = rows.head_key(session, commit.tree)
                writes.append(RowWrite(key, head._replace(checkpoint=to).pack(key), row.version))
                changes.append(Change(oplog.HEAD, session, now, to))
                services.memory.drop(session)
        commit.rows = [*writes, *log.writes(services, origin, commit.tree, "unexpire", changes, _session(commit))]
        try:
            await services.backend.commit(commit)
        except CommitConflict:
            continue
        return True, left


async def bringing_back(services: Services, id_: bytes) -> Commit | None:
    """The commit that puts an expired record back in its place; None if it has not expired.

    The row that keeps the record's bytes is required, and stays: `gc` marks what such rows refer to after it has looked
    at the records, so it can't overlook one that comes back while it looks. The next `gc` drops the row.
    """
    [found] = await services.backend.records([id_])
    if found is None:
        if await reading.find_record(services, id_) is not None:
            raise _too_late(id_)
        raise CheckpointNotFoundError(f"there is no checkpoint {ids.to_text(id_)}: nothing can be undone")
    stored = record.unpack(services.codec, found.data, expected_id=id_)
    if not await reading.is_over(services, stored):
        return None
    key = RowKey(rows.EXPIRED, id_, stored.tree)
    [row] = await services.backend.rows([key])
    if not stored.is_tombstone or row is None:
        raise _too_late(id_)
    original = rows.content(key, row)
    if record.unpack(services.codec, original, expected_id=id_).is_expired(services.now_us()):
        raise CheckpointExpiredError(f"checkpoint {ids.to_text(id_)} can't be brought back: its time to live is over")
    write = RecordWrite(id_, found.session, found.sequence, original, replaces=found.data)
    return Commit(tree=stored.tree, record=write, require_rows=[(key, row.version)])


def _session(commit: Commit) -> str | None:
    return None if commit.record is None else rows.session_name(commit.record.session)


def _too_late(id_: bytes) -> CheckpointExpiredError:
    return CheckpointExpiredError(
        f"checkpoint {ids.to_text(id_)} can't be brought back: its time to live is over, or `gc` has removed what it held "
        "since it expired"
    )
