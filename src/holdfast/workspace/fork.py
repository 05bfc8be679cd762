"""Forks: a second directory with the files of a checkpoint. `adopt.py` is the way back.

Files that the first directory has as in the checkpoint are shared or copied by the file system; all
others come from the store. The new directory appears whole, by a rename.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.coordination import process
from holdfast.errors import CheckpointNotFoundError, CorruptError, StoreError, UsageError
from holdfast.format.files import file_tree
from holdfast.format.rows.operation_log import Origin
from holdfast.model import ids
from holdfast.model.file_restore_plan import PROTECTED, FileAction, LeftPath, UnsafePathError, make_plan
from holdfast.model.snapshot import FileChange, ForkedWorkspace, Snapshot
from holdfast.operations import fork as forking
from holdfast.operations import lookup, snapshot_read
from holdfast.operations.context import StoreContext
from holdfast.operations.imported_snapshot import is_imported
from holdfast.workspace import dirfd
from holdfast.workspace.limits import STORE_DIRECTORY, WorkspaceLimits
from holdfast.workspace.origin import home_of, store_on_disk
from holdfast.workspace.reflink import CopySources
from holdfast.workspace.restore.admission import SnapshotAdmission, refuse_too_much, rules_for
from holdfast.workspace.restore.apply import Applier
from holdfast.workspace.restore.contents import ContentComparison, StoreSource
from holdfast.workspace.restore.directory import DirectoryState, SeenFiles
from holdfast.workspace.restore.execute import Progress, carry_out
from holdfast.workspace.restore.request import NOTHING_MORE

if TYPE_CHECKING:
    from holdfast.model.path_edit import Edits
    from holdfast.operations.context import StoreContext
    from holdfast.workspace.core import WorkspaceCore

T = TypeVar("T")
GIT, STORE = b".git", os.fsencode(STORE_DIRECTORY)
UNFINISHED = ".holdfast-"  # in the names of directories that are being filled


async def fork(
    opened: WorkspaceCore,
    target: str | Snapshot,
    directory: str | os.PathLike[str],
    *,
    session_id: str | None,
    progress: Progress | None,
    edits: Edits | None = None,
    admission: SnapshotAdmission = NOTHING_MORE,
) -> ForkedWorkspace:
    """Make the directory, and a session that continues from the checkpoint, edited on request."""
    target = await opened.resolve_exactly(target)
    snapshot = await opened.snapshot_at(target)
    place = _free_place(opened.path, Path(directory))
    changed = await _changed_under_us(opened, None if isinstance(target, Snapshot) else target)
    made = await make(opened.ctx, snapshot, place, admission, progress, opened)
    if isinstance(target, Snapshot):
        return ForkedWorkspace(
            directory=place,
            session_id=None,
            checkpoint_id=None,
            paths=made.paths,
            copied=made.copied,
            files_changed=changed,
            left=made.left,
        )
    try:
        home = home_of(place, store_on_disk(opened.ctx))
        way = forking.ForkRequest(session_id=session_id, edits=edits or {}, home=home)
        origin = Origin(process.default_holder())
        [forked] = await forking.forks(opened.ctx, ids.from_text(target), [way], origin=origin)
    except BaseException as error:
        _take_away([place], error)
        raise
    return ForkedWorkspace(
        directory=place,
        session_id=forked.session_id,
        checkpoint_id=forked.checkpoint_id,
        paths=made.paths,
        copied=made.copied,
        files_changed=changed,
        left=made.left,
        report=forked,
    )


async def _changed_under_us(opened: WorkspaceCore, target: str | None) -> tuple[bytes, ...]:
    """Return the paths that differ between the directory and its last known snapshot."""
    known = await DirectoryState(opened).last_known(target)
    if not known:
        return ()
    last = await snapshot_read.load(opened.ctx, known[0])
    return tuple(change.path for change in await opened.changes_since(last.tree)) if last.tree is not None else ()


async def fork_directories(
    ctx: StoreContext,
    id_: bytes,
    directories: Sequence[str | os.PathLike[str]],
    ways: Sequence[forking.ForkRequest],
    fork_all: Callable[[Sequence[forking.ForkRequest]], Awaitable[T]],
    admission: SnapshotAdmission = NOTHING_MORE,
) -> tuple[list[tuple[Path, FilledDirectory]], T]:
    """Fill each directory with the checkpoint's files, from the store alone, then make the forks.

    It is all or nothing: if one of them can't be made, neither directories nor forks remain.
    """
    snapshot = await snapshot_read.find_nearest(ctx, await lookup.load_live_record(ctx, id_))
    if snapshot is None:
        raise CheckpointNotFoundError(
            f"checkpoint {ids.to_text(id_)} has no snapshot of files, and none before it has one: a fork of it has no "
            "workspace. `save(..., workspace=...)` takes one"
        )
    places: list[Path] = []
    contents: list[FilledDirectory] = []
    try:
        for directory in directories:
            place = _free_place(None, Path(directory))
            contents.append(await make(ctx, snapshot, place, admission))
            places.append(place)
        homes = [home_of(place, store_on_disk(ctx)) for place in places]
        reports = await fork_all([replace(way, home=home) for way, home in zip(ways, homes, strict=True)])
        return list(zip(places, contents, strict=True)), reports
    except BaseException as error:
        _take_away(places, error)
        raise


@contextlib.asynccontextmanager
async def temporary_checkout(ctx: StoreContext, id_: bytes) -> AsyncIterator[Path | None]:
    """Yield a temporary directory with the files of a checkpoint, or of its nearest ancestor with files.

    Yield None if there are none. The directory and everything in it is removed at the end.
    """
    snapshot = await snapshot_read.find_nearest(ctx, await lookup.load_live_record(ctx, id_))
    if snapshot is None:
        yield None
        return
    above = tempfile.TemporaryDirectory(prefix="holdfast-", ignore_cleanup_errors=True)
    try:
        place = Path(above.name, "files")
        await make(ctx, snapshot, place)
        yield place
    finally:
        await ctx.backend.run_in_thread(above.cleanup)


def opened_like(opened: WorkspaceCore, directory: str | os.PathLike[str]) -> WorkspaceCore:
    """Return another directory, open in the same way."""
    scope = opened.taker._scope
    return type(opened)(
        opened.ctx,
        directory,
        include_git=scope.include_git,
        gitignore=scope.use_gitignore,
        default_excludes=scope.use_defaults,
        secrets=scope.secrets,
        limits=opened.taker._limits,
    )


def _free_place(root: Path | None, directory: Path) -> Path:
    place = directory.parent.resolve() / directory.name
    if root is not None and place.is_relative_to(root) and STORE_DIRECTORY not in place.relative_to(root).parts:
        raise UsageError(
            f"{str(place)!r:.120} is within the workspace {str(root)!r:.120}: each snapshot of it would hold the fork. "
            f"Choose a place beside it, or below its {STORE_DIRECTORY}"
        )
    if place.is_symlink() or (place.exists() and not place.is_dir()) or (place.is_dir() and any(place.iterdir())):
        raise UsageError(
            f"{str(place)!r:.120} is there already: a fork needs a place of its own, or an empty directory"
        )
    return place


class FilledDirectory(NamedTuple):
    """A directory that was filled: the number of paths, how many are copies, and the paths left out."""

    paths: int
    copied: int
    left: tuple[LeftPath, ...]


async def make(
    ctx: StoreContext,
    snapshot: Snapshot,
    place: Path,
    admission: SnapshotAdmission = NOTHING_MORE,
    progress: Progress | None = None,
    opened: WorkspaceCore | None = None,
) -> FilledDirectory:
    """Fill a directory next to the target path, then rename it.

    Files that are in the `opened` directory are copied from there, and its limits hold; without
    one, the default limits hold for an imported snapshot.
    """
    load = snapshot_read.make_loader(ctx)
    rules = await rules_for(ctx, snapshot, admission, load)
    found = [FileChange(entry.path, None, entry) async for entry in snapshot_read.entries(ctx, snapshot)]
    file_tree.refuse_homeless((change.path, change.after.kind) for change in found if change.after is not None)
    changes, left, _ = rules.apply(found)
    takes_git = admission.include_git or (opened is not None and opened.taker._scope.include_git)
    changes, of_root = _drop_root_entries(changes, takes_git=takes_git)
    left += of_root
    try:
        plan = make_plan(changes)
    except UnsafePathError as error:
        raise CorruptError(f"the snapshot can't be written to a directory: {error}") from error
    if opened is not None:
        refuse_too_much(plan, opened.taker._limits)
    elif await is_imported(ctx, snapshot.reference):
        refuse_too_much(plan, WorkspaceLimits())
    actions: tuple[FileAction, ...] = plan.actions
    apart = ctx.backend.run_in_thread
    unfinished = place.with_name(f".{place.name}{UNFINISHED}{secrets.token_hex(4)}")
    await apart(lambda: _sweep(place))
    try:
        await apart(lambda: unfinished.mkdir(parents=True, mode=0o700))
        source = dirfd.open_root(opened.path) if opened is not None else None
        root = dirfd.open_root(unfinished)
        _lock_directory(root)  # so that others can tell that it is being filled
        applier = Applier(root, secrets.token_hex(6), ContentComparison({}), direct=True)
        copies = None
        try:
            if opened is not None and source is not None:
                copies = CopySources(source, SeenFiles((await apart(opened.taker.load_cache)).directories))
            await carry_out(ctx.backend, applier, actions, StoreSource(ctx), progress, copies)
        finally:
            applier.close()
            if source is not None:
                os.close(source)
            os.close(root)
        like = opened.path if opened is not None else place.parent
        unfinished.chmod(like.stat().st_mode & (0o7777 if opened is not None else 0o777))
        await apart(lambda: os.rename(unfinished, place))  # noqa: PTH104 - onto an empty directory, too
    except BaseException as error:
        is_left = not _remove_directory(unfinished)
        if isinstance(error, OSError):
            remains = (
                f"what there is of it is left at {str(unfinished)!r:.120}: remove it"
                if is_left
                else "nothing of it is left"
            )
            raise StoreError(f"the fork could not be made at {str(place)!r:.120} ({error}): {remains}") from error
        raise
    return FilledDirectory(
        len(actions), copies.copied if copies is not None else 0, tuple(sorted(left, key=lambda path: path.path))
    )


def _drop_root_entries(changes: Sequence[FileChange], *, takes_git: bool) -> tuple[list[FileChange], list[LeftPath]]:
    """Return the changes without the root's own `.holdfast` and, unless asked for, its `.git`.

    `restore` does not write them either.
    """
    admitted: list[FileChange] = []
    left: dict[bytes, LeftPath] = {}
    for change in changes:
        top = change.path.partition(b"/")[0]
        if top == STORE or (top == GIT and not takes_git):
            left[top] = LeftPath(top, PROTECTED)
        else:
            admitted.append(change)
    return admitted, list(left.values())


def _take_away(places: Sequence[Path], why: BaseException) -> None:
    """Remove the directories of forks that could not be made.

    The error of the forks matters more than a directory that can't be removed.
    """
    for place in places:
        if not _remove_directory(place):
            why.add_note(
                f"the directory {str(place)!r:.120}, which was made for the fork, could not be removed: remove it"
            )


def _remove_directory(directory: Path) -> bool:
    """Remove a directory of ours with everything in it, also files in read-only directories."""
    try:
        directory.chmod(0o700)
        for where, names, _ in os.walk(directory):
            for name in names:
                below = Path(where, name)
                if not below.is_symlink():
                    below.chmod(0o700)
        shutil.rmtree(directory)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def _sweep(place: Path) -> None:
    """Remove what forks to this place have left that were killed: directories without a lock."""
    for left in place.parent.glob(f".{glob.escape(place.name)}{UNFINISHED}*"):
        with contextlib.suppress(OSError):  # it is not in the way
            found = os.open(left, dirfd.READABLE_DIRECTORY)  # no link: its target is not ours
            try:
                if _lock_directory(found):
                    _remove_directory(left)
            finally:
                os.close(found)


def _lock_directory(directory: int) -> bool:
    """Lock a directory by its descriptor, until that is closed; False if another process has it."""
    import fcntl

    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
