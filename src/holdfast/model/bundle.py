"""What an export and an import report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What was exported. `digest` is the SHA-256 of the file: the same content gives the same."""

    trees: int
    sessions: int
    checkpoints: int
    tombstones: int
    elements: int
    blobs: int
    rows: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedTree:
    """A tree that was not imported, because what is there differs from it."""

    tree_id: str
    sessions: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What a file holds (`trees` to `digest`), and what became of it: `imported` checkpoints, tombstones among them, were
    not there before, `already_there` were. With `dry_run`, what would become of it."""

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
    """What a store holds, and what became of it in another: `copied` checkpoints, tombstones among them, were not there
    before, `already_there` were."""

    trees: int = 0
    sessions: int = 0
    checkpoints: int = 0
    copied: int = 0
    already_there: int = 0
    bytes_read: int = 0
    skipped: tuple[SkippedTree, ...] = ()
