"""Taking a snapshot: walk, store what is new, make the tree; the checkpoint that is saved with it makes it visible.

Contents go ahead of the commit in batches if they are many (`operations/staging.py`), and a snapshot is built upon one that a
live checkpoint holds: the commit requires both. What was seen of the directory is remembered only once the checkpoint is
there.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from holdfast.codec.decoding import collector_paused
from holdfast.errors import CorruptError, HoldfastError, UsageError
from holdfast.model.workspace import Deciding, Entry, Excluded, FileChange, Skipped, Snapshot, SnapshotSkipped
from holdfast.objects import filetree, frame, rows, staged
from holdfast.objects import snapshot as objects
from holdfast.objects.manifest import BlobEntry
from holdfast.objects.record import Stored
from holdfast.operations import deltas, reading, save, snapshots
from holdfast.operations.arguments import FilesLostError, FilesWrite, SaveRequest
from holdfast.operations.reach import Reach
from holdfast.operations.services import Services
from holdfast.operations.staging import STAGED_BYTES, Staging
from holdfast.workspace.compressing import Blobs, Contents, compressed, framed
from holdfast.workspace.guards import NO_MORE, Budget, Limits, OverBudgetError, check_free_space, refuse_if_gone
from holdfast.workspace.homes import home_at, seen_from
from holdfast.workspace.ignore_files import hidden_in
from holdfast.workspace.scope import Scope
from holdfast.workspace.statcache import CacheFile, Directory, Held, StatCache, file_entry
from holdfast.workspace.walk import Dirty, NeedsFullWalkError, Walk
from holdfast.workspace.watch import Watch

MAX_LISTED = 200  # of what was left out
ATTEMPTS = 3
MANY = 10_000  # containers that were made since garbage was looked for last, by whomever: fewer are not worth it
TURN = b"\xffworkspace "

Progress = Callable[[int, int], None]  # files and bytes found so far


class Base(NamedTuple):
    """The snapshot that is built upon, the checkpoint that holds it and that one's tree."""

    snapshot: Snapshot
    checkpoint: bytes
    tree: bytes


@dataclass(slots=True)
class Look:
    """What is in the directory now, compared with the base. `nodes` are the nodes of its tree that are not stored."""

    walk: Walk
    snapshot: Snapshot
    nodes: Mapping[bytes, bytes]
    data: bytes  # the snapshot's object
    blobs: Mapping[bytes, bytes] = field(default_factory=dict)  # the last batch, as it is to be written

    @property
    def changes(self) -> int:
        return len(self.walk.found.changes)


class Taker:
    """Takes the snapshots of one directory. `store` is the place of the store on this machine's disk, if it has one."""

    def __init__(self, services: Services, root: Path, store: Path | None, scope: Scope, limits: Limits) -> None:
        self.services = services
        self.path = root
        self.root = os.fsencode(root)
        self._store = store
        self._from_store = seen_from(store, root)  # neither moves as long as it is open
        self._scope = scope
        self._limits = limits
        self._cache: StatCache | None = None
        self._file: CacheFile | None = None
        if store is not None:
            name = hashlib.sha256(self.root).hexdigest()[:16]
            self._file = CacheFile(store.with_name(f"{store.name}-workspaces") / f"{name}.cache", self.root)
        self._held: Held | frozenset[bytes] | None = None  # what the base's snapshot holds; None until it is asked for
        self._recent = deltas.Recent()
        self._last: Snapshot | None = None  # that was taken here
        self.watch: Watch | None = None

    # -- saving ------------------------------------------------------------------------------------------------------

    async def save(
        self,
        request: SaveRequest,
        *,
        hints: Sequence[bytes] | None = None,
        deep: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Stored, Snapshot, int]:
        """Takes a snapshot and saves the request with it. The checkpoint, the snapshot, and how many paths changed."""
        async with self.services.backend.turn(TURN + self.root):
            for number in range(ATTEMPTS):
                try:
                    return await self._save(request, hints, deep, progress)
                except FilesLostError:
                    self._cache = None  # what was built upon is gone: from what the store says now
                except CorruptError:
                    # Before damage is believed: the checkpoint that this process remembers may have been collected.
                    if number:
                        raise
                    self.services.memory.drop(rows.session_key(request.session_id))
            raise CorruptError(
                "the snapshot could not be saved: what it is built upon expires again and again meanwhile. Try again"
            )

    async def _save(
        self, request: SaveRequest, hints: Sequence[bytes] | None, deep: bool, progress: Progress | None
    ) -> tuple[Stored, Snapshot, int]:
        line = await reading.current_line(self.services, rows.session_key(request.session_id))
        if line.tree is None and request.checkpoint_id is None:
            request = replace(request, checkpoint_id=self.services.new_id(None))
        tree = line.tree or request.checkpoint_id
        assert tree is not None
        staging = Staging(self.services, tree, staged.SNAPSHOT)
        look: Look | None = None
        try:
            try:
                check_free_space(self._store, self._limits)
                base = await self._base(line.tip, is_required=True)
                required = await self._hold(base, tree, staging) if base is not None else []
                look = await self._look(base, staging, hints=hints, deep=deep, progress=progress)
                snapshot, files = look.snapshot, FilesWrite(look.blobs, staging.held, required)
            except OverBudgetError as excess:
                snapshot, blobs = _not_taken(str(excess))
                files = FilesWrite(blobs)
            request = replace(
                request, workspace=snapshot.reference, files=files, home=home_at(self.path, self._from_store)
            )
            stored = await save.save(self.services, request)
        except BaseException:
            await self._abandon(staging)
            raise
        if look is None:
            await self._abandon(staging)
            return stored, snapshot, 0
        taken = look
        await self.services.backend.apart(lambda: self._acknowledge(taken, stored.id))
        return stored, snapshot, look.changes

    async def _abandon(self, staging: Staging) -> None:
        """What was seen and read is not stored: it is to be looked at again."""
        if self.watch is not None:
            self.watch.settle(acknowledged=False)
        with contextlib.suppress(HoldfastError):  # their time to live ends them; what happened before it matters more
            await staging.release()

    async def _hold(self, base: Base, tree: bytes, staging: Staging) -> list[bytes]:
        """Makes sure that what the base's snapshot consists of stays until the commit: within a tree, by requiring its
        checkpoint. One of another tree can't be a condition: then a checkpoint of ours holds the same, and was there while
        the other one still was."""
        if base.tree == tree:
            return [base.checkpoint]
        await staging.put(workspace=base.snapshot.reference)
        if await self._live(base.checkpoint) is None:
            raise FilesLostError
        return []

    def _acknowledge(self, look: Look, checkpoint: bytes) -> None:
        with collector_paused():
            self._keep(look, checkpoint)

    def _keep(self, look: Look, checkpoint: bytes) -> None:
        cache, walk = self._loaded(), look.walk
        before = {path: cache.directories.get(path) for path in walk.found.updated}
        cache.apply(walk.found.updated, walk.found.chunks, walk.found.totals)
        # Only what the new snapshot holds is sure to stay: what it has replaced may be collected with the old one.
        if isinstance(self._held, Held):
            self._held.change(walk.found.released, walk.found.gained)
        else:
            self._held = None
        cache.reference, cache.checkpoint = look.snapshot.reference, checkpoint
        self._last = look.snapshot
        if self.watch is not None:
            self.watch.linked = walk.linked
            self.watch.settle(acknowledged=True)
        if self._file is not None:
            self._file.save(cache, walk.found.updated, walk.found.chunks, before)

    async def last(self, session_id: str) -> Snapshot | None:
        """The snapshot that was taken last, as far as it is known here, else that of the session."""
        base = await self._base(await self._tip(session_id))
        return base.snapshot if base is not None else None

    # -- looking -----------------------------------------------------------------------------------------------------

    async def look(self, session_id: str | None = None, *, deep: bool = False) -> tuple[Base | None, Look]:
        """What is there now, without storing anything, and the snapshot that it was compared with: the last one, or, if
        that is not known any more, the one of the session."""
        async with self.services.backend.turn(TURN + self.root):
            base = await self._base(await self._tip(session_id))
            try:
                return base, await self._look(base, None, deep=deep)
            except OverBudgetError as excess:
                raise UsageError(f"the workspace {str(self.path)!r:.120} can't be looked at: {excess}") from excess
            finally:
                if self.watch is not None:
                    self.watch.settle(acknowledged=False)

    async def _look(
        self,
        base: Base | None,
        staging: Staging | None,
        *,
        hints: Sequence[bytes] | None = None,
        deep: bool = False,
        progress: Progress | None = None,
    ) -> Look:
        apart = self.services.backend.apart
        dirty = await apart(lambda: self._dirty(hints))
        if base is None or deep or self._loaded().reference is None:
            dirty = None
        try:
            walk, last, few = await self._walk(staging, dirty, deep=deep, progress=progress)
        except NeedsFullWalkError:
            walk, last, few = await self._walk(staging, None, deep=deep, progress=progress)
        replaced: dict[bytes, bytes] = {}  # by what is new, what it is most like
        if base is not None and self._loaded().reference is not None:
            assert base.snapshot.tree is not None
            load = self._recent.loader(self.services, snapshots.loader(self.services))
            built = await filetree.update(base.snapshot.tree, walk.found.changes, load, replaced)
        else:
            made = await apart(lambda: _built(entry for entry in walk.found.changes.values() if entry is not None))
            known = self._held_now()
            built = filetree.Built(made.root, {hash_: node for hash_, node in made.nodes.items() if hash_ not in known})
        snapshot = self._snapshot(walk, built.root)
        data = objects.pack(snapshot)
        snapshot = objects.unpack(data)
        look = Look(walk, snapshot, built.nodes, data)
        if staging is not None:
            is_same = base is not None and base.snapshot.reference == snapshot.reference
            few |= {} if is_same else {**built.nodes, snapshot.hash: data}
            await self._put_in(look, staging, last, few, base if not is_same else None, replaced)
        return look

    async def _put_in(
        self, look: Look, staging: Staging, last: Blobs, few: Contents, base: Base | None, replaced: dict[bytes, bytes]
    ) -> None:
        """What is new and not staged yet is to be written with the checkpoint, if it is not too much for that: what replaces something
        of the base as a difference from it."""
        if _size_of(last) + sum(map(len, few.values())) <= STAGED_BYTES and base is not None:
            replaced |= {**self._replaced(look.walk), look.snapshot.hash: base.snapshot.hash}
            ready = {hash_: blob for hash_, (blob, _) in last.items()}
            look.blobs = await deltas.packed(self.services, ready, few, replaced, self._recent)
            self._recent.keep(look.nodes)
            return
        async for part in _portions(last, await self.services.backend.apart(lambda: framed(few))):
            await _stage(staging, part)
        look.blobs = {hash_: blob for hash_, (blob, _) in last.items()}

    def _replaced(self, walk: Walk) -> dict[bytes, bytes]:
        """By the contents that files have now, those that they had."""
        replaced: dict[bytes, bytes] = {}
        for path, entry in walk.found.changes.items() if len(walk.found.changes) <= deltas.MOST else ():
            above, _, name = path.rpartition(b"/")
            known = self._loaded().directories.get(above)
            before = known.files.get(name) if known is not None else None
            had = file_entry(path, before) if before is not None else None
            if entry is not None and had is not None and entry.is_one_blob and had.is_one_blob:
                replaced[entry.content] = had.content
        return replaced

    async def _walk(
        self, staging: Staging | None, dirty: Dirty | None, *, deep: bool, progress: Progress | None
    ) -> tuple[Walk, Blobs, Contents]:
        """Looks at the directory, and stages what is new but the last batch; if there is one only, it is given as it is. What is seen of
        files is kept: to look among all of that for garbage, again and again, takes a tenth of the CPU. After a batch it is looked for among what is young,
        once there is much of that: whatever else runs in this process meanwhile leaves some, too."""
        with collector_paused() as is_paused:
            return await self._walked(
                staging, dirty, deep=deep, progress=progress, each=_collect_young if is_paused else _nothing
            )

    async def _walked(
        self,
        staging: Staging | None,
        dirty: Dirty | None,
        *,
        deep: bool,
        progress: Progress | None,
        each: Callable[[], None],
    ) -> tuple[Walk, Blobs, Contents]:
        walk = Walk(
            self.root,
            self._loaded(),
            self._scope,
            Budget(self._limits),
            self._held_now,
            deep=deep,
            watch=self.watch,
            samples=staging is not None,
        )
        read = walk.run(dirty)
        few: Contents = {}
        steps = compressed(read, few) if staging is not None else ({} for _ in read)  # nothing is stored by a look
        last: Blobs = {}
        while True:
            batch = await self.services.backend.apart(lambda: _next(steps, self.path))
            if progress is not None and (batch is not None or few):
                progress(walk.found.totals.files, walk.found.totals.size)
            if batch is None:
                if self.watch is not None and dirty is None:
                    self.watch.covers_all()
                return walk, last, few
            if staging is not None:
                if last:
                    await _stage(staging, last)
                    await self.services.backend.apart(lambda: check_free_space(self._store, self._limits))
                last = batch
            each()

    def _dirty(self, hints: Sequence[bytes] | None) -> Dirty | None:
        """What is said to have changed: by the kernel, and by who knows what a tool did. None if everything must be
        looked at."""
        told = self.watch.taken() if self.watch is not None else None
        if hints is None or (self.watch is not None and told is None):
            return told
        names: dict[bytes, frozenset[bytes]] = dict(told.names) if told else {}
        for hint in hints:
            above, _, name = hint.rpartition(b"/")
            while above not in self._loaded().directories and above:  # in a directory that is new itself
                above, _, name = above.rpartition(b"/")
            names[above] = names.get(above, frozenset()) | {name}
        # A directory that is named is looked through: it may be another one by now.
        return Dirty(names, (told.replaced if told else frozenset()).union(hints))

    def left_out(self, walk: Walk) -> tuple[list[Skipped], list[Excluded]]:
        """What is there and in no snapshot: what could not be kept, and what rules name."""
        skipped: list[Skipped] = []
        excluded: list[Excluded] = []
        for path, directory in self._reporting(walk):
            base = path + b"/" if path else b""
            skipped += [Skipped(base + name, why) for name, why in directory.skipped.items()]
            excluded += [Excluded(base + name, why) for name, why in directory.excluded.items()]
        return skipped, excluded

    def _reporting(self, walk: Walk) -> Iterator[tuple[bytes, Directory]]:
        """The directories of which something may be left out."""
        cache = self._loaded()
        for path in cache.reporting | walk.found.updated.keys():
            directory = walk.found.updated[path] if path in walk.found.updated else cache.directories[path]
            if directory is not None:
                yield path, directory

    def _snapshot(self, walk: Walk, tree: bytes) -> Snapshot:
        skipped, excluded = self.left_out(walk)
        deciding: list[Deciding] = []
        for path, directory in self._reporting(walk):
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

    async def base_of(self, session_id: str) -> Base | None:
        """The snapshot that `look` would compare with, without looking."""
        async with self.services.backend.turn(TURN + self.root):
            return await self._base(await self._tip(session_id))

    async def _base(self, tip: Stored | None, *, is_required: bool = False) -> Base | None:
        """The snapshot to build upon: the one that was last seen here, if a live checkpoint still holds it; else the one
        of the session, of which only the contents are known then, not which files have them. With `is_required`, a commit will
        require the checkpoint: the one that this process remembers as the session's last is believed to be there."""
        cache = await self.services.backend.apart(self._loaded)
        if cache.reference is not None and cache.checkpoint is not None:
            is_remembered = is_required and tip is not None and tip.id == cache.checkpoint
            held = await self._live(cache.checkpoint, tip if is_remembered else None)
            if held is not None and snapshots.reference_of(held) == cache.reference:
                if self._last is None or self._last.reference != cache.reference:
                    self._last = await snapshots.load(self.services, cache.reference)
                return Base(self._last, held.id, held.tree)
        self._cache, self._held = StatCache(), None
        if self._file is not None:
            self._file.start_over()
        if self.watch is not None:
            self.watch.invalidate()
        reference = snapshots.reference_of(tip) if tip is not None else None
        if tip is None or reference is None:
            return None
        try:
            snapshot = await snapshots.load(self.services, reference)
            reach = Reach(snapshots.loader(self.services))
            await reach.learn(reference)
        except HoldfastError:  # damaged: nothing is built upon it
            return None
        self._held = frozenset(reach.everything())
        return Base(snapshot, tip.id, tip.tree) if snapshot.tree is not None else None

    async def _tip(self, session_id: str | None) -> Stored | None:
        return (
            None
            if session_id is None
            else (await reading.current_line(self.services, rows.session_key(session_id))).tip
        )

    async def _live(self, checkpoint: bytes, remembered: Stored | None = None) -> Stored | None:
        stored = remembered or await reading.find_record(self.services, checkpoint)
        return None if stored is None or await reading.is_over(self.services, stored) else stored

    def _loaded(self) -> StatCache:
        if self._cache is None:
            self._cache = self._file.load() if self._file is not None else StatCache()
            self._held = None
        return self._cache

    def _held_now(self) -> Held | frozenset[bytes]:
        cache = self._loaded()
        if self._held is None:
            self._held = Held(cache)
        return self._held


def _collect_young() -> None:
    if gc.get_count()[0] >= MANY:
        gc.collect(1)


def _nothing() -> None: ...


def _built(entries: Iterable[Entry]) -> filetree.Built:
    with collector_paused():
        return filetree.build(entries)


def _next(steps: Iterator[Blobs], root: Path) -> Blobs | None:
    """The next batch. Where no more files can be opened there is no snapshot, rather than one of those that could be."""
    try:
        return next(steps, None)
    except OSError as error:
        if error.errno in NO_MORE:
            raise OverBudgetError(f"no more files can be opened: {error.strerror}") from error
        refuse_if_gone(root)
        raise


def _not_taken(why: str) -> tuple[Snapshot, dict[bytes, bytes]]:
    """What a checkpoint carries in the place of a snapshot."""
    snapshot = Snapshot(reference="", tree=None, not_taken=SnapshotSkipped(f"no snapshot was taken: {why}"))
    data = objects.pack(snapshot)
    taken = objects.unpack(data)
    return taken, {taken.hash: frame.compressed(data)}


def _size_of(blobs: Blobs) -> int:
    return sum(len(blob) for blob, _ in blobs.values())


async def _stage(staging: Staging, batch: Blobs) -> None:
    await staging.put(
        blobs={hash_: blob for hash_, (blob, _) in batch.items()},
        entries=[BlobEntry(hash_, size) for hash_, (_, size) in batch.items()],
    )


async def _portions(last: Blobs, more: Blobs) -> AsyncIterator[Blobs]:
    """Adds to the last batch, and gives it away whenever it is large; what is left is in it at the end."""
    size = _size_of(last)
    for hash_, blob in more.items():
        if size + len(blob[0]) > STAGED_BYTES and last:
            yield dict(last)
            last.clear()
            size = 0
        last[hash_] = blob
        size += len(blob[0])


async def changes_between(
    services: Services, before: bytes, after: bytes, nodes: Mapping[bytes, bytes] | None = None
) -> list[FileChange]:
    """What differs between two trees, of which some nodes may not be stored."""
    stored = snapshots.loader(services)

    async def load(hashes: Sequence[bytes]) -> list[bytes]:
        missing = [hash_ for hash_ in hashes if nodes is None or hash_ not in nodes]
        found = dict(zip(missing, await stored(missing) if missing else [], strict=True))
        return [found[hash_] if hash_ in found else (nodes or {})[hash_] for hash_ in hashes]

    return [change async for change in filetree.diff(before, after, load)]
