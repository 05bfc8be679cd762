"""Admission of snapshots to a directory: nothing dangerous unasked, and no more than the limits allow.

Snapshots that were taken here are written as they were. From an imported one, files of a repository
are left out, and set-id and sticky bits are dropped; the report lists both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.errors import UsageError
from holdfast.format.files import file_tree
from holdfast.model.control_files import control_paths
from holdfast.model.file_restore_plan import LeftPath, RestorePlan
from holdfast.model.snapshot import FileChange, FileEntry, Snapshot
from holdfast.operations import snapshot_read
from holdfast.operations.context import StoreContext
from holdfast.operations.imported_snapshot import is_imported
from holdfast.workspace.limits import MAX_DEPTH, WorkspaceLimits

ORDINARY = 0o777  # the permission bits; above them are set-user-ID, set-group-ID and sticky
CONTROL = "of a repository or of holdfast, in an imported snapshot: include_git=True (--include-git) writes it"
SET_ID = (
    "its set-id and sticky bits, in an imported snapshot, are dropped: include_set_id=True (--include-set-id) sets them"
)


class SnapshotAdmission(NamedTuple):
    """The options for an imported snapshot."""

    include_git: bool = False
    include_set_id: bool = False


class AdmittedChanges(NamedTuple):
    """Changes that may be made, what they leave out, and those paths of it that are there now."""

    changes: list[FileChange]
    left: list[LeftPath]
    standing: list[bytes]


class AdmissionRules(NamedTuple):
    """The rules for one snapshot: left-out paths (`top_of` names the topmost), and whether modes are cut."""

    top_of: Callable[[bytes], bytes | None] | None = None
    cuts_modes: bool = False

    def apply(self, changes: Iterable[FileChange]) -> AdmittedChanges:
        """Return the changes that may be made, with the modes that may be set."""
        admitted: list[FileChange] = []
        standing: list[bytes] = []
        left: dict[bytes, str] = {}
        for change in changes:
            top = None if self.top_of is None else self.top_of(change.path)
            if top is not None:
                left[top] = CONTROL
                if change.before is not None:
                    standing.append(change.path)
                continue
            cut = self.cut(change.after)
            if cut is not change.after:
                left.setdefault(change.path, SET_ID)
                change = change._replace(after=cut)  # noqa: PLW2901 - the same change, with less
            admitted.append(change)
        return AdmittedChanges(admitted, [LeftPath(path, reason) for path, reason in left.items()], standing)

    def cut(self, entry: FileEntry | None) -> FileEntry | None:
        """Return the entry with the mode that it gets."""
        if entry is None or not self.cuts_modes or entry.mode <= ORDINARY or entry.kind == "symlink":
            return entry
        return entry._replace(mode=entry.mode & ORDINARY)


async def rules_for(
    ctx: StoreContext, snapshot: Snapshot, admission: SnapshotAdmission, load: file_tree.Load
) -> AdmissionRules:
    """Return the rules for what a snapshot brings."""
    if all(admission) or not await is_imported(ctx, snapshot.reference):
        return AdmissionRules()
    entries = [entry async for entry in file_tree.entries(snapshot_read.tree_of(snapshot), load)]
    file_tree.refuse_homeless((entry.path, entry.kind) for entry in entries)
    top_of = None if admission.include_git else control_paths(entries)
    return AdmissionRules(top_of, cuts_modes=not admission.include_set_id)


def refuse_too_much(plan: RestorePlan, limits: WorkspaceLimits) -> None:
    """Raise if a plan writes more than the limits of the workspace allow. Nothing has been written then."""
    made = [action.after for action in plan.actions if action.after is not None and action.doing != "chmod"]
    higher = "If you trust the snapshot, open the workspace with a higher limit: limits=WorkspaceLimits({}=...)"
    if len(made) > limits.max_files:
        raise _too_much(f"there are {len(made):,} paths", limits.max_files, plan, higher.format("max_files"))
    if plan.written_bytes > limits.max_bytes:
        raise _too_much(f"there are {plan.written_bytes:,} bytes", limits.max_bytes, plan, higher.format("max_bytes"))
    for entry in made:
        if entry.kind == "file" and entry.size > limits.max_file_bytes:
            subject = f"{entry.text!r:.80} has {entry.size:,} bytes"
            raise _too_much(subject, limits.max_file_bytes, plan, higher.format("max_file_bytes"))
        if (depth := entry.path.count(b"/")) > MAX_DEPTH:
            subject = f"{entry.text!r:.80} is in {depth:,} directories within each other"
            raise _too_much(subject, MAX_DEPTH, plan, "No snapshot that holdfast takes has such a path")


def _too_much(why: str, most: int, plan: RestorePlan, next_step: str) -> UsageError:
    return UsageError(
        f"nothing was written: {why}, and the limit is {most:,}. In all, {plan.written_files:,} files of "
        f"{plan.written_bytes:,} bytes would be written. {next_step}"
    )
