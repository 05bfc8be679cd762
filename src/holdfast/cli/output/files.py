"""Paths and file changes as commands show them."""

from __future__ import annotations

import click

from holdfast.cli.terminal.sanitize import escape, format_bytes
from holdfast.model.snapshot import FileChange, Snapshot


def format_path(path: bytes) -> str:
    """Return a path for a terminal: bytes that are not text are escaped."""
    return escape(path.decode("utf-8", "backslashreplace"))


def format_snapshot(snapshot: Snapshot) -> str:
    """Return a snapshot in one line."""
    if snapshot.not_taken is not None:
        return escape(snapshot.not_taken.reason)
    parts = [format_count(snapshot.files, "file"), format_bytes(snapshot.size)]
    parts += [f"{snapshot.excluded_count} left out by rules"] if snapshot.excluded_count else []
    parts += [f"{len(snapshot.skipped)} skipped"] if snapshot.skipped else []
    return ", ".join(parts)


def format_count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def print_changes(changes: list[FileChange]) -> None:
    for change in changes:
        click.echo(f"{change.status} {format_path(change.path)}{'/' if _is_directory(change) else ''}")


def _is_directory(change: FileChange) -> bool:
    last = change.after or change.before
    return last is not None and last.kind == "dir"
