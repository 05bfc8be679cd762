"""export: trees as one portable stream of bytes, checked on export. See `format/bundle/sections.py`.

A tree is exported as of the time when its heads were read: rows about its checkpoints are read
before the heads, records up to each head's number after them. Later saves are left out. Checkpoints
that expire meanwhile stay readable until they are collected; if that happens, too, `OvertakenError`
says that the export must begin again.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.backends.port import STORE, Record, Span
from holdfast.errors import CheckpointNotFoundError, ConflictError, CorruptError
from holdfast.format import frame
from holdfast.format.bundle import sections
from holdfast.format.bundle.renumber import Numbering
from holdfast.format.bundle.sections import BundleCounts, HeadEntry, RowEntry, TombstoneEntry, TreeEntry
from holdfast.format.rows import head as rows
from holdfast.format.rows import packed_tombstones as packing
from holdfast.format.rows import portable
from holdfast.format.rows import topic as topics
from holdfast.format.rows.packed_tombstones import PackedTombstone
from holdfast.format.state import log_segment, record
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.operations import lookup, read_topic, snapshot_deltas, snapshot_read
from holdfast.operations import tombstones as packed
from holdfast.operations.adapter import portable_rows
from holdfast.operations.context import StoreContext
from holdfast.operations.expire import BY_TTL
from holdfast.operations.read_elements import ElementChecker, elements
from holdfast.operations.snapshot_reachability import SnapshotReachability

PAGE = 200

Progress = Callable[[int, int], None]  # done, of all


class OvertakenError(ConflictError):
    """An error: a checkpoint that was being exported has expired and was collected meanwhile."""


@dataclass(slots=True)
class _Tree:
    tree: bytes
    heads: list[HeadEntry] = field(default_factory=list)
    rows: list[RowEntry] = field(default_factory=list)
    tombstones: list[TombstoneEntry] = field(default_factory=list)
    records: list[tuple[bytes, StoredRecord]] = field(default_factory=list)  # live ones


class Export:
    """One export. Read `chunks` to the end; then `counts`, `size` and `digest` describe the result."""

    def __init__(
        self,
        ctx: StoreContext,
        sessions: Collection[str] | None = None,
        *,
        whole_trees: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._ctx = ctx
        self._portable = portable_rows(ctx)
        self._sessions = sessions
        self._whole_trees = whole_trees
        self._progress = progress or (lambda _done, _all: None)
        self._done = 0
        self._all = 0
        self._topics: dict[str, read_topic.SettledMessages] = {}
        self._hasher = hashlib.sha256()
        self.counts = BundleCounts()
        self.expired_by_ttl = 0
        self.size = 0

    @property
    def digest(self) -> bytes:
        """The digest of all bytes."""
        return self._hasher.digest()

    async def chunks(self) -> AsyncIterator[bytes]:
        trees = await self._choose_trees()
        tags = await self._store_rows()
        yield self._count(sections.PREAMBLE + sections.header(len(trees)))
        for tree in sorted(trees):
            async for chunk in self._tree(tree, trees[tree], tags):
                yield self._count(chunk)
        yield self._count(sections.trailer(self.counts, self._hasher.digest()))

    def _count(self, chunk: bytes) -> bytes:
        self._hasher.update(chunk)
        self.size += len(chunk)
        return chunk

    # -- selection ---------------------------------------------------------------------------------------------------

    async def _choose_trees(self) -> dict[bytes, set[bytes] | None]:
        """Return the trees, each with the sessions to begin with; None means all."""
        trees: dict[bytes, set[bytes] | None] = {}
        if self._sessions is None:
            after: bytes | None = None
            while page := await self._ctx.backend.scan(rows.HEAD, after=after, limit=PAGE):
                for key, row in page:
                    sequence = rows.unpack_head(key, row).sequence
                    if sequence:  # else the session was only leased so far
                        trees[key.tree] = None
                        self._all += sequence
                after = page[-1][0].key
            return trees
        for name in self._sessions:
            session = rows.session_key(name)
            tree = await lookup.find_tree(self._ctx, session)
            found = await lookup.find_head(self._ctx, session, tree) if tree else None
            if tree is None or found is None or not found[0].sequence:
                raise CheckpointNotFoundError(
                    f"there is no session {name!r:.200}. `sessions` lists those that are there"
                )
            chosen = trees.setdefault(tree, None if self._whole_trees else set())
            if chosen is not None:
                chosen.add(session)
            self._all += found[0].sequence
        return trees

    async def _store_rows(self) -> dict[bytes, list[RowEntry]]:
        """Return the store's rows about checkpoints, by checkpoint or by the key of the index.

        The latter is for rows whose checkpoint only an index names.
        """
        found: dict[bytes, list[RowEntry]] = {}
        for space in self._portable.spaces_of_store:
            for entry in await self._rows(space, STORE):
                about = self._portable.checkpoint_of(entry) or self._portable.index_key_of(entry)
                found.setdefault(about or b"", []).append(entry)
        return found

    async def _rows(self, space: str, tree: bytes) -> list[RowEntry]:
        return [
            RowEntry(space, key.key, rows.content(key, row), tree == STORE)
            for key, row in await self._ctx.backend.scan(space, tree=tree)
        ]

    # -- a tree ------------------------------------------------------------------------------------------------------

    async def _tree(
        self, id_: bytes, sessions: set[bytes] | None, store_rows: dict[bytes, list[RowEntry]]
    ) -> AsyncIterator[bytes]:
        tree = await self._read(id_, sessions, store_rows)
        numbering = Numbering()
        blobs: dict[bytes, int] = {}
        for _, stored in tree.records:
            manifest = stored.manifest()
            numbering.note(manifest)
            blobs.update((blob.hash, blob.size) for blob in manifest.blobs)
        try:
            blobs |= await self._files([stored for _, stored in tree.records])
        except CorruptError:
            await self._refuse_if_collected(tree)
            raise
        numbering.settle()
        lengths = numbering.lengths
        yield sections.tree(
            TreeEntry(
                id_, tuple(tree.heads), lengths, len(tree.rows), len(tree.tombstones), len(blobs), len(tree.records)
            )
        )
        for chunk in (*sections.rows(tree.rows), *sections.pack_tombstones(tree.tombstones)):
            yield chunk
        try:
            await self._check(tree)
            async for chunk in self._elements(numbering, sum(head.sequence for head in tree.heads)):
                yield chunk
            for hash_ in sorted(blobs):
                yield sections.blob(hash_, await self._blob(hash_, blobs[hash_]))
        except CorruptError:
            await self._refuse_if_collected(tree)
            raise
        moved = (record.with_manifest(data, numbering.move(stored.manifest())) for data, stored in tree.records)
        for chunk in sections.records(moved):
            yield chunk
        self.counts = self.counts.add(
            BundleCounts(
                1, len(tree.heads), len(tree.records), len(tree.tombstones), sum(lengths), len(blobs), len(tree.rows)
            )
        )
        self._done += sum(head.sequence for head in tree.heads)
        self._progress(self._done, max(self._all, self._done))

    async def _read(self, id_: bytes, sessions: set[bytes] | None, store_rows: dict[bytes, list[RowEntry]]) -> _Tree:
        """Return everything but contents, as of the time when the heads were read."""
        tree = _Tree(id_)
        about = [entry for space in self._portable.spaces_of_tree for entry in await self._rows(space, id_)]
        heads: dict[bytes, rows.Head] = {}
        for key, row in await self._ctx.backend.scan(rows.HEAD, tree=id_):
            head = rows.unpack_head(key, row)
            if head.sequence:
                heads[key.key] = head
        by_session: dict[bytes, list[tuple[bytes, StoredRecord]]] = {}
        buried: dict[bytes, PackedTombstone] = {}
        known: set[bytes] = set()
        wanted = sorted(heads if sessions is None else sessions)
        while wanted:
            for session in wanted:
                if session not in heads:
                    raise _make_overtaken_error(id_)
                by_session[session] = await self._records(session, heads[session].sequence, id_)
                known.update(stored.id for _, stored in by_session[session])
            # After the records: those that are no longer there are here.
            buried = {tombstone.id: tombstone for tombstone in await packed.load_tombstones(self._ctx, id_)}
            known.update(tombstone.id for tombstone in buried.values() if tombstone.session in by_session)
            wanted = await self._needed_too(by_session, heads, known, buried) if sessions is not None else []
        parents = {tombstone.id: tombstone.parent for tombstone in buried.values()}
        ended = set(parents) | await self._end_outlived(by_session, parents)
        for session in sorted(by_session):
            head = heads[session]
            tree.heads.append(HeadEntry(session, _find_nearest(head.checkpoint, ended, parents), head.sequence))
            self._add_session(tree, session, head.sequence, by_session[session], buried.values())
        tree.tombstones.sort()
        if not tree.heads:
            raise _make_overtaken_error(id_)
        live = {
            portable.OF_THE_WHOLE_TREE,
            *(stored.id for _, stored in tree.records),
        }  # rows about others follow with these, sooner or later
        of_store = [entry for checkpoint in live for entry in store_rows.get(checkpoint, ())]
        of_store += self._portable.select_owned(about, store_rows)
        about += await self._list_consumed(tree.records, about)
        codec = self._ctx.codec
        tree.rows = sorted(
            entry
            for entry in (*about, *of_store)
            if self._portable.checkpoint_of(entry) in live and portable.session_of(codec, entry) in (None, *by_session)
        )
        return tree

    async def _list_consumed(
        self, records: Sequence[tuple[bytes, StoredRecord]], about: Sequence[RowEntry]
    ) -> list[RowEntry]:
        """Return rows that say which groups have settled the messages among these records."""
        known = {entry.key for entry in about if entry.space == topics.CONSUMED}
        found = []
        for _, stored in records:
            topic = stored.header.get("topic")
            if topic is None:
                continue
            if topic not in self._topics:
                self._topics[topic] = await read_topic.SettledMessages.load(self._ctx, topic)
            keys = self._topics[topic].keys_of(stored.id)
            found += [RowEntry(topics.CONSUMED, key, b"", False) for key in keys if key not in known]
        return found

    async def _end_outlived(
        self, by_session: dict[bytes, list[tuple[bytes, StoredRecord]]], parents: dict[bytes, bytes | None]
    ) -> set[bytes]:
        """Replace records past their time to live by tombstones, as `gc` would; return all ended ids.

        It adds to `parents`. A tombstone has the time at which the time to live ended: so each
        export has the same bytes.
        """
        codec = self._ctx.codec
        every = [stored for records in by_session.values() for _, stored in records]
        over = await lookup.find_expired(self._ctx, every)
        parents.update((stored.id, stored.parent) for stored in every)
        for records in by_session.values():
            for place, (_, stored) in enumerate(records):
                if stored.id in over and not stored.is_tombstone:
                    assert stored.expires_at_us is not None
                    data = record.pack_tombstone(codec, stored, stored.expires_at_us, BY_TTL)
                    records[place] = data, record.unpack(codec, data, expected_id=stored.id)
                    self.expired_by_ttl += 1
        return over

    async def _records(self, session: bytes, last: int, tree: bytes) -> list[tuple[bytes, StoredRecord]]:
        """Return a session's records up to that number, in order; some may be packed tombstones instead."""
        found: list[tuple[bytes, StoredRecord]] = []
        for start in range(0, last, PAGE):
            end = min(start + PAGE, last)
            page = await self._ctx.backend.session_records(session, before=end + 1, limit=end - start)
            found += [
                (item.data, lookup.unpack_listed(self._ctx, item, session))
                for item in reversed(page)
                if item.sequence > start
            ]
        if any(stored.tree != tree for _, stored in found):
            raise CorruptError(f"session {rows.session_name(session)!r:.60} is listed under another tree: run `verify`")
        return found

    def _add_session(
        self,
        tree: _Tree,
        session: bytes,
        last: int,
        records: list[tuple[bytes, StoredRecord]],
        buried: Iterable[PackedTombstone],
    ) -> None:
        """Add the checkpoints of a session. Whether a tombstone is packed makes no difference."""
        ended = {stored.id: packing.of(stored) for _, stored in records if stored.is_tombstone}
        live = [(data, stored) for data, stored in records if not stored.is_tombstone]
        live_ids = {stored.id for _, stored in live}
        ended |= {
            tombstone.id: tombstone
            for tombstone in buried
            if tombstone.session == session and tombstone.sequence <= last and tombstone.id not in live_ids
        }
        numbers = [stored.sequence for _, stored in live] + [tombstone.sequence for tombstone in ended.values()]
        if sorted(numbers) != list(range(1, last + 1)):
            raise CorruptError(f"checkpoints of session {rows.session_name(session)!r:.60} are missing: run `verify`")
        tree.records += live
        tree.tombstones += [TombstoneEntry(*tombstone) for tombstone in ended.values()]

    async def _needed_too(
        self,
        by_session: dict[bytes, list[tuple[bytes, StoredRecord]]],
        heads: dict[bytes, rows.Head],
        known: set[bytes],
        buried: dict[bytes, PackedTombstone],
    ) -> list[bytes]:
        """Return the sessions that these were forked from, or whose checkpoint is their head.

        Without them, these would be incomplete.
        """
        parents = {stored.parent for records in by_session.values() for _, stored in records}
        parents |= {tombstone.parent for tombstone in buried.values() if tombstone.session in by_session}
        parents |= {heads[session].checkpoint for session in by_session}
        missing = sorted(id_ for id_ in parents if id_ is not None and id_ not in known)
        found: Sequence[Record | None] = await self._ctx.backend.records(missing) if missing else []
        sessions = {item.session for item in found if item is not None}
        sessions |= {buried[id_].session for id_ in missing if id_ in buried}
        return sorted(sessions - by_session.keys())

    # -- contents ----------------------------------------------------------------------------------------------------

    async def _check(self, tree: _Tree) -> None:
        check = ElementChecker(self._pieces)
        for _, stored in tree.records:
            try:
                await check.check(stored.manifest())
            except CorruptError as error:
                raise CorruptError(
                    f"checkpoint {ids.to_text(stored.id)} can't be exported: {error}. Run `verify`; what it names can "
                    "be expired, the rest exported"
                ) from error

    async def _pieces(self, span: Span) -> AsyncIterator[bytes]:
        async for chunk in elements(self._ctx.backend, span):
            yield b"".join(chunk)

    async def _elements(self, numbering: Numbering, weight: int) -> AsyncIterator[bytes]:
        """Yield the elements of each log, in segments that depend on their sizes alone.

        `weight` is the tree's share of the reported progress.
        """
        total, done = sum(numbering.lengths), 0
        for number, log, stretches in numbering.sources():
            first, size, gathered = 0, 0, list[bytes]()
            for stretch in stretches:
                async for chunk in elements(self._ctx.backend, Span(log, *stretch)):
                    done += len(chunk)
                    self._progress(self._done + weight * done // total, max(self._all, self._done + weight))
                    for element in chunk:
                        gathered.append(element)
                        size += len(element)
                        if size >= log_segment.SEAL_BYTES:
                            yield sections.elements(number, first, len(gathered), log_segment.pack(gathered, seal=True))
                            first, size, gathered = first + len(gathered), 0, []
            if gathered:
                yield sections.elements(number, first, len(gathered), log_segment.pack(gathered, seal=True))

    async def _files(self, records: Sequence[StoredRecord]) -> dict[bytes, int]:
        """Return the blobs of the records' snapshots, with their sizes."""
        reach = SnapshotReachability(snapshot_read.make_loader(self._ctx))
        for stored in records:
            reference = snapshot_read.reference_of(stored)
            if reference is not None:
                await reach.learn(reference)
        return reach.list_all()

    async def _blob(self, hash_: bytes, size: int) -> bytes:
        [found] = await self._ctx.backend.blobs([hash_])
        if found is not None:
            content = frame.content(found)
        else:
            content = (await snapshot_deltas.load_whole(self._ctx, [hash_])).get(hash_, b"")
        if len(content) != size or hashlib.sha256(content).digest() != hash_:
            raise CorruptError(f"the blob {hash_.hex()[:12]} is missing or not what was saved: run `verify`")
        return frame.compress(content)

    async def _refuse_if_collected(self, tree: _Tree) -> None:
        """Raise `OvertakenError` if a checkpoint that could not be read has expired since."""
        live = [stored.id for _, stored in tree.records]
        for start in range(0, len(live), PAGE):
            for found in await self._ctx.backend.records(live[start : start + PAGE]):
                if found is None or not found.data.startswith(record.LIVE):
                    raise _make_overtaken_error(tree.tree)


def _find_nearest(id_: bytes | None, ended: Collection[bytes], parents: Mapping[bytes, bytes | None]) -> bytes | None:
    """Return the checkpoint itself or its nearest ancestor that has not ended."""
    while id_ is not None and id_ in ended:
        id_ = parents[id_]
    return id_


def _make_overtaken_error(tree: bytes) -> OvertakenError:
    return OvertakenError(
        f"checkpoints of tree {ids.to_text(tree)} have expired and were collected while they were exported. Export "
        "again"
    )
