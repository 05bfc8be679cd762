"""Operations, and the reports of those that change something, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from holdfast.json_form.difference import encode_path
from holdfast.json_form.values import format_time
from holdfast.model.file_restore_plan import FileAction, LeftPath
from holdfast.model.file_restore_report import RestoreReport, UndoReport
from holdfast.model.operation import Operation, OperationChange
from holdfast.model.reports import ForkReport, RetentionReport, RollbackReport
from holdfast.model.snapshot import ForkedWorkspace


def operation_fields(found: Operation) -> dict[str, Any]:
    """docs/json-output.md documents them."""
    return {
        "operation_id": found.operation_id,
        "short_id": found.short_id,
        "kind": found.kind,
        "at": format_time(found.at),
        "by": found.by,
        "session_id": found.session_id,
        "of": found.of,
        "is_undone": found.is_undone,
        "can_be_undone": found.can_be_undone,
        "changes": _change_fields(found.changes),
    }


def _change_fields(changes: Sequence[OperationChange]) -> list[dict[str, Any]]:
    return [
        {"kind": change.kind, "name": change.name, "before": change.before, "after": change.after} for change in changes
    ]


def undo_fields(report: UndoReport) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "kind": report.kind,
        "operation": None if report.operation is None else operation_fields(report.operation),
        "operation_id": report.operation_id,
        "changes": _change_fields(report.changes),
        "left": list(report.left),
        "dry_run": report.dry_run,
        "state": state_fields(report.state),
    }
    # Files that were left as they are have their own fields, and are never in both.
    return fields if report.files is None else {**fields, **report_fields(report.files)}


def report_fields(report: RestoreReport) -> dict[str, Any]:
    """docs/json-output.md documents them."""
    return {
        "dry_run": report.dry_run,
        "scope": report.scope,
        "target_id": report.target_id,
        "safety_id": report.safety_id,
        "actions": [
            {"action": action.doing, **_kinds(action), "path": encode_path(action.path)} for action in report.actions
        ],
        "conflicts": [encode_path(path) for path in report.conflicts],
        "overwritten": [encode_path(path) for path in report.overwritten],
        "left": left_fields(report.left),
        "flags": [
            {"kind": flag.kind, "path": encode_path(flag.path), "other": encode_path(flag.other)}
            for flag in report.flags
        ],
        "skipped": [
            {"path": encode_path(skipped_path.path), "reason": skipped_path.reason} for skipped_path in report.skipped
        ],
        "excluded": report.excluded,
        "written_files": report.written_files,
        "written_bytes": report.written_bytes,
        "state": state_fields(report.state),
    }


def state_fields(state: RollbackReport | None) -> dict[str, Any] | None:
    """Return the move of a session's head; None if it did not move."""
    return None if state is None else {name: getattr(state, name) for name in ("session_id", "from_id", "to_id")}


def left_fields(left: Sequence[LeftPath]) -> list[dict[str, str]]:
    """Return the paths left as they are, for programs."""
    return [{"path": encode_path(path.path), "reason": path.reason} for path in left]


def _kinds(action: FileAction) -> dict[str, str | None]:
    return {
        "before": None if action.before is None else action.before.kind,
        "after": None if action.after is None else action.after.kind,
    }


def left_behind_fields(report: RollbackReport | ForkReport) -> dict[str, Any]:
    """Return the ids of what is left behind."""
    fields: dict[str, Any] = {
        "effects": [effect.effect_id for effect in report.effects],
        "unknown": [record.effect_id for record in report.unknown],
        "consumers": [consumer.handoff_id for consumer in report.consumers],
    }
    if isinstance(report, RollbackReport):
        fields["published"] = [left_message.message_id for left_message in report.published]
        fields["consumed"] = [left_message.message_id for left_message in report.consumed]
    return fields


def rollback_fields(report: RollbackReport, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "session_id": report.session_id,
        "from_id": report.from_id,
        "to_id": report.to_id,
        **left_behind_fields(report),
        "undos": [record.effect_id for record in report.undos],
        "approvals_voided": [approval.approval_id for approval in report.approvals_voided],
        "files": None if report.files is None else report_fields(report.files),
    }


def fork_fields(report: ForkReport, made: ForkedWorkspace | None = None) -> dict[str, Any]:
    """Return the fields of a fork; `made` is its directory, if it has one."""
    return {
        "directory": str(made.directory) if made else None,
        "session_id": report.session_id,
        "checkpoint_id": report.checkpoint_id,
        "paths": made.paths if made else 0,
        "copied": made.copied if made else 0,
        "source_id": report.source_id,
        **left_behind_fields(report),
        "files_changed": [encode_path(path) for path in made.files_changed] if made else [],
        "left": left_fields(made.left if made else ()),
    }


def retention_fields(report: RetentionReport) -> dict[str, Any]:
    return {**asdict(report), "fits": report.fits}
