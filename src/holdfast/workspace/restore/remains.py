"""Remains of an interrupted restore, as distinct from later changes by others."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.file_restore_plan import Left, list_parents
from holdfast.model.snapshot import FileChange, FileEntry


def is_in_between(there: FileEntry | None, ends: tuple[FileEntry | None, FileEntry | None]) -> bool:
    """Return whether an interrupted restore may have left that.

    It may leave one of its ends, nothing, or a directory without its mode.
    """
    if there is None or there in ends:
        return True
    return there.kind == "dir" and any(end is not None and end.kind == "dir" for end in ends)


def drop_homeless(changes: Sequence[FileChange], others: Sequence[FileChange]) -> tuple[list[FileChange], list[Left]]:
    """Drop the changes in directories that others have moved away since."""
    gone = {one.path for one in others if one.after is not None and (one.before is None or one.before.kind != "dir")}
    homeless = {one.path for one in changes if not gone.isdisjoint(list_parents(one.path))} if gone else set()
    return (
        [one for one in changes if one.path not in homeless],
        [Left(path, "its directory is not there any more") for path in sorted(homeless)],
    )
