"""The store of the killed restore processes: how it is opened, and the checks of its state."""

from __future__ import annotations

from pathlib import Path

from holdfast import SyncClient
from holdfast.model.file_restore_report import RestoreReport
from holdfast.model.snapshot import FileEntry, SnapshotReport
from holdfast.workspace.restore.directory import DirectoryState
from holdfast.workspace.restore.engine import RestoreEngine
from holdfast.workspace.sync import SyncWorkspace


class OpenDirectory:
    def __init__(self, store: str, root: Path) -> None:
        self.client = SyncClient.sqlite(store, durability="fast")
        self.workspace: SyncWorkspace = self.client.workspace(root)

    def snapshot(self) -> SnapshotReport:
        return self.workspace.snapshot()

    def restore(self, target: SnapshotReport, *, keep: str | None = None) -> RestoreReport:
        return self.workspace.restore(target.checkpoint_id, keep=keep)

    @property
    def restoring(self) -> RestoreEngine:
        return RestoreEngine(DirectoryState(self.workspace._opened))

    def entries(self, reference: str) -> dict[bytes, FileEntry]:
        from holdfast.backends.bridge.step import run_inline
        from holdfast.operations import snapshot_read

        snapshot = run_inline(snapshot_read.load(self.client._ctx, reference))
        return {entry.path: entry for entry in self.workspace.entries(snapshot)}


def open_directory(store: str, root: Path) -> OpenDirectory:
    return OpenDirectory(store, root)


def name(taken: SnapshotReport) -> str:
    return taken.snapshot.reference


def entries_of(directory: OpenDirectory, reference: str) -> dict[bytes, FileEntry]:
    return directory.entries(reference)


def is_users(path: bytes) -> bool:
    return path.rpartition(b"/")[2].startswith(b"user-")


def without_users(entries: dict[bytes, FileEntry]) -> dict[bytes, FileEntry]:
    return {path: entry for path, entry in entries.items() if not is_users(path)}
