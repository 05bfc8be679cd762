"""Paths and file changes as commands show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdfast.cli.terminal.sanitize import escape, format_bytes
from holdfast.model.snapshot import FileChange, FileEntry, Snapshot


def format_path(path: bytes) -> str:
    """Return a path for a terminal: bytes that are not text are escaped."""
    return escape(path.decode("utf-8", "backslashreplace"))


def snapshot_fields(snapshot: Snapshot) -> dict[str, Any]:
    """Return the fields of a snapshot and of its left-out paths; docs/json-output.md documents them."""
    return {
        "workspace": snapshot.reference,
        "files": snapshot.files,
        "directories": snapshot.directories,
        "symlinks": snapshot.symlinks,
        "bytes": snapshot.size,
        "excluded_count": snapshot.excluded_count,
        "excluded": [{"path": one.text, "rule": one.rule} for one in snapshot.excluded],
        "skipped": [{"path": one.text, "reason": one.reason} for one in snapshot.skipped],
        "notes": list(snapshot.notes),
        "not_taken": snapshot.not_taken.reason if snapshot.not_taken else None,
    }


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


def change_fields(change: FileChange) -> dict[str, Any]:
    return {
        "path": encode_path(change.path),
        "status": change.status,
        "before": _entry_fields(change.before),
        "after": _entry_fields(change.after),
    }


def _entry_fields(entry: FileEntry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    fields: dict[str, Any] = {"kind": entry.kind, "mode": f"{entry.mode:04o}", "size": entry.size}
    if entry.kind == "file":
        fields["content"] = entry.content.hex()
    elif entry.kind == "symlink":
        fields["target"] = encode_path(entry.content)
    return fields


def encode_path(path: bytes) -> str:
    """Return a path for JSON, as Python decodes it: bytes that are not UTF-8 are lone surrogates."""
    return path.decode("utf-8", "surrogateescape")


def print_changes(changes: list[FileChange], write: Callable[[str], Any] = click.echo) -> None:
    for change in changes:
        write(f"{change.status} {format_path(change.path)}{'/' if _is_directory(change) else ''}")


def _is_directory(change: FileChange) -> bool:
    last = change.after or change.before
    return last is not None and last.kind == "dir"
