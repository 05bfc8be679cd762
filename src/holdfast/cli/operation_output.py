"""What people and programs are told about operations, and about taking them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.printable import printable

if TYPE_CHECKING:
    from holdfast.model.oplog import Operation
    from holdfast.model.reports import RollbackReport
    from holdfast.model.restore_report import UndoReport
    from holdfast.sync_client import SyncClient


def operation_fields(found: Operation) -> dict[str, Any]:
    """docs/json-output.md documents them."""
    from holdfast.cli.json_output import moment

    return {
        "operation_id": found.operation_id,
        "short_id": found.short_id,
        "kind": found.kind,
        "at": moment(found.at),
        "by": found.by,
        "session_id": found.session_id,
        "of": found.of,
        "is_undone": found.is_undone,
        "can_be_undone": found.can_be_undone,
        "changes": [
            {"kind": one.kind, "name": one.name, "before": one.before, "after": one.after} for one in found.changes
        ],
    }


def told(found: Operation) -> str:
    """What it did, in a line, for a terminal."""
    return printable(f"{found.kind}: {found.text()}", 200)


def undo_fields(report: UndoReport) -> dict[str, Any]:
    from holdfast.cli.restore_output import report_fields

    fields: dict[str, Any] = {
        "kind": report.kind,
        "operation": operation_fields(report.operation),
        "operation_id": report.operation_id,
        "left": list(report.left),
        "dry_run": report.dry_run,
        "state": state_fields(report.state),
    }
    # What was left of files stands under their own fields, and is never both.
    return fields if report.files is None else {**fields, **report_fields(report.files)}


def state_fields(state: RollbackReport | None) -> dict[str, Any] | None:
    if state is None:
        return None
    return {"session_id": state.session_id, "from_id": state.from_id, "to_id": state.to_id}


def say_how_to_undo(client: SyncClient, kind: str, session_id: str | None = None) -> None:
    """The command that undoes what was just done."""
    made = next((one for one in client.operations(session_id, limit=5) if one.kind == kind), None)
    if made is not None:
        click.echo(f"undo: holdfast undo {made.short_id}", err=True)
