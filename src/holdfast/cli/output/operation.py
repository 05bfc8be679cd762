"""Operations and their undo, as shown to people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output.json import format_time
from holdfast.cli.output.restore import format_summary, report_fields, state_fields
from holdfast.cli.terminal.sanitize import escape
from holdfast.errors import HoldfastError
from holdfast.model.file_restore_report import UndoReport
from holdfast.model.operation import Operation, OperationChange

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient

SHOWN = 3


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
    return [{"kind": one.kind, "name": one.name, "before": one.before, "after": one.after} for one in changes]


def describe_undo(client: SyncClient, report: UndoReport) -> str:
    """Return a line that says what was undone or redone, and in which direction."""
    told = [_went(client, one, report) for one in report.changes[:SHOWN]]
    more = len(report.changes) - SHOWN
    if report.operation is None and report.files is not None:
        told = [f"files: {format_summary(report.files)}"]
    kind = "restore" if report.operation is None else report.operation.kind
    return escape(f"{kind}: {'; '.join(told)}{f'; and {more} more' if more > 0 else ''}", 300)


def _went(client: SyncClient, change: OperationChange, report: UndoReport) -> str:
    if change.kind == "head":
        return f"session {change.name}: {_step(client, change.before)} → {_step(client, change.after)}"
    if change.kind == "files" and report.files is not None:
        # An undo leads to a safety snapshot, which has no step: it is the state before.
        to = "back to before" if report.kind == "undo" else f"again to {_step(client, change.after)}"
        files = replace(report.files, state=None)  # the head has its own change
        return f"files of {change.name}: {to}: {format_summary(files)}"
    return change.text()


def _step(client: SyncClient, id_: str | None) -> str:
    """Return the step of a checkpoint as text, if it still exists."""
    if id_ is None:
        return "nothing"
    try:
        return f"step {client.get(id_).step_index} ({id_[-8:]})"
    except HoldfastError:
        return id_[-8:]


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


def print_how_to_undo(client: SyncClient, kind: str | None = None, session_id: str | None = None) -> None:
    """Print the command that undoes the last operation."""
    made = next((one for one in client.operations(session_id, limit=5) if kind in (None, one.kind)), None)
    if made is not None:
        click.echo(f"undo: holdfast undo {made.short_id}", err=True)
