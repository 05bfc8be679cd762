"""The walk of a directory for changes: a stat for each known file, a listing where names changed.

It is sound except for a writer through `mmap` that has not been synced. A file with the same ctime,
size, inode and mode is taken to be unchanged; a directory likewise to have the same names. A file
that changed within the last moments before it was scanned might change again with the same ctime:
the next scan checks it again, whatever its ctime says. Each scan also re-reads a rotating 0.1 % of
unchanged files: changes without a trace in the stats are found over time, and noted.

Directories are opened by descriptors, one below the other, and no symlink is followed: nothing
outside the root is read.
"""

from __future__ import annotations

import os
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from holdfast.model.snapshot import FileEntry
from holdfast.workspace.limits import (
    DIRECTORY_FLAGS,
    MAX_DEPTH,
    NO_FOLLOW,
    TEMPORARY,
    Budget,
    OverBudgetError,
)
from holdfast.workspace.scan import ignore
from holdfast.workspace.scan.changes import ChangeSet, describe_failure
from holdfast.workspace.scan.ignore_files import (
    ANOTHER_STORE,
    DECIDING,
    STORE_NAME,
    has_lost_marker,
    holds_store,
    is_store_at,
    list_known,
    rules_in,
)
from holdfast.workspace.scan.scope import WorkspaceScope
from holdfast.workspace.scan.stat_cache import CachedDirectory, File, StatCache, file_entry
from holdfast.workspace.scan.stat_pass import changed_directories, changed_samples, choose_samples
from holdfast.workspace.snapshot.compress import Contents, is_batch
from holdfast.workspace.snapshot.read_file import ContentReader, KindChange, Read

RACY_NS = 100_000_000  # timestamps are as fine as the kernel's tick: 1 to 10 ms
COARSE_NS = 2_500_000_000  # where they are whole seconds
_OPENING = DIRECTORY_FLAGS | NO_FOLLOW


class Dirty(NamedTuple):
    """Possible changes: names by directory, and directories that may be new ones under an old name."""

    names: Mapping[bytes, frozenset[bytes]]
    replaced: frozenset[bytes] = frozenset()


class NeedsFullWalkError(Exception):
    """A signal: the reported changes can't be scanned by themselves."""


class _OpenDirectory(NamedTuple):
    descriptor: int
    path: bytes
    rules: ignore.IgnoreRules
    todo: Iterator[bytes]


@dataclass(slots=True)
class Walk:
    """One scan of a directory. `run` is to be read to its end; then `found` says what changed."""

    root: bytes
    cache: StatCache
    scope: WorkspaceScope
    budget: Budget
    known: Callable[[], Container[bytes]]  # blobs that need not be given; called once there is something to read
    deep: bool = False
    watch: ChangeWatch | None = None
    samples: bool = False  # whether some files are read although they look as they did
    found: ChangeSet = field(init=False)
    linked: dict[bytes, int] = field(default_factory=dict)  # with a watch: files of several names, and their inodes
    _gathered: Contents = field(default_factory=dict)
    _size: int = 0
    _reader: ContentReader | None = None
    _to_scan: dict[bytes, bool] | None = None  # directories to scan: whether it differs, or something in it may
    _scanned: set[bytes] = field(default_factory=set)  # with all below them: there is nothing to look at again
    _sampled: dict[bytes, list[bytes]] = field(default_factory=dict)  # names to read although they look as they did

    def __post_init__(self) -> None:
        self.found = ChangeSet(self.cache, self.budget, totals=self.cache.totals)

    def run(self, dirty: Dirty | None = None) -> Iterator[Contents]:
        """Scan everything, or the dirty paths, and yield the new contents, some MiB at a time."""
        root = os.open(self.root, DIRECTORY_FLAGS)
        try:
            rules = ignore.IgnoreRules(
                use_gitignore=self.scope.use_gitignore, use_defaults=self.scope.use_defaults, seed=self.scope.seed
            )
            if dirty is None:
                self._find_changed(root)
                yield from self._scan_tree(root, b"", rules)
            else:
                if any(names & DECIDING for names in dirty.names.values()):
                    raise NeedsFullWalkError
                for path in sorted(dirty.names):
                    yield from self._scan_dirty(root, path, dirty.names[path], rules, dirty.replaced)
                for path, names in self._find_linked_names().items():
                    yield from self._scan_dirty(root, path, names, rules)
        finally:
            os.close(root)
        if self._gathered:
            yield self._take_batch()

    # -- the order of directories ------------------------------------------------------------------------------------

    def _scan_tree(self, descriptor: int, path: bytes, rules: ignore.IgnoreRules) -> Iterator[Contents]:
        """Scan a directory and all below it."""
        stack = [(yield from self._enter(os.dup(descriptor), path, rules))]
        try:
            while stack:
                above = stack[-1]
                name = next(above.todo, None)
                if name is None:
                    os.close(stack.pop().descriptor)
                    continue
                below = above.path + b"/" + name if above.path else name
                known = self._cached_plain(below, above.rules)
                differs = known is None or self._to_scan is None or self._to_scan.get(below)
                if differs is None:
                    continue
                if len(stack) >= MAX_DEPTH:
                    raise OverBudgetError(f"{os.fsdecode(below)!r:.80} is deeper than {MAX_DEPTH} directories")
                try:
                    child = os.open(name, _OPENING, dir_fd=above.descriptor)
                except OSError as error:
                    self.found.note_unreadable(above.path, name, error)
                    continue
                if known is None or differs:
                    stack.append((yield from self._enter(child, below, above.rules)))
                    continue
                stack.append(_OpenDirectory(child, below, above.rules, iter(known.directories)))
                yield from self._scan_changed(child, below, known, self._find_changed_samples(child, below, known))
        finally:
            for directory in stack:
                os.close(directory.descriptor)

    def _find_changed(self, root: int) -> None:
        """Find the directories to scan: all others are as they were, and are passed over."""
        if self.samples:
            self._sampled = choose_samples(self.cache)
        if self.deep or self.watch is not None:
            return
        self._to_scan = dict.fromkeys(self._sampled, False)
        self._to_scan |= dict.fromkeys(changed_directories(root, self.cache, self.budget.check_time), True)
        for path in list(self._to_scan):
            above = path.rpartition(b"/")[0]
            while above and above not in self._to_scan:
                self._to_scan[above] = False
                above = above.rpartition(b"/")[0]

    def _cached_plain(self, path: bytes, rules: ignore.IgnoreRules) -> CachedDirectory | None:
        """Return the cached directory, if the stat pass over everything tells whether it is unchanged.

        If it has nothing in it that decides what is left out, its rules are those of the directory
        above it; so are those of all directories below it that are skipped with it.
        """
        known = self.cache.directories.get(path)
        if known is None or known.rules != rules.key or path in self.found.updated or not known.is_plain:
            return None
        return known

    def _enter(
        self, descriptor: int, path: bytes, rules: ignore.IgnoreRules
    ) -> Generator[Contents, None, _OpenDirectory]:
        self._scanned.add(path)
        try:
            own_rules = yield from self._scan_directory(descriptor, path, rules)
        except BaseException:
            os.close(descriptor)
            raise
        directory = self.found.directory(path)
        return _OpenDirectory(descriptor, path, own_rules, iter(list(directory.directories) if directory else ()))

    def _find_linked_names(self) -> dict[bytes, set[bytes]]:
        """Return the hard-linked files not yet scanned, by directory: a watch reports only one of the names."""
        found: defaultdict[bytes, set[bytes]] = defaultdict(set)
        if self.watch is None:
            return found
        new = {inode for path, inode in self.linked.items() if path not in self.watch.linked}
        for path in self.watch.linked.keys() - self.linked.keys():
            above, _, name = path.rpartition(b"/")
            found[above].add(name)
        for above, directory in self.cache.directories.items() if new else ():  # names that were their only ones
            names = {name for name, file in directory.files.items() if file.inode in new}
            if names:
                found[above] |= names
        return found

    def _scan_dirty(
        self,
        root: int,
        path: bytes,
        names: Collection[bytes],
        rules: ignore.IgnoreRules,
        replaced: frozenset[bytes] = frozenset(),
    ) -> Iterator[Contents]:
        """Scan the names of one directory that may have changed."""
        if path in self._scanned:
            return
        old = self.found.directory(path)
        store = _find_store_above(path, self.scope)
        if store and is_store_at(store, root) == (self.found.directory(store) is not None):
            raise NeedsFullWalkError  # it has become one, or is none any more
        if old is None:
            return  # a directory that is new: its name is dirty in the one above it; or one that is left out
        outermost = rules
        descriptor = os.dup(root)
        try:
            at = b""
            for part in path.split(b"/") if path else ():
                rules = rules_in(descriptor, at, rules, list_known(self.cache.directories[at]))
                try:
                    below = os.open(part, _OPENING, dir_fd=descriptor)
                except OSError:  # gone: that is news of the directory above it
                    below_path = at + b"/" + part if at else part
                    yield from self._scan_dirty(root, at, [part], outermost, frozenset((below_path,)))
                    return
                os.close(descriptor)
                descriptor, at = below, at + b"/" + part if at else part
            rules = rules_in(descriptor, path, rules, list_known(old))
            if rules.key != old.rules:
                raise NeedsFullWalkError
            before = set(old.directories)
            yield from self._scan_names(descriptor, path, rules, old, names)
            directory = self.found.updated[path]
            assert directory is not None
            for name in sorted(directory.directories):
                below_path = path + b"/" + name if path else name
                if name in before and below_path not in replaced:
                    continue
                try:
                    below = os.open(name, _OPENING, dir_fd=descriptor)
                except OSError as error:
                    self.found.note_unreadable(path, name, error)
                    continue
                try:
                    yield from self._scan_tree(below, below_path, rules)
                finally:
                    os.close(below)
        finally:
            os.close(descriptor)

    # -- one directory -----------------------------------------------------------------------------------------------

    def _scan_directory(
        self, descriptor: int, path: bytes, rules: ignore.IgnoreRules
    ) -> Generator[Contents, None, ignore.IgnoreRules]:
        """Scan the names of a directory, and return the rules that hold in it."""
        self.budget.check_time()
        if self.watch is not None:
            self.watch.add(descriptor, path)  # before anything is scanned: later changes are reported
        scanned_at = time.time_ns()
        now = os.fstat(descriptor)
        old = self.cache.directories.get(path)
        if old is not None and path and old.mode != now.st_mode:
            above, _, name = path.rpartition(b"/")
            self.found.get_changeable(above).directories[name] = now.st_mode
            self.found.note_mode(path, old.mode, now.st_mode)
        if path.endswith(STORE_NAME) and _find_store_above(path, self.scope) == path and holds_store(descriptor):
            self.found.leave_out(path, ANOTHER_STORE)
            return rules
        if old is not None and (old.ctime_ns, old.inode, old.mode) == (now.st_ctime_ns, now.st_ino, now.st_mode):
            own_rules = rules_in(descriptor, path, rules, list_known(old))
            if own_rules.key == old.rules and not has_lost_marker(descriptor, old):
                yield from self._compare_files(descriptor, path, old)
                return own_rules
        names = _list_names(descriptor)
        marked = rules.marked_inside(path, names) if path else None
        rules = rules_in(descriptor, path, rules, names)
        if marked is not None:
            self.found.leave_out(path, f"by default: {marked[1]} ({marked[0].decode()})")
            return rules
        fresh = CachedDirectory(_comparable_ctime(now.st_ctime_ns, scanned_at), now.st_ino, now.st_mode, rules.key)
        self.found.updated[path] = fresh
        known = old.files if old is not None else ()
        new = [name for name, is_file in names.items() if is_file and name not in known]
        left = yield from self._read_new_files(descriptor, path, rules, new, fresh)
        others = [name for name, is_file in names.items() if not is_file or name in known]
        yield from self._scan_names(descriptor, path, rules, old, [*left, *others], fresh)
        fresh.hidden = tuple(item for item in rules.read_own_files(path) if item[0] not in fresh.files)
        if old is not None:
            self.found.note_gone(path, old, fresh)
        return rules

    def _read_new_files(
        self, descriptor: int, path: bytes, rules: ignore.IgnoreRules, names: Collection[bytes], fresh: CachedDirectory
    ) -> Generator[Contents, None, list[bytes]]:
        """Read the files of these names, which are not cached: the bulk of a first scan.

        Return the names that need a closer check: large files, and files that changed a moment ago.
        """
        if self._reader is None:
            self._reader = ContentReader(self.known)
        read_new, check_file = self._reader.read_new, self.budget.check_file
        files, changes, gained = fresh.files, self.found.changes, self.found.gained
        base = path + b"/" if path else b""
        is_judged, is_watched = self.scope.may_leave_files_out(base, rules), self.watch is not None
        count = total = 0  # that the totals don't have yet
        left = []
        for name in names:
            whole = base + name
            why = (
                self.scope.why_left_out(whole, name, False, rules, ())
                if is_judged or name.startswith(TEMPORARY)
                else None
            )
            if why is not None:
                (fresh.skipped if why[0] else fresh.excluded)[name] = why[1]
                continue
            scanned_at = time.time_ns()
            try:
                found = read_new(name, descriptor)
            except OSError:
                found = None
            if found is None:
                left.append(name)
                continue
            content, data, seen = found
            size, mode = seen.st_size, seen.st_mode
            check_file(whole, size)
            files[name] = File(_comparable_ctime(seen.st_ctime_ns, scanned_at), size, seen.st_ino, mode, content)
            changes[whole] = FileEntry(whole, "file", mode & 0o7777, size, content)
            gained.append(content)
            if is_watched and seen.st_nlink > 1:
                self.linked[whole] = seen.st_ino
            count += 1
            total += size
            if data:
                self._gathered[content] = data
                self._size += size
                if is_batch(self._size, len(self._gathered)):
                    self.found.add_files(count, total)
                    count = total = 0
                    yield self._take_batch()
        self.found.add_files(count, total)
        return left

    def _compare_files(self, descriptor: int, path: bytes, old: CachedDirectory) -> Iterator[Contents]:
        """Compare the files of a directory whose names are as they were."""
        changed, is_watched = [], self.watch is not None
        for name, file in old.files.items():
            try:
                now = os.lstat(name, dir_fd=descriptor)
            except OSError:
                changed.append(name)
                continue
            if (
                now.st_ctime_ns != file.ctime_ns
                or now.st_size != file.size
                or now.st_ino != file.inode
                or now.st_mode != file.mode
                or self.deep
            ):
                changed.append(name)
            elif is_watched and now.st_nlink > 1:
                self.linked[path + b"/" + name if path else name] = now.st_ino
        yield from self._scan_changed(
            descriptor, path, old, [*changed, *self._find_changed_samples(descriptor, path, old, but=changed)]
        )

    def _find_changed_samples(
        self, descriptor: int, path: bytes, known: CachedDirectory, *, but: Collection[bytes] = ()
    ) -> list[bytes]:
        """Return the sampled files that have other bytes although their stats are equal."""
        names = [name for name in self._sampled.get(path, ()) if name not in but]
        unlike = changed_samples(descriptor, known, names)
        self.found.unseen += [path + b"/" + name if path else name for name in unlike]
        return unlike

    def _scan_changed(
        self, descriptor: int, path: bytes, old: CachedDirectory, changed: list[bytes]
    ) -> Iterator[Contents]:
        if changed:
            rules = ignore.IgnoreRules()  # not asked: these names were judged by the rules that still hold
            yield from self._scan_names(descriptor, path, rules, old, changed, judge=False)

    def _scan_names(
        self,
        descriptor: int,
        path: bytes,
        rules: ignore.IgnoreRules,
        old: CachedDirectory | None,
        names: Collection[bytes],
        fresh: CachedDirectory | None = None,
        *,
        judge: bool = True,
    ) -> Iterator[Contents]:
        """Scan these names. Without `fresh`, the directory keeps its other cached names."""
        if fresh is None:
            assert old is not None
            fresh = old.copy()
            for name in names:
                fresh.remove(name)
            self.found.updated[path] = fresh
            siblings = {*names, *fresh.files, *fresh.directories, *fresh.excluded, *fresh.skipped} if judge else set()
            is_part = True
        else:
            siblings, is_part = {*names, *fresh.files, *fresh.excluded, *fresh.skipped}, False
        base = path + b"/" if path else b""
        for name in names:
            scanned_at = time.time_ns()
            try:
                now = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError as error:
                fresh.skipped[name] = describe_failure(error)
                continue
            whole = base + name
            why = self.scope.why_left_out(whole, name, stat.S_ISDIR(now.st_mode), rules, siblings) if judge else None
            if why is not None:
                (fresh.skipped if why[0] else fresh.excluded)[name] = why[1]
            elif stat.S_ISDIR(now.st_mode):
                fresh.directories[name] = now.st_mode
                before = old.directories.get(name) if old else None
                self.found.note_mode(whole, before, now.st_mode)
            elif stat.S_ISREG(now.st_mode) or stat.S_ISLNK(now.st_mode):
                yield from self._scan_file(descriptor, whole, name, now, scanned_at, old, fresh)
            else:
                fresh.skipped[name] = _kind_of_special(now.st_mode)
        if is_part:
            assert old is not None
            self.found.note_gone(path, old, fresh)

    def _scan_file(
        self,
        descriptor: int,
        whole: bytes,
        name: bytes,
        now: os.stat_result,
        scanned_at: int,
        old: CachedDirectory | None,
        fresh: CachedDirectory,
    ) -> Iterator[Contents]:
        before = old.files.get(name) if old else None
        if self.watch is not None and now.st_nlink > 1:
            self.linked[whole] = now.st_ino
        if (
            before is not None
            and not self.deep
            and whole not in self.found.unseen
            and (before.ctime_ns, before.size, before.inode, before.mode)
            == (now.st_ctime_ns, now.st_size, now.st_ino, now.st_mode)
        ):
            fresh.files[name] = before
            return
        entry_before = file_entry(whole, before) if before else None
        try:
            if stat.S_ISLNK(now.st_mode):
                target = os.readlink(name, dir_fd=descriptor)
                file = File(
                    _comparable_ctime(now.st_ctime_ns, scanned_at), len(target), now.st_ino, now.st_mode, target
                )
            else:
                self.budget.check_file(whole, now.st_size)
                found = yield from self._read(descriptor, name, before.content if before else None)
                seen = found.stat
                ctime = 0 if found.is_torn else _comparable_ctime(seen.st_ctime_ns, scanned_at)
                file = File(ctime, seen.st_size, seen.st_ino, seen.st_mode, found.content)
                if found.is_torn:
                    self.found.torn.append(whole)
        except KindChange:
            fresh.skipped[name] = "it changed all the while it was read"
            return
        except OSError as error:
            fresh.skipped[name] = describe_failure(error)
            return
        fresh.files[name] = file
        self.found.note(whole, entry_before, file_entry(whole, file))

    def _read(self, descriptor: int, name: bytes, had: bytes | None) -> Generator[Contents, None, Read]:
        if self._reader is None:
            self._reader = ContentReader(self.known)
        for found in self._reader.read(name, descriptor, had):
            blobs = found.blobs if isinstance(found, Read) else found
            for hash_, data in blobs.items():
                self._gathered[hash_] = data
                self._size += len(data)
            if is_batch(self._size, len(self._gathered)):
                yield self._take_batch()
            if isinstance(found, Read):
                if found.chunks is not None:
                    self.found.chunks[found.content] = found.chunks
                return found
        raise KindChange

    def _take_batch(self) -> Contents:
        taken, self._gathered, self._size = self._gathered, {}, 0
        return taken


class ChangeWatch:
    """A watch that is added to each directory before it is scanned; `inotify.py` has the one for Linux.

    `linked` are the files of several names in the last snapshot, with their inodes."""

    linked: Mapping[bytes, int] = MappingProxyType({})

    def add(self, descriptor: int, path: bytes) -> None:
        raise NotImplementedError  # each watch has its own


def _find_store_above(path: bytes, scope: WorkspaceScope) -> bytes | None:
    """Return the nearest directory at or above a path that has a store's name, other than our own store."""
    at = (path + b"/").rfind(b"/" + STORE_NAME + b"/") + 1
    whole = path[: at + len(STORE_NAME)]
    return whole if at and whole not in scope.never else None


def _comparable_ctime(ctime_ns: int, scanned_ns: int) -> int:
    """Return the time to compare with at the next scan; 0 if a later change may have the same time."""
    window = COARSE_NS if ctime_ns % 1_000_000_000 == 0 else RACY_NS
    return 0 if ctime_ns >= scanned_ns - window else ctime_ns


def _list_names(descriptor: int) -> dict[bytes, bool]:
    """Return the names in a directory, and whether each is a regular file's, as far as the listing tells."""
    names = {}
    with os.scandir(descriptor) as listed:
        for entry in listed:
            try:
                is_file = entry.is_file(follow_symlinks=False)
            except OSError:  # unknown, and can't be read either: a later step finds and reports it
                is_file = False
            names[os.fsencode(entry.name)] = is_file
    return names


def _kind_of_special(mode: int) -> str:
    kinds = (
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISCHR, "a device"),
    )
    return next((name for is_kind, name in kinds if is_kind(mode)), "neither file, directory nor symlink")
