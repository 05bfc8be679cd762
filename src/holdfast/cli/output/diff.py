"""Differences of states as shown: in colour on a terminal, and as JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import click

from holdfast.cli.output.json import to_json
from holdfast.cli.terminal.color import is_colored
from holdfast.cli.terminal.sanitize import escape
from holdfast.cli.terminal.table import cut
from holdfast.model.diff import At, Diff, Drop, Edit, Field, Put, Splice

COLOURS = {"+": "green", "-": "red", "~": "yellow", "@": "cyan"}


def print_diff(diff: Diff, *, files: bool = True, raw: bool = False) -> None:
    """Print a line or a few for each edit; nothing if there is none."""
    print_lines(f"{sign} {escape(line)}" for sign, line in diff.lines(files=files, raw=raw))


def print_start_of_diff(diff: Diff, *, raw: bool, each: int, most: int) -> None:
    """Print the first lines of each path, each in one row of a terminal."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    shown = [f"{sign} {escape(line)}" for sign, line in islice(diff.lines(raw=raw, each=each), most)]
    print_lines(cut(line, columns) if columns else line for line in shown)
    left = sum(1 for _ in diff.lines(raw=raw)) - len(shown)
    if left:
        click.echo(f"… and {left:,} more")


def print_lines(lines: Iterable[str]) -> None:
    """Lines that are safe to print, coloured by what they begin with."""
    coloured = is_colored()
    for line in lines:
        colour = COLOURS.get(line[:1]) if coloured else None
        click.echo(click.style(line, fg=colour) if colour else line)


def print_text_change(path: Path, before: str, after: str) -> None:
    """Print, on stderr, the difference that a command is about to make to a file."""
    import difflib

    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), lineterm="", n=2)
    for line in lines:
        click.echo(escape(line), err=True)


def edit_fields(edit: Edit) -> dict[str, Any]:
    """Return an edit for `--json`."""
    path = [_plain_key(key) for key in edit.path]
    if isinstance(edit, Put):
        if edit.replaces:
            return {"kind": "change", "path": path, "old": to_json(edit.was), "new": to_json(edit.value)}
        return {"kind": "add", "path": path, "new": to_json(edit.value)}
    if isinstance(edit, Drop):
        return {"kind": "remove", "path": path, "old": to_json(edit.was)}
    if isinstance(edit, Splice):
        old, new = ([to_json(element) for element in elements] for elements in (edit.removed, edit.added))
        return {"kind": "splice", "path": path, "at": edit.at, "old": old, "new": new}
    return {"kind": "reorder", "path": path, "keys": [to_json(key) for key in edit.keys]}


def _plain_key(key: Any) -> Any:
    return int(key) if type(key) is At else str(key) if type(key) is Field else to_json(key)


def recorded_fields(diff: Diff) -> list[dict[str, Any]]:
    """Return the steps and effects that only one of two checkpoints has."""
    return [
        {
            "came": one.came,
            "kind": one.kind,
            "name": one.name,
            "status": one.status,
            "effect_id": one.effect.effect_id if one.effect else None,
            "effect_state": str(one.effect.state) if one.effect else None,
        }
        for one in diff.recorded
    ]
