"""Differences of states as shown: in colour on a terminal, and as JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import click

from holdfast.cli.terminal.color import is_colored
from holdfast.cli.terminal.sanitize import escape
from holdfast.cli.terminal.table import cut
from holdfast.model.diff import Diff

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
