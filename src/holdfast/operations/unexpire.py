"""unexpire: undoes an expiry, as long as nothing was collected since."""

from __future__ import annotations

from holdfast.backends.port import Commit, CommitConflict, RecordWrite, RowKey
from holdfast.errors import CheckpointExpiredError, CheckpointNotFoundError
from holdfast.model import ids
from holdfast.objects import record, rows
from holdfast.operations import reading
from holdfast.operations.services import Services


async def unexpire(services: Services, id_: bytes) -> bool:
    """True if it can be read again, False if it had not expired. Heads stay where they are.

    The row that keeps the record's bytes is required, and stays: `gc` marks what such rows refer to after it has looked
    at the records, so it can't overlook one that comes back while it looks. The next `gc` drops the row.
    """
    while True:
        [found] = await services.backend.records([id_])
        if found is None:
            if await reading.find_record(services, id_) is not None:
                raise _too_late(id_)
            raise CheckpointNotFoundError(f"there is no checkpoint {ids.to_text(id_)}: nothing can be undone")
        stored = record.unpack(services.codec, found.data, expected_id=id_)
        if not await reading.is_over(services, stored):
            return False
        key = RowKey(rows.EXPIRED, id_, stored.tree)
        [row] = await services.backend.rows([key])
        if not stored.is_tombstone or row is None:
            raise _too_late(id_)
        original = rows.content(key, row)
        if record.unpack(services.codec, original, expected_id=id_).is_expired(services.now_us()):
            raise CheckpointExpiredError(
                f"checkpoint {ids.to_text(id_)} can't be brought back: its time to live is over"
            )
        write = RecordWrite(id_, found.session, found.sequence, original, replaces=found.data)
        try:
            await services.backend.commit(Commit(tree=stored.tree, record=write, require_rows=[(key, row.version)]))
        except CommitConflict:
            continue  # collected, or undone by another: look again
        return True


def _too_late(id_: bytes) -> CheckpointExpiredError:
    return CheckpointExpiredError(
        f"checkpoint {ids.to_text(id_)} can't be brought back: its time to live is over, or `gc` has removed what it held "
        "since it expired"
    )
