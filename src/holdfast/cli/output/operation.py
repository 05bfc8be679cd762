"""Operations and their undo, as shown to people and programs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from holdfast.cli.output.restore import format_summary
from holdfast.cli.terminal.sanitize import escape
from holdfast.errors import HoldfastError
from holdfast.model.file_restore_report import UndoReport
from holdfast.model.operation import OperationChange

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient

SHOWN = 3


def describe_undo(client: SyncClient, report: UndoReport) -> str:
    """Return a line that says what was undone or redone, and in which direction."""
    changes = [_describe_change(client, change, report) for change in report.changes[:SHOWN]]
    more = len(report.changes) - SHOWN
    if report.operation is None and report.files is not None:
        changes = [f"files: {format_summary(report.files)}"]
    kind = "restore" if report.operation is None else report.operation.kind
    return escape(f"{kind}: {'; '.join(changes)}{f'; and {more} more' if more > 0 else ''}", 300)


def _describe_change(client: SyncClient, change: OperationChange, report: UndoReport) -> str:
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


def print_how_to_undo(client: SyncClient, kind: str | None = None, session_id: str | None = None) -> None:
    """Print the command that undoes the last operation."""
    made = next(
        (operation for operation in client.operations(session_id, limit=5) if kind in (None, operation.kind)), None
    )
    if made is not None:
        click.echo(f"undo: holdfast undo {made.short_id}", err=True)
