"""Snapshots of a directory: base, scan, tree, contents, checkpoint, and the memory for the next one.

Large contents are staged ahead of the commit (`operations/staging.py`), and a snapshot is based on
one that a live checkpoint holds: the commit requires both. The checkpoint makes the snapshot
visible; the stat cache is updated only then.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from holdfast import telemetry
from holdfast.errors import CorruptError, HoldfastError, UsageError
from holdfast.format import frame
from holdfast.format.files import file_tree
from holdfast.format.files import snapshot as objects
from holdfast.format.rows import head
from holdfast.format.rows import staging as staged
from holdfast.format.state.manifest import BlobEntry
from holdfast.format.state.record import StoredRecord
from holdfast.model.snapshot import (
    ExcludedPath,
    FileChange,
    RuleFile,
    SkippedPath,
    Snapshot,
    SnapshotSkipped,
)
from holdfast.operations import lookup, save, snapshot_deltas, snapshot_read
from holdfast.operations.context import StoreContext
from holdfast.operations.snapshot_reachability import SnapshotReachability
from holdfast.operations.staging import STAGED_BYTES, Staging
from holdfast.operations.validate import FilesLostError, FilesWrite, SaveRequest
from holdfast.workspace.limits import (
    NO_MORE,
    Budget,
    OverBudgetError,
    WorkspaceLimits,
    check_free_space,
    refuse_if_gone,
)
from holdfast.workspace.origin import home_at, relative_path
from holdfast.workspace.scan.ignore_files import hidden_in
from holdfast.workspace.scan.inotify import DirectoryWatch
from holdfast.workspace.scan.scope import WorkspaceScope
from holdfast.workspace.scan.stat_cache import CachedBlobs, CachedDirectory, CacheFile, StatCache, file_entry
from holdfast.workspace.scan.walk import Dirty, NeedsFullWalkError, Walk
from holdfast.workspace.snapshot.compress import Blobs, Contents, compress_batches, frame_all

MAX_LISTED = 200  # left-out paths
ATTEMPTS = 3
MOST_NEWER = 64  # checkpoints to search for a newer snapshot: if more came since, there may be one
LOCK = b"\xffworkspace "

Progress = Callable[[int, int], None]  # files and bytes found so far


class BaseSnapshot(NamedTuple):
    """The base of a snapshot, the checkpoint that holds it and that one's tree."""

    snapshot: Snapshot
    checkpoint: bytes
    tree: bytes


class ScanOptions(NamedTuple):
    """The options of a scan: the paths that may have changed, if known, and whether to read every file."""

    hints: Sequence[bytes] | None = None
    deep: bool = False
    progress: Progress | None = None


@dataclass(slots=True)
class Scan:
    """The directory as it is now.

    Contents that are not stored are in `framed`, or unframed in `few` if they fit one batch.
    """

    walk: Walk
    framed: Blobs = field(default_factory=dict)
    few: Contents = field(default_factory=dict)

    @property
    def changes(self) -> int:
        return len(self.walk.found.changes)


class SnapshotTree(NamedTuple):
    """The snapshot of a scan.

    `nodes` are the tree nodes that are not stored; `replaced` gives the most similar old node of
    each.
    """

    snapshot: Snapshot
    data: bytes  # the snapshot's object
    nodes: Mapping[bytes, bytes]
    replaced: dict[bytes, bytes]


class SnapshotTaker:
    """Snapshots of one directory. `store` is the path of the store on this machine's disk, if it has one."""

    def __init__(
        self, ctx: StoreContext, root: Path, store: Path | None, scope: WorkspaceScope, limits: WorkspaceLimits
    ) -> None:
        self.ctx = ctx
        self.path = root
        self.root = os.fsencode(root)
        self._store = store
        self._from_store = relative_path(store, root)  # neither moves as long as it is open
        self._scope = scope
        self._limits = limits
        self._cache: StatCache | None = None
        self._file: CacheFile | None = None
        if store is not None and not ctx.backend.capabilities.sealed:  # it has names of files
            name = hashlib.sha256(self.root).hexdigest()[:16]
            self._file = CacheFile(store.parent, f"{store.name}-workspaces/{name}.cache", self.root)
        self._held: CachedBlobs | frozenset[bytes] | None = (
            None  # the blobs of the base's snapshot; None until they are requested
        )
        self._recent = snapshot_deltas.RecentContents()
        self._last: Snapshot | None = None  # that was taken here
        self.watch: DirectoryWatch | None = None

    async def save(
        self,
        request: SaveRequest,
        *,
        hints: Sequence[bytes] | None = None,
        deep: bool = False,
        progress: Progress | None = None,
    ) -> tuple[StoredRecord, Snapshot, int]:
        """Take a snapshot and save the request with it.

        Return the checkpoint, the snapshot, and the number of changed paths.
        """
        with telemetry.record_on(self.ctx, telemetry.SNAPSHOT) as span:
            saved = await self._save(request, ScanOptions(hints, deep, progress))
            telemetry.describe(span, saved[0])
            telemetry.count_files(span, saved[2])
            return saved

    async def _save(self, request: SaveRequest, options: ScanOptions) -> tuple[StoredRecord, Snapshot, int]:
        async with self.ctx.backend.lock(LOCK + self.root):
            for number in range(ATTEMPTS):
                try:
                    return await self._try_save(request, options)
                except FilesLostError:
                    self._cache = None  # the base is gone: start from what the store says now
                except CorruptError:
                    # Before damage is believed: the checkpoint that this process remembers may have
                    # been collected.
                    if number:
                        raise
                    self.ctx.memory.drop(head.session_key(request.session_id))
            raise CorruptError(
                "the snapshot could not be saved: what it is built upon expires again and again meanwhile. Try again"
            )

    async def _try_save(self, request: SaveRequest, options: ScanOptions) -> tuple[StoredRecord, Snapshot, int]:
        tip = await lookup.get_tip(self.ctx, head.session_key(request.session_id))
        if tip.tree is None and request.checkpoint_id is None:
            request = replace(request, checkpoint_id=self.ctx.new_id(None))
        tree_id = tip.tree or request.checkpoint_id
        assert tree_id is not None
        staging = Staging(self.ctx, tree_id, staged.SNAPSHOT)
        scan: Scan | None = None
        try:
            try:
                check_free_space(self._store, self._limits)
                base = await self._load_base(tip.checkpoint, is_required=True)
                required = await self._hold(base, tree_id, staging)
                scan = await self._scan(base, staging, request.session_id, options)
                tree = await self._build_tree(base, scan)
                blobs = await self._store_contents(base, scan, tree, staging)
                snapshot, files = tree.snapshot, FilesWrite(blobs, staging.held, required)
            except OverBudgetError as excess:
                scan = None
                snapshot, files = _skipped_snapshot(str(excess))
            stored = await self._save_checkpoint(request, snapshot, files)
        except BaseException:
            await self._abandon(staging)
            raise
        if scan is None:
            await self._abandon(staging)
            return stored, snapshot, 0
        await self._remember(scan, snapshot, stored.id)
        return stored, snapshot, scan.changes

    async def _abandon(self, staging: Staging) -> None:
        """Drop the scan and the staged contents: the next scan finds them again."""
        if self.watch is not None:
            self.watch.settle(acknowledged=False)
        with contextlib.suppress(HoldfastError):  # their time to live ends them; the earlier error matters more
            await staging.release()

    async def _hold(self, base: BaseSnapshot | None, tree_id: bytes, staging: Staging) -> list[bytes]:
        """Keep the base until the commit, and return the checkpoints that the commit must require.

        Within a tree that is the base's own. One of another tree can't be a condition: then a
        staged checkpoint holds the same snapshot, and was there while the other one still was.
        """
        if base is None:
            return []
        if base.tree == tree_id:
            return [base.checkpoint]
        await staging.put(workspace=base.snapshot.reference)
        if await self._find_live(base.checkpoint) is None:
            raise FilesLostError
        return []

    async def _save_checkpoint(self, request: SaveRequest, snapshot: Snapshot, files: FilesWrite) -> StoredRecord:
        home = home_at(self.path, self._from_store)
        return await save.save(self.ctx, replace(request, workspace=snapshot.reference, files=files, home=home))

    async def _remember(self, scan: Scan, snapshot: Snapshot, checkpoint: bytes) -> None:
        """Record the scan as the base of the next comparison."""
        await self.ctx.backend.run_in_thread(lambda: self._update_cache(scan.walk, snapshot, checkpoint))

    def _update_cache(self, walk: Walk, snapshot: Snapshot, checkpoint: bytes) -> None:
        cache = self.load_cache()
        before = {path: cache.directories.get(path) for path in walk.found.updated}
        cache.apply(walk.found.updated, walk.found.chunks, walk.found.totals)
        # Only the new snapshot's contents are sure to stay: replaced ones may be collected with the
        # old one.
        if isinstance(self._held, CachedBlobs):
            self._held.change(walk.found.released, walk.found.gained)
        else:
            self._held = None
        cache.reference, cache.checkpoint = snapshot.reference, checkpoint
        self.ctx.last_snapshots[self.root] = checkpoint
        self._last = snapshot
        if self.watch is not None:
            self.watch.linked = walk.linked
            self.watch.settle(acknowledged=True)
        if self._file is not None:
            self._file.save(cache, walk.found.updated, walk.found.chunks, before)

    async def last(self, session_id: str) -> Snapshot | None:
        """Return the snapshot that was taken last, as far as it is known here, else that of the session."""
        base = await self._load_base(await self._tip(session_id))
        return base.snapshot if base is not None else None

    # -- scanning ----------------------------------------------------------------------------------------------------

    async def scan(
        self, session_id: str | None = None, *, deep: bool = False
    ) -> tuple[BaseSnapshot | None, Scan, SnapshotTree]:
        """Scan without storing; the base is the last snapshot or, if that is unknown, the session's."""
        async with self.ctx.backend.lock(LOCK + self.root):
            base = await self._load_base(await self._tip(session_id))
            try:
                scan = await self._scan(base, None, session_id, ScanOptions(deep=deep))
                return base, scan, await self._build_tree(base, scan)
            except OverBudgetError as excess:
                raise UsageError(f"the workspace {str(self.path)!r:.120} can't be looked at: {excess}") from excess
            finally:
                if self.watch is not None:
                    self.watch.settle(acknowledged=False)

    async def _scan(
        self, base: BaseSnapshot | None, staging: Staging | None, session_id: str | None, options: ScanOptions
    ) -> Scan:
        """Scan what may have changed, or everything."""
        dirty = await self.ctx.backend.run_in_thread(lambda: self._find_dirty(options.hints))
        if base is None or options.deep or self.load_cache().reference is None:
            dirty = None
        if dirty is not None and await self._is_overtaken(session_id):
            dirty = None
        try:
            return await self._walk(staging, dirty, options)
        except NeedsFullWalkError:
            return await self._walk(staging, None, options)

    async def _build_tree(self, base: BaseSnapshot | None, scan: Scan) -> SnapshotTree:
        """Build the tree of files and the snapshot's object, from the base's tree if there is one."""
        changes = scan.walk.found.changes
        replaced: dict[bytes, bytes] = {}
        if base is not None and self.load_cache().reference is not None:
            assert base.snapshot.tree is not None
            load = self._recent.make_loader(self.ctx, snapshot_read.make_loader(self.ctx))
            root, nodes = await file_tree.update(base.snapshot.tree, changes, load, replaced)
        else:
            root, made = await self.ctx.backend.run_in_thread(
                lambda: file_tree.build(entry for entry in changes.values() if entry is not None)
            )
            known = self._get_held()
            nodes = {hash_: node for hash_, node in made.items() if hash_ not in known}
        data = objects.pack(self._describe(scan.walk, root))
        return SnapshotTree(objects.unpack(data), data, nodes, replaced)

    async def _store_contents(
        self, base: BaseSnapshot | None, scan: Scan, tree: SnapshotTree, staging: Staging
    ) -> Mapping[bytes, bytes]:
        """Stage the contents that exceed a commit, and return those that the commit writes.

        A small change is written as deltas against the replaced contents of the base.
        """
        is_same = base is not None and base.snapshot.reference == tree.snapshot.reference
        few = scan.few if is_same else {**scan.few, **tree.nodes, tree.snapshot.hash: tree.data}
        framed = scan.framed
        if base is not None and not is_same and _size_of(framed) + sum(map(len, few.values())) <= STAGED_BYTES:
            replaced = {**tree.replaced, **self._find_replaced(scan.walk), tree.snapshot.hash: base.snapshot.hash}
            ready = {hash_: blob for hash_, (blob, _) in framed.items()}
            blobs = await snapshot_deltas.pack_blobs(self.ctx, ready, few, replaced, self._recent)
            self._recent.keep(tree.nodes)
            return blobs
        async for part in _portions(framed, await self.ctx.backend.run_in_thread(lambda: frame_all(few))):
            await _stage(staging, part)
        return {hash_: blob for hash_, (blob, _) in framed.items()}

    def _find_replaced(self, walk: Walk) -> dict[bytes, bytes]:
        """Return the contents that files had, by those that they have now."""
        replaced: dict[bytes, bytes] = {}
        for path, entry in walk.found.changes.items() if len(walk.found.changes) <= snapshot_deltas.MOST else ():
            above, _, name = path.rpartition(b"/")
            known = self.load_cache().directories.get(above)
            before = known.files.get(name) if known is not None else None
            had = file_entry(path, before) if before is not None else None
            if entry is not None and had is not None and entry.is_one_blob and had.is_one_blob:
                replaced[entry.content] = had.content
        return replaced

    async def _walk(self, staging: Staging | None, dirty: Dirty | None, options: ScanOptions) -> Scan:
        """Walk the directory; with `staging`, stage all new contents but the last batch."""
        walk = Walk(
            self.root,
            self.load_cache(),
            self._scope,
            Budget(self._limits),
            self._get_held,
            deep=options.deep,
            watch=self.watch,
            samples=staging is not None,
        )
        scan = Scan(walk)
        read = walk.run(dirty)
        # Without staging nothing is stored, and nothing is compressed.
        steps = compress_batches(read, scan.few) if staging is not None else ({} for _ in read)
        while True:
            batch = await self.ctx.backend.run_in_thread(lambda: _get_next(steps, self.path))
            if options.progress is not None and (batch is not None or scan.few):
                options.progress(walk.found.totals.files, walk.found.totals.size)
            if batch is None:
                if self.watch is not None and dirty is None:
                    self.watch.note_full_scan()
                return scan
            if staging is not None:
                if scan.framed:
                    await _stage(staging, scan.framed)
                    await self.ctx.backend.run_in_thread(lambda: check_free_space(self._store, self._limits))
                scan.framed = batch

    def _find_dirty(self, hints: Sequence[bytes] | None) -> Dirty | None:
        """Return what the kernel and the hints say may have changed; None if everything must be scanned."""
        reported = self.watch.take_changes() if self.watch is not None else None
        if hints is None or (self.watch is not None and reported is None):
            return reported
        names: dict[bytes, frozenset[bytes]] = dict(reported.names) if reported else {}
        for hint in hints:
            above, _, name = hint.rpartition(b"/")
            while above not in self.load_cache().directories and above:  # in a directory that is new itself
                above, _, name = above.rpartition(b"/")
            names[above] = names.get(above, frozenset()) | {name}
        # A directory that is named is looked through: it may be another one by now.
        return Dirty(names, (reported.replaced if reported else frozenset()).union(hints))

    def list_left_out(self, walk: Walk) -> tuple[list[SkippedPath], list[ExcludedPath]]:
        """Return the paths in no snapshot: those that could not be stored, and those that rules exclude."""
        skipped: list[SkippedPath] = []
        excluded: list[ExcludedPath] = []
        for path, directory in self._directories_to_report(walk):
            base = path + b"/" if path else b""
            skipped += [SkippedPath(base + name, why) for name, why in directory.skipped.items()]
            excluded += [ExcludedPath(base + name, why) for name, why in directory.excluded.items()]
        return skipped, excluded

    def _directories_to_report(self, walk: Walk) -> Iterator[tuple[bytes, CachedDirectory]]:
        """Yield the directories that may have left-out paths."""
        cache = self.load_cache()
        for path in cache.reporting | walk.found.updated.keys():
            directory = walk.found.updated[path] if path in walk.found.updated else cache.directories[path]
            if directory is not None:
                yield path, directory

    def _describe(self, walk: Walk, tree: bytes) -> Snapshot:
        skipped, excluded = self.list_left_out(walk)
        deciding: list[RuleFile] = []
        for path, directory in self._directories_to_report(walk):
            deciding += hidden_in(path, directory)
        notes = [
            f"{os.fsdecode(path)!r:.120} changed while it was read" for path in sorted(walk.found.torn)[:MAX_LISTED]
        ]
        notes += [
            f"{os.fsdecode(path)!r:.120} has other bytes than before, and no time tells: take one with `deep`"
            for path in sorted(walk.found.unseen)[:MAX_LISTED]
        ]
        return Snapshot(
            reference="",
            tree=tree,
            files=walk.found.totals.files,
            directories=walk.found.totals.directories,
            symlinks=walk.found.totals.symlinks,
            size=walk.found.totals.size,
            skipped=tuple(sorted(skipped)),
            excluded=tuple(sorted(excluded)[:MAX_LISTED]),
            excluded_count=len(excluded),
            notes=tuple(notes),
            options=self._scope.options,
            deciding=tuple(sorted(deciding)),
        )

    # -- what is known -----------------------------------------------------------------------------------------------

    async def base_of(self, session_id: str) -> BaseSnapshot | None:
        """Return the snapshot that `scan` would compare with."""
        async with self.ctx.backend.lock(LOCK + self.root):
            return await self._load_base(await self._tip(session_id))

    async def _load_base(self, tip: StoredRecord | None, *, is_required: bool = False) -> BaseSnapshot | None:
        """Return the base snapshot: the last one of this directory, if a live checkpoint still holds it.

        Otherwise it is the session's; then only the contents are known, not which files have them.
        With `is_required`, a commit will require the checkpoint: the one that this process
        remembers as the session's last is assumed to exist.
        """
        cache = await self.ctx.backend.run_in_thread(self.load_cache)
        if cache.reference is not None and cache.checkpoint is not None:
            is_remembered = is_required and tip is not None and tip.id == cache.checkpoint
            held = await self._find_live(cache.checkpoint, tip if is_remembered else None)
            if held is not None and snapshot_read.reference_of(held) == cache.reference:
                if self._last is None or self._last.reference != cache.reference:
                    self._last = await snapshot_read.load(self.ctx, cache.reference)
                return BaseSnapshot(self._last, held.id, held.tree)
        self._cache, self._held = StatCache(), None
        if self._file is not None:
            self._file.start_over()
        if self.watch is not None:
            self.watch.invalidate()
        reference = snapshot_read.reference_of(tip) if tip is not None else None
        if tip is None or reference is None:
            return None
        try:
            snapshot = await snapshot_read.load(self.ctx, reference)
            reach = SnapshotReachability(snapshot_read.make_loader(self.ctx))
            await reach.learn(reference)
        except HoldfastError:  # damaged: it is no base
            return None
        self._held = frozenset(reach.list_all())
        return BaseSnapshot(snapshot, tip.id, tip.tree) if snapshot.tree is not None else None

    async def _is_overtaken(self, session_id: str | None) -> bool:
        """Return whether the directory may have a newer snapshot than the one that the cache belongs to.

        A watch and hints say what changed since the snapshot that this process took last. Another
        snapshot may have found what neither of them says: an edit through a hard link from outside
        the directory. This client remembers its own. Every snapshot to a local store changes the
        cache's file, whatever its session. For other stores, and where a process died before it
        could do so, the checkpoints of the session tell.
        """
        cache = self.load_cache()
        if self.ctx.last_snapshots.get(self.root, cache.checkpoint) != cache.checkpoint:
            return True
        if self._file is not None and not await self.ctx.backend.run_in_thread(self._file.is_as_left):
            return True
        if session_id is None or cache.checkpoint is None:
            return False
        session = head.session_key(session_id)
        # Not the checkpoint that this process remembers as the session's last: another process may
        # have added some.
        newest = await self.ctx.backend.session_records(session, limit=1)
        if not newest or newest[0].id <= cache.checkpoint:
            return False
        found = await self.ctx.backend.session_records(session, limit=MOST_NEWER)
        newer = [record for record in found if record.id > cache.checkpoint]
        if len(newer) == MOST_NEWER:
            return True
        try:
            references = [
                snapshot_read.reference_of(lookup.unpack_listed(self.ctx, record, session)) for record in newer
            ]
        except HoldfastError:  # damaged, or of a newer holdfast: it may have had one
            return True
        return any(reference not in (None, cache.reference) for reference in references)

    async def _tip(self, session_id: str | None) -> StoredRecord | None:
        return None if session_id is None else (await lookup.get_tip(self.ctx, head.session_key(session_id))).checkpoint

    async def _find_live(self, checkpoint: bytes, remembered: StoredRecord | None = None) -> StoredRecord | None:
        stored = remembered or await lookup.find_record(self.ctx, checkpoint)
        return None if stored is None or await lookup.is_expired(self.ctx, stored) else stored

    def load_cache(self) -> StatCache:
        if self._cache is None:
            self._cache = self._file.load() if self._file is not None else StatCache()
            self._held = None
        return self._cache

    def _get_held(self) -> CachedBlobs | frozenset[bytes]:
        cache = self.load_cache()
        if self._held is None:
            self._held = CachedBlobs(cache)
        return self._held


def _get_next(steps: Iterator[Blobs], root: Path) -> Blobs | None:
    """Return the next batch; with too many open files, take no snapshot rather than a partial one."""
    try:
        return next(steps, None)
    except OSError as error:
        if error.errno in NO_MORE:
            raise OverBudgetError(f"no more files can be opened: {error.strerror}") from error
        refuse_if_gone(root)
        raise


def _skipped_snapshot(why: str) -> tuple[Snapshot, FilesWrite]:
    """Return a snapshot without a tree, which says why there is none."""
    snapshot = Snapshot(reference="", tree=None, not_taken=SnapshotSkipped(f"no snapshot was taken: {why}"))
    data = objects.pack(snapshot)
    snapshot = objects.unpack(data)
    return snapshot, FilesWrite({snapshot.hash: frame.compress(data)})


def _size_of(blobs: Blobs) -> int:
    return sum(len(blob) for blob, _ in blobs.values())


async def _stage(staging: Staging, batch: Blobs) -> None:
    await staging.put(
        blobs={hash_: blob for hash_, (blob, _) in batch.items()},
        entries=[BlobEntry(hash_, size) for hash_, (_, size) in batch.items()],
    )


async def _portions(last: Blobs, more: Blobs) -> AsyncIterator[Blobs]:
    """Add to the last batch, and yield it whenever it is large; the rest is in it at the end."""
    size = _size_of(last)
    for hash_, blob in more.items():
        if size + len(blob[0]) > STAGED_BYTES and last:
            yield dict(last)
            last.clear()
            size = 0
        last[hash_] = blob
        size += len(blob[0])


async def changes_between(
    ctx: StoreContext, before: bytes, after: bytes, nodes: Mapping[bytes, bytes] | None = None
) -> list[FileChange]:
    """Return the differences between two trees, some of whose nodes may not be stored."""
    stored = snapshot_read.make_loader(ctx)

    async def load(hashes: Sequence[bytes]) -> list[bytes]:
        missing = [hash_ for hash_ in hashes if nodes is None or hash_ not in nodes]
        found = dict(zip(missing, await stored(missing) if missing else [], strict=True))
        return [found[hash_] if hash_ in found else (nodes or {})[hash_] for hash_ in hashes]

    return [change async for change in file_tree.diff(before, after, load)]
