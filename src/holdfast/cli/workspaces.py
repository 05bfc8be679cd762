"""How commands show paths and what changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.model.workspace import Entry, FileChange


def shown_path(path: bytes) -> str:
    """A path for a terminal: what is not text is escaped."""
    return printable(path.decode("utf-8", "backslashreplace"))


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
