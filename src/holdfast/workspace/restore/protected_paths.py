"""Paths that a restore must not touch: left out at the moment of the target, or now.

A path in a snapshot was not excluded then. So a path that would be deleted is judged by the rules
of the target: if it was excluded then, it is only visible now because the rules have changed. A
path that would be made is judged by the present rules, as they are on the disk.

The rules of the target are files in the snapshot's tree or, if they are left out themselves, in
`Snapshot.deciding`. Rules differ only where one of these files does, or where the snapshots were
taken with different options (`include_git`, `secrets`, …): else there is nothing to judge. A path
that could not be read then may have existed, whatever the rules say: the target lists such paths.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from holdfast.format.files import file_tree
from holdfast.model.snapshot import FileChange, FileEntry, Snapshot, SnapshotOptions
from holdfast.operations import snapshot_read
from holdfast.operations.context import StoreContext
from holdfast.workspace.limits import is_secret
from holdfast.workspace.scan import ignore
from holdfast.workspace.scan.ignore_files import DECIDING, STORE_NAME, deciding_at
from holdfast.workspace.scan.scope import WorkspaceScope


async def protection(
    ctx: StoreContext,
    root: bytes,
    scope: WorkspaceScope,
    changes: Sequence[FileChange],
    excluded_now: Iterable[bytes],
    now: Snapshot,
    then: Snapshot,
    load: file_tree.Load,
) -> Callable[[bytes], bool]:
    """Return a test whether a rule leaves out a path among `changes`.

    `changes` is the whole difference between the two snapshots. `excluded_now` are the paths that a
    walk has just left out below the root.
    """
    left_out = {*excluded_now, *scope.never}
    left_out |= {path for path, _ in (*then.skipped, *then.excluded)}
    left_out |= {path for path, _ in then.deciding if path.endswith(b"/" + STORE_NAME)}
    outside: set[bytes] = set()
    if (
        then.options != scope.options
        or then.deciding != now.deciding
        or any(change.path.rpartition(b"/")[2] in DECIDING for change in changes)
    ):
        made = [change.after for change in changes if change.before is None and change.after is not None]
        gone = [change.before for change in changes if change.after is None and change.before is not None]
        if made:
            judge_now = _Judge(scope.options, lambda directory: deciding_at(root, directory))
            outside |= await ctx.backend.run_in_thread(lambda: judge_now.find_left_out(made))
        if gone:
            deciding_then = await _load_deciding(ctx, then, load)
            outside |= _Judge(then.options, lambda directory: deciding_then.get(directory, {})).find_left_out(gone)

    below: dict[bytes, bool] = {b"": False}  # directories, and whether one of them or above them is left out
    if not scope.include_git:
        left_out.add(b".git")
    is_looked_at = scope.secrets != "keep"

    def is_below(directory: bytes) -> bool:
        unknown, above = [], directory
        while above not in below:
            unknown.append(above)
            above = above.rpartition(b"/")[0]
        for item in reversed(unknown):
            below[item] = below[above] or item in left_out
            above = item
        return below[directory]

    def is_protected(path: bytes) -> bool:
        directory, _, name = path.rpartition(b"/")
        return is_below(directory) or path in left_out or path in outside or (is_looked_at and is_secret(name))

    return is_protected


async def _load_deciding(
    ctx: StoreContext, snapshot: Snapshot, load: file_tree.Load
) -> dict[bytes, dict[bytes, bytes]]:
    """Return a snapshot's deciding files by directory and name, with the text of ignore files."""
    found: dict[bytes, dict[bytes, bytes]] = {}
    rules: list[FileEntry] = []
    async for entry in file_tree.entries(snapshot_read.tree_of(snapshot), load):
        directory, _, name = entry.path.rpartition(b"/")
        if name in DECIDING and name not in ignore.FILES:
            found.setdefault(directory, {})[name] = b""
        elif name in ignore.FILES and entry.kind == "file":
            rules.append(entry)
    whole = [entry.content for entry in rules if entry.is_one_blob]
    texts = dict(zip(whole, await snapshot_read.objects_of(ctx, whole), strict=True))
    for entry in rules:
        directory, _, name = entry.path.rpartition(b"/")
        text = await _read_beginning(ctx, entry) if entry.is_chunked else texts.get(entry.content, b"")
        found.setdefault(directory, {})[name] = text
    for path, text in snapshot.deciding:
        directory, _, name = path.rpartition(b"/")
        found.setdefault(directory, {})[name] = text
    return found


async def _read_beginning(ctx: StoreContext, entry: FileEntry) -> bytes:
    """Return a large ignore file's content, as far as it is read."""
    text = b""
    async for part in snapshot_read.content(ctx, entry):
        text += part
        if len(text) >= ignore.MAX_RULES_BYTES:
            break
    return text[: ignore.MAX_RULES_BYTES]


def _is_left_out_alone(entry: FileEntry, options: SnapshotOptions) -> bool:
    """Return whether it is left out for its own name."""
    if not options.include_git and (entry.path == b".git" or entry.path.startswith(b".git/")):
        return True
    return options.secrets != "keep" and entry.kind != "dir" and is_secret(entry.path.rpartition(b"/")[2])


class _Judge:
    """The rules of one moment; `deciding` gives a directory's deciding files and its ignore files' text."""

    def __init__(self, options: SnapshotOptions, deciding: Callable[[bytes], Mapping[bytes, bytes]]) -> None:
        self._options = options
        self._deciding = functools.cache(deciding)
        self._outermost = ignore.IgnoreRules(use_gitignore=options.gitignore, use_defaults=options.default_excludes)
        self._rules: dict[bytes, ignore.IgnoreRules] = {}
        self._verdicts: dict[bytes, bool] = {}
        self._takes_files: dict[bytes, bool] = {}

    def find_left_out(self, entries: Iterable[FileEntry]) -> set[bytes]:
        """Return the paths of those that are left out."""
        found: set[bytes] = set()
        for entry in entries:
            path, kind, _, _, _ = entry
            directory = path.rpartition(b"/")[0]
            takes_files = self._takes_files.get(directory)
            if takes_files is None:
                takes_files = self._takes_files[directory] = self._takes_any_file(directory)
            if takes_files and kind != "dir" and path != b".git":
                continue
            if _is_left_out_alone(entry, self._options) or self._leaves_out(entry):
                found.add(path)
        return found

    def _takes_any_file(self, directory: bytes) -> bool:
        """Return whether nothing says anything of files there: so it is in nearly all directories."""
        if self._options.secrets != "keep" or directory == b".git" or directory.startswith(b".git/"):
            return False
        return not self._directory(directory) and not self._rules_in(directory).has_rules_for_files

    def _leaves_out(self, entry: FileEntry) -> bool:
        """Return whether the path, or one above it, is left out."""
        if entry.kind == "dir":
            return self._directory(entry.path)
        return self._directory(entry.path.rpartition(b"/")[0]) or self._judge(entry.path, is_directory=False)

    def _directory(self, path: bytes) -> bool:
        """Return whether a directory, or one above it, is left out; the root is not."""
        if path and path not in self._verdicts:
            above = self._directory(path.rpartition(b"/")[0])
            self._verdicts[path] = above or self._judge(path, is_directory=True)
        return bool(path) and self._verdicts[path]

    def _judge(self, path: bytes, *, is_directory: bool) -> bool:
        directory = path.rpartition(b"/")[0]
        siblings = self._deciding(directory)
        rules = self._rules_in(directory)
        verdict = rules.verdict(path, is_directory=is_directory, siblings=siblings)
        if verdict is not None and verdict.is_ignored:
            return True
        return is_directory and rules.marked_inside(path, self._deciding(path)) is not None

    def _rules_in(self, directory: bytes) -> ignore.IgnoreRules:
        """Return the rules that hold in a directory: those of the directory above it, and its own files'."""
        if directory not in self._rules:
            above = self._rules_in(directory.rpartition(b"/")[0]) if directory else self._outermost
            files = self._deciding(directory)
            self._rules[directory] = above.enter(directory, *map(files.get, ignore.FILES))
        return self._rules[directory]
