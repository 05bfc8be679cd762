"""An open directory of an agent, as the modules of this package use it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import CheckpointNotFoundError, UsageError
from holdfast.model import ids
from holdfast.model.snapshot import FileChange, Snapshot
from holdfast.operations import lookup, snapshot_read, validate
from holdfast.operations.context import StoreContext
from holdfast.operations.resolve_target import id_of
from holdfast.workspace.limits import SECRETS, Secrets, WorkspaceLimits, checked_root, list_store_paths
from holdfast.workspace.origin import store_on_disk
from holdfast.workspace.scan import inotify as watching
from holdfast.workspace.scan.scope import WorkspaceScope
from holdfast.workspace.snapshot.take import SnapshotTaker, changes_between

if TYPE_CHECKING:
    from holdfast.format.state.record import StoredRecord
    from holdfast.operations.validate import SaveRequest

At = str | Snapshot  # a checkpoint's id, or a snapshot


class WorkspaceCore:
    """An open directory and the taker of its snapshots."""

    def __init__(
        self,
        ctx: StoreContext,
        path: str | os.PathLike[str],
        *,
        session_id: str | None = None,
        include_git: bool = False,
        gitignore: bool = True,
        default_excludes: bool = True,
        secrets: Secrets = "keep",
        limits: WorkspaceLimits | None = None,
        watch: bool = False,
    ) -> None:
        self.ctx = ctx
        self.path = checked_root(path)
        store = store_on_disk(ctx)
        scope = WorkspaceScope(
            include_git=include_git,
            use_gitignore=gitignore,
            use_defaults=default_excludes,
            secrets=validate.one_of("secrets", secrets, SECRETS),  # type: ignore[arg-type]  # it is one of these
            never=list_store_paths(self.path, store),
        )
        self.session_id = f"workspace {self.path}" if session_id is None else validate.name("session_id", session_id)
        if not (limits is None or isinstance(limits, WorkspaceLimits)):
            raise UsageError(f"limits is a {type(limits).__name__}: pass a holdfast.WorkspaceLimits")
        self.store = store
        self.taker = SnapshotTaker(ctx, self.path, store, scope, limits or WorkspaceLimits())
        if watch and watching.is_possible(self.path):
            with contextlib.suppress(OSError):  # too many of them on this machine: then the walk finds what changed
                self.taker.watch = watching.DirectoryWatch()

    async def save(self, request: SaveRequest, **how: Any) -> StoredRecord:
        return (await self.taker.save(request, **how))[0]

    async def resolve_exactly(self, at: At) -> At:
        """Return the same, with the checkpoint's id instead of any other reference."""
        return at if isinstance(at, Snapshot) else ids.to_text(await id_of(self.ctx, at))

    async def snapshot_at(self, at: At) -> Snapshot:
        """Return the snapshot of a checkpoint, or of the nearest one before it that has one."""
        if isinstance(at, Snapshot):
            return at
        stored = await lookup.load_live_record(self.ctx, await id_of(self.ctx, at))
        found = await snapshot_read.find_nearest(self.ctx, stored)
        if found is not None:
            return found
        raise CheckpointNotFoundError(
            f"checkpoint {at} has no snapshot of files, and none before it has one. `save(..., workspace=...)` takes "
            "one"
        )

    async def changes_since(self, tree: bytes) -> list[FileChange]:
        """Compare the tree of a snapshot with the directory as it is."""
        _, _, now = await self.taker.scan(self.session_id)
        assert now.snapshot.tree is not None
        return await changes_between(self.ctx, tree, now.snapshot.tree, now.nodes)

    def relative(self, path: str | bytes | os.PathLike[str]) -> bytes:
        """Return a path as a snapshot names it, from an absolute one or one relative to the root."""
        whole = self._resolve_whole(path)
        if not whole.is_relative_to(self.path) or whole == self.path:
            raise UsageError(f"{os.fsdecode(path)!r:.120} is not in the workspace {str(self.path)!r:.120}")
        return os.fsencode(whole.relative_to(self.path))

    def is_root(self, path: str | bytes | os.PathLike[str]) -> bool:
        return self._resolve_whole(path) == self.path

    def exists(self, path: bytes) -> bool:
        """Return whether something is at a path that `relative` gave."""
        return os.path.lexists(os.path.join(os.fsencode(self.path), path))  # noqa: PTH118 - pathlib knows no bytes

    def _resolve_whole(self, path: str | bytes | os.PathLike[str]) -> Path:
        """Return the path as given if it is in the workspace, else resolved.

        A symlink at its end is not followed: the link itself is meant.
        """
        whole = Path(os.path.normpath(self.path / os.fsdecode(path)))
        if whole.is_relative_to(self.path):
            return whole
        return self.path if whole.resolve() == self.path else whole.parent.resolve() / whole.name

    def close(self) -> None:
        if self.taker.watch is not None:
            self.taker.watch.close()
            self.taker.watch = None
