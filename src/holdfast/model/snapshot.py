"""Snapshots of directories as values: contents, exclusions, and changes between two.

Paths are bytes, relative to the workspace's root, with `/` between names and none at the ends: a
file name is bytes to the system, and need not be UTF-8.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdfast.model.ids import SCHEME

if TYPE_CHECKING:
    from holdfast.model.file_restore_plan import LeftPath
    from holdfast.model.reports import ForkReport

Kind = Literal["file", "dir", "symlink"]

WHOLE_BYTES = 1024 * 1024  # a file of at most this size is one blob; a larger one is stored in chunks
CHUNK_BYTES = 256 * 1024
EMPTY_CONTENT = hashlib.sha256(b"").digest()


class FileEntry(NamedTuple):
    """One path of a snapshot.

    `content` is the SHA-256 of a file's bytes. For a file larger than `WHOLE_BYTES` (`is_chunked`)
    it is the SHA-256 of its list of chunks; for a symlink, the target; for a directory, empty.
    """

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
    """The change of a path: added (`before` is None), removed (`after` is None) or changed."""

    path: bytes
    before: FileEntry | None
    after: FileEntry | None

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


class SkippedPath(NamedTuple):
    """A path that exists but could not be, or was not to be, part of the snapshot."""

    path: bytes
    reason: str

    @property
    def text(self) -> str:
        return os.fsdecode(self.path)


class ExcludedPath(NamedTuple):
    """A path that the ignore rules exclude, with everything below it.

    `rule` says which rule, and where it is written.
    """

    path: bytes
    rule: str

    @property
    def text(self) -> str:
        return os.fsdecode(self.path)


class RuleFile(NamedTuple):
    """An excluded file that decided about exclusions itself.

    It is an ignore file, with its text, or a file that marks a directory as a program's
    (`pyvenv.cfg`, …). Of a marker only its existence matters. The same holds for a `.holdfast` that
    contained another store.
    """

    path: bytes
    content: bytes = b""

    @property
    def text(self) -> str:
        return os.fsdecode(self.path)


class LeftOut(NamedTuple):
    """A path that snapshots exclude, the reason, and how many files and bytes are at and below it now."""

    path: bytes
    reason: str
    files: int
    size: int

    @property
    def text(self) -> str:
        return os.fsdecode(self.path)


@dataclass(frozen=True, slots=True)
class SnapshotSkipped:
    """The reason why no snapshot was taken: a budget was exceeded, or the disk is nearly full."""

    reason: str


class SnapshotOptions(NamedTuple):
    """The options of a snapshot: which paths it was to include.

    A snapshot says nothing about paths that it was not to include.
    """

    include_git: bool = False
    gitignore: bool = True
    default_excludes: bool = True
    secrets: str = "keep"


DEFAULT_OPTIONS = SnapshotOptions()


class Home(NamedTuple):
    """The directory that a snapshot was taken of, as recorded in the checkpoint saved with it."""

    path: bytes
    device: int
    inode: int
    from_store: bytes  # its path relative to the store; empty if the store was not on a disk of the same machine

    @property
    def text(self) -> str:
        return os.fsdecode(self.path)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A directory at one moment.

    `tree` is the root of its tree of entries, None if the whole snapshot was skipped. `home` takes
    no part in comparisons: equal directories have equal snapshots.
    """

    reference: str  # as in a checkpoint's `workspace`: "holdfast:" and the hash of the snapshot's object
    tree: bytes | None
    files: int = 0
    directories: int = 0
    symlinks: int = 0
    size: int = 0  # bytes of the files' contents
    skipped: tuple[SkippedPath, ...] = ()
    excluded: tuple[ExcludedPath, ...] = ()  # the first ones: `excluded_count` says how many there are
    excluded_count: int = 0
    notes: tuple[str, ...] = ()
    not_taken: SnapshotSkipped | None = None
    options: SnapshotOptions = DEFAULT_OPTIONS
    deciding: tuple[RuleFile, ...] = ()  # not in the tree: with those in it, they are the rules of that time
    home: Home | None = field(default=None, compare=False)  # None if unknown

    @property
    def hash(self) -> bytes:
        """The hash of the snapshot's object."""
        return bytes.fromhex(self.reference.removeprefix(SCHEME))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    """A snapshot that was taken: its checkpoint, and how many paths differ from the previous snapshot."""

    checkpoint_id: str
    session_id: str
    snapshot: Snapshot
    changed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesReport:
    """The result of `verify` for a snapshot.

    It lists objects that are missing or damaged. If all files were read again, it also lists those
    that changed although their times, sizes and inodes did not.
    """

    reference: str
    objects: int
    problems: tuple[str, ...] = ()
    unseen: tuple[bytes, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedRestore:
    """A restore to the checkpoint `target_id` that was cut off.

    `safety_id` is the checkpoint with the files as they were before.
    """

    target_id: str | None
    safety_id: str
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedWorkspace:
    """A copy of a directory as it was at a checkpoint, and the session that continues from there.

    Of its `paths`, `copied` files were shared or copied by the file system; the others came from
    the store. `files_changed` are paths of the first directory with changes since its last
    snapshot: no checkpoint has these changes, and neither has the fork. `left` lists the paths of
    the snapshot that were not written, or not exactly, with the reason. `report` lists the effects
    elsewhere in the tree that stay done.
    """

    directory: Path
    session_id: str | None
    checkpoint_id: str | None
    paths: int
    copied: int
    files_changed: tuple[bytes, ...] = ()
    left: tuple[LeftPath, ...] = ()
    report: ForkReport | None = None
