"""The bridge of a sealed store: it seals what goes to the backend, and opens what comes from it.

It wraps any bridge, so it works on every backend, and a backend sees sealed bytes and hidden names
only. A commit is sealed on the caller's thread, before it is enqueued.

Conditions on bytes (`RowWrite.was`, `replaces`, `require`, `delete_records`) name clear bytes, and the
backend compares stored ones. The bridge remembers the stored form of heads. Otherwise it reads the row
or record first, opens it, and names the stored bytes if they say the same.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from holdfast.backends.bridge.base import Bridge
from holdfast.backends.bridge.wrapper import WrappingBridge
from holdfast.backends.port import (
    STORE,
    Backend,
    Capabilities,
    Change,
    Commit,
    CommitConflict,
    Record,
    RecordWrite,
    Row,
    RowKey,
    RowWrite,
    Segment,
    SegmentDelete,
    SegmentWrite,
    Span,
    UnreadableBytes,
)
from holdfast.errors import HoldfastError
from holdfast.format.rows import head
from holdfast.model import ids
from holdfast.sealing import envelope
from holdfast.sealing.cipher import NONCE_BYTES
from holdfast.sealing.open_store import OpenStore
from holdfast.sealing.row_names import BlindKey
from holdfast.sealing.store_keys import SPACE, SealingKey, StoreKeys, key_missing_error

T = TypeVar("T")
_NONCE = f"{NONCE_BYTES}s"
NEVER = b"\0no such bytes"  # a condition that no stored bytes meet


class SealedBridge(WrappingBridge):
    """A bridge over another one, to a store whose keys are in `store`."""

    def __init__(self, inner: Bridge, store: OpenStore) -> None:
        super().__init__(inner)
        self._store = store
        self._capabilities: Capabilities | None = None

    def rewrap(self, inner: Bridge) -> Bridge:
        return self if inner is self._inner else SealedBridge(inner, self._store)

    @property
    def store(self) -> OpenStore:
        return self._store

    @property
    def capabilities(self) -> Capabilities:
        if self._capabilities is not None:
            return self._capabilities
        found = replace(self._inner.capabilities, sealed=True)
        if found.directory is not None:  # those of a store on this machine don't change, and each save asks for them
            self._capabilities = found
        return found

    async def _keys(self) -> StoreKeys:
        return self._store.keys or await self._store.open(self._inner)

    async def _ready(self) -> None:
        await self._keys()

    async def batch_reads(self, read: Callable[[Backend], Coroutine[Any, Any, T]]) -> T:
        await self._keys()
        return await self._inner.batch_reads(lambda inner: read(self.rewrap(inner)))  # type: ignore[arg-type]  # bridge

    def address(self, hash_: bytes) -> bytes:
        if self._store.keys is None:
            raise RuntimeError("the address of a blob was asked for before the store was opened")
        return self._store.keys.address(hash_)

    # -- writing -----------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit) -> Awaitable[None]:
        keys = self._store.keys
        if keys is None or not _is_checked_at_once(commit):
            return self._commit_later(commit)
        tree = self._stored_tree(keys, commit)
        key, key_row = self._store.known_key(tree), None
        if key is None and tree == STORE:
            key = keys.current.rows
        if key is None and commit.record is not None and commit.record.id == tree and self._store.is_new(tree):
            key, key_row = keys.new_tree_key(tree)
        was = self._store.stored_heads(commit.rows)
        if key is None or was is None:
            return self._commit_later(commit)
        sealed = self._seal_commit(keys, commit, tree, key, _ConditionValues(was, {}, {}))
        if key_row is None:
            return _await_outcome(self._inner.commit(sealed), self, commit)
        sealed.rows = [key_row, *sealed.rows]
        return _await_outcome(self._inner.commit(sealed), self, commit, tree, key)

    async def _commit_later(self, commit: Commit) -> None:
        """Carry out a commit that needs something from the store first."""
        keys = await self._keys()
        tree = self._stored_tree(keys, commit)
        key = keys.current.rows if tree == STORE else self._store.known_key(tree)
        key_row = None
        if key is None:
            key = await self._store.find_tree_key(self._inner, tree)
        if key is None:
            key = await self._find_late_key(keys, commit, tree)
        if key is None:
            key, key_row = keys.new_tree_key(tree)
            if commit.record is None or commit.record.id != tree:
                key, key_row = await self._store_key_row(tree, key, key_row), None
        sealed = self._seal_commit(keys, commit, tree, key, await self._read_conditions(commit))
        if key_row is not None:
            sealed.rows = [key_row, *sealed.rows]
            await _await_outcome(self._inner.commit(sealed), self, commit, tree, key)
        else:
            await _await_outcome(self._inner.commit(sealed), self, commit)

    async def _find_late_key(self, keys: StoreKeys, commit: Commit, tree: bytes) -> SealingKey | None:
        """Return the key of a tree that another writer has begun meanwhile; None if the tree has no data.

        Raise `KeyMissingError` if it has data and no key: it lost the row of its key.
        """
        written = [keys.names.key(write.key) for write in commit.rows if write.key.tree == commit.tree]
        has_rows = any(await self._inner.rows(written)) if written else False
        has_data = has_rows or (await self._inner.records([tree]))[0] is not None
        if not has_data and not await self._inner.scan(head.HEAD, tree=tree, limit=1):
            return None
        found = await self._store.find_tree_key(self._inner, tree)
        if found is None:
            raise key_missing_error(keys.kids(tree)[0], f"tree {tree.hex()}")
        return found

    async def _store_key_row(self, tree: bytes, key: SealingKey, row: RowWrite) -> SealingKey:
        """Store the row of a tree's key, in a commit of its own; return the key of the writer who was first."""
        try:
            await self._inner.commit(Commit(STORE, rows=[row]))
        except CommitConflict:
            found = await self._store.find_tree_key(self._inner, tree)
            if found is None:
                raise
            return found
        self._store.learn(tree, key)
        return key

    async def ensure_current_key(self, commit: Commit) -> None:
        """Store a key of the current epoch for the tree of a commit, unless it has one."""
        keys = await self._keys()
        tree = self._stored_tree(keys, commit)
        kid = keys.kid(tree, keys.current.epoch)
        await self._store.load(self._inner, [kid])
        if tree != STORE and kid not in self._store.ciphers:
            await self._store_key_row(tree, *keys.new_tree_key(tree))

    async def _read_conditions(self, commit: Commit) -> _ConditionValues:
        """Read what the conditions of a commit mean, and the keys of segments that gc cuts: it names no tree."""
        asked = [(at, write) for at, write in enumerate(commit.rows) if write.was is not None]
        was: dict[int, bytes] = {}
        if asked:
            keys = await self._keys()
            found = await self._inner.rows([keys.names.key(write.key) for _, write in asked])
            opened = await self._open_rows_of([write.key for _, write in asked], found)
            for (at, write), row, clear in zip(asked, found, opened, strict=True):
                was[at] = row.value if row is not None and clear is not None and clear.value == write.was else NEVER
        writes = [write for write in commit.list_records() if write.replaces is not None]
        ids = [write.id for write in writes]
        ids += [id_ for id_, prefix in commit.require if not _is_clear(prefix)]
        ids += [id_ for id_, _ in commit.delete_records]
        stored: dict[bytes, Record] = {}
        if ids:
            wanted = list(dict.fromkeys(ids))
            stored = {found.id: found for found in _leave_out_none(await self._inner.records(wanted))}
            await self._store.load(self._inner, (envelope.record_kid(found.data) for found in stored.values()))
        cut = [delete for delete in commit.delete_segments if delete.pieces and commit.tree == STORE]
        keys_of: dict[tuple[int, int], SealingKey] = {}
        spans = [Span(delete.log, delete.first, delete.first + delete.length) for delete in cut]
        for span, segments in zip(spans, await self._inner.segments(spans) if spans else [], strict=True):
            for segment in segments:
                kid = envelope.kid_of(segment.data, "a segment")
                await self._store.load(self._inner, [kid])
                keys_of[span.log, segment.first] = SealingKey(kid, self._store.cipher(kid, "a segment"))
        return _ConditionValues(was, stored, keys_of)

    def _stored_tree(self, keys: StoreKeys, commit: Commit) -> bytes:
        """Return the tree of a commit; that of a group of a topic is hidden, as its rows tell."""
        tree = commit.tree
        for write in commit.rows:
            if write.key.tree == tree:
                return keys.names.tree(write.key.space, tree)
        for key, _ in commit.require_rows:
            if key.tree == tree:
                return keys.names.tree(key.space, tree)
        return tree

    def _seal_commit(
        self, keys: StoreKeys, commit: Commit, tree: bytes, key: SealingKey, found: _ConditionValues
    ) -> Commit:
        """Return the commit as the backend gets it."""
        record = commit.record
        nonces = _nonces(_count_envelopes(commit))
        made = Commit(tree, delete_blobs=commit.delete_blobs)
        if record is not None:
            made.record = self._seal_record(keys, record, key, next(nonces), found.records)
        if commit.more_records:
            made.more_records = [
                self._seal_record(keys, write, key, next(nonces), found.records) for write in commit.more_records
            ]
        made.rows = [
            self._seal_row(keys, write, key, next(nonces), found.was.get(at)) for at, write in enumerate(commit.rows)
        ]
        if commit.segments:
            made.segments = [
                SegmentWrite(log, first, length, _seal_segment(keys, key, next(nonces), log, first, length, data), tail)
                for log, first, length, data, tail in commit.segments
            ]
        if commit.blobs:
            made.blobs = dict(_seal_blob(keys, hash_, next(nonces), data) for hash_, data in commit.blobs.items())
        if commit.require:
            made.require = [(id_, self._get_required(id_, prefix, found.records)) for id_, prefix in commit.require]
        if commit.require_rows:
            made.require_rows = [(keys.names.key(row_key), version) for row_key, version in commit.require_rows]
        if commit.delete_records:
            wanted = [(id_, self._as_stored(found.records.get(id_), data)) for id_, data in commit.delete_records]
            made.delete_records = [(id_, data) for id_, data in wanted if data is not NEVER]
        if commit.delete_segments:
            made.delete_segments = [
                delete._replace(pieces=_seal_pieces(keys, found.keys_of_segments.get(delete[:2], key), nonces, delete))
                for delete in commit.delete_segments
            ]
        return made

    def _seal_row(self, keys: StoreKeys, write: RowWrite, key: SealingKey, nonce: bytes, was: bytes | None) -> RowWrite:
        clear, value, expect, _ = write
        hidden, place, name = keys.names.stored(clear)
        if value is None:
            return RowWrite(hidden, None, expect, was)
        kid, cipher = keys.current.rows if clear.tree == STORE else key
        sealed = envelope.seal(cipher, kid, nonce, keys.row_scope, place, name, value)
        if clear.space == head.HEAD:
            self._store.remember_head(clear, value, sealed)
        return RowWrite(hidden, sealed, expect, was)

    def _seal_record(
        self, keys: StoreKeys, write: RecordWrite, key: SealingKey, nonce: bytes, stored: Mapping[bytes, Record]
    ) -> RecordWrite:
        id_, session, sequence, clear, _, expires_at_us, replaces, spans, feed = write
        hidden = keys.names.hide("record", session)
        place = envelope.record_place(id_, hidden, sequence)
        beginning = envelope.clear_head(clear)
        data = envelope.seal(key.cipher, key.kid, nonce, keys.record_scope, place, session, clear, beginning)
        if replaces is not None:
            replaces = self._as_stored(stored.get(id_), replaces)
        if feed is not None:
            feed = keys.names.hide("feed", feed)
        return RecordWrite(id_, hidden, sequence, data, None, expires_at_us, replaces, spans, feed)

    def _as_stored(self, found: Record | None, clear: bytes) -> bytes:
        """Return the stored bytes of a record if they say this, else bytes that no record has."""
        if found is None:
            return NEVER
        opened = self._open_record(found)
        return found.data if opened.data == clear and not isinstance(opened.data, UnreadableBytes) else NEVER

    def _get_required(self, id_: bytes, prefix: bytes, stored: Mapping[bytes, Record]) -> bytes:
        if _is_clear(prefix):
            return prefix
        found = stored.get(id_)
        if found is None:
            return NEVER
        opened = self._open_record(found).data
        return found.data if opened.startswith(prefix) and not isinstance(opened, UnreadableBytes) else NEVER

    # -- reading -----------------------------------------------------------------------------------------------------

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        await self._keys()
        return await self._open_records(await self._inner.records(ids))

    async def record_and_segments(self, id_: bytes) -> tuple[Record | None, Mapping[Span, list[Segment]]]:
        await self._keys()
        found, along = await self._inner.record_and_segments(id_)
        [opened] = await self._open_records([found])
        segments = await self._open_segments(list(along), list(along.values())) if along else []
        return opened, dict(zip(along, segments, strict=True))

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]:
        hidden = (await self._keys()).names.hide("record", session)
        return _leave_out_none(
            await self._open_records(await self._inner.session_records(hidden, before=before, limit=limit))
        )

    async def segments(self, spans: Sequence[Span]) -> list[list[Segment]]:
        await self._keys()
        return await self._open_segments(spans, await self._inner.segments(spans))

    async def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        keys = await self._keys()
        addresses = [keys.address(hash_) for hash_ in hashes]
        found = await self._inner.blobs(addresses)
        return [
            None if data is None else await self._store.open_blob(self._inner, hash_, address, data)
            for hash_, address, data in zip(hashes, addresses, found, strict=True)
        ]

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        names = (await self._keys()).names
        return await self._open_rows_of(keys, await self._inner.rows([names.key(key) for key in keys]))

    async def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        names = (await self._keys()).names
        beginning, is_exact = names.hide_prefix(space, prefix)
        cursor = None if after is None else names.cursor(space, after)
        hidden_tree = None if tree is None else names.tree(space, tree)
        found: list[tuple[RowKey, Row]] = []
        while True:
            page = await self._inner.scan(space, tree=hidden_tree, prefix=beginning, after=cursor, limit=limit)
            opened = await self._open_rows(page)
            found += opened if is_exact else [
                entry for entry in opened if isinstance(entry[0].key, BlindKey) or entry[0].key.startswith(prefix)
            ]  # fmt: skip
            if is_exact or limit is None or len(page) < limit or len(found) >= limit:
                return found if limit is None else found[:limit]
            cursor = page[-1][0].key

    async def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        await self._keys()
        return _leave_out_none(await self._open_records(await self._inner.page_records(after, limit)))

    async def changes(self, after: int, limit: int, feed: bytes | None = None) -> list[Change]:
        names = (await self._keys()).names
        hidden = None if feed is None else names.hide("feed", feed)
        return await self._open_changes(await self._inner.changes(after, limit, hidden))

    async def recent(self, before: int | None, limit: int) -> list[Change]:
        await self._keys()
        return await self._open_changes(await self._inner.recent(before, limit))

    async def _open_changes(self, found: Sequence[Change]) -> list[Change]:
        opened = await self._open_records([change.record for change in found])
        return [
            change._replace(record=record) for change, record in zip(found, opened, strict=True) if record is not None
        ]

    async def _open_records(self, found: Sequence[Record | None]) -> list[Record | None]:
        store = self._store
        ciphers, scope = store.ciphers, store.known_keys.record_scope
        opened: list[Record | None] = []
        left: list[int] = []
        for item in found:
            if item is None:
                opened.append(None)
                continue
            id_, session, sequence, data = item
            clear = envelope.try_open_record(ciphers, scope, envelope.record_place(id_, session, sequence), data)
            if clear is None:
                left.append(len(opened))
                opened.append(item)
            else:
                opened.append(Record(id_, clear[0], sequence, clear[1]))
        if left:
            rest = [item for at in left if (item := opened[at]) is not None]
            await store.load(self._inner, (envelope.record_kid(item.data) for item in rest))
            for at, item in zip(left, rest, strict=True):
                opened[at] = self._open_record(item)
        return opened

    def _open_record(self, found: Record) -> Record:
        """Return a record, opened; with bytes that raise when they are read, if it can't be."""
        subject = f"the record of {ids.to_text(found.id) if len(found.id) == 16 else found.id.hex()}"
        store, data = self._store, found.data
        try:
            kid = envelope.kid_of_record(data, subject)
            cipher = store.cipher(kid, subject)
            place = envelope.record_place(found.id, found.session, found.sequence)
            session, content = envelope.unseal_record(cipher, store.known_keys.record_scope, place, data, subject)
        except HoldfastError as error:
            return found._replace(data=UnreadableBytes.because(error))
        return Record(found.id, session, found.sequence, content)

    async def _open_segments(self, spans: Sequence[Span], found: Sequence[Sequence[Segment]]) -> list[list[Segment]]:
        store = self._store
        await store.load(self._inner, (envelope.kid(items[0].data) for items in found if items))
        ciphers, scope = store.ciphers, store.known_keys.segment_scope
        opened = []
        for span, items in zip(spans, found, strict=True):
            of_span = envelope.try_open_segments(ciphers, scope, span.log, items)
            opened.append([await self._open_segment(span.log, *item) for item in items] if of_span is None else of_span)
        return opened

    async def _open_segment(self, log: int, first: int, length: int, data: bytes) -> Segment:
        """Open a segment whose key may not be known yet, or say why it can't be."""
        subject = f"the segment {first} of log {log}"
        kid = envelope.kid_of(data, subject)
        await self._store.load(self._inner, [kid])
        scope, place = self._store.known_keys.segment_scope, envelope.segment_place(log, first, length)
        return Segment(first, length, envelope.unseal(self._store.cipher(kid, subject), scope, place, data, subject)[1])

    async def _open_rows_of(self, keys: Sequence[RowKey], found: Sequence[Row | None]) -> list[Row | None]:
        names = self._store.names
        hidden = [(names.key(key), row) for key, row in zip(keys, found, strict=True) if row is not None]
        opened = iter(await self._open_rows(hidden))
        return [None if row is None else next(opened)[1] for row in found]

    async def open_rows(self, page: Sequence[tuple[RowKey, Row]]) -> list[tuple[RowKey, Row]]:
        """Return rows as the inner bridge has them, opened, under their clear keys."""
        await self._keys()
        return await self._open_rows(page)

    async def _open_rows(self, page: Sequence[tuple[RowKey, Row]]) -> list[tuple[RowKey, Row]]:
        """Return rows, opened, under their clear keys."""
        store = self._store
        await store.load(self._inner, (envelope.kid(row.value) for _, row in page))
        return [self._open_row(key, row) for key, row in page]

    def _open_row(self, hidden: RowKey, row: Row) -> tuple[RowKey, Row]:
        """Return a row, opened, and its clear key; with a value that raises when it is read, if it can't be."""
        store = self._store
        scope, place = store.known_keys.row_scope, envelope.row_place(*hidden)
        opened = envelope.try_open(store.ciphers, scope, place, row.value)
        if opened is None:
            subject = f"a {hidden.space} row"
            try:
                cipher = store.cipher(envelope.kid_of(row.value, subject), subject)
                opened = envelope.unseal(cipher, scope, place, row.value, subject)
            except HoldfastError as error:
                return hidden._replace(key=BlindKey.of(hidden.key)), Row(UnreadableBytes.because(error), row.version)
        name, content = opened
        if hidden.tree and store.names.is_hidden_tree(hidden.space):
            clear = RowKey(hidden.space, name[:-16], name[-16:])
        else:
            clear = RowKey(hidden.space, name, hidden.tree)
        if hidden.space == head.HEAD:
            store.remember_head(clear, content, row.value)
        return clear, Row(content, row.version)


class _ConditionValues(NamedTuple):
    """What a commit needs from the store.

    Values by the places of rows, records by their ids, keys by log and first element of a segment.
    """

    was: Mapping[int, bytes]
    records: Mapping[bytes, Record]
    keys_of_segments: Mapping[tuple[int, int], SealingKey]


async def _await_outcome(
    outcome: Awaitable[None],
    bridge: SealedBridge,
    commit: Commit,
    tree: bytes | None = None,
    key: SealingKey | None = None,
) -> None:
    """Await a commit. A conflict names clear keys. A key that is given comes with the commit."""
    try:
        await outcome
    except BaseException as error:
        if tree is not None:
            bridge.store.mark_doubtful(tree)
        if isinstance(error, CommitConflict):
            raise clear_conflict(error, bridge, commit) from None
        raise
    if tree is not None and key is not None:
        bridge.store.learn(tree, key)


def clear_conflict(conflict: CommitConflict, bridge: SealedBridge, commit: Commit) -> CommitConflict:
    """Return a conflict that names the clear key of its row."""
    if not isinstance(conflict.detail, RowKey):
        return conflict
    names = bridge.store.names
    for key in (*(write.key for write in commit.rows), *(key for key, _ in commit.require_rows)):
        if names.key(key) == conflict.detail:
            return CommitConflict(conflict.kind, key)
    return CommitConflict(conflict.kind, None if conflict.detail.space == SPACE else conflict.detail)


def _is_checked_at_once(commit: Commit) -> bool:
    """Return whether a commit needs nothing that only the store knows."""
    if commit.delete_records or (commit.delete_segments and any(delete.pieces for delete in commit.delete_segments)):
        return False
    if commit.require and not all(_is_clear(prefix) for _, prefix in commit.require):
        return False
    if commit.record is not None and commit.record.replaces is not None:
        return False
    return not commit.more_records or all(write.replaces is None for write in commit.more_records)


def _is_clear(prefix: bytes) -> bool:
    """Return whether a prefix of a record is one of its envelope, too."""
    return not prefix or envelope.is_clear_head(prefix)


def _seal_segment(
    keys: StoreKeys, key: SealingKey, nonce: bytes, log: int, first: int, length: int, data: bytes
) -> bytes:
    place = envelope.segment_place(log, first, length)
    return envelope.seal(key.cipher, key.kid, nonce, keys.segment_scope, place, b"", data)


def _seal_pieces(
    keys: StoreKeys, key: SealingKey, nonces: Iterator[bytes], delete: SegmentDelete
) -> tuple[tuple[int, int, bytes], ...]:
    return tuple(
        (first, length, _seal_segment(keys, key, next(nonces), delete.log, first, length, data))
        for first, length, data in delete.pieces
    )


def _seal_blob(keys: StoreKeys, hash_: bytes, nonce: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Return the address of a blob, and its envelope under the key of its content."""
    epoch, address = keys.current, keys.address(hash_)
    return address, envelope.seal(epoch.blob_cipher(hash_), epoch.kid, nonce, keys.blob_scope, address, b"", data)


def _count_envelopes(commit: Commit) -> int:
    count = 1 + len(commit.more_records) + len(commit.rows) + len(commit.segments) + len(commit.blobs)
    return count + sum(len(delete.pieces) for delete in commit.delete_segments) if commit.delete_segments else count


def _nonces(count: int) -> Iterator[bytes]:
    """Return random nonces, from one call of the system.

    None are kept for the next commit: a forked child would share them.
    """
    return iter(struct.unpack(_NONCE * count, os.urandom(NONCE_BYTES * count)))


def _leave_out_none(found: Iterable[Record | None]) -> list[Record]:
    return [item for item in found if item is not None]
