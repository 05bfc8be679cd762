"""All records of a store, page by page, for `verify`, `gc`, `du` and `retain`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from holdfast.backends.port import Record, Row, RowKey
from holdfast.errors import CorruptError
from holdfast.format.rows.head import session_name
from holdfast.format.state import record
from holdfast.format.state.record import StoredRecord
from holdfast.model.ids import to_text
from holdfast.model.listing import DamagedCheckpoint
from holdfast.operations import lookup
from holdfast.operations.context import StoreContext
from holdfast.operations.tombstones import TombstoneReader

PAGE = 200


async def record_pages(ctx: StoreContext) -> AsyncIterator[list[Record]]:
    """Yield every record of the store, in the order of ids."""
    after: bytes | None = None
    while page := await ctx.backend.page_records(after, PAGE):
        yield page
        after = page[-1].id


async def unpacked_pages(
    ctx: StoreContext, damaged: list[DamagedCheckpoint] | None = None
) -> AsyncIterator[tuple[list[tuple[Record, StoredRecord]], set[bytes]]]:
    """Yield every record, read and checked; and the ids among them that may no longer be read.

    One that can't be read raises its error, or is added to `damaged` if that is given.
    """
    async for page in record_pages(ctx):
        unpacked: list[tuple[Record, StoredRecord]] = []
        for found in page:
            try:
                unpacked.append((found, record.unpack(ctx.codec, found.data, expected_id=found.id)))
            except CorruptError as error:
                if damaged is None:
                    raise
                damaged.append(damaged_checkpoint(found, error))
        yield unpacked, await lookup.find_expired(ctx, (stored for _, stored in unpacked))


def damaged_checkpoint(found: Record, error: Exception) -> DamagedCheckpoint:
    return DamagedCheckpoint(
        session_id=session_name(found.session),
        sequence=found.sequence,
        checkpoint_id=to_text(found.id),
        message=str(error),
    )


async def records_by_id(ctx: StoreContext, wanted: Iterable[bytes]) -> dict[bytes, Record]:
    """Return the existing records of these ids, requested in pages."""
    ids = list(dict.fromkeys(wanted))
    pages = [await ctx.backend.records(ids[at : at + PAGE]) for at in range(0, len(ids), PAGE)]
    return {found.id: found for page in pages for found in page if found is not None}


class RecordsAhead:
    """Records that are read together, before they are needed one by one.

    If damage prevents that, each is read when it is needed: so the damage is reported where it is,
    and hides nothing else.
    """

    def __init__(self, ctx: StoreContext, read: dict[bytes, Record] | None) -> None:
        self._ctx = ctx
        self._read = read

    @classmethod
    async def of(cls, ctx: StoreContext, wanted: Iterable[bytes | None]) -> RecordsAhead:
        try:
            return cls(ctx, await records_by_id(ctx, (id_ for id_ in wanted if id_ is not None)))
        except CorruptError:
            return cls(ctx, None)

    async def find(
        self, id_: bytes, tree: bytes | None = None, tombstone_reader: TombstoneReader | None = None
    ) -> StoredRecord | None:
        """Do the same as `lookup.find_record`."""
        if self._read is None:
            return await lookup.find_record(self._ctx, id_, tree, tombstone_reader)
        return await lookup.find_stored(self._ctx, id_, self._read.get(id_), tree, tombstone_reader)


async def rows_by_key(ctx: StoreContext, wanted: Sequence[RowKey]) -> dict[RowKey, Row]:
    """Return the existing rows of these keys, requested in pages."""
    found: dict[RowKey, Row] = {}
    for at in range(0, len(wanted), PAGE):
        keys = wanted[at : at + PAGE]
        rows = await ctx.backend.rows(keys)
        found.update((key, row) for key, row in zip(keys, rows, strict=True) if row is not None)
    return found
