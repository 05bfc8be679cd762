"""What operations report: plain values, readable in a shell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model.approval import Approval
from holdfast.model.effects import Effect
from holdfast.model.handoff import Handoff

if TYPE_CHECKING:
    from holdfast.model.restore_report import RestoreReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkReport:
    """A fork: `checkpoint_id` is the first checkpoint of the new session, with the state of `source_id`, edited if that was
    asked for. `directory` has its files, if a workspace was asked for.

    `effects` were carried out elsewhere in the tree, and stay done; of `unknown` nobody knows. `consumers` are handoffs that
    other agents have gone on from. None of it is part of what the new session remembers.
    """

    checkpoint_id: str
    session_id: str
    source_id: str
    tree_id: str
    effects: tuple[Effect, ...] = ()
    unknown: tuple[Effect, ...] = ()
    consumers: tuple[Handoff, ...] = ()
    directory: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackReport:
    """A rollback: the head went from `from_id` to `to_id`. Nothing was removed: rolling back to `from_id` undoes it.
    `approvals_voided` were asked for at places that the session has left: they can't be used any more.

    `effects` are those that stay done, `unknown` those of which nobody knows, `undos` those that somebody gave a way to undo;
    `compensated` were undone. `consumers` are handoffs that other agents have gone on from already. `files` says what was
    done to a workspace that went back, too.
    """

    session_id: str
    from_id: str | None
    to_id: str
    approvals_voided: Sequence[Approval] = ()
    effects: tuple[Effect, ...] = ()
    unknown: tuple[Effect, ...] = ()
    consumers: tuple[Handoff, ...] = ()
    compensated: tuple[Effect, ...] = ()
    files: RestoreReport | None = None

    @property
    def files_changed(self) -> tuple[bytes, ...]:
        """The paths of the workspace that somebody has changed since the last snapshot, where the rollback is, or was, to
        change them, too: `files` says whether they were kept or overwritten."""
        return () if self.files is None else self.files.changed_under_us

    @property
    def undos(self) -> tuple[Effect, ...]:
        """The effects that stay done though there is a way to undo them: `compensate` takes it."""
        return tuple(one for one in self.effects if one.undoable)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionReport:
    """What `gc` removed, or would remove. Bytes are what the store counts of records, runs and blobs."""

    dry_run: bool
    expired_by_ttl: int = 0
    records: int = 0
    tombstones_packed: int = 0
    runs: int = 0
    runs_trimmed: int = 0
    blobs: int = 0
    bytes_freed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRetention:
    """What a policy lets go of a session: the ids of its checkpoints, oldest first, and how many stay."""

    session_id: str
    going: tuple[str, ...]
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionReport:
    """What `retain` let go, or would. Bytes are those of records, runs, blobs and rows, without the store's own overhead;
    `bytes_after` is measured or, in a dry run, an estimate. `sessions` are those that lose something."""

    dry_run: bool
    sessions: tuple[SessionRetention, ...]
    going: int
    kept: int
    bytes_before: int
    bytes_after: int
    store_bytes_before: int
    store_bytes_after: int | None = None  # what the store takes as a whole; only known when it is done
    max_bytes: int | None = None

    @property
    def fits(self) -> bool:
        """Whether what is stored takes no more than the policy's `max_bytes`; True if it has none."""
        return self.max_bytes is None or self.bytes_after <= self.max_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUsage:
    """What a session takes. `exclusive_bytes` is what would be freed if all of it went; `shared_bytes` is what it needs
    together with other sessions, such as its forks."""

    session_id: str
    checkpoints: int
    record_bytes: int
    tombstone_bytes: int
    exclusive_bytes: int  # of its live checkpoints: records, and what only they refer to
    shared_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUsage:
    """What a store takes: `total_bytes`, by kind, by use and by what it is for. The kinds (records, tombstones, runs, blobs,
    rows, overhead) add up to it. So do the uses: all sessions' `exclusive_bytes`, `shared_bytes` (counted once),
    `unused_bytes` (what `gc` would free, about), `tombstone_bytes`, `row_bytes` without those that are unused, and
    `overhead_bytes`; and `parts`.
    """

    sessions: tuple[SessionUsage, ...]  # what takes most first
    total_bytes: int
    record_bytes: int  # of live checkpoints
    tombstone_bytes: int
    run_bytes: int
    blob_bytes: int
    row_bytes: int
    overhead_bytes: int  # the store's own: pages, indexes, the WAL, blocks of a file system
    shared_bytes: int
    unused_bytes: int
    unused_row_bytes: int  # of these, rows: expired checkpoints that can still be undone
    state_bytes: int = 0  # runs and blobs that the states of live checkpoints need
    file_bytes: int = 0  # blobs that only the snapshots of their directories need

    @property
    def parts(self) -> dict[str, int]:
        """What the bytes are for: states, files, the records of checkpoints, indexes (rows, pages, what is left of expired
        ones), garbage. They add up to `total_bytes`."""
        unused_content = self.run_bytes + self.blob_bytes - self.state_bytes - self.file_bytes
        unused_records = self.unused_bytes - self.unused_row_bytes - unused_content
        return {
            "state": self.state_bytes,
            "files": self.file_bytes,
            "records": self.record_bytes - unused_records,
            "indexes": self.row_bytes - self.unused_row_bytes + self.tombstone_bytes + self.overhead_bytes,
            "garbage": self.unused_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    checkpoint_id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What `verify` found: `checked` checkpoints, of which `problems` can't be restored exactly. `ended_chains` counts
    the checkpoints whose parent has expired or was collected: their line can't be followed further up."""

    checked: int
    expired: int = 0
    ended_chains: int = 0
    problems: tuple[Problem, ...] = field(default_factory=tuple)

    @property
    def ok(self) -> bool:
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationProblem:
    """A checkpoint that would not resume. `reason` is one of missing_migration, newer_state, migration_failed,
    unknown_type, unsupported_value, corrupt, newer_holdfast, error. What could not be read is empty or 0."""

    session_id: str
    checkpoint_id: str
    agent_id: str
    state_version: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """What `check_migrations` found: of `checked` checkpoints, `migrating` would be migrated when they are restored, and
    `problems` would not resume with the migrations and types that are registered."""

    checked: int
    migrating: int = 0
    problems: tuple[MigrationProblem, ...] = field(default_factory=tuple)

    @property
    def ok(self) -> bool:
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a store holds. `logical_bytes` is what the checkpoints' states would take if each were stored whole;
    `stored_bytes` is what they do take, the store's own overhead included."""

    backend: str
    location: str
    durability: str
    sessions: int
    checkpoints: int
    expired: int
    logical_bytes: int
    stored_bytes: int
    record_bytes: int
    run_bytes: int
    blob_bytes: int
    row_bytes: int

    @property
    def ratio(self) -> float:
        """How many times the states would be larger if each were stored whole."""
        return self.logical_bytes / self.stored_bytes if self.stored_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRemark:
    """Something to know about one row or file of the source. `where` says which, `checkpoint_id` is the source's own."""

    where: str
    checkpoint_id: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedReport:
    """What was taken over from another program, or would be.

    `imported` checkpoints are new here, `already` ones were here before. Of the imported ones, `recovered` are such that
    the program itself can no longer restore. `expired` ones had outlived their time to live and were left out.
    `skipped` lists what could not be read or saved, `warnings` what was imported with a remark; `sessions` are those
    that were imported to.
    """

    source: str
    dry_run: bool
    imported: int = 0
    already: int = 0
    recovered: int = 0
    expired: int = 0
    sessions: tuple[str, ...] = ()
    skipped: tuple[ImportRemark, ...] = ()
    warnings: tuple[ImportRemark, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything that has not expired is here now."""
        return not self.skipped
