"""What a restore must not touch because it was left out: at the target's moment, or now.

What is in a snapshot was not excluded then. So a path that would be deleted is judged by the rules of the target (it was
excluded then, and is only seen now because the rules have changed), and a path that would be made by those of now. Rules
differ only where an ignore file, or one that marks a directory as made by a program, differs, or where one snapshot was to
take in what the other was not (`include_git`, `secrets`, …): else there is nothing to judge. What could not be read then may
have been there, whatever the rules say: the target says which paths these are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from holdfast.model.restore_plan import parents
from holdfast.model.workspace import Entry, FileChange, Options, Snapshot
from holdfast.objects import filetree
from holdfast.operations import snapshots
from holdfast.operations.services import Services
from holdfast.workspace import ignore
from holdfast.workspace.guards import is_secret
from holdfast.workspace.scope import Scope

MARKERS = frozenset((*ignore.FILES, *ignore.MARKED_INSIDE, *ignore.MARKED_BESIDE.values()))


async def protection(
    services: Services,
    scope: Scope,
    changes: Sequence[FileChange],
    excluded_now: Iterable[bytes],
    now: tuple[bytes, filetree.Load],
    target: tuple[Snapshot, bytes, filetree.Load],
) -> Callable[[bytes], bool]:
    """Whether a path among `changes` is left out by one of the rules. `excluded_now` are the paths that a walk has just
    left out; `now` and `target` are trees, with how to read them."""
    then, then_tree, then_load = target
    left_out = {*excluded_now, *scope.never}
    left_out |= {path for path, _ in (*then.skipped, *then.excluded)}
    outside: set[bytes] = set()
    if then.options != scope.options or any(change.path.rpartition(b"/")[2] in MARKERS for change in changes):
        made = [change.after for change in changes if change.before is None and change.after is not None]
        gone = [change.before for change in changes if change.after is None and change.before is not None]
        outside |= await _excluded(services, scope.options, *now, made)
        outside |= await _excluded(services, then.options, then_tree, then_load, gone)

    below: dict[bytes, bool] = {b"": False}  # directories, and whether one of them or above them is left out
    if not scope.include_git:
        left_out.add(b".git")
    is_looked_at = scope.secrets != "keep"

    def is_protected(path: bytes) -> bool:
        directory, _, name = path.rpartition(b"/")
        if directory not in below:
            below[directory] = directory in left_out or not left_out.isdisjoint(parents(directory))
        return below[directory] or path in left_out or path in outside or (is_looked_at and is_secret(name))

    return is_protected


async def _excluded(
    services: Services, options: Options, tree: bytes, load: filetree.Load, entries: Sequence[Entry]
) -> set[bytes]:
    """Which of these the rules of a tree leave out."""
    if not entries:
        return set()
    alone = {entry.path for entry in entries if _is_left_out_alone(entry, options)}
    names: dict[bytes, dict[bytes, Entry]] = {}
    async for entry in filetree.entries(tree, load):
        directory, _, name = entry.path.rpartition(b"/")
        if name in MARKERS:
            names.setdefault(directory, {})[name] = entry
    if not names and not any(ignore.COMPILED in entry.path for entry in entries):
        return alone  # every other rule is in a file, or about what is beside one
    files = [one for listed in names.values() for one in listed.values() if _is_rules(one)]
    contents = await snapshots.objects_of(services, [one.content for one in files if one.size])
    texts = dict(zip((one.content for one in files if one.size), contents, strict=True))
    judge = _Judge(options, names, texts)
    return alone | {entry.path for entry in entries if judge.leaves_out(entry)}


def _is_left_out_alone(entry: Entry, options: Options) -> bool:
    """Whether it is left out for its own name."""
    if not options.include_git and (entry.path == b".git" or entry.path.startswith(b".git/")):
        return True
    return options.secrets != "keep" and entry.kind != "dir" and is_secret(entry.path.rpartition(b"/")[2])


def _is_rules(entry: Entry) -> bool:
    return entry.kind == "file" and not entry.is_chunked and entry.path.rpartition(b"/")[2] in ignore.FILES


class _Judge:
    def __init__(self, options: Options, names: dict[bytes, dict[bytes, Entry]], texts: dict[bytes, bytes]) -> None:
        self._names = names
        self._texts = texts
        self._outermost = ignore.Rules(use_gitignore=options.gitignore, use_defaults=options.default_excludes)
        self._rules: dict[bytes, ignore.Rules] = {}
        self._verdicts: dict[bytes, bool] = {}

    def leaves_out(self, entry: Entry) -> bool:
        """Whether the path, or one above it, is left out."""
        if entry.kind == "dir":
            return self._directory(entry.path)
        return self._directory(entry.path.rpartition(b"/")[0]) or self._judged(entry.path, is_directory=False)

    def _directory(self, path: bytes) -> bool:
        """Whether a directory, or one above it, is left out; the root is not."""
        if path and path not in self._verdicts:
            above = self._directory(path.rpartition(b"/")[0])
            self._verdicts[path] = above or self._judged(path, is_directory=True)
        return bool(path) and self._verdicts[path]

    def _judged(self, path: bytes, *, is_directory: bool) -> bool:
        directory = path.rpartition(b"/")[0]
        beside = self._names.get(directory, {})
        rules = self._rules_in(directory)
        verdict = rules.verdict(path, is_directory=is_directory, beside=beside)
        if verdict is not None and verdict.is_ignored:
            return True
        return is_directory and rules.marked_inside(self._names.get(path, {})) is not None

    def _rules_in(self, directory: bytes) -> ignore.Rules:
        """The rules that hold in a directory: those of the directory above it, and its own files'."""
        if directory not in self._rules:
            above = self._rules_in(directory.rpartition(b"/")[0]) if directory else self._outermost
            self._rules[directory] = above.below(directory, *(self._text(directory, name) for name in ignore.FILES))
        return self._rules[directory]

    def _text(self, directory: bytes, name: bytes) -> bytes | None:
        entry = self._names.get(directory, {}).get(name)
        if entry is None or not _is_rules(entry):
            return None
        return self._texts.get(entry.content, b"")
