"""A restore of files, as shown to people and programs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.output.files import format_path
from holdfast.cli.terminal.sanitize import escape, format_bytes
from holdfast.model.file_restore_plan import FileAction, LeftPath
from holdfast.model.file_restore_report import RestoreReport

SHOWN = 40
FLAGS = {
    "escapes": "is a link that leads out of the directory, to",
    "case": "differs only in case from",
    "unicode": "differs only in how its letters are put together from",
    "reserved": "is no name that Windows has",
    "long": "is longer than Windows takes",
}


def print_dry_run() -> None:
    """Print that a dry run changed nothing: its plan reads like the result."""
    click.echo("nothing was changed: leave out --dry-run to do it", err=True)


def print_report(report: RestoreReport) -> None:
    """Print the planned or completed actions, line by line, and the paths left as they are."""
    for action in report.actions[:SHOWN]:
        click.echo(f"  {_word(action)}  {format_path(action.path)}", err=True)
    _print_more(len(report.actions))
    if report.written_files:
        files = "1 file" if report.written_files == 1 else f"{report.written_files:,} files"
        click.echo(f"  writes {files}, {format_bytes(report.written_bytes)} in all", err=True)
    for path in report.conflicts[:SHOWN]:
        click.echo(f"  changed since the last snapshot: {format_path(path)}", err=True)
    print_left(report.left)
    for flag in report.flags[:SHOWN]:
        other = f" {format_path(flag.other)}" if flag.other else ""
        click.echo(f"  note: {format_path(flag.path)} {FLAGS[flag.kind]}{other}", err=True)
    for skipped in report.skipped[:SHOWN]:
        click.echo(f"  not in the snapshot: {format_path(skipped.path)} ({escape(skipped.reason)})", err=True)
    if report.state is not None:
        for effect in (*report.state.effects, *report.state.unknown):
            click.echo(f"  stays done, or may: {escape(str(effect.tool), 60)} ({effect.effect_id})", err=True)
        for handed in report.state.consumers:
            click.echo(f"  another agent has continued from {handed.checkpoint.checkpoint_id}", err=True)
    if report.excluded:
        paths = "1 path is" if report.excluded == 1 else f"{report.excluded} paths are"
        click.echo(f"  {paths} excluded by rules: neither written nor deleted", err=True)


def print_left(left: Sequence[LeftPath]) -> None:
    """Print the paths left as they are, and why."""
    for path in left[:SHOWN]:
        click.echo(f"  left: {format_path(path.path)} ({escape(path.reason)})", err=True)
    _print_more(len(left), "left")


def format_summary(report: RestoreReport) -> str:
    """Return one line with the number of changes by kind."""
    counts = {word: sum(_word(action).strip() == word for action in report.actions) for word in ("+", "-", "~", "m")}
    words = {"+": "made", "-": "deleted", "~": "replaced", "m": "given another mode"}
    parts = [f"{count} {words[sign]}" for sign, count in counts.items() if count]
    if report.state is not None:
        parts.append(f"session at {report.state.to_id[-8:]}")
    if not parts and report.left:
        return "nothing to do: what is not as in the checkpoint is left as it is"
    return ", ".join(parts) or "nothing to do: everything is as in the checkpoint"


def _word(action: FileAction) -> str:
    return {"create": "+", "delete": "-", "replace": "~", "chmod": "m"}[action.doing]


def _print_more(count: int, word: str = "") -> None:
    if count > SHOWN:
        click.echo(f"  … and {count - SHOWN} more{f' {word}' if word else ''}", err=True)
