"""The request of a restore: what it needs to know of a directory, its target and its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from holdfast.errors import UsageError, WorkspaceChangedError
from holdfast.format.files import file_tree
from holdfast.format.rows.operation_log import Origin
from holdfast.model.file_restore_plan import RestorePlan
from holdfast.model.file_restore_report import RestoreReport
from holdfast.model.reports import RollbackReport
from holdfast.model.snapshot import FileChange, Snapshot
from holdfast.operations.context import StoreContext
from holdfast.workspace.limits import WorkspaceLimits
from holdfast.workspace.restore.admission import SnapshotAdmission
from holdfast.workspace.restore.apply import Inodes, StatKey
from holdfast.workspace.restore.execute import Progress

Keep = Literal["user"] | None
Escape = Literal["warn", "refuse"]
NOTHING_MORE = SnapshotAdmission()
LISTED = 12


@dataclass(frozen=True, slots=True)
class CurrentState:
    """A snapshot of the directory as it is now.

    `nodes` are the tree nodes that are not stored; `not_ours` are the paths that exist but are not
    in it.
    """

    snapshot: Snapshot
    checkpoint_id: str | None = None
    nodes: Mapping[bytes, bytes] = field(default_factory=dict)
    seen: Inodes = field(default_factory=dict[bytes, StatKey])
    not_ours: Sequence[bytes] = ()


class RestoreDirectory(Protocol):
    """The directory and its sessions, as a restore needs them."""

    root: bytes
    ctx: StoreContext
    limits: WorkspaceLimits  # nothing is written beyond these

    async def scan(self) -> CurrentState:
        """Return the present files, found by a walk, without storing anything."""

    async def take_safety(self, why: str) -> CurrentState:
        """Return the same as a checkpoint of its own."""

    async def keep_safety(self, checkpoint_id: str) -> None:
        """Pin it: it is needed."""

    async def drop_safety(self, checkpoint_id: str) -> None:
        """Drop a safety snapshot that turned out not to be needed."""

    async def make_exclusion_test(
        self, now: CurrentState, target: Snapshot, changes: Sequence[FileChange], load: file_tree.Load
    ) -> Callable[[bytes], bool]:
        """Return a test whether a path is excluded, by the target's rules or the present ones.

        `changes` is the whole difference.
        """

    async def last_known(self, target_id: str | None) -> list[str]:
        """Return the agent's last snapshots: a file that equals one of them was not changed by others."""

    async def head_of(self, session_id: str) -> str | None: ...

    async def move_head(self, session_id: str, to: str, *, dry_run: bool = False) -> RollbackReport: ...

    async def adopt(self, session_id: str, fork_id: str, origin: Origin, *, dry_run: bool = False) -> None:
        """Make the fork's state, with the files as they are, the next checkpoint of the session."""

    async def adopted_from(self, checkpoint_id: str) -> str | None:
        """Return the checkpoint of a fork that this one was made from so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTarget:
    """The target of a restore: a snapshot, its checkpoint, and the session that moves with the files."""

    snapshot: Snapshot
    checkpoint_id: str | None = None
    session_id: str | None = None  # only if the state is rolled back, too


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """The options of a restore."""

    keep: Keep = None
    force: bool = False
    paths: tuple[bytes, ...] = ()
    escape: Escape = "warn"
    admission: SnapshotAdmission = NOTHING_MORE  # the options for an imported snapshot
    only: frozenset[bytes] | None = None  # exactly these paths: those that an undo reverts
    known: tuple[str, ...] | None = None  # the only snapshots whose contents are not the user's own changes
    since: str = "the last snapshot"  # a file that differs from these snapshots has changed since then
    progress: Progress | None = None


def refuse_plan(plan: RestorePlan | RestoreReport, options: RestoreOptions) -> None:
    """Raise what stands against a restore."""
    if plan.conflicts and not options.force:
        count = len(plan.conflicts)
        raise WorkspaceChangedError(
            f"nothing was restored: {count} path{'s have' if count > 1 else ' has'} changed since {options.since} "
            f'and would be overwritten: {join_paths(plan.conflicts)}. keep="user" (--keep-user) leaves them as they '
            "are; force=True (--force) overwrites them, which `undo` takes back",
            plan.conflicts,
        )
    leading_out = [flag.path for flag in plan.flags if flag.kind == "escapes"]
    if leading_out and options.escape == "refuse":
        raise UsageError(f"nothing was restored: links that lead out of the directory: {join_paths(leading_out)}")


def join_paths(paths: Sequence[bytes]) -> str:
    shown = ", ".join(path.decode("utf-8", "backslashreplace") for path in paths[:LISTED])
    return shown + (f" and {len(paths) - LISTED} more" if len(paths) > LISTED else "")
