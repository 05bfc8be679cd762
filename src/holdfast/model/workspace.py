"""Snapshots of directories, as values: what was there, what was left out, what changed between two of them.

Paths are bytes, relative to the workspace's root, with `/` between names and none at the ends: a file name is bytes to the
system, and need not be UTF-8.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdfast.model.snapshot_reference import SCHEME

if TYPE_CHECKING:
    from holdfast.model.reports import ForkReport

Kind = Literal["file", "dir", "symlink"]

WHOLE_BYTES = 1024 * 1024  # a file of at most so many bytes is one blob; a larger one is kept in chunks
CHUNK_BYTES = 256 * 1024
EMPTY_CONTENT = hashlib.sha256(b"").digest()


class Entry(NamedTuple):
    """One path of a snapshot. `content` is the SHA-256 of a file's bytes; of its list of chunks, if the file is larger
    than `WHOLE_BYTES` (`is_chunked`); the target of a symlink; nothing for a directory."""

    path: bytes
    kind: Kind
    mode: int  # permissions and the set-id and sticky bits: 0o7777
    size: int  # of a file; of a symlink's target; 0 for a directory
    content: bytes

    @property
    def is_chunked(self) -> bool:
        return self.kind == "file" and self.size > WHOLE_BYTES

    @property
    def is_one_blob(self) -> bool:
        return self.kind == "file" and 0 < self.size <= WHOLE_BYTES

    @property
    def text(self) -> str:
        """The path for people; `os.fsencode` of it gives the bytes back."""
        return os.fsdecode(self.path)


class FileChange(NamedTuple):
    """What became of a path: made (`before` is None), removed (`after` is None) or changed."""

    path: bytes
    before: Entry | None
    after: Entry | None

    @property
    def status(self) -> str:
        """A (added), D (deleted), T (of another kind), M (other content) or P (other permissions only)."""
        if self.before is None:
            return "A"
        if self.after is None:
            return "D"
        if self.before.kind != self.after.kind:
            return "T"
        return "P" if self.before.content == self.after.content else "M"

    @property
    def text(self) -> str:
        return os.fsdecode(self.path)


class Skipped(NamedTuple):
    """Something that is there and could not be, or was not to be, part of the snapshot."""

    path: bytes
    reason: str

    @property
    def text(self) -> str:
        return os.fsdecode(self.path)


class Excluded(NamedTuple):
    """A path that the ignore rules leave out, with all that is below it; `rule` says which one, and where it stands."""

    path: bytes
    rule: str

    @property
    def text(self) -> str:
        return os.fsdecode(self.path)


class Deciding(NamedTuple):
    """A file that decided about what was left out, and was left out itself: an ignore file, with what it says, or one that
    marks a directory as a program's (`pyvenv.cfg`, …), of which nothing matters but that it was there. So it is with a
    `.holdfast` that held another store."""

    path: bytes
    content: bytes = b""

    @property
    def text(self) -> str:
        return os.fsdecode(self.path)


class LeftOut(NamedTuple):
    """A path that snapshots leave out, for which reason, and how many files and bytes are at it and below it now."""

    path: bytes
    reason: str
    files: int
    size: int

    @property
    def text(self) -> str:
        return os.fsdecode(self.path)


@dataclass(frozen=True, slots=True)
class SnapshotSkipped:
    """Why no snapshot was taken: a budget was exceeded, or the disk is nearly full."""

    reason: str


class Options(NamedTuple):
    """What a snapshot was to take in. What one was not to have, it says nothing about."""

    include_git: bool = False
    gitignore: bool = True
    default_excludes: bool = True
    secrets: str = "keep"


DEFAULT_OPTIONS = Options()


class Home(NamedTuple):
    """The directory that a snapshot was taken of, as the checkpoint says that was saved with it."""

    path: bytes
    device: int
    inode: int
    from_store: bytes  # its path from where the store was; empty if that was not on a disk of the same machine

    @property
    def text(self) -> str:
        return os.fsdecode(self.path)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A directory at one moment. `tree` is the root of its tree of entries, None if it was skipped as a whole. `home` is no part of
    it: equal directories have equal snapshots."""

    reference: str  # what a checkpoint's `workspace` says: "holdfast:" and the hash of the snapshot's object
    tree: bytes | None
    files: int = 0
    directories: int = 0
    symlinks: int = 0
    size: int = 0  # bytes of the files' contents
    skipped: tuple[Skipped, ...] = ()
    excluded: tuple[Excluded, ...] = ()  # the first of them: `excluded_count` says how many there are
    excluded_count: int = 0
    notes: tuple[str, ...] = ()
    not_taken: SnapshotSkipped | None = None
    options: Options = DEFAULT_OPTIONS
    deciding: tuple[Deciding, ...] = ()  # that are not in the tree: with those that are, they are the rules of then
    home: Home | None = field(default=None, compare=False)  # None if that is not known

    @property
    def hash(self) -> bytes:
        """The hash of the snapshot's object."""
        return bytes.fromhex(self.reference.removeprefix(SCHEME))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    """A snapshot that was taken: the checkpoint that holds it, and how many paths differ from the snapshot before it."""

    checkpoint_id: str
    session_id: str
    snapshot: Snapshot
    changed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesReport:
    """What `verify` found of a snapshot: objects that are missing or damaged; and, if all files were read again, those that
    changed although their times, sizes and inodes did not."""

    reference: str
    objects: int
    problems: tuple[str, ...] = ()
    unseen: tuple[bytes, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedRestore:
    """A restore that was cut off: to the checkpoint `target_id`; everything as it was before is in `safety_id`."""

    target_id: str | None
    safety_id: str
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A directory as it was at a checkpoint, and the session that goes on from there. Of its `paths`, `copied` files were
    shared or copied by the file system; the others came from the store. `files_changed` are those paths of the first
    directory that somebody has changed since its last snapshot: no checkpoint has them so, and neither has the fork.
    `report` says what was done elsewhere in the tree, and stays done."""

    directory: Path
    session_id: str | None
    checkpoint_id: str | None
    paths: int
    copied: int
    files_changed: tuple[bytes, ...] = ()
    report: ForkReport | None = None
