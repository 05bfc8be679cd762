"""A directory as a restore sees it: its snapshots, its rules, and the sessions of its store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import CheckpointExpiredError, CheckpointNotFoundError, ConflictError, UsageError
from holdfast.format.files import file_tree
from holdfast.format.rows import head as rows
from holdfast.format.rows.operation_log import Origin
from holdfast.model import ids
from holdfast.model.reports import RollbackReport
from holdfast.model.snapshot import FileChange, Snapshot
from holdfast.operations import (
    expire,
    lookup,
    pin,
    rollback,
    snapshot_read,
    timeline,
)
from holdfast.operations import lease as leasing
from holdfast.operations.validate import SaveRequest
from holdfast.workspace.baseline import make_safety_metadata, restores_session
from holdfast.workspace.restore.apply import StatKey
from holdfast.workspace.restore.protected_paths import protection
from holdfast.workspace.restore.request import CurrentState
from holdfast.workspace.scan.stat_cache import CachedDirectory as SeenDirectory

if TYPE_CHECKING:
    from holdfast.workspace.core import WorkspaceCore

AGENT = "holdfast"
SAFETY_KEPT = 20  # so many safety snapshots of a directory stay pinned


class SeenFiles:
    """How each file's inode looked when it was read, and what its content was, by its path."""

    def __init__(self, directories: Mapping[bytes, SeenDirectory]) -> None:
        self._directories = directories

    def get(self, path: bytes, default: StatKey | None = None) -> StatKey | None:
        above, _, name = path.rpartition(b"/")
        directory = self._directories.get(above)
        file = directory.files.get(name) if directory is not None else None
        if file is None or not file.ctime_ns:
            return default
        return file.ctime_ns, file.size, file.inode, file.mode

    def content(self, path: bytes) -> bytes | None:
        above, _, name = path.rpartition(b"/")
        directory = self._directories.get(above)
        file = directory.files.get(name) if directory is not None else None
        return None if file is None else file.content


class DirectoryState:
    """The directory of a workspace that is open."""

    def __init__(self, opened: WorkspaceCore, terms: Mapping[str, Any] | None = None, to: str | None = None) -> None:
        """Make it; `terms` are those of `operations.rollback`, to move a session's head to `to`."""
        self._opened = opened
        self.adopted: str | None = None  # the checkpoint that `adopt` has made
        self._terms = terms or {}
        self._to = to
        self.ctx = opened.ctx
        self.root = opened.taker.root
        self.limits = opened.taker._limits
        self.session_id = restores_session(opened.path)

    async def scan(self) -> CurrentState:
        _, scan, tree = await self._opened.taker.scan()
        seen = {**self._opened.taker.load_cache().directories, **scan.walk.found.updated}
        existing = {path: directory for path, directory in seen.items() if directory is not None}
        return CurrentState(tree.snapshot, nodes=tree.nodes, seen=SeenFiles(existing), not_ours=_list_foreign(existing))

    async def take_safety(self, why: str) -> CurrentState:
        taker = self._opened.taker
        if taker.watch is not None:
            taker.watch.invalidate()  # files about to be overwritten are found by a scan, not by the watch
        request = SaveRequest(
            agent_id=AGENT,
            session_id=self.session_id,
            execution_state={},
            agent_context={},
            step_name=why,
            metadata=await make_safety_metadata(self._opened),
        )
        stored, snapshot, _ = await taker.save(request)
        if snapshot.tree is None:
            why = snapshot.not_taken.reason if snapshot.not_taken else "it was skipped"
            raise UsageError(f"nothing is restored without a safety snapshot of what is there, and {why}")
        seen = taker.load_cache().directories
        return CurrentState(
            snapshot, checkpoint_id=ids.to_text(stored.id), seen=SeenFiles(seen), not_ours=_list_foreign(seen)
        )

    async def keep_safety(self, checkpoint_id: str) -> None:
        """Pin a safety snapshot, and unpin the oldest if there are too many."""
        await pin.pin(self.ctx, ids.from_text(checkpoint_id), f"before a restore of {self._opened.path}")
        for old in (await pin.pins(self.ctx, self.session_id))[SAFETY_KEPT:]:
            await pin.unpin(self.ctx, ids.from_text(old.checkpoint_id))
        # Those of restores that were refused were never pinned.
        for taken in (await timeline.timeline(self.ctx, self.session_id))[SAFETY_KEPT:]:
            await self.drop_safety(taken.checkpoint_id)

    async def drop_safety(self, checkpoint_id: str) -> None:
        """Expire a safety snapshot, unless it is pinned, tagged, or the base of the next snapshot."""
        id_ = ids.from_text(checkpoint_id)
        if id_ == self._opened.taker.load_cache().checkpoint:
            return
        try:
            await expire.expire(self.ctx, id_)
        except (ConflictError, CheckpointNotFoundError, CheckpointExpiredError):
            return

    async def make_exclusion_test(
        self, now: CurrentState, target: Snapshot, changes: Sequence[FileChange], load: file_tree.Load
    ) -> Callable[[bytes], bool]:
        scope = self._opened.taker._scope
        return await protection(self.ctx, self.root, scope, changes, now.not_ours, now.snapshot, target, load)

    async def last_known(self, target_id: str | None) -> list[str]:
        sessions = [self._opened.session_id]
        if target_id is not None:
            sessions.append((await lookup.load_live_record(self.ctx, ids.from_text(target_id))).session)
        last = self._opened.taker.load_cache().checkpoint
        if last is not None:
            seen = await lookup.find_record(self.ctx, last)
            if seen is not None and (reference := snapshot_read.reference_of(seen)) and seen.session != self.session_id:
                sessions.append(seen.session)
                return list(dict.fromkeys([reference, *await self._heads(sessions)]))
        return await self._heads(sessions)

    async def _heads(self, sessions: Iterable[str]) -> list[str]:
        """Return the snapshots that these sessions stand at; safety snapshots are no agent's."""
        found = []
        for session in dict.fromkeys(sessions):
            head = await self.head_of(session) if session != self.session_id else None
            if head is not None:
                try:
                    found.append((await self._opened.snapshot_at(head)).reference)
                except CheckpointNotFoundError:
                    continue  # a session without files
        return list(dict.fromkeys(found))

    async def head_of(self, session_id: str) -> str | None:
        session = await timeline.session(self.ctx, session_id)
        return None if session is None else session.head.checkpoint_id

    async def move_head(self, session_id: str, to: str, *, dry_run: bool = False) -> RollbackReport:
        terms = self._terms if to == self._to else {}
        return await rollback.rollback(self.ctx, session_id, ids.from_text(to), **terms, dry_run=dry_run)

    async def adopt(self, session_id: str, fork_id: str, origin: Origin, *, dry_run: bool = False) -> None:
        from holdfast.workspace import adopt as adopting

        line = await lookup.load_tip(self.ctx, rows.session_key(session_id))
        leasing.refuse(self.ctx, session_id, line.head, None)
        if not dry_run:
            self.adopted = await adopting.adopt_state(self._opened, session_id, fork_id, origin)

    async def adopted_from(self, checkpoint_id: str) -> str | None:
        from holdfast.workspace import adopt as adopting

        return await adopting.adopted_from(self.ctx, checkpoint_id)


def _list_foreign(directories: Mapping[bytes, SeenDirectory]) -> list[bytes]:
    """Return the paths that exist but are in no snapshot: excluded, sockets, unreadable."""
    found = []
    for path, directory in directories.items():
        base = path + b"/" if path else b""
        found += [base + name for name in (*directory.excluded, *directory.skipped)]
    return found
