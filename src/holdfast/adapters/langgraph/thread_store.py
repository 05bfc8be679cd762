"""The operations of a LangGraph checkpointer; each function awaits the port and nothing else.

A thread's namespace is a session. Each of LangGraph's checkpoints is one of holdfast's, with the
channels as its execution state: so a channel that grows at its end is written once, and an
unchanged one costs nothing. An index row, written in the same commit, leads from LangGraph's id to
holdfast's. The order is that of LangGraph's ids, whatever the session's head is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, PendingWrite

from holdfast.adapters.langgraph import listing, pending_writes, row_keys
from holdfast.adapters.langgraph.retention import HistoryTrimmer
from holdfast.adapters.langgraph.row_keys import IndexEntry, ThreadNamespace
from holdfast.backends.port import Commit, RowKey, RowWrite
from holdfast.errors import CheckpointExpiredError, CheckpointNotFoundError, CorruptError
from holdfast.format.rows import head, hold
from holdfast.format.state import record
from holdfast.format.state.record import StoredRecord
from holdfast.model.framework import Framework
from holdfast.operations import expire, lookup
from holdfast.operations import save as saving
from holdfast.operations.context import StoreContext
from holdfast.operations.validate import SaveRequest

PAGE = 64
REMEMBERED = 4096  # which checkpoint of LangGraph's is which of ours
DELETED = "deleted by LangGraph"


class RecentCheckpoints:
    """The checkpoints put last, which save the next put a lookup of its parent.

    It is a hint: an entry was true once.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[ThreadNamespace, str], bytes] = OrderedDict()

    def get(self, place: ThreadNamespace, id_: str) -> bytes | None:
        return self._known.get((place, id_))

    def put(self, place: ThreadNamespace, id_: str, checkpoint: bytes) -> None:
        self._known[place, id_] = checkpoint
        while len(self._known) > REMEMBERED:
            try:
                self._known.popitem(last=False)
            except KeyError:  # another thread was quicker
                return

    def forget(self) -> None:
        self._known.clear()


@dataclass(slots=True)
class Threads:
    ctx: StoreContext
    agent_id: str
    ttl_seconds: float | None = None
    recent: RecentCheckpoints = field(default_factory=RecentCheckpoints)
    shortening: HistoryTrimmer | None = None

    # -- writing -----------------------------------------------------------------------------------------------------

    async def put(
        self,
        place: ThreadNamespace,
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        parent: str | None,
        *,
        created_at_us: int | None = None,
    ) -> bytes:
        """Saves one of LangGraph's checkpoints; one that has the same id is replaced. Returns holdfast's id."""
        id_ = checkpoint["id"]
        run = metadata.get("run_id")
        follows = await self._checkpoint(place, parent) if parent else None
        depends_on = await self._find_prolonged(place, checkpoint, metadata, follows) if self.ttl_seconds else None
        request = SaveRequest(
            agent_id=self.agent_id,
            session_id=place.session,
            framework=Framework.LANGGRAPH,
            execution_state=copy_as_dicts(checkpoint),
            agent_context={},
            parent_id=follows,
            step_name=f"{metadata.get('source', 'put')} {metadata.get('step', '')}".strip(),
            ttl_seconds=self.ttl_seconds,
            depends_on=depends_on,
            created_at_us=created_at_us,
            metadata={
                "thread_id": place.thread,
                "checkpoint_ns": place.ns,
                "langgraph_id": id_,
                "parent": parent,
                "metadata": dict(metadata),
            },
            extra_rows=_index_entry(place, id_, parent, None if run is None else str(run)),
        )
        try:
            stored = await saving.save(self.ctx, request)
        except (CheckpointExpiredError, CheckpointNotFoundError):  # the parent: LangGraph does not need it to be there
            request.parent_id = None
            stored = await saving.save(self.ctx, request)
        self.recent.put(place, id_, stored.id)
        if self.shortening is not None:
            await self.shortening.after_put(self, place)
        return stored.id

    async def _find_prolonged(
        self, place: ThreadNamespace, checkpoint: Mapping[str, Any], metadata: Mapping[str, Any], parent: bytes | None
    ) -> bytes | None:
        """Return the checkpoint whose time to live this one prolongs, with those in between.

        It is the one at which its delta channels begin. None if this checkpoint has values of all
        its channels: then it starts a new chain.
        """
        counted = metadata.get(listing.DELTA_COUNTERS)
        if parent is None or (counted is not None and counted.keys() <= checkpoint["channel_values"].keys()):
            return None
        tip = self.ctx.memory.get(head.session_key(place.session))
        cached = tip.checkpoint if tip is not None else None
        before = cached if cached is not None and cached.id == parent else await lookup.find_record(self.ctx, parent)
        if before is None or (counted is None and "with" not in before.header):
            return None
        return before.depends_on or before.id

    async def put_writes(
        self, place: ThreadNamespace, id_: str, given: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        checkpoint = await self._checkpoint(place, id_) or b""
        await pending_writes.put(self.ctx, place, id_, checkpoint, given, task_id, task_path)

    async def _checkpoint(self, place: ThreadNamespace, id_: str) -> bytes | None:
        known = self.recent.get(place, id_)
        if known is None:
            entry = await self.find(place, id_)
            known = entry.checkpoint if entry else None
        return known

    # -- reading -----------------------------------------------------------------------------------------------------

    async def find(self, place: ThreadNamespace, id_: str) -> IndexEntry | None:
        found = await self.entries(row_keys.index_key(place, id_), limit=1)
        return found[0] if found and found[0].id == id_ else None

    async def newest(self, place: ThreadNamespace, id_: str | None) -> IndexEntry | None:
        """Return the entry of that id, or of the highest id; None if it is missing or has expired."""
        if id_ is not None:
            entry = await self.find(place, id_)
            return entry if entry is not None and await self.load_live([entry]) else None
        async for entry in self.scan_place(place, first_page=1):
            if await self.load_live([entry]):
                return entry
        return None

    async def get(self, place: ThreadNamespace, id_: str | None) -> CheckpointTuple | None:
        """Return the checkpoint of that id, or the one with the highest id."""
        if id_ is not None:
            entry = await self.find(place, id_)
            return await self.load(entry) if entry else None
        async for entry in self.scan_place(place, first_page=1):
            loaded = await self.load(entry)
            if loaded is not None:
                return loaded
        return None

    async def iterate_matching(
        self, thread: str | None, ns: str | None, id_: str | None, before: str | None
    ) -> AsyncIterator[IndexEntry]:
        """Yield the entries, newest first, holding no resource between two of them."""
        if thread is not None and ns is not None:
            if id_ is None:
                async for entry in self.scan_place(ThreadNamespace(thread, ns), before):
                    yield entry
                return
            index_entry = await self.find(ThreadNamespace(thread, ns), id_)
            found = [index_entry] if index_entry else []
        else:
            found = await self.entries(row_keys.thread_prefix(thread) if thread is not None else b"")
            found.sort(key=lambda entry: entry.id, reverse=True)
        for entry in found:
            if (ns in (None, entry.place.ns) and id_ in (None, entry.id)) and (before is None or entry.id < before):
                yield entry

    async def load(self, entry: IndexEntry) -> CheckpointTuple | None:
        """Return the checkpoint of an entry, with its writes; None if it has expired."""
        for _, stored, about in await self.load_live([entry]):
            state, _ = await lookup.load_state(self.ctx, stored.manifest(), verify=True)
            return await self.as_tuple(entry, about, state)
        return None

    async def as_tuple(
        self, entry: IndexEntry, about: Mapping[str, Any], state: Any, pending: list[PendingWrite] | None = None
    ) -> CheckpointTuple:
        if pending is None:
            pending = await pending_writes.pending(self.ctx, entry.place, entry.id)
        return CheckpointTuple(
            config=config_of(entry.place, entry.id),
            checkpoint=cast("Checkpoint", state),
            metadata=cast("CheckpointMetadata", about["metadata"]),
            parent_config=config_of(entry.place, about["parent"]) if about["parent"] else None,
            pending_writes=pending,
        )

    async def load_live(self, entries: Sequence[IndexEntry]) -> list[tuple[IndexEntry, StoredRecord, dict[str, Any]]]:
        """Return the entries whose checkpoints have not expired, with their records and metadata."""
        live = []
        records = await self.ctx.backend.records([entry.checkpoint for entry in entries]) if entries else []
        for entry, found in zip(entries, records, strict=True):
            if found is None:
                continue
            stored = record.unpack(self.ctx.codec, found.data, expected_id=entry.checkpoint)
            if await lookup.is_expired(self.ctx, stored):
                continue
            about = self.ctx.codec.decode(stored.header["meta"], path="metadata") if "meta" in stored.header else {}
            address = about.get("thread_id"), about.get("checkpoint_ns"), about.get("langgraph_id")
            if address != (*entry.place, entry.id):
                raise CorruptError(
                    f"the LangGraph index leads from {entry.id!r:.60} of thread {entry.place.thread!r:.60} to the "
                    "checkpoint of another: the store was changed by another program. Run `verify`"
                )
            live.append((entry, stored, about))
        return live

    async def scan_place(
        self, place: ThreadNamespace, before: str | None = None, *, first_page: int = PAGE
    ) -> AsyncIterator[IndexEntry]:
        after = row_keys.index_key(place, before) if before is not None else None
        limit = first_page
        while page := await self.entries(row_keys.place_prefix(place), after=after, limit=limit):
            for entry in page:
                yield entry
            if len(page) < limit:
                return
            after, limit = page[-1].key.key, PAGE

    async def entries(self, prefix: bytes, *, after: bytes | None = None, limit: int | None = None) -> list[IndexEntry]:
        found = await self.ctx.backend.scan(row_keys.INDEX, prefix=prefix, after=after, limit=limit)
        return [row_keys.unpack_entry(key, row) for key, row in found]

    # -- deleting and copying ----------------------------------------------------------------------------------------

    async def delete_thread(self, thread: str) -> None:
        """Expires all of the thread's checkpoints. Their bytes go when they are collected."""
        entries = await self.entries(row_keys.thread_prefix(thread))
        for place in dict.fromkeys(entry.place for entry in entries):
            await self._tombstone_session(place, keep=frozenset())
        removed = await pending_writes.removal(self.ctx, row_keys.thread_prefix(thread))
        await self._remove(entries, removed)

    async def delete_for_runs(self, runs: Sequence[str]) -> None:
        wanted = set(map(str, runs))
        entries = [entry for entry in await self.entries(b"") if entry.run in wanted] if wanted else []
        await self._tombstone([entry.checkpoint for entry in entries])
        await self._forget(entries)

    async def prune(self, threads: Sequence[str]) -> None:
        """Keep each namespace's newest checkpoint with its writes, and the ancestors its delta channels need."""
        for thread in threads:
            by_place: dict[ThreadNamespace, list[IndexEntry]] = {}
            for entry in await self.entries(row_keys.thread_prefix(thread)):
                by_place.setdefault(entry.place, []).append(entry)
            for place, entries in by_place.items():
                latest = await self.newest(place, None)
                kept = await listing.needed_for(self, place, [latest.id] if latest else [])
                ending = [entry for entry in entries if entry.id not in kept]
                await self._tombstone_session(place, keep={entry.checkpoint for entry in entries if entry.id in kept})
                await self._forget(ending)

    async def copy_thread(self, source: str, target: str) -> None:
        """Copies all checkpoints with their ids, parents, metadata and writes."""
        copies: dict[bytes, bytes] = {}
        entries = await self.entries(row_keys.thread_prefix(source))
        for entry in sorted(entries, key=lambda entry: entry.id):
            loaded = await self.load(entry)
            if loaded is not None:
                place = ThreadNamespace(target, entry.place.ns)
                copied = await self.put(place, cast("Any", loaded.checkpoint), loaded.metadata, parent_of(loaded))
                copies[entry.checkpoint] = copied
        await pending_writes.copy(self.ctx, source, target, copies)

    async def _tombstone_session(self, place: ThreadNamespace, keep: set[bytes] | frozenset[bytes]) -> None:
        """Expire the session's checkpoints, also earlier versions of a repeated put, which have no entry."""
        found = await self.ctx.backend.session_records(head.session_key(place.session))
        await self._tombstone([item.id for item in found if item.id not in keep])

    async def end(self, entries: Sequence[IndexEntry]) -> None:
        """Expire these checkpoints with their writes, except those that are pinned or tagged."""
        buried = await self._tombstone([entry.checkpoint for entry in entries])
        await self._forget([entry for entry in entries if entry.checkpoint in buried])

    async def _tombstone(self, checkpoints: Sequence[bytes]) -> set[bytes]:
        """Expire checkpoints; return those that are gone, already missing ones included, held ones not."""
        gone = set(checkpoints)
        by_tree: dict[bytes, list[expire.Found]] = {}
        for start in range(0, len(checkpoints), PAGE):
            for found in await self.ctx.backend.records(checkpoints[start : start + PAGE]):
                if found is None:
                    continue
                stored = record.unpack(self.ctx.codec, found.data, expected_id=found.id)
                if not stored.is_tombstone:
                    by_tree.setdefault(stored.tree, []).append((found, stored))
        for tree, ending in by_tree.items():
            gone -= {stored.id for _, stored in ending}
            gone.update(await expire.tombstone_all(self.ctx, tree, ending, DELETED))
        return gone

    async def _forget(self, entries: Sequence[IndexEntry]) -> None:
        removed: list[RowWrite] = []
        for entry in entries:
            removed += await pending_writes.removal(self.ctx, row_keys.checkpoint_prefix(entry.place, entry.id))
        await self._remove(entries, removed)

    async def _remove(self, entries: Sequence[IndexEntry], of_store: list[RowWrite]) -> None:
        """Remove index entries after their checkpoints have expired: a crash leaves nothing unreachable."""
        self.recent.forget()
        by_tree: dict[bytes, list[RowWrite]] = {b"": of_store} if of_store else {}
        for entry in entries:
            by_tree.setdefault(entry.key.tree, []).append(RowWrite(entry.key, None))
        for tree, removed in by_tree.items():
            await self.ctx.backend.commit(Commit(tree=tree, rows=removed))


def config_of(place: ThreadNamespace, id_: str) -> Any:
    return {"configurable": {"thread_id": place.thread, "checkpoint_ns": place.ns, "checkpoint_id": id_}}


def parent_of(found: CheckpointTuple | None) -> str | None:
    if found is None or found.parent_config is None:
        return None
    return cast("str", found.parent_config["configurable"]["checkpoint_id"])


def _index_entry(
    place: ThreadNamespace, id_: str, parent: str | None, run: str | None
) -> Callable[[StoredRecord], Sequence[RowWrite]]:
    def extra_rows(stored: StoredRecord) -> Sequence[RowWrite]:
        key = RowKey(row_keys.INDEX, row_keys.index_key(place, id_), stored.tree)
        entry = RowWrite(key, row_keys.pack_entry(key, stored.id, parent, run))
        return [entry, *hold.extended_until(stored)]

    return extra_rows


def copy_as_dicts(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return LangGraph's own mappings, some of them subclasses, as dicts. Channel values stay as they are."""
    plain = dict(checkpoint)
    for name in ("channel_values", "channel_versions"):
        plain[name] = dict(checkpoint.get(name) or {})
    plain["versions_seen"] = {node: dict(seen) for node, seen in (checkpoint.get("versions_seen") or {}).items()}
    return plain
