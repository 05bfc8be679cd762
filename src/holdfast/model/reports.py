"""Reports of operations: plain values, readable in a shell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model.approval import Approval
from holdfast.model.effect import EffectRecord
from holdfast.model.handoff import Handoff

if TYPE_CHECKING:
    from holdfast.model.file_restore_plan import LeftPath
    from holdfast.model.file_restore_report import RestoreReport


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftMessage:
    """A message that a checkpoint published or consumed which a rollback or a fork has left.

    `groups` are those that have consumed a published message, or the group that a consumed one was
    consumed for.
    """

    message_id: str
    topic: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkReport:
    """The result of a fork.

    `checkpoint_id` is the first checkpoint of the new session. It has the state of `source_id`,
    with the requested edits. `directory` holds the files of the fork if a workspace was requested;
    `left` lists the files that were not written, and why.

    `effects` were carried out elsewhere in the tree and stay done; the outcome of `unknown` effects
    is not known. `consumers` are handoffs that other agents have already continued from. None of
    these is part of the new session's state.
    """

    checkpoint_id: str
    session_id: str
    source_id: str
    tree_id: str
    effects: tuple[EffectRecord, ...] = ()
    unknown: tuple[EffectRecord, ...] = ()
    consumers: tuple[Handoff, ...] = ()
    directory: Path | None = None
    left: tuple[LeftPath, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackReport:
    """The result of a rollback: the head moved from `from_id` to `to_id`.

    Nothing was removed: a rollback to `from_id` undoes it. `approvals_voided` were requested at
    checkpoints that the session has left; they can no longer be used.

    `effects` stay done, `unknown` effects have an unknown outcome, and `undos` are effects with a
    registered compensation. `compensated` were undone. `consumers` are handoffs that other agents
    have already continued from. `published` messages are not unsent; `consumed` ones are not
    delivered again unless `client.redeliver` does it. `files` says how the workspace changed if it
    was restored, too.
    """

    session_id: str
    from_id: str | None
    to_id: str
    approvals_voided: Sequence[Approval] = ()
    effects: tuple[EffectRecord, ...] = ()
    unknown: tuple[EffectRecord, ...] = ()
    consumers: tuple[Handoff, ...] = ()
    compensated: tuple[EffectRecord, ...] = ()
    published: tuple[LeftMessage, ...] = ()
    consumed: tuple[LeftMessage, ...] = ()
    files: RestoreReport | None = None

    @property
    def files_changed(self) -> tuple[bytes, ...]:
        """The workspace paths with changes since the last snapshot that the rollback would change, too.

        `files` says whether they were kept or overwritten.
        """
        return () if self.files is None else self.files.changed_under_us

    @property
    def undos(self) -> tuple[EffectRecord, ...]:
        """The effects that stay done although they have a compensation: `compensate` runs it."""
        return tuple(effect for effect in self.effects if effect.undoable)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionReport:
    """The result of `gc`: how much it removed, or would remove.

    Bytes are the sizes that the store counts for records, segments and blobs.
    """

    dry_run: bool
    expired_by_ttl: int = 0
    records: int = 0
    tombstones_packed: int = 0
    segments: int = 0
    segments_trimmed: int = 0
    blobs: int = 0
    bytes_freed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRetention:
    """The checkpoints of a session that a policy expires (ids, oldest first), and how many stay."""

    session_id: str
    going: tuple[str, ...]
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionReport:
    """The result of `retain`: how much it expired and removed, or would.

    Bytes are those of records, segments, blobs and rows, without the store's own overhead.
    `bytes_after` is measured; in a dry run it is an estimate. `sessions` are those that lose
    checkpoints.
    """

    dry_run: bool
    sessions: tuple[SessionRetention, ...]
    going: int
    kept: int
    bytes_before: int
    bytes_after: int
    store_bytes_before: int
    store_bytes_after: int | None = None  # the size of the whole store; only known after the run
    max_bytes: int | None = None

    @property
    def fits(self) -> bool:
        """Whether the store takes no more than the policy's `max_bytes`; True if the policy has none."""
        return self.max_bytes is None or self.bytes_after <= self.max_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUsage:
    """The space that a session takes.

    `exclusive_bytes` would be freed if the whole session were removed. `shared_bytes` are also used
    by other sessions, such as its forks.
    """

    session_id: str
    checkpoints: int
    record_bytes: int
    tombstone_bytes: int
    exclusive_bytes: int  # of its live checkpoints: records, and objects that only they refer to
    shared_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUsage:
    """The space that a store takes: `total_bytes`, by kind, by use and by purpose.

    The kinds (records, tombstones, segments, blobs, rows, overhead) add up to the total. So do the
    uses: all sessions' `exclusive_bytes`, `shared_bytes` (counted once), `unused_bytes` (about as
    much as `gc` would free), `tombstone_bytes`, `row_bytes` without the unused ones, and
    `overhead_bytes`. So do `parts`.
    """

    sessions: tuple[SessionUsage, ...]  # the largest first
    total_bytes: int
    record_bytes: int  # of live checkpoints
    tombstone_bytes: int
    segment_bytes: int
    blob_bytes: int
    row_bytes: int
    overhead_bytes: int  # the store's own: pages, indexes, the WAL, blocks of a file system
    shared_bytes: int
    unused_bytes: int
    unused_row_bytes: int  # of these, rows: expired checkpoints that can still be undone
    state_bytes: int = 0  # segments and blobs that the states of live checkpoints need
    file_bytes: int = 0  # blobs that only the snapshots of their directories need

    @property
    def parts(self) -> dict[str, int]:
        """The bytes by purpose, which add up to `total_bytes`.

        The purposes are states, files, records of checkpoints, indexes (rows, pages and the remains
        of expired checkpoints) and garbage.
        """
        unused_content = self.segment_bytes + self.blob_bytes - self.state_bytes - self.file_bytes
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
    """One damaged object.

    `affected` are the ids of all checkpoints that it keeps from being restored exactly.
    `checkpoint_id` is the first of them, or empty.
    """

    checkpoint_id: str
    message: str
    affected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The result of `verify`: `checked` checkpoints, and one of `problems` for each damaged object.

    `ended_chains` counts the checkpoints whose parent has expired, was collected or can't be read:
    their history can't be followed further up.
    """

    checked: int
    expired: int = 0
    ended_chains: int = 0
    problems: tuple[Problem, ...] = field(default_factory=tuple)

    @property
    def affected(self) -> frozenset[str]:
        """The ids of all checkpoints that can't be restored exactly."""
        return frozenset(id_ for problem in self.problems for id_ in problem.affected)

    @property
    def ok(self) -> bool:
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationProblem:
    """A checkpoint that would not resume.

    `reason` is one of missing_migration, newer_state, migration_failed, unknown_type,
    unknown_function, unsupported_value, corrupt, newer_holdfast, error. Fields that could not be read are empty or 0.
    """

    session_id: str
    checkpoint_id: str
    agent_id: str
    state_version: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """The result of `check_migrations`.

    Of `checked` checkpoints, `migrating` would be migrated when they are restored. `problems` would
    not resume with the registered migrations and types.
    """

    checked: int
    migrating: int = 0
    problems: tuple[MigrationProblem, ...] = field(default_factory=tuple)

    @property
    def ok(self) -> bool:
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFinding:
    """A stored value that a rule meets: its path and the rule; never the value.

    `type` is the type of the value. A part that can't be read has the rule `unreadable`. The path of
    a value in the ledger begins with the effect's id; `checkpoint_id` is then where the effect began.
    """

    session_id: str
    checkpoint_id: str
    path: str
    rule: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """The result of `scan`: how many checkpoints were searched, and what rules meet in them."""

    checked: int
    findings: tuple[ScanFinding, ...] = field(default_factory=tuple)

    @property
    def ok(self) -> bool:
        return not self.findings

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The contents of a store, in numbers.

    `logical_bytes` is the size of the checkpoints' states if each were stored whole. `stored_bytes`
    is the size that they take, the store's own overhead included.
    """

    backend: str
    location: str
    durability: str
    sessions: int
    checkpoints: int
    expired: int
    logical_bytes: int
    stored_bytes: int
    record_bytes: int
    segment_bytes: int
    blob_bytes: int
    row_bytes: int

    @property
    def ratio(self) -> float:
        """How many times the states would be larger if each were stored whole."""
        return self.logical_bytes / self.stored_bytes if self.stored_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRemark:
    """A remark about one row or file of the source.

    `where` says which one; `checkpoint_id` is the source's own id.
    """

    where: str
    checkpoint_id: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedReport:
    """The result of an import from another program, or of its dry run.

    `imported` checkpoints are new in this store, `already` ones were there before. Of the imported
    ones, `recovered` can no longer be restored by the source program itself. `expired` ones had
    outlived their time to live and were left out. `skipped` lists what could not be read or saved,
    `warnings` what was imported with a remark. `sessions` are those that received checkpoints.
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
        """Whether every checkpoint that has not expired is in the store now."""
        return not self.skipped
