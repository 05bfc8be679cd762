"""Remains of an interrupted restore, as distinct from later changes by others."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.file_restore_plan import LeftPath, list_parents
from holdfast.model.snapshot import FileChange, FileEntry


def is_in_between(entry: FileEntry | None, ends: tuple[FileEntry | None, FileEntry | None]) -> bool:
    """Return whether an interrupted restore may have left that.

    It may leave one of its ends, nothing, or a directory without its mode.
    """
    if entry is None or entry in ends:
        return True
    return entry.kind == "dir" and any(end is not None and end.kind == "dir" for end in ends)


def drop_homeless(
    changes: Sequence[FileChange], others: Sequence[FileChange]
) -> tuple[list[FileChange], list[LeftPath]]:
    """Drop the changes in directories that others have moved away since."""
    gone = {
        other.path
        for other in others
        if other.after is not None and (other.before is None or other.before.kind != "dir")
    }
    homeless = {change.path for change in changes if not gone.isdisjoint(list_parents(change.path))} if gone else set()
    return (
        [change for change in changes if change.path not in homeless],
        [LeftPath(path, "its directory is not there any more") for path in sorted(homeless)],
    )
