"""Which directory a snapshot was taken of: one store may hold those of many, and going back to the files of another one deletes
what is here."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.model.workspace import Home, Snapshot
from holdfast.objects import rows
from holdfast.operations import reading, snapshots
from holdfast.operations.services import Services
from holdfast.workspace.guards import STORE_DIRECTORY, refuse_if_gone

if TYPE_CHECKING:
    from holdfast.workspace.workspace import Opened

LOCAL_STORES = ("sqlite", "files")
Relation = Literal["same", "other", "unknown"]


def store_on_disk(services: Services) -> Path | None:
    """The place of the store, if it has one on this machine's disk: what is remembered of directories is beside it. A `.holdfast` that is
    a store itself has that in it, where it is left out, too."""
    capabilities = services.backend.capabilities
    if capabilities.name not in LOCAL_STORES:
        return None
    place = Path(capabilities.location).absolute()
    return place / "store" if capabilities.name == "files" and place.name == STORE_DIRECTORY else place


def home_of(root: Path, store: Path | None) -> Home:
    """A directory, as its snapshots name it."""
    return home_at(root, seen_from(store, root))


def home_at(root: Path, from_store: bytes) -> Home:
    """The same, where it is known what the store sees it as."""
    try:
        seen = root.stat()
    except OSError:
        refuse_if_gone(root)
        raise
    if not stat.S_ISDIR(seen.st_mode):
        refuse_if_gone(root)
    return Home(os.fsencode(root), seen.st_dev, seen.st_ino, from_store)


def seen_from(store: Path | None, root: Path) -> bytes:
    """Where the directory is for whoever stands beside the store."""
    return b"" if store is None else os.fsencode(os.path.relpath(root, store.parent.resolve()))


def relation(home: Home | None, here: Home) -> Relation:
    """Whether a snapshot is of the directory `here`. One that was moved has its inode still; one that was copied together with the
    store is where it was, as seen from there. Of a directory that is not on this machine, or not any more, nobody can tell."""
    if home is None:
        return "unknown"
    is_same = home.path == here.path or (home.device, home.inode) == (here.device, here.inode)
    if is_same or (home.from_store and home.from_store == here.from_store):
        return "same"
    return "other" if Path(home.text).is_dir() else "unknown"


async def relation_of(opened: Opened, checkpoint_id: str) -> Relation:
    """The same of the files of a checkpoint."""
    stored = await reading.live_record(opened.services, ids.from_text(checkpoint_id))
    snapshot = await snapshots.nearest(opened.services, stored)
    return relation(snapshot.home if snapshot is not None else None, home_of(opened.path, opened.store))


async def refuse_another(opened: Opened, snapshot: Snapshot, checkpoint_id: str | None) -> None:
    """Raises if the snapshot is of another directory, whose files have nothing to do with what is here."""
    here = home_of(opened.path, opened.store)
    if relation(snapshot.home, here) != "other" or _is_empty(opened.path):
        return
    assert snapshot.home is not None
    if checkpoint_id is not None and await _are_relatives(opened.services, checkpoint_id, snapshot.home, here):
        return
    raise UsageError(
        f"nothing was restored: these are the files of {snapshot.home.text!r:.120}, not of {str(opened.path)!r:.120}, and would take "
        "the place of all that is here. Restore them there (`--dir`), or make a directory of them (`fork`); any_directory=True "
        "(`holdfast restore REF --any-directory`) restores them here all the same"
    )


def _is_empty(root: Path) -> bool:
    return all(name == STORE_DIRECTORY for name in os.listdir(root))  # noqa: PTH208 - only the names are needed


async def _are_relatives(services: Services, checkpoint_id: str, one: Home, other: Home) -> bool:
    """Whether one of two directories was forked from the other, or both from a third: by the first checkpoints of the sessions of
    their tree, which name the directory that was made."""
    tree = (await reading.live_record(services, ids.from_text(checkpoint_id))).tree
    forked: list[tuple[Home, Home]] = []
    for key, _ in await services.backend.scan(rows.HEAD, tree=tree):
        for first in (await services.backend.session_records(key.key))[-1:]:
            stored = reading.listed_record(services, first, key.key)
            made = snapshots.home_of(stored)
            source = await reading.nearest_live(services, stored.parent, tree)
            snapshot = None if source is None or made is None else await snapshots.nearest(services, source)
            if made is not None and snapshot is not None and snapshot.home is not None:
                forked.append((made, snapshot.home))
    family = [one]
    for member in family:  # it grows meanwhile
        for pair in forked:
            if any(relation(home, member) == "same" for home in pair):
                family += [home for home in pair if home not in family]
    return any(relation(home, other) == "same" for home in family)
