"""verify and stats: is everything there and right, and how much is it?"""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.backends.port import Record, Row, RowKey
from holdfast.errors import CorruptError, HoldfastError
from holdfast.model import ids
from holdfast.model.reports import Problem, Stats, VerifyReport
from holdfast.objects import approvals, assemble, graves, holds, ledger, oplog, record, rows
from holdfast.objects.assemble import Prefix
from holdfast.objects.record import Stored
from holdfast.operations import reading, snapshots
from holdfast.operations import timeline as listing
from holdfast.operations.graves import Graveyard
from holdfast.operations.reach import Reach
from holdfast.operations.services import Services

PAGE = 200
BLOBS_AT_ONCE = 64


async def all_records(services: Services) -> AsyncIterator[Record]:
    """Every record of the store, in the order of ids."""
    after: bytes | None = None
    while page := await services.backend.page_records(after, PAGE):
        for found in page:
            yield found
        after = page[-1].id


async def verify(services: Services, session_id: str | None = None) -> VerifyReport:
    """Reads everything, of the store or of one session, and checks each digest and the chain of checksums."""
    checked = expired = ended = 0
    problems: list[Problem] = []
    only = rows.session_key(session_id) if session_id is not None else None
    heads = [one for one in await services.backend.scan(rows.HEAD) if only in (None, one[0].key)]
    numbers = _Numbers()
    contents = _Contents(services)
    graveyard = Graveyard(services)
    async for found in all_records(services) if only is None else _session_records(services, only):
        try:
            numbers.add(found.session, found.sequence)
            stored = reading.listed_record(services, found)
            if await reading.is_over(services, stored):
                expired += 1
                continue
            checked += 1
            ended += await _check_parent(services, stored, graveyard)
            await contents.check(stored)
        except HoldfastError as error:
            problems.append(Problem(checkpoint_id=ids.to_text(found.id), message=str(error)))
    # Last of all: what was a record when it was passed by may have been buried since, but not the other way round.
    for key, row in await services.backend.scan(rows.GRAVES):
        try:
            for grave in graves.unpack(key, row) if graves.is_pack(key) else ():
                if only in (None, grave.session):
                    expired += numbers.add(grave.session, grave.sequence)
        except HoldfastError as error:
            problems.append(Problem(checkpoint_id="", message=str(error)))
    for key, row in heads:
        problems += await _check_head(services, key, row, numbers)
    problems += [*await _check_holds(services), *await _check_approvals(services)] if only is None else []
    return VerifyReport(checked=checked, expired=expired, ended_chains=ended, problems=tuple(problems))


async def _session_records(services: Services, session: bytes) -> AsyncIterator[Record]:
    for found in reversed(await services.backend.session_records(session)):
        yield found


class _Contents:
    """Checks the contents of checkpoints, of successive ones only what is new: what was hashed of a log for the one
    before is not hashed again."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._hashed: dict[int, Prefix] = {}
        self._blobs: set[bytes] = set()
        self._files: set[bytes] = set()
        self._reach = Reach(snapshots.loader(services))

    async def check(self, stored: Stored) -> None:
        manifest = stored.manifest()
        checks = assemble.checks(manifest, self._hashed)
        spans = [check.span for check in checks if check.span.first < check.span.end]
        runs = dict(zip(spans, await self._services.backend.runs(spans), strict=True)) if spans else {}
        assemble.check_lists(manifest, checks, runs, self._hashed)
        new = [blob for blob in manifest.blobs if blob.hash not in self._blobs]
        if new:
            found = await self._services.backend.blobs([blob.hash for blob in new])
            assemble.check_blobs(new, found)
            self._blobs.update(blob.hash for blob in new)
        reference = snapshots.reference_of(stored)
        if reference is not None:
            await self._check_files(reference)

    async def _check_files(self, reference: str) -> None:
        """Every object of the snapshot is there and is what was saved; what was checked for another one is known."""
        await self._reach.learn(reference)
        new = [(hash_, size) for hash_, size in self._reach.blobs([reference]).items() if hash_ not in self._files]
        for start in range(0, len(new), BLOBS_AT_ONCE):
            batch = new[start : start + BLOBS_AT_ONCE]
            contents = await snapshots.objects_of(self._services, [hash_ for hash_, _ in batch])
            for (hash_, size), content in zip(batch, contents, strict=True):
                if len(content) != size:
                    raise CorruptError(f"the blob {hash_.hex()[:16]}… of its files is not as long as the snapshot says")
                self._files.add(hash_)


class _Numbers:
    """The sequence numbers that were met, by session."""

    def __init__(self) -> None:
        self._met: dict[bytes, set[int]] = {}

    def add(self, session: bytes, number: int) -> bool:
        """Whether it is met for the first time."""
        met = self._met.setdefault(session, set())
        known = number in met
        met.add(number)
        return not known

    def missing(self, session: bytes, last: int) -> int:
        """How many of those from 1 to `last` were not met."""
        return last - sum(number <= last for number in self._met.get(session, ()))


async def _check_parent(services: Services, stored: Stored, graveyard: Graveyard) -> bool:
    """Whether the chain ends here, because the parent has expired or is gone."""
    if stored.parent is None:
        return False
    parent = await reading.find_record(services, stored.parent, stored.tree, graveyard)
    if parent is None:
        return True
    # Of one that is buried, only the beginning is known.
    checksum = parent.header["sum"] if parent.is_tombstone else parent.checksum
    if not stored.header["psum"].startswith(checksum):
        raise CorruptError(f"its parent {ids.to_text(parent.id)} is not the one it was saved after")
    return parent.is_tombstone


async def _check_head(services: Services, key: RowKey, row: Row, numbers: _Numbers) -> list[Problem]:
    """Whether the session of this head row, as it was before the records were read, is whole."""
    name = rows.session_name(key.key)
    try:
        head = rows.unpack_head(key, row)
        if await reading.find_tree(services, key.key) != key.tree:
            raise CorruptError(f"session {name!r:.60} is not listed under its tree")
        if missing := numbers.missing(key.key, head.sequence):
            raise CorruptError(f"{missing} of the {head.sequence} checkpoints of session {name!r:.60} are missing")
        if head.checkpoint is not None and await reading.find_record(services, head.checkpoint, key.tree) is None:
            raise CorruptError(f"session {name!r:.60} stands at a checkpoint that is not there")
    except HoldfastError as error:
        return [] if await _is_gone(services, key) else [Problem(checkpoint_id="", message=str(error))]
    return []


async def _is_gone(services: Services, key: RowKey) -> bool:
    """Whether the row, and all that it stood for, was collected meanwhile."""
    try:
        return await services.backend.rows([key]) == [None]
    except HoldfastError:
        return False


async def _check_holds(services: Services) -> list[Problem]:
    """Pins and tags can be read, and what they keep is there."""
    problems = []
    for key, row in [*await services.backend.scan(holds.PIN), *await services.backend.scan(holds.TAG)]:
        held = key.key if key.space == holds.PIN else b""
        try:
            if key.space == holds.PIN:
                holds.unpack_hold(key, row)
            else:
                held = holds.unpack_tag(key, row).checkpoint
            stored = await reading.find_record(services, held)
            if stored is None or stored.is_tombstone:
                raise CorruptError(f"checkpoint {ids.to_text(held)} is pinned or tagged, but is not there")
        except HoldfastError as error:
            if await services.backend.rows([key]) == [row]:  # else it was let go while we looked
                problems.append(Problem(checkpoint_id=ids.to_text(held) if held else "", message=str(error)))
    return problems


async def _check_approvals(services: Services) -> list[Problem]:
    """Approvals, effects and operations can be read: a damaged one would be missing from what people are asked or told."""
    problems = []
    for space in (approvals.APPROVAL, ledger.LEDGER, oplog.SPACE):
        for key, row in await services.backend.scan(space):
            try:
                rows.content(key, row)
            except CorruptError as error:
                if await services.backend.rows([key]) == [row]:
                    problems.append(Problem(checkpoint_id="", message=str(error)))
    return problems


async def stats(services: Services) -> Stats:
    usage = await services.backend.usage()
    capabilities = services.backend.capabilities
    logical = live = expired = 0
    async for found in all_records(services):
        stored = record.unpack(services.codec, found.data, expected_id=found.id)
        if await reading.is_over(services, stored):
            expired += 1
        else:
            live += 1
            logical += stored.manifest().logical_size()
    for key, row in await services.backend.scan(rows.GRAVES):
        expired += len(graves.unpack(key, row)) if graves.is_pack(key) else 0
    return Stats(
        backend=capabilities.name,
        location=capabilities.location,
        durability=capabilities.durability,
        sessions=len(await listing.sessions(services)),
        checkpoints=live,
        expired=expired,
        logical_bytes=logical,
        stored_bytes=usage.total_bytes,
        record_bytes=usage.record_bytes,
        run_bytes=usage.run_bytes,
        blob_bytes=usage.blob_bytes,
        row_bytes=usage.row_bytes,
    )
