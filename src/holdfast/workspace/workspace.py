"""A workspace in the hand of its user: the directory that an agent works in, and its snapshots."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.backends.stepping import run_inline
from holdfast.errors import CheckpointNotFoundError, CorruptError, UsageError
from holdfast.model import ids
from holdfast.model.workspace import Entry, FileChange, FilesReport, LeftOut, Snapshot, SnapshotReport
from holdfast.objects import filetree
from holdfast.operations import arguments, reading, snapshots
from holdfast.operations.arguments import SaveRequest
from holdfast.operations.reach import Reach
from holdfast.operations.services import Services
from holdfast.workspace import left_out
from holdfast.workspace import watch as watching
from holdfast.workspace.contents import read_now
from holdfast.workspace.guards import SECRETS, Limits, Secrets, checked_root, left_out_for_store
from holdfast.workspace.homes import store_on_disk
from holdfast.workspace.restores import Restorable, SyncRestorable
from holdfast.workspace.scope import Scope
from holdfast.workspace.taking import Progress, Taker, changes_between

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.objects.record import Stored
    from holdfast.sync_client import SyncClient

BLOBS_AT_ONCE = 64
At = str | Snapshot  # a checkpoint's id, or a snapshot


class Opened:
    """What both kinds of a workspace are made of."""

    def __init__(
        self,
        services: Services,
        path: str | os.PathLike[str],
        *,
        session_id: str | None = None,
        include_git: bool = False,
        gitignore: bool = True,
        default_excludes: bool = True,
        secrets: Secrets = "keep",
        limits: Limits | None = None,
        watch: bool = False,
    ) -> None:
        self.services = services
        self.path = checked_root(path)
        store = store_on_disk(services)
        scope = Scope(
            include_git=include_git,
            use_gitignore=gitignore,
            use_defaults=default_excludes,
            secrets=arguments.one_of("secrets", secrets, SECRETS),  # type: ignore[arg-type]  # it is one of these
            never=left_out_for_store(self.path, store),
        )
        self.session_id = f"workspace {self.path}" if session_id is None else arguments.name("session_id", session_id)
        if not (limits is None or isinstance(limits, Limits)):
            raise UsageError(
                f"limits is a {type(limits).__name__}: what a snapshot may be is said by holdfast.WorkspaceLimits"
            )
        self.store = store
        self.taker = Taker(services, self.path, store, scope, limits or Limits())
        if watch and watching.is_possible(self.path):
            with contextlib.suppress(OSError):  # too many of them on this machine: then the walk finds what changed
                self.taker.watch = watching.Watch()

    async def save(self, request: SaveRequest, **how: Any) -> Stored:
        return (await self.taker.save(request, **how))[0]

    async def snapshot(
        self,
        message: str | None,
        *,
        session_id: str | None,
        agent_id: str,
        hints: Sequence[str | bytes] | None,
        deep: bool,
        progress: Progress | None,
    ) -> SnapshotReport:
        session = self.session_id if session_id is None else arguments.name("session_id", session_id)
        request = SaveRequest(
            agent_id=arguments.name("agent_id", agent_id),
            session_id=session,
            execution_state={},
            agent_context={},
            step_name=arguments.optional_name("message", message),
        )
        paths = None if hints is None else [self.relative(hint) for hint in hints]
        stored, snapshot, changed = await self.taker.save(request, hints=paths, deep=deep, progress=progress)
        snapshot = replace(snapshot, home=snapshots.home_of(stored))
        return SnapshotReport(
            checkpoint_id=ids.to_text(stored.id), session_id=session, snapshot=snapshot, changed=changed
        )

    async def status(self) -> list[FileChange]:
        base, look = await self.taker.look(self.session_id)
        assert look.snapshot.tree is not None
        before = base.snapshot.tree if base is not None and base.snapshot.tree is not None else None
        return await self._changes(before, look.snapshot.tree, look.nodes)

    async def is_known(self) -> bool:
        return await self.taker.base_of(self.session_id) is not None

    async def left_out(self) -> list[LeftOut]:
        _, look = await self.taker.look(self.session_id)
        skipped, excluded = self.taker.left_out(look.walk)
        return await self.services.backend.apart(lambda: left_out.measured(self.taker.root, [*excluded, *skipped]))

    async def diff(self, before: At | None, after: At | None) -> list[FileChange]:
        if before is None and after is None:
            return await self.status()
        first = await self.snapshot_at(before) if before is not None else None
        if after is not None:
            second = await self.snapshot_at(after)
            before_tree = snapshots.tree_of(first) if first else None
            return await self._changes(before_tree, snapshots.tree_of(second), {})
        _, look = await self.taker.look(self.session_id)
        assert look.snapshot.tree is not None
        assert first is not None
        return await self._changes(snapshots.tree_of(first), look.snapshot.tree, look.nodes)

    async def _changes(self, before: bytes | None, after: bytes, nodes: Any) -> list[FileChange]:
        if before is None:
            empty = filetree.build(())
            before, nodes = empty.root, {**nodes, **empty.nodes}
        return await changes_between(self.services, before, after, nodes)

    async def snapshot_at(self, at: At) -> Snapshot:
        """The snapshot of a checkpoint, or of the nearest one before it that has one."""
        if isinstance(at, Snapshot):
            return at
        stored = await reading.live_record(self.services, ids.from_text(at))
        found = await snapshots.nearest(self.services, stored)
        if found is not None:
            return found
        raise CheckpointNotFoundError(
            f"checkpoint {at} has no snapshot of files, and none before it has one. `save(..., workspace=...)` takes one"
        )

    async def entries(self, at: At) -> list[Entry]:
        return [entry async for entry in snapshots.entries(self.services, await self.snapshot_at(at))]

    async def read(self, at: At, path: str | bytes) -> bytes:
        entry = await snapshots.find(self.services, await self.snapshot_at(at), self.relative(path))
        if entry is None or entry.kind != "file":
            raise CheckpointNotFoundError(f"there is no file {os.fsdecode(path)!r:.120} in that snapshot")
        return await self.content(entry)

    async def content(self, entry: Entry) -> bytes:
        return b"".join([piece async for piece in snapshots.content(self.services, entry)])

    def on_disk(self, path: bytes, limit: int) -> bytes | None:
        """The file as it is now, if it is one and not longer than that; nothing outside the root is read."""
        return read_now(self.path, path, limit)

    async def verify(self, at: At | None, *, deep: bool) -> FilesReport:
        unseen: list[bytes] = []
        if deep:
            _, quick = await self.taker.look(self.session_id)
            _, read = await self.taker.look(self.session_id, deep=True)
            unseen = sorted(path for path in read.walk.found.changes if path not in quick.walk.found.changes)
        if at is None:
            at = await self.taker.last(self.session_id)
            if at is None:
                raise CheckpointNotFoundError(f"there is no snapshot of {str(self.path)!r:.120} yet")
        snapshot = await self.snapshot_at(at)
        checked, problems = await _checked(self.services, snapshot.reference)
        return FilesReport(
            reference=snapshot.reference, objects=checked, problems=tuple(problems), unseen=tuple(unseen)
        )

    def relative(self, path: str | bytes | os.PathLike[str]) -> bytes:
        """A path as a snapshot names it; absolute ones, and ones relative to the root, are taken."""
        whole = self._whole(path)
        if not whole.is_relative_to(self.path) or whole == self.path:
            raise UsageError(f"{os.fsdecode(path)!r:.120} is not in the workspace {str(self.path)!r:.120}")
        return os.fsencode(whole.relative_to(self.path))

    def is_root(self, path: str | bytes | os.PathLike[str]) -> bool:
        return self._whole(path) == self.path

    def is_there(self, path: bytes) -> bool:
        """Whether something is at a path that `relative` gave."""
        return os.path.lexists(os.path.join(os.fsencode(self.path), path))  # noqa: PTH118 - pathlib knows no bytes

    def _whole(self, path: str | bytes | os.PathLike[str]) -> Path:
        """The path as it reads, where that is in the workspace; else by which way ever it leads there. A link at its end is what is
        meant, not its target."""
        whole = Path(os.path.normpath(self.path / os.fsdecode(path)))
        if whole.is_relative_to(self.path):
            return whole
        return self.path if whole.resolve() == self.path else whole.parent.resolve() / whole.name

    def close(self) -> None:
        if self.taker.watch is not None:
            self.taker.watch.close()
            self.taker.watch = None


def opened(services: Services, known: dict[str, Opened], workspace: object) -> Opened:
    """What a client was given as `workspace`: one that is open, or a directory, which is opened once."""
    if isinstance(workspace, Workspace | SyncWorkspace):
        if workspace._opened.services is not services:
            raise UsageError(f"{workspace!r:.120} belongs to another client: make it with `client.workspace(...)`")
        return workspace._opened
    if not isinstance(workspace, str | os.PathLike):
        raise UsageError(
            f"workspace is a {type(workspace).__name__}: it must be a directory, or what `client.workspace(...)` gave"
        )
    key = str(Path(workspace).resolve())
    if key not in known:
        known[key] = Opened(services, workspace)
    return known[key]


async def _checked(services: Services, reference: str) -> tuple[int, list[str]]:
    """How many objects of a snapshot are as they were saved, and what is wrong with the others."""
    reach = Reach(snapshots.loader(services))
    try:
        await reach.learn(reference)
    except CorruptError as error:
        return 0, [str(error)]
    checked, problems = 0, list[str]()
    for hash_, size in reach.everything().items():
        try:
            [content] = await snapshots.objects_of(services, [hash_])
            if len(content) != size:
                raise CorruptError(f"the blob {hash_.hex()[:16]}… is not as long as the snapshot says")
            checked += 1
        except CorruptError as error:
            problems.append(str(error))
    return checked, problems


class Workspace(Restorable):
    """The directory that an agent works in: `workspace = client.workspace("./project")`, then
    `client.save(..., workspace=workspace)`, or `workspace.snapshot("before the refactoring")`.

    `include_git` takes in the root's own `.git`; `gitignore=False` and `default_excludes=False` take in what these leave
    out; `secrets` says what becomes of files such as `.env`: "keep", "skip" or "refuse"; `limits` beyond which no snapshot
    is taken, which the checkpoint then says; with `watch=True` the kernel tells what changed, where it can.
    """

    def __init__(self, path: str | os.PathLike[str], client: Client, **options: Any) -> None:
        self._opened = Opened(client._services, path, **options)

    @property
    def path(self) -> Path:
        return self._opened.path

    @property
    def session_id(self) -> str:
        """The session of snapshots that are taken by themselves."""
        return self._opened.session_id

    async def snapshot(
        self,
        message: str | None = None,
        *,
        session_id: str | None = None,
        agent_id: str = "workspace",
        hints: Sequence[str | bytes] | None = None,
        deep: bool = False,
        progress: Progress | None = None,
    ) -> SnapshotReport:
        """Takes a snapshot, as a checkpoint without a state, in the workspace's own session or another. With `hints` only
        these paths are looked at (and what a watch says): quick, and blind for all else until the next snapshot without
        them. `deep` reads every file again."""
        return await self._opened.snapshot(
            message, session_id=session_id, agent_id=agent_id, hints=hints, deep=deep, progress=progress
        )

    async def status(self) -> list[FileChange]:
        """What changed since the last snapshot. Nothing is stored."""
        return await self._opened.status()

    async def is_known(self) -> bool:
        """Whether there is a snapshot that `status` compares with; if not, all files are new to it."""
        return await self._opened.is_known()

    async def left_out(self) -> list[LeftOut]:
        """What snapshots leave out, why, and how many files and bytes that is now, the largest first. It counts everything
        there, which may take longer than a snapshot."""
        return await self._opened.left_out()

    async def diff(self, before: At | None = None, after: At | None = None) -> list[FileChange]:
        """What differs between the files of two checkpoints; without `after`, of one and the directory as it is; without
        both, as `status`."""
        return await self._opened.diff(before, after)

    async def snapshot_at(self, at: At) -> Snapshot:
        """The snapshot that a checkpoint has, or the nearest one before it that has one. `not_taken` says why there is none
        although one was asked for."""
        return await self._opened.snapshot_at(at)

    async def entries(self, at: At) -> list[Entry]:
        """All paths of a snapshot, sorted."""
        return await self._opened.entries(at)

    async def read(self, at: At, path: str | bytes) -> bytes:
        """The bytes of a file as they were."""
        return await self._opened.read(at, path)

    async def content(self, entry: Entry) -> bytes:
        """The bytes of a file of a snapshot."""
        return await self._opened.content(entry)

    def on_disk(self, path: bytes, limit: int) -> bytes | None:
        """The bytes of a file as it is now, if it is one and has at most so many; no symlink is followed."""
        return self._opened.on_disk(path, limit)

    async def verify(self, at: At | None = None, *, deep: bool = False) -> FilesReport:
        """Checks every object of a snapshot, the last one if none is given. With `deep`, every file of the directory is read
        again, too, and compared with what was known of it."""
        return await self._opened.verify(at, deep=deep)

    def close(self) -> None:
        """Stops watching."""
        self._opened.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"


class SyncWorkspace(SyncRestorable):
    """`Workspace` without `await`."""

    def __init__(self, path: str | os.PathLike[str], client: SyncClient, **options: Any) -> None:
        self._opened = Opened(client._services, path, **options)

    @property
    def path(self) -> Path:
        return self._opened.path

    @property
    def session_id(self) -> str:
        return self._opened.session_id

    def snapshot(
        self,
        message: str | None = None,
        *,
        session_id: str | None = None,
        agent_id: str = "workspace",
        hints: Sequence[str | bytes] | None = None,
        deep: bool = False,
        progress: Progress | None = None,
    ) -> SnapshotReport:
        return run_inline(
            self._opened.snapshot(
                message, session_id=session_id, agent_id=agent_id, hints=hints, deep=deep, progress=progress
            )
        )

    def status(self) -> list[FileChange]:
        return run_inline(self._opened.status())

    def is_known(self) -> bool:
        return run_inline(self._opened.is_known())

    def left_out(self) -> list[LeftOut]:
        return run_inline(self._opened.left_out())

    def diff(self, before: At | None = None, after: At | None = None) -> list[FileChange]:
        return run_inline(self._opened.diff(before, after))

    def snapshot_at(self, at: At) -> Snapshot:
        return run_inline(self._opened.snapshot_at(at))

    def entries(self, at: At) -> list[Entry]:
        return run_inline(self._opened.entries(at))

    def read(self, at: At, path: str | bytes) -> bytes:
        return run_inline(self._opened.read(at, path))

    def content(self, entry: Entry) -> bytes:
        return run_inline(self._opened.content(entry))

    def on_disk(self, path: bytes, limit: int) -> bytes | None:
        return self._opened.on_disk(path, limit)

    def verify(self, at: At | None = None, *, deep: bool = False) -> FilesReport:
        return run_inline(self._opened.verify(at, deep=deep))

    def close(self) -> None:
        self._opened.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"
