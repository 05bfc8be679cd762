"""Origin of snapshots: which directory each was taken of.

One store may hold snapshots of many directories, and restoring the files of another directory
deletes the files here.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holdfast.errors import UsageError
from holdfast.format.rows import head
from holdfast.model import ids
from holdfast.model.snapshot import Home, Snapshot
from holdfast.operations import lookup, snapshot_read
from holdfast.operations.context import StoreContext
from holdfast.workspace.limits import STORE_DIRECTORY, refuse_if_gone

if TYPE_CHECKING:
    from holdfast.workspace.core import WorkspaceCore

LOCAL_STORES = ("sqlite", "files")
Relation = Literal["same", "other", "unknown"]


def store_on_disk(ctx: StoreContext) -> Path | None:
    """Return the path of the store, if it is on this machine's disk: stat caches are next to it.

    A `.holdfast` that is a store itself holds them inside, where they are left out, too.
    """
    capabilities = ctx.backend.capabilities
    if capabilities.name not in LOCAL_STORES:
        return None
    place = Path(capabilities.location).absolute()
    return place / "store" if capabilities.name == "files" and place.name == STORE_DIRECTORY else place


def is_expected(root: Path, store: Path | None) -> bool:
    """Return whether a directory that only the store names may be written to.

    A local store may come from a stranger, and name any directory. Expected are the current one,
    and those within the directory that the store belongs to.
    """
    if store is None:
        return True
    place = store.parent.resolve()
    owner = place.parent if place.name == STORE_DIRECTORY else place
    real = Path(os.path.realpath(root))
    return real.is_relative_to(owner) or real == Path(os.path.realpath("."))


def home_of(root: Path, store: Path | None) -> Home:
    """Return a directory, as its snapshots name it."""
    return home_at(root, relative_path(store, root))


def home_at(root: Path, from_store: bytes) -> Home:
    """Return the same, where it is known what the store sees it as."""
    try:
        seen = root.stat()
    except OSError:
        refuse_if_gone(root)
        raise
    if not stat.S_ISDIR(seen.st_mode):
        refuse_if_gone(root)
    return Home(os.fsencode(root), seen.st_dev, seen.st_ino, from_store)


def relative_path(store: Path | None, root: Path) -> bytes:
    """Return the path of the directory relative to the store's."""
    return b"" if store is None else os.fsencode(os.path.relpath(root, store.parent.resolve()))


def relation(home: Home | None, current: Home) -> Relation:
    """Return whether a snapshot is of the directory `here`.

    A moved directory still has its inode; one that was copied together with the store has the same
    relative path. It is unknown for a directory that is not on this machine, or no longer there.
    """
    if home is None:
        return "unknown"
    is_same = home.path == current.path or (home.device, home.inode) == (current.device, current.inode)
    if is_same or (home.from_store and home.from_store == current.from_store):
        return "same"
    return "other" if Path(home.text).is_dir() else "unknown"


async def relation_of(opened: WorkspaceCore, checkpoint_id: str) -> Relation:
    """Return the same of the files of a checkpoint."""
    stored = await lookup.load_live_record(opened.ctx, ids.from_text(checkpoint_id))
    snapshot = await snapshot_read.find_nearest(opened.ctx, stored)
    return relation(snapshot.home if snapshot is not None else None, home_of(opened.path, opened.store))


async def refuse_another(opened: WorkspaceCore, snapshot: Snapshot, checkpoint_id: str | None) -> None:
    """Raise if the snapshot is of another directory, whose files are unrelated to those here."""
    current = home_of(opened.path, opened.store)
    if relation(snapshot.home, current) != "other" or _is_empty(opened.path):
        return
    assert snapshot.home is not None
    if checkpoint_id is not None and await _are_relatives(opened.ctx, checkpoint_id, snapshot.home, current):
        return
    raise UsageError(
        f"nothing was restored: these are the files of {snapshot.home.text!r:.120}, not of {str(opened.path)!r:.120}, "
        "and would take "
        "the place of all that is here. Restore them there (`--dir`), or make a directory of them (`fork`); "
        "any_directory=True (`holdfast restore REF --any-directory`) restores them here all the same"
    )


def _is_empty(root: Path) -> bool:
    return all(name == STORE_DIRECTORY for name in os.listdir(root))  # noqa: PTH208 - only the names are needed


async def _are_relatives(ctx: StoreContext, checkpoint_id: str, own: Home, other: Home) -> bool:
    """Return whether one of two directories was forked from the other, or both from a third.

    The first checkpoints of the sessions of their tree name the directory that was made.
    """
    tree = (await lookup.load_live_record(ctx, ids.from_text(checkpoint_id))).tree
    forked: list[tuple[Home, Home]] = []
    for key, _ in await ctx.backend.scan(head.HEAD, tree=tree):
        for first in (await ctx.backend.session_records(key.key))[-1:]:
            stored = lookup.unpack_listed(ctx, first, key.key)
            made = snapshot_read.home_of(stored)
            source = await lookup.find_nearest_live(ctx, stored.parent, tree)
            snapshot = None if source is None or made is None else await snapshot_read.find_nearest(ctx, source)
            if made is not None and snapshot is not None and snapshot.home is not None:
                forked.append((made, snapshot.home))
    family = [own]
    for member in family:  # it grows meanwhile
        for pair in forked:
            if any(relation(home, member) == "same" for home in pair):
                family += [home for home in pair if home not in family]
    return any(relation(home, other) == "same" for home in family)
