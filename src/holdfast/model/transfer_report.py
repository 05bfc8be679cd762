"""Reports of an export, an import and a copy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The result of an export.

    `digest` is the SHA-256 of the file: the same content gives the same digest. `expired_by_ttl`
    are those of the `tombstones` whose checkpoints are still in the store, and have outlived their
    time to live.
    """

    trees: int
    sessions: int
    checkpoints: int
    tombstones: int
    elements: int
    blobs: int
    rows: int
    size: int
    digest: str
    expired_by_ttl: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedTree:
    """A tree that was not imported, because the store's version differs from it."""

    tree_id: str
    sessions: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """The contents of a file (`trees` to `digest`), and the result of its import.

    `imported` checkpoints, including tombstones, are new in the store, `already_there` were there
    before. With `dry_run`, the numbers are those of the import that would be made.
    """

    dry_run: bool
    trees: int
    sessions: int
    checkpoints: int
    tombstones: int
    elements: int
    blobs: int
    rows: int
    size: int
    digest: str
    imported_trees: int = 0
    imported_sessions: int = 0
    imported: int = 0
    already_there: int = 0
    skipped: tuple[SkippedTree, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """The contents of a store, and the result of copying it to another.

    `copied` checkpoints, including tombstones, are new there, `already_there` were there before.
    """

    trees: int = 0
    sessions: int = 0
    checkpoints: int = 0
    copied: int = 0
    already_there: int = 0
    bytes_read: int = 0
    skipped: tuple[SkippedTree, ...] = ()
