"""The plan of a restore of files, made before anything is touched. Pure.

From the present and the wanted content of a directory it derives a list of actions, each possible
when its turn comes.

Paths are bytes, relative to the root, with `/` between names. Three kinds of paths are never
touched: *protected* ones (excluded by the rules of then or of now), ones that the user changed and
wants to *keep*, and ones that can't be restored without destroying one of these (*blocked*). Each
is listed with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from holdfast.model.safe_path import Flag, explain_unsafe, find_unsafe, flags_of
from holdfast.model.snapshot import FileChange, FileEntry

Doing = Literal["delete", "create", "replace", "chmod"]
PROTECTED, KEPT = "excluded", "changed since the last snapshot, and kept"


class FileAction(NamedTuple):
    """One action. `before` must be at the path to begin with (None: nothing), `after` is there then."""

    doing: Doing
    path: bytes
    before: FileEntry | None
    after: FileEntry | None


class WriteTotals:
    """A base class for actions that can say how much they write."""

    __slots__ = ()
    actions: tuple[FileAction, ...]

    @property
    def written_files(self) -> int:
        """How many files are written."""
        return len(self._list_written())

    @property
    def written_bytes(self) -> int:
        """The total size of the files that are written."""
        return sum(entry.size for entry in self._list_written())

    def _list_written(self) -> list[FileEntry]:
        entries = [action.after for action in self.actions if action.doing != "chmod"]
        return [entry for entry in entries if entry is not None and entry.kind == "file"]


@dataclass(frozen=True, slots=True)
class LeftPath:
    """A path that is left unchanged, although the target differs."""

    path: bytes
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan(WriteTotals):
    """The actions of a restore.

    `conflicts` are paths that it would overwrite or delete and that have changed since the last
    snapshot. They make the restore fail unless they are kept (then they are in `left`) or it is
    forced. `flags` are names and links to know about before they are written.
    """

    actions: tuple[FileAction, ...] = ()
    conflicts: tuple[bytes, ...] = ()
    left: tuple[LeftPath, ...] = ()
    flags: tuple[Flag, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.actions

    @property
    def touched(self) -> frozenset[bytes]:
        return frozenset(action.path for action in self.actions)

    def count(self, doing: Doing) -> int:
        return sum(action.doing == doing for action in self.actions)


class UnsafePathError(ValueError):
    """A target that no genuine snapshot has: a name outside the root, or a path below a file or link."""

    def __init__(self, path: bytes, reason: str) -> None:
        super().__init__(f"{path!r:.120}: {reason}")
        self.path = path
        self.reason = reason


def _protect_none(_path: bytes) -> bool:
    return False


def make_plan(
    changes: Iterable[FileChange],
    *,
    changed_since: Collection[bytes] = frozenset(),
    protected: Callable[[bytes], bool] = _protect_none,
    occupied: Iterable[bytes] = (),
    keep_user: bool = False,
    paths: Sequence[bytes] = (),
    staying: Iterable[bytes] = (),
) -> RestorePlan:
    """Return the plan that leads from the present content (`before`) to the target (`after`).

    `changed_since`: paths that differ between the last snapshot and now. `protected`: whether a
    path, or one above it, is excluded. `occupied`: paths that are on the disk and in no snapshot
    (excluded, sockets); a directory that holds one is not removed. `paths` narrows the plan to
    these and the paths below them. `staying`: names that do not change, to compare new names with
    on a case-insensitive file system.
    """
    wanted: dict[bytes, FileChange] = {}
    left: list[LeftPath] = []
    standing = list(occupied)
    changes = list(changes)
    unsafe = find_unsafe([change[0] for change in changes])
    if unsafe is not None:
        raise UnsafePathError(unsafe, explain_unsafe(unsafe))
    for change in changes:
        path, before, after = change
        if before == after:
            continue
        if protected(path):
            left.append(LeftPath(path, PROTECTED))
            if before is not None:
                standing.append(path)
        else:
            wanted[path] = change
    _refuse_below_leaves(wanted)
    if paths:
        wanted = _select_paths(wanted, paths)
        left = [item for item in left if is_within(item.path, paths)]
    changed = sorted(path for path in wanted if path in changed_since)
    kept = changed if keep_user else ()
    wanted_before = {path: wanted[path].before for path in changed}
    left += _leave(wanted, kept, standing)
    left += [LeftPath(path, KEPT) for path in kept if path not in wanted]
    actions = _order_actions(wanted.values())
    return RestorePlan(
        actions=tuple(actions),
        conflicts=() if keep_user else tuple(path for path in changed if wanted_before[path] is not None),
        left=tuple(sorted(left, key=lambda item: item.path)),
        flags=flags_of((action.after for action in actions if action.after is not None), staying),
    )


def _refuse_below_leaves(wanted: dict[bytes, FileChange]) -> None:
    """Raise an error if a path is below something other than a directory."""
    used = {path.rpartition(b"/")[0]: path for path, _, after in wanted.values() if after is not None}
    judged: dict[bytes, bytes | None] = {b"": None}  # for each directory, the leaf at it or above it
    for directory, path in used.items():
        above, item = [], directory
        while item not in judged:
            above.append(item)
            item = item.rpartition(b"/")[0]
        for item in reversed(above):
            change = wanted.get(item)
            is_leaf = change is not None and (change.after is None or change.after.kind != "dir")
            judged[item] = item if is_leaf else judged[item.rpartition(b"/")[0]]
        leaf = judged[directory]
        if leaf is not None:
            raise UnsafePathError(path, f"it is below {leaf!r:.60}, which is no directory in the target")


def _select_paths(wanted: dict[bytes, FileChange], paths: Sequence[bytes]) -> dict[bytes, FileChange]:
    """Return the changes at or below `paths`, and the missing directories above that these need."""
    chosen = {path: change for path, change in wanted.items() if is_within(path, paths)}
    for path, change in list(chosen.items()):
        if change.after is None:
            continue
        for above in list_parents(path):
            needed = wanted.get(above)
            if needed is not None and (needed.before is None or needed.before.kind != "dir"):
                chosen[above] = needed
    return chosen


def is_within(path: bytes, paths: Sequence[bytes]) -> bool:
    """Return whether a path is one of these, or below one."""
    return any(path == item or path.startswith(item + b"/") or not item for item in paths)


def _leave(wanted: dict[bytes, FileChange], conflicts: Iterable[bytes], standing: Iterable[bytes]) -> list[LeftPath]:
    """Remove kept paths from `wanted`, then paths that can't be restored without destroying those."""
    kept = {path: wanted.pop(path) for path in conflicts}
    left: list[LeftPath] = []
    # Directories above something that stays must stay directories.
    stays = [path for path, change in kept.items() if change.before is not None]
    holding: dict[bytes, bytes] = {}
    for path in (*stays, *standing):
        for above in list_parents(path):
            holding[above] = path
    for path in [path for path in holding if path in wanted]:
        change = wanted[path]
        if change.before is None or change.before.kind != "dir":
            continue
        if change.after is None or change.after.kind != "dir":
            del wanted[path]
            left.append(LeftPath(path, f"it holds {_format_path(holding[path])}, which stays"))
    # A path that stays and is no directory can't have anything below it. A directory that the user
    # removed is made again if something is to be put into it.
    for path, change in list(wanted.items()) if kept else ():
        if change.after is None:
            continue
        parents = [(above, kept[above]) for above in list_parents(path) if above in kept]
        leaf = next(
            (
                above
                for above, file_change in parents
                if file_change.before is not None and file_change.before.kind != "dir"
            ),
            None,
        )
        if leaf is not None:
            wanted.pop(path, None)
            left.append(LeftPath(path, f"{_format_path(leaf)} above it is no directory, and stays"))
            continue
        for above, file_change in parents:
            if file_change.before is None and file_change.after is not None and file_change.after.kind == "dir":
                wanted[above] = kept.pop(above)
    return left


def _format_path(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def list_parents(path: bytes) -> Iterable[bytes]:
    """Yield the directories above a path, the nearest first, without the root."""
    end = path.rfind(b"/")
    while end > 0:
        yield path[:end]
        end = path.rfind(b"/", 0, end)


def _order_actions(changes: Iterable[FileChange]) -> list[FileAction]:
    """Return the changes as actions, in an order in which each is possible.

    Removals come first, deepest first; then new directories, topmost first; then files; then modes
    of directories, deepest first: a directory is filled before it becomes read-only.
    """
    removals: list[FileAction] = []
    directories: list[FileAction] = []
    contents: list[FileAction] = []
    modes: list[FileAction] = []
    for change in changes:
        path, before, after = change
        if before is not None and _must_go_first(before, after):
            removals.append(FileAction("delete", path, before, None))
            before = None
        if after is None:
            continue
        if before is None:
            (directories if after[1] == "dir" else contents).append(FileAction("create", path, None, after))
        elif _same_but_mode(before, after):
            (modes if after.kind == "dir" else contents).append(FileAction("chmod", path, before, after))
        else:
            contents.append(FileAction("replace", path, before, after))
    removals.sort(key=lambda action: action.path, reverse=True)  # paths below a directory sort after it
    directories.sort(key=lambda action: action.path)
    contents.sort(key=lambda action: action.path.rpartition(b"/"))  # files of one directory are adjacent
    modes.sort(key=lambda action: action.path, reverse=True)
    return removals + directories + contents + modes


def _must_go_first(before: FileEntry, after: FileEntry | None) -> bool:
    """Return whether the path must be cleared first: a rename replaces files and links, no directory."""
    return after is None or (before.kind == "dir") != (after.kind == "dir")


def _same_but_mode(before: FileEntry, after: FileEntry) -> bool:
    return before.kind == after.kind and before.content == after.content and before.size == after.size
