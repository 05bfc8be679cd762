"""The terms of a restore: what it needs to know of a directory, where it goes, and how it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from holdfast.model.reports import RollbackReport
from holdfast.model.workspace import FileChange, Snapshot
from holdfast.objects import filetree
from holdfast.objects.oplog import Origin
from holdfast.operations.services import Services
from holdfast.workspace.apply import Inodes, StatKey
from holdfast.workspace.carrying_out import Progress

Keep = Literal["user"] | None
Escape = Literal["warn", "refuse"]


@dataclass(frozen=True, slots=True)
class Taken:
    """A snapshot of what is there now. `nodes` are those of its tree that are not stored; `not_ours` is what is there and
    not in it."""

    snapshot: Snapshot
    checkpoint_id: str | None = None
    nodes: Mapping[bytes, bytes] = field(default_factory=dict)
    seen: Inodes = field(default_factory=dict[bytes, StatKey])
    not_ours: Sequence[bytes] = ()


class Directory(Protocol):
    """What a restore needs to know of the directory and its sessions."""

    root: bytes
    services: Services

    async def look(self) -> Taken:
        """What is there, found by a walk, without storing anything."""

    async def take_safety(self, why: str) -> Taken:
        """The same as a checkpoint of its own."""

    async def keep_safety(self, checkpoint_id: str) -> None:
        """Pins it: it is needed."""

    async def drop_safety(self, checkpoint_id: str) -> None:
        """It turned out not to be needed."""

    async def protected(
        self, now: Taken, target: Snapshot, changes: Sequence[FileChange], load: filetree.Load
    ) -> Callable[[bytes], bool]:
        """Whether a path is excluded, by the rules of the target or by those of now; `changes` is all that differs."""

    async def last_known(self, target_id: str | None) -> list[str]:
        """The snapshots that the agent took last: what is as in one of them is nobody else's change."""

    async def head_of(self, session_id: str) -> str | None: ...

    async def move_head(self, session_id: str, to: str, *, dry_run: bool = False) -> RollbackReport: ...

    async def adopt(self, session_id: str, fork_id: str, origin: Origin, *, dry_run: bool = False) -> None:
        """Makes the state of a fork's checkpoint, and the files as they are, the next checkpoint of the session."""

    async def adopted_from(self, checkpoint_id: str) -> str | None:
        """The checkpoint of a fork that this one was made from so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to go: a snapshot, the checkpoint that it belongs to, and the session that goes there with the files."""

    snapshot: Snapshot
    checkpoint_id: str | None = None
    session_id: str | None = None  # only if the state is rolled back, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How a restore is asked for."""

    keep: Keep = None
    force: bool = False
    paths: tuple[bytes, ...] = ()
    escape: Escape = "warn"
    only: frozenset[bytes] | None = None  # exactly these paths: what an undo goes back on
    known: tuple[str, ...] | None = None  # the only snapshots whose contents are not the user's own changes
    since: str = "the last snapshot"  # since when what is not as in one of these has changed
    progress: Progress | None = None
