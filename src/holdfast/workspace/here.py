"""A directory as a restore sees it: its snapshots, its rules, and the sessions of its store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import CheckpointExpiredError, CheckpointNotFoundError, ConflictError, UsageError
from holdfast.model import ids
from holdfast.model.reports import RollbackReport
from holdfast.model.workspace import FileChange, Snapshot
from holdfast.objects import filetree, rows
from holdfast.objects.oplog import Origin
from holdfast.operations import expire, pins, reading, rollback, snapshots, timeline
from holdfast.operations import lease as leasing
from holdfast.operations.arguments import SaveRequest
from holdfast.workspace.apply import StatKey
from holdfast.workspace.protection import protection
from holdfast.workspace.restore_terms import Taken
from holdfast.workspace.statcache import Directory as SeenDirectory

if TYPE_CHECKING:
    from holdfast.workspace.workspace import Opened

AGENT = "holdfast"
SAFETY_KEPT = 20  # so many safety snapshots of a directory stay pinned


def restores_session(path: object) -> str:
    """The session of the safety snapshots of a directory."""
    return f"restores of {path}"


class Seen:
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


class Here:
    """The directory of a workspace that is open."""

    def __init__(self, opened: Opened, terms: Mapping[str, Any] | None = None, to: str | None = None) -> None:
        """`terms` are those of `operations.rollback`, for moving a session's head to the checkpoint `to`."""
        self._opened = opened
        self.adopted: str | None = None  # the checkpoint that `adopt` has made
        self._terms = terms or {}
        self._to = to
        self.services = opened.services
        self.root = opened.taker.root
        self.session_id = restores_session(opened.path)

    async def look(self) -> Taken:
        _, look = await self._opened.taker.look()
        seen = {**self._opened.taker._loaded().directories, **look.walk.found.updated}
        there = {path: one for path, one in seen.items() if one is not None}
        return Taken(look.snapshot, nodes=look.nodes, seen=Seen(there), not_ours=_not_ours(there))

    async def take_safety(self, why: str) -> Taken:
        taker = self._opened.taker
        if taker.watch is not None:
            taker.watch.invalidate()  # what is about to be overwritten is found by looking, not by being told
        request = SaveRequest(
            agent_id=AGENT, session_id=self.session_id, execution_state={}, agent_context={}, step_name=why
        )
        stored, snapshot, _ = await taker.save(request)
        if snapshot.tree is None:
            why = snapshot.not_taken.reason if snapshot.not_taken else "it was skipped"
            raise UsageError(f"nothing is restored without a safety snapshot of what is there, and {why}")
        seen = taker._loaded().directories
        return Taken(snapshot, checkpoint_id=ids.to_text(stored.id), seen=Seen(seen), not_ours=_not_ours(seen))

    async def keep_safety(self, checkpoint_id: str) -> None:
        """Pins it, and lets go of the oldest of many."""
        await pins.pin(self.services, ids.from_text(checkpoint_id), f"before a restore of {self._opened.path}")
        for old in (await pins.pins(self.services, self.session_id))[SAFETY_KEPT:]:
            await pins.unpin(self.services, ids.from_text(old.checkpoint_id))
        # Those of restores that were refused were never pinned.
        for taken in (await timeline.timeline(self.services, self.session_id))[SAFETY_KEPT:]:
            await self.drop_safety(taken.checkpoint_id)

    async def drop_safety(self, checkpoint_id: str) -> None:
        """Lets it expire, unless somebody has pinned or tagged it, or it is what the next snapshot builds upon."""
        id_ = ids.from_text(checkpoint_id)
        if id_ == self._opened.taker._loaded().checkpoint:
            return
        try:
            await expire.expire(self.services, id_)
        except (ConflictError, CheckpointNotFoundError, CheckpointExpiredError):
            return

    async def protected(
        self, now: Taken, target: Snapshot, changes: Sequence[FileChange], load: filetree.Load
    ) -> Callable[[bytes], bool]:
        scope = self._opened.taker._scope
        return await protection(self.services, self.root, scope, changes, now.not_ours, now.snapshot, target, load)

    async def last_known(self, target_id: str | None) -> list[str]:
        sessions = [self._opened.session_id]
        if target_id is not None:
            sessions.append((await reading.live_record(self.services, ids.from_text(target_id))).session)
        last = self._opened.taker._loaded().checkpoint
        if last is not None:
            seen = await reading.find_record(self.services, last)
            if seen is not None and (reference := snapshots.reference_of(seen)) and seen.session != self.session_id:
                sessions.append(seen.session)
                return list(dict.fromkeys([reference, *await self._heads(sessions)]))
        return await self._heads(sessions)

    async def _heads(self, sessions: Iterable[str]) -> list[str]:
        """The snapshots that these sessions stand at; safety snapshots are no agent's."""
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
        session = await timeline.session(self.services, session_id)
        return None if session is None else session.head.checkpoint_id

    async def move_head(self, session_id: str, to: str, *, dry_run: bool = False) -> RollbackReport:
        terms = self._terms if to == self._to else {}
        return await rollback.rollback(self.services, session_id, ids.from_text(to), **terms, dry_run=dry_run)

    async def adopt(self, session_id: str, fork_id: str, origin: Origin, *, dry_run: bool = False) -> None:
        from holdfast.workspace import adopting

        line = await reading.standing(self.services, rows.session_key(session_id))
        leasing.refuse(self.services, session_id, line.head, None)
        if not dry_run:
            self.adopted = await adopting.adopt_state(self._opened, session_id, fork_id, origin)

    async def adopted_from(self, checkpoint_id: str) -> str | None:
        from holdfast.workspace import adopting

        return await adopting.adopted_from(self.services, checkpoint_id)


def _not_ours(directories: Mapping[bytes, SeenDirectory]) -> list[bytes]:
    """What is there and in no snapshot: excluded, sockets, what could not be read."""
    found = []
    for path, directory in directories.items():
        base = path + b"/" if path else b""
        found += [base + name for name in (*directory.excluded, *directory.skipped)]
    return found
