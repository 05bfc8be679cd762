"""A second directory beside the first, as it was at a checkpoint: `fork`. `adopting.py` is the way back.

Files that are in the first directory as the checkpoint has them are shared or copied by the file system; all others come
from the store. The new directory appears whole, by a rename.
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
from typing import TYPE_CHECKING, TypeVar

from holdfast import processes
from holdfast.errors import CheckpointNotFoundError, StoreError, UsageError
from holdfast.model import ids
from holdfast.model.restore_plan import Action, make_plan
from holdfast.model.workspace import FileChange, Forked, Snapshot
from holdfast.objects.oplog import Origin
from holdfast.operations import fork as forking
from holdfast.operations import reading, snapshots
from holdfast.operations.services import Services
from holdfast.workspace import descriptors
from holdfast.workspace.apply import Applier
from holdfast.workspace.carrying_out import Progress, carry_out
from holdfast.workspace.copies import Copies
from holdfast.workspace.guards import STORE_DIRECTORY
from holdfast.workspace.here import Here, Seen
from holdfast.workspace.homes import home_of, store_on_disk
from holdfast.workspace.restore_contents import Comparison, StoreSource

if TYPE_CHECKING:
    from holdfast.model.editing import Edits
    from holdfast.operations.services import Services
    from holdfast.workspace.workspace import Opened

T = TypeVar("T")
UNFINISHED = ".holdfast-"  # in the names of directories that are being filled


async def fork(
    opened: Opened,
    target: str | Snapshot,
    directory: str | os.PathLike[str],
    *,
    session_id: str | None,
    progress: Progress | None,
    edits: Edits | None = None,
) -> Forked:
    """Makes the directory, and a session that goes on from the checkpoint, edited if that is asked for."""
    snapshot = await opened.snapshot_at(target)
    place = _free_place(opened.path, Path(directory))
    changed = await _changed_under_us(opened, None if isinstance(target, Snapshot) else target)
    made, copied = await make(opened.services, snapshot, place, progress, opened)
    if isinstance(target, Snapshot):
        return Forked(
            directory=place, session_id=None, checkpoint_id=None, paths=made, copied=copied, files_changed=changed
        )
    try:
        home = home_of(place, store_on_disk(opened.services))
        way = forking.Way(session_id=session_id, edits=edits or {}, home=home)
        origin = Origin(processes.default_holder())
        [forked] = await forking.forks(opened.services, ids.from_text(target), [way], origin=origin)
    except BaseException as error:
        _take_away([place], error)
        raise
    return Forked(
        directory=place,
        session_id=forked.session_id,
        checkpoint_id=forked.checkpoint_id,
        paths=made,
        copied=copied,
        files_changed=changed,
        report=forked,
    )


async def _changed_under_us(opened: Opened, target: str | None) -> tuple[bytes, ...]:
    """What is in the directory otherwise than in the last snapshot of it that is known."""
    known = await Here(opened).last_known(target)
    if not known:
        return ()
    last = await snapshots.load(opened.services, known[0])
    return tuple(one.path for one in await opened.diff(last, None)) if last.tree is not None else ()


async def beside(
    services: Services,
    id_: bytes,
    directories: Sequence[str | os.PathLike[str]],
    ways: Sequence[forking.Way],
    fork_all: Callable[[Sequence[forking.Way]], Awaitable[T]],
) -> tuple[list[Path], T]:
    """Makes each of the directories with the files of the checkpoint, from the store alone, then the forks; neither if one of
    them can't be made."""
    snapshot = await snapshots.nearest(services, await reading.live_record(services, id_))
    if snapshot is None:
        raise CheckpointNotFoundError(
            f"checkpoint {ids.to_text(id_)} has no snapshot of files, and none before it has one: a fork of it has no "
            "workspace. `save(..., workspace=...)` takes one"
        )
    places: list[Path] = []
    try:
        for directory in directories:
            place = _free_place(None, Path(directory))
            await make(services, snapshot, place, None)
            places.append(place)
        homes = [home_of(place, store_on_disk(services)) for place in places]
        return places, await fork_all([replace(way, home=home) for way, home in zip(ways, homes, strict=True)])
    except BaseException as error:
        _take_away(places, error)
        raise


@contextlib.asynccontextmanager
async def for_a_while(services: Services, id_: bytes) -> AsyncIterator[Path | None]:
    """A directory with the files of a checkpoint, or of the nearest one before it that has some; None if there are none. It
    is gone at the end, with whatever was done in it."""
    snapshot = await snapshots.nearest(services, await reading.live_record(services, id_))
    if snapshot is None:
        yield None
        return
    above = tempfile.TemporaryDirectory(prefix="holdfast-", ignore_cleanup_errors=True)
    try:
        place = Path(above.name, "files")
        await make(services, snapshot, place, None)
        yield place
    finally:
        await services.backend.apart(above.cleanup)


def opened_like(opened: Opened, directory: str | os.PathLike[str]) -> Opened:
    """Another directory, open in the same way."""
    scope = opened.taker._scope
    return type(opened)(
        opened.services,
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


async def make(
    services: Services, snapshot: Snapshot, place: Path, progress: Progress | None, opened: Opened | None = None
) -> tuple[int, int]:
    """Fills a directory beside the place and renames it. Files that are in the `opened` directory are copied from there. How
    many paths, and how many of them were copies."""
    changes = [FileChange(entry.path, None, entry) async for entry in snapshots.entries(services, snapshot)]
    actions: tuple[Action, ...] = make_plan(changes).actions
    apart = services.backend.apart
    unfinished = place.with_name(f".{place.name}{UNFINISHED}{secrets.token_hex(4)}")
    await apart(lambda: _sweep(place))
    try:
        await apart(lambda: unfinished.mkdir(parents=True, mode=0o700))
        source = descriptors.open_root(opened.path) if opened is not None else None
        root = descriptors.open_root(unfinished)
        _locked(root)  # whoever else looks can tell that it is being filled
        applier = Applier(root, secrets.token_hex(6), Comparison({}), direct=True)
        copies = None
        try:
            if opened is not None and source is not None:
                copies = Copies(source, Seen((await apart(opened.taker._loaded)).directories))
            await carry_out(services.backend, applier, actions, StoreSource(services), progress, copies)
        finally:
            applier.close()
            if source is not None:
                os.close(source)
            os.close(root)
        like = opened.path if opened is not None else place.parent
        unfinished.chmod(like.stat().st_mode & (0o7777 if opened is not None else 0o777))
        await apart(lambda: os.rename(unfinished, place))  # noqa: PTH104 - onto an empty directory, too
    except BaseException as error:
        is_left = not _removed(unfinished)
        if isinstance(error, OSError):
            what = (
                f"what there is of it is left at {str(unfinished)!r:.120}: remove it"
                if is_left
                else "nothing of it is left"
            )
            raise StoreError(f"the fork could not be made at {str(place)!r:.120} ({error}): {what}") from error
        raise
    return len(actions), copies.copied if copies is not None else 0


def _take_away(places: Sequence[Path], why: BaseException) -> None:
    """Removes directories of forks that could not be made; what is wrong with the forks matters more than what can't be removed."""
    for place in places:
        if not _removed(place):
            why.add_note(
                f"the directory {str(place)!r:.120}, which was made for the fork, could not be removed: remove it"
            )


def _removed(directory: Path) -> bool:
    """Removes a directory of ours with all that is in it, also where files were put into directories that nobody may write to."""
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
    """Removes what forks to this place have left that were killed: directories that nobody fills any more."""
    for left in place.parent.glob(f".{glob.escape(place.name)}{UNFINISHED}*"):
        with contextlib.suppress(OSError):  # it is not in the way
            found = descriptors.open_root(left)
            try:
                if _locked(found):
                    _removed(left)
            finally:
                os.close(found)


def _locked(directory: int) -> bool:
    """Locks a directory by its descriptor, until that is closed; False if somebody else has."""
    import fcntl

    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
