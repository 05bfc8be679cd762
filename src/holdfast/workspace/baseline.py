"""The files that a directory is compared with: its last snapshot, or a later restore's target.

A restore takes a safety snapshot first, which is not a baseline. It names the snapshot before it,
so that a restore that is refused, rolled back or undone leaves the baseline as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.format.files import file_tree
from holdfast.format.rows.restore_journal import DONE, RestoreJournal
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.snapshot import FileEntry
from holdfast.operations import lookup, snapshot_read
from holdfast.workspace.restore import log_entry

if TYPE_CHECKING:
    from holdfast.workspace.core import WorkspaceCore

AFTER = "after"  # in the metadata of a safety snapshot: the checkpoint that the directory stood at
MOST = 16  # consecutive safety snapshots: each names the one before restores that changed nothing


class Baseline(NamedTuple):
    """A tree of files, with those of its nodes that are not stored."""

    tree: bytes
    nodes: Mapping[bytes, bytes]


def restores_session(path: object) -> str:
    """Return the session of the safety snapshots of a directory."""
    return f"restores of {path}"


async def find_baseline(opened: WorkspaceCore, session_tip: StoredRecord | None) -> Baseline | None:
    """Return the baseline of the directory; None if nothing is known of it.

    `session_tip` is the tip of the directory's session. It counts if this machine remembers no
    snapshot of the directory.
    """
    journal = await log_entry.last_journal(opened.ctx, opened.path)
    done = journal if journal is not None and journal.state == DONE else None
    last = opened.taker.load_cache().checkpoint
    if last is not None:
        found = await _resolve(opened, last, done)
        if found is not None:
            return found
    elif done is not None and (session_tip is None or done.started_at_us > session_tip.header["at"]):
        return await _resolve(opened, ids.from_text(done.safety_id), done)
    return await _load_of_checkpoint(opened, session_tip)


async def make_safety_metadata(opened: WorkspaceCore) -> dict[str, Any]:
    """Return the metadata of a safety snapshot that is taken now."""
    last = opened.taker.load_cache().checkpoint
    if last is None:
        return {}
    stored = await _get_live(opened, last)
    if stored is None or not _is_safety(opened, stored):
        return {AFTER: ids.to_text(last)}
    journal = await log_entry.last_journal(opened.ctx, opened.path)
    if journal is None or journal.safety_id != ids.to_text(last):
        return _metadata(opened, stored)  # that of a restore that was refused
    if journal.state != DONE:
        return {AFTER: ids.to_text(last)}  # it may be finished, or rolled back
    target = None if journal.target_id is None else await _get_live(opened, ids.from_text(journal.target_id))
    if target is None or journal.only is not None or journal.untouched:
        return _metadata(opened, stored)
    return _metadata(opened, target) if _is_safety(opened, target) else {AFTER: ids.to_text(target.id)}


async def _resolve(opened: WorkspaceCore, id_: bytes, done: RestoreJournal | None) -> Baseline | None:
    for _ in range(MOST):
        if done is not None and ids.to_text(id_) == done.safety_id:
            return await _load_of_restore(opened, done)
        stored = await _get_live(opened, id_)
        if stored is None or not _is_safety(opened, stored):
            return await _load_of_checkpoint(opened, stored)
        before = _metadata(opened, stored).get(AFTER)
        if not isinstance(before, str):
            return None
        id_ = ids.from_text(before)
    return None


async def _load_of_restore(opened: WorkspaceCore, journal: RestoreJournal) -> Baseline | None:
    """Return the target's files; for a path that the restore left alone, the previous baseline's."""
    safety = await _get_live(opened, ids.from_text(journal.safety_id))
    before = _metadata(opened, safety).get(AFTER) if safety is not None else None
    base = await _resolve(opened, ids.from_text(before), None) if isinstance(before, str) else None
    target = await _target(opened, journal)
    if target is None:
        return base
    untouched = await _list_untouched(opened, journal)
    if base is None or not untouched:
        return target
    load = _load(opened, {**base.nodes, **target.nodes})
    kept: dict[bytes, FileEntry | None] = {path: await file_tree.find(base.tree, path, load) for path in untouched}
    built = await file_tree.update(target.tree, kept, load)
    return Baseline(built.root, {**target.nodes, **base.nodes, **built.nodes})


async def _target(opened: WorkspaceCore, journal: RestoreJournal) -> Baseline | None:
    """Return the snapshot of the restored checkpoint; for an undo, the baseline before the restore."""
    stored = None if journal.target_id is None else await _get_live(opened, ids.from_text(journal.target_id))
    if stored is None:
        tree = (await snapshot_read.load(opened.ctx, journal.target)).tree
        return None if tree is None else Baseline(tree, {})
    if not _is_safety(opened, stored):
        return await _load_of_checkpoint(opened, stored)
    before = _metadata(opened, stored).get(AFTER)
    return await _resolve(opened, ids.from_text(before), None) if isinstance(before, str) else None


async def _list_untouched(opened: WorkspaceCore, journal: RestoreJournal) -> list[bytes]:
    """Return the paths in which the directory differed from the target, and that were left as they were."""
    if journal.only is None:
        return list(journal.untouched)
    before = await snapshot_read.load(opened.ctx, journal.safety)
    after = await snapshot_read.load(opened.ctx, journal.target)
    if before.tree is None or after.tree is None:
        return []
    differing = file_tree.diff(before.tree, after.tree, snapshot_read.make_loader(opened.ctx))
    return [change.path async for change in differing if change.path not in frozenset(journal.only)]


async def _load_of_checkpoint(opened: WorkspaceCore, stored: StoredRecord | None) -> Baseline | None:
    if stored is None:
        return None
    snapshot = await snapshot_read.find_nearest(opened.ctx, stored)
    return None if snapshot is None or snapshot.tree is None else Baseline(snapshot.tree, {})


async def _get_live(opened: WorkspaceCore, id_: bytes) -> StoredRecord | None:
    stored = await lookup.find_record(opened.ctx, id_)
    return None if stored is None or await lookup.is_expired(opened.ctx, stored) else stored


def _is_safety(opened: WorkspaceCore, stored: StoredRecord) -> bool:
    return stored.session == restores_session(opened.path)


def _metadata(opened: WorkspaceCore, stored: StoredRecord) -> dict[str, Any]:
    packed = stored.header.get("meta")
    try:
        found = opened.ctx.codec.decode(packed) if packed else {}
    except HoldfastError:  # damaged: it names nothing
        return {}
    return {AFTER: found[AFTER]} if isinstance(found, dict) and AFTER in found else {}


def _load(opened: WorkspaceCore, nodes: Mapping[bytes, bytes]) -> file_tree.Load:
    stored = snapshot_read.make_loader(opened.ctx)

    async def load(hashes: Any) -> list[bytes]:
        found = iter(await stored([hash_ for hash_ in hashes if hash_ not in nodes]))
        return [nodes[hash_] if hash_ in nodes else next(found) for hash_ in hashes]

    return load
