"""What a restore of files will do, decided before anything is touched. Pure: from what is there and what shall be there to
a list of actions, in an order in which each can be carried out.

Paths are bytes, relative to the root, with `/` between names. Three kinds of paths are never touched:
what is *protected* (excluded by the rules of then or of now), what the user changed and is to be *kept*, and what can't be
had without destroying one of these (*blocked*). Each is listed with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from holdfast.model.path_checks import Flag, first_unsafe, flags_of, unsafe_reason
from holdfast.model.workspace import Entry, FileChange

Doing = Literal["delete", "create", "replace", "chmod"]
PROTECTED, KEPT = "excluded", "changed since the last snapshot, and kept"


class Action(NamedTuple):
    """One step. `before` is what must be there for it to be done (None: nothing), `after` what is there then."""

    doing: Doing
    path: bytes
    before: Entry | None
    after: Entry | None


@dataclass(frozen=True, slots=True)
class Left:
    """A path that is left as it is, although the target has it otherwise."""

    path: bytes
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """What a restore will do. `conflicts` are paths it would overwrite or delete which have changed since the last
    snapshot: it is refused for them, unless they are kept (then they are in `left`) or it is forced. `flags` are names
    and links to know about before they are written."""

    actions: tuple[Action, ...] = ()
    conflicts: tuple[bytes, ...] = ()
    left: tuple[Left, ...] = ()
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
    """A target that no snapshot of ours has: a name that leads out of the root, or something below a file or a link."""

    def __init__(self, path: bytes, reason: str) -> None:
        super().__init__(f"{path!r:.120}: {reason}")
        self.path = path
        self.reason = reason


def _nobody(_path: bytes) -> bool:
    return False


def make_plan(
    changes: Iterable[FileChange],
    *,
    changed_since: Collection[bytes] = frozenset(),
    protected: Callable[[bytes], bool] = _nobody,
    occupied: Iterable[bytes] = (),
    keep_user: bool = False,
    paths: Sequence[bytes] = (),
    staying: Iterable[bytes] = (),
) -> RestorePlan:
    """The plan that leads from what is there (`before`) to the target (`after`).

    `changed_since`: paths that differ between the last snapshot and now. `protected`: whether a path, or one above it,
    is excluded. `occupied`: paths that are on the disk and in no snapshot (excluded, sockets): a directory that holds
    one is not removed. `paths` narrows it to these and what is below them. `staying`: names that are not changed, for
    comparing new names with them on a file system that takes no notice of case.
    """
    wanted: dict[bytes, FileChange] = {}
    left: list[Left] = []
    standing = list(occupied)
    changes = list(changes)
    unsafe = first_unsafe([change[0] for change in changes])
    if unsafe is not None:
        raise UnsafePathError(unsafe, unsafe_reason(unsafe))
    for change in changes:
        path, before, after = change
        if before == after:
            continue
        if protected(path):
            left.append(Left(path, PROTECTED))
            if before is not None:
                standing.append(path)
        else:
            wanted[path] = change
    _refuse_below_leaves(wanted)
    if paths:
        wanted = _narrowed(wanted, paths)
        left = [one for one in left if _within(one.path, paths)]
    changed = sorted(path for path in wanted if path in changed_since)
    kept = changed if keep_user else ()
    wanted_before = {path: wanted[path].before for path in changed}
    left += _leave(wanted, kept, standing)
    left += [Left(path, KEPT) for path in kept if path not in wanted]
    actions = _ordered(wanted.values())
    return RestorePlan(
        actions=tuple(actions),
        conflicts=() if keep_user else tuple(path for path in changed if wanted_before[path] is not None),
        left=tuple(sorted(left, key=lambda one: one.path)),
        flags=flags_of((action.after for action in actions if action.after is not None), staying),
    )


def _refuse_below_leaves(wanted: dict[bytes, FileChange]) -> None:
    """In a tree, only directories have something below them."""
    used = {path.rpartition(b"/")[0]: path for path, _, after in wanted.values() if after is not None}
    judged: dict[bytes, bytes | None] = {b"": None}  # for each directory, the leaf at it or above it
    for directory, path in used.items():
        above, one = [], directory
        while one not in judged:
            above.append(one)
            one = one.rpartition(b"/")[0]
        for one in reversed(above):
            change = wanted.get(one)
            is_leaf = change is not None and (change.after is None or change.after.kind != "dir")
            judged[one] = one if is_leaf else judged[one.rpartition(b"/")[0]]
        leaf = judged[directory]
        if leaf is not None:
            raise UnsafePathError(path, f"it is below {leaf!r:.60}, which is no directory in the target")


def _narrowed(wanted: dict[bytes, FileChange], paths: Sequence[bytes]) -> dict[bytes, FileChange]:
    """What is at or below `paths`, and the directories above that these need and that are not there."""
    chosen = {path: change for path, change in wanted.items() if _within(path, paths)}
    for path, change in list(chosen.items()):
        if change.after is None:
            continue
        for above in parents(path):
            needed = wanted.get(above)
            if needed is not None and (needed.before is None or needed.before.kind != "dir"):
                chosen[above] = needed
    return chosen


def _within(path: bytes, paths: Sequence[bytes]) -> bool:
    return any(path == one or path.startswith(one + b"/") or not one for one in paths)


def _leave(wanted: dict[bytes, FileChange], conflicts: Iterable[bytes], standing: Iterable[bytes]) -> list[Left]:
    """Takes out of `wanted` what is kept, and then what can't be had without destroying what stays."""
    kept = {path: wanted.pop(path) for path in conflicts}
    left: list[Left] = []
    # Directories above something that stays must stay directories.
    stays = [path for path, change in kept.items() if change.before is not None]
    holding: dict[bytes, bytes] = {}
    for path in (*stays, *standing):
        for above in parents(path):
            holding[above] = path
    for path in [path for path in holding if path in wanted]:
        change = wanted[path]
        if change.before is None or change.before.kind != "dir":
            continue
        if change.after is None or change.after.kind != "dir":
            del wanted[path]
            left.append(Left(path, f"it holds {_shown(holding[path])}, which stays"))
    # What stays and is no directory can't have anything below it. A directory that the user removed is made again if
    # something is to be put into it.
    for path, change in list(wanted.items()) if kept else ():
        if change.after is None:
            continue
        above_it = [(above, kept[above]) for above in parents(path) if above in kept]
        leaf = next(
            (above for above, there in above_it if there.before is not None and there.before.kind != "dir"), None
        )
        if leaf is not None:
            wanted.pop(path, None)
            left.append(Left(path, f"{_shown(leaf)} above it is no directory, and stays"))
            continue
        for above, there in above_it:
            if there.before is None and there.after is not None and there.after.kind == "dir":
                wanted[above] = kept.pop(above)
    return left


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def parents(path: bytes) -> Iterable[bytes]:
    """The directories above a path, the nearest first, without the root."""
    end = path.rfind(b"/")
    while end > 0:
        yield path[:end]
        end = path.rfind(b"/", 0, end)


def _ordered(changes: Iterable[FileChange]) -> list[Action]:
    """Removals from below, then what is new from above, then files, and modes of directories at last, from below: a
    directory that nobody may write to is filled before it becomes one."""
    removals: list[Action] = []
    directories: list[Action] = []
    contents: list[Action] = []
    modes: list[Action] = []
    for change in changes:
        path, before, after = change
        if before is not None and _must_go_first(before, after):
            removals.append(Action("delete", path, before, None))
            before = None
        if after is None:
            continue
        if before is None:
            (directories if after[1] == "dir" else contents).append(Action("create", path, None, after))
        elif _same_but_mode(before, after):
            (modes if after.kind == "dir" else contents).append(Action("chmod", path, before, after))
        else:
            contents.append(Action("replace", path, before, after))
    removals.sort(key=lambda action: action.path, reverse=True)  # what is below a directory sorts behind it
    directories.sort(key=lambda action: action.path)
    contents.sort(key=lambda action: action.path.rpartition(b"/"))  # those of one directory after each other
    modes.sort(key=lambda action: action.path, reverse=True)
    return removals + directories + contents + modes


def _must_go_first(before: Entry, after: Entry | None) -> bool:
    """Whether nothing may be there before the target can be: a rename replaces files and links, but no directory."""
    return after is None or (before.kind == "dir") != (after.kind == "dir")


def _same_but_mode(before: Entry, after: Entry) -> bool:
    return before.kind == after.kind and before.content == after.content and before.size == after.size
