"""How commands show paths and what changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.model.workspace import Entry, FileChange, Snapshot


def shown_path(path: bytes) -> str:
    """A path for a terminal: what is not text is escaped."""
    return printable(path.decode("utf-8", "backslashreplace"))


def snapshot_fields(snapshot: Snapshot) -> dict[str, Any]:
    """What a snapshot has, and what it has not; docs/json-output.md documents them."""
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


def snapshot_text(snapshot: Snapshot) -> str:
    """A snapshot in one line."""
    from holdfast.cli.printable import byte_count

    if snapshot.not_taken is not None:
        return printable(snapshot.not_taken.reason)
    parts = [counted(snapshot.files, "file"), byte_count(snapshot.size)]
    parts += [f"{snapshot.excluded_count} left out by rules"] if snapshot.excluded_count else []
    parts += [f"{len(snapshot.skipped)} skipped"] if snapshot.skipped else []
    return ", ".join(parts)


def counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def change_fields(change: FileChange) -> dict[str, Any]:
    return {
        "path": _text(change.path),
        "status": change.status,
        "before": _entry_fields(change.before),
        "after": _entry_fields(change.after),
    }


def _entry_fields(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    fields: dict[str, Any] = {"kind": entry.kind, "mode": f"{entry.mode:04o}", "size": entry.size}
    if entry.kind == "file":
        fields["content"] = entry.content.hex()
    elif entry.kind == "symlink":
        fields["target"] = _text(entry.content)
    return fields


def _text(path: bytes) -> str:
    return os.fsdecode(path)


def print_changes(changes: list[FileChange], write: Callable[[str], Any] = click.echo) -> None:
    for change in changes:
        write(f"{change.status} {shown_path(change.path)}{'/' if _is_directory(change) else ''}")


def _is_directory(change: FileChange) -> bool:
    last = change.after or change.before
    return last is not None and last.kind == "dir"
