"""The workspace of a user: the directory that an agent works in, and its snapshots."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import CheckpointNotFoundError, CorruptError, UsageError
from holdfast.format.files import file_tree
from holdfast.model import ids
from holdfast.model.snapshot import FileChange, FileEntry, FilesReport, LeftOut, Snapshot, SnapshotReport
from holdfast.operations import snapshot_read, validate
from holdfast.operations.context import StoreContext
from holdfast.operations.snapshot_reachability import SnapshotReachability
from holdfast.operations.validate import SaveRequest
from holdfast.workspace.api_restore import WorkspaceRestore
from holdfast.workspace.core import At, WorkspaceCore
from holdfast.workspace.scan import excluded_size
from holdfast.workspace.snapshot.read_file import read_now
from holdfast.workspace.snapshot.take import Progress, changes_between

if TYPE_CHECKING:
    from holdfast.client.client import Client
    from holdfast.client.sync import SyncClient
    from holdfast.workspace.baseline import Baseline
    from holdfast.workspace.sync import SyncWorkspace as SyncWorkspace  # noqa: PLC0414 - for annotations elsewhere


class WorkspaceBase:
    """What `Workspace` and `SyncWorkspace` share."""

    _opened: WorkspaceCore

    @property
    def path(self) -> Path:
        return self._opened.path

    @property
    def session_id(self) -> str:
        """The session of snapshots that are taken without a state."""
        return self._opened.session_id

    def on_disk(self, path: bytes, limit: int) -> bytes | None:
        """Return the bytes of a file as it is now, if it is one within the limit; follow no symlink."""
        return read_now(self.path, path, limit)

    def close(self) -> None:
        """Stops watching."""
        self._opened.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"


class Workspace(WorkspaceRestore, WorkspaceBase):
    """The directory that an agent works in: `workspace = client.workspace("./project")`.

    Then `client.save(..., workspace=workspace)`, or `workspace.snapshot("before the refactoring")`.

    `include_git` includes the root's own `.git`. `gitignore=False` and `default_excludes=False`
    include the files that these rules leave out. `secrets` decides about files such as `.env`:
    "keep", "skip" or "refuse". Beyond `limits` no snapshot is taken, and the checkpoint says so.
    With `watch=True` the kernel reports changes, where it can.
    """

    def __init__(self, path: str | os.PathLike[str], client: Client | SyncClient, **options: Any) -> None:
        self._opened = WorkspaceCore(client._ctx, path, **options)

    async def snapshot(
        self,
        message: str | None = None,
        *,
        session_id: str | None = None,
        agent_id: str = "workspace",
        hints: Sequence[str | bytes] | None = None,
        deep: bool = False,
        progress: Progress | None = None,
    ) -> SnapshotReport:
        """Take a snapshot, as a checkpoint without a state, in the workspace's own session or another.

        With `hints`, only these paths (and those that a watch reports) are scanned: that is quick,
        but misses every other change until the next snapshot without hints. `deep` reads every file
        again.
        """
        session = self.session_id if session_id is None else validate.name("session_id", session_id)
        request = SaveRequest(
            agent_id=validate.name("agent_id", agent_id),
            session_id=session,
            execution_state={},
            agent_context={},
            step_name=validate.optional_name("message", message),
        )
        paths = None if hints is None else [self._opened.relative(hint) for hint in hints]
        stored, snapshot, changed = await self._opened.taker.save(request, hints=paths, deep=deep, progress=progress)
        snapshot = replace(snapshot, home=snapshot_read.home_of(stored))
        return SnapshotReport(
            checkpoint_id=ids.to_text(stored.id), session_id=session, snapshot=snapshot, changed=changed
        )

    async def status(self) -> list[FileChange]:
        """Return the changes since the last snapshot or the last restore, whichever is later. Stores nothing."""
        _, _, now = await self._opened.taker.scan(self.session_id)
        assert now.snapshot.tree is not None
        before = await self._baseline()
        tree, nodes = file_tree.build(()) if before is None else (before.tree, before.nodes)
        return await changes_between(self._opened.ctx, tree, now.snapshot.tree, {**nodes, **now.nodes})

    async def is_known(self) -> bool:
        """Return whether there is a snapshot that `status` compares with; if not, all files are new to it."""
        return await self._baseline() is not None

    async def _baseline(self) -> Baseline | None:
        from holdfast.workspace.baseline import find_baseline

        taker = self._opened.taker
        await taker.base_of(self.session_id)  # the stat cache of the directory, if it is still valid
        return await find_baseline(self._opened, await taker._tip(self.session_id))

    async def left_out(self) -> list[LeftOut]:
        """Return the paths that snapshots leave out, why, and their files and bytes, the largest first.

        It counts everything there, which may take longer than a snapshot.
        """
        taker = self._opened.taker
        _, scan, _ = await taker.scan(self.session_id)
        skipped, excluded = taker.list_left_out(scan.walk)
        return await taker.ctx.backend.run_in_thread(lambda: excluded_size.measure(taker.root, [*excluded, *skipped]))

    async def diff(self, before: At | None = None, after: At | None = None) -> list[FileChange]:
        """Return the differences between the files of two checkpoints.

        Without `after`, compare one checkpoint with the directory as it is; without both, as
        `status`.
        """
        if before is None and after is None:
            return await self.status()
        tree, nodes = file_tree.build(())
        if before is not None:
            tree = snapshot_read.tree_of(await self.snapshot_at(before))
        if after is None:
            return await self._opened.changes_since(tree)
        second = snapshot_read.tree_of(await self.snapshot_at(after))
        return await changes_between(self._opened.ctx, tree, second, nodes)

    async def snapshot_at(self, at: At) -> Snapshot:
        """Return the snapshot of a checkpoint, or of its nearest ancestor that has one.

        `not_taken` says why a requested snapshot was not taken.
        """
        return await self._opened.snapshot_at(at)

    async def entries(self, at: At) -> list[FileEntry]:
        """Return all paths of a snapshot, sorted."""
        return [entry async for entry in snapshot_read.entries(self._opened.ctx, await self.snapshot_at(at))]

    async def read(self, at: At, path: str | bytes) -> bytes:
        """Return the bytes of a file as they were."""
        snapshot = await self.snapshot_at(at)
        entry = await snapshot_read.find(self._opened.ctx, snapshot, self._opened.relative(path))
        if entry is None or entry.kind != "file":
            raise CheckpointNotFoundError(f"there is no file {os.fsdecode(path)!r:.120} in that snapshot")
        return await self.content(entry)

    async def content(self, entry: FileEntry) -> bytes:
        """Return the bytes of a file of a snapshot."""
        return b"".join([piece async for piece in snapshot_read.content(self._opened.ctx, entry)])

    async def verify(self, at: At | None = None, *, deep: bool = False) -> FilesReport:
        """Check every object of a snapshot, by default the last one.

        With `deep`, also read every file of the directory again and compare it with the cache.
        """
        taker = self._opened.taker
        unseen: list[bytes] = []
        if deep:
            _, quick, _ = await taker.scan(self.session_id)
            _, read, _ = await taker.scan(self.session_id, deep=True)
            unseen = sorted(path for path in read.walk.found.changes if path not in quick.walk.found.changes)
        if at is None:
            at = await taker.last(self.session_id)
            if at is None:
                raise CheckpointNotFoundError(f"there is no snapshot of {str(self.path)!r:.120} yet")
        snapshot = await self.snapshot_at(at)
        checked, problems = await _check_snapshot(taker.ctx, snapshot.reference)
        return FilesReport(
            reference=snapshot.reference, objects=checked, problems=tuple(problems), unseen=tuple(unseen)
        )


def get_workspace(ctx: StoreContext, known: dict[str, WorkspaceCore], workspace: object) -> WorkspaceCore:
    """Return the workspace that a client was given: an open one, or a directory, which is opened once."""
    if isinstance(workspace, WorkspaceBase):
        if workspace._opened.ctx is not ctx:
            raise UsageError(f"{workspace!r:.120} belongs to another client: make it with `client.workspace(...)`")
        return workspace._opened
    if not isinstance(workspace, str | os.PathLike):
        raise UsageError(
            f"workspace is a {type(workspace).__name__}: it must be a directory, or what `client.workspace(...)` gave"
        )
    key = str(Path(workspace).resolve())
    if key not in known:
        known[key] = WorkspaceCore(ctx, workspace)
    return known[key]


async def _check_snapshot(ctx: StoreContext, reference: str) -> tuple[int, list[str]]:
    """Return the number of intact objects of a snapshot, and the errors of the others."""
    reach = SnapshotReachability(snapshot_read.make_loader(ctx))
    try:
        await reach.learn(reference)
    except CorruptError as error:
        return 0, [str(error)]
    checked, problems = 0, list[str]()
    for hash_, size in reach.list_all().items():
        try:
            [content] = await snapshot_read.objects_of(ctx, [hash_])
            if len(content) != size:
                raise CorruptError(f"the blob {hash_.hex()[:16]}… is not as long as the snapshot says")
            checked += 1
        except CorruptError as error:
            problems.append(str(error))
    return checked, problems
