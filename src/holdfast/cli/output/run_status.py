"""The status of a run as text: a line of words, and a bar of its progress."""

from __future__ import annotations

import click

from holdfast.cli.terminal.sanitize import escape, escape_lines, format_identifier, format_name, format_utc
from holdfast.model.ids import short
from holdfast.model.run_status import RunProgress, RunState, RunStatus, RunWait
from holdfast.model.safe_repr import safe_repr

BAR, LONGEST_RESULT = 10, 200


def format_status(run: RunStatus) -> str:
    """Return the status in a few words: what a run waits for, or how it failed."""
    words = str(run.status)
    if run.waits:
        return f"{words} for {_wait(run.waits[0])}"
    if run.in_doubt:
        return f"{words}: {', '.join(short(item) for item in run.in_doubt)}"
    if run.failure is not None and run.status in (RunState.FAILED, RunState.INTERRUPTED):
        at = f" at {format_name(run.failure.step)}" if run.failure.step else ""
        kind = run.failure.error_type.rpartition(".")[2]
        return f"{words}{at}: {escape(f'{kind}: {run.failure.message}', 60)}"
    return words


def _wait(wait: RunWait) -> str:
    until = f" until {format_utc(wait.until)}" if wait.until is not None else ""
    more = f" and {len(wait.targets) - 1} more" if len(wait.targets) > 1 else ""
    if not wait.targets:
        return f"{escape(wait.kind, 20)}{until}"
    target = short(wait.targets[0]) if wait.kind == "approval" else format_identifier(wait.targets[0])
    return f"{escape(wait.kind, 20)} {target}{more}{until}"


def format_progress(progress: RunProgress | None) -> str:
    """Return progress as a bar with numbers, or as a number alone if its total is unknown."""
    if progress is None:
        return ""
    note = f" {escape(progress.note, 30)}" if progress.note else ""
    if progress.total is None or progress.total <= 0:
        return f"{progress.done:g}{note}"
    full = round(BAR * min(progress.done / progress.total, 1.0))
    return f"{'#' * full}{'.' * (BAR - full)} {progress.done:g}/{progress.total:g}{note}"


def print_status(run: RunStatus) -> None:
    """Print the status for a detail page: how the run stands and, of a failure, the traceback."""
    attempts = f" ({run.attempts} attempts)" if run.attempts > 1 else ""
    click.echo(f"{'status':<12}{format_status(run)}{attempts}")
    if run.function is not None:
        version = f", version {escape(run.version, 40)}" if run.version else ""
        click.echo(f"{'function':<12}{format_name(run.function)}{version}")
    if run.holder is not None:
        click.echo(f"{'by':<12}{format_name(run.holder)}")
    if run.since is not None:
        click.echo(f"{'since':<12}{format_utc(run.since)} UTC")
    if run.result is not None:
        click.echo(f"{'result':<12}{escape(safe_repr(run.result), LONGEST_RESULT)}")
    if run.progress is not None:
        click.echo(f"{'progress':<12}{format_progress(run.progress)}")
    if run.failure is not None:
        for line in (run.failure.traceback or run.failure.message).splitlines():
            click.echo(f"  {escape_lines(line)}")
