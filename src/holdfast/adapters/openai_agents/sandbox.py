"""`HoldfastSnapshot`: the files of a sandbox, for `SandboxRunConfig(snapshot=...)`.

The SDK hands over the files as a tar archive. They are stored one by one, so that a file which does
not change is stored once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import secrets
import tarfile
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

from agents import RunConfig
from agents.sandbox.errors import SnapshotPersistError, SnapshotRestoreError
from agents.sandbox.snapshot import SnapshotBase
from pydantic import PrivateAttr

from holdfast.adapters.base.store_access import SeamStore
from holdfast.errors import UsageError
from holdfast.model.framework import Framework

FILES = "files"
_KINDS = {tarfile.REGTYPE: "file", tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "symlink", tarfile.LNKTYPE: "link"}
_TYPES = {kind: type_ for type_, kind in _KINDS.items()}


@dataclasses.dataclass(eq=False)
class _Place:
    """Where the files go. Copies of a snapshot, which the SDK makes by serializing it, share it."""

    store: SeamStore
    turn: str | None = None
    saved: str | None = None


_places: WeakValueDictionary[str, _Place] = WeakValueDictionary()


class HoldfastSnapshot(SnapshotBase):
    """The files of a sandbox, as checkpoints of the session `id`.

    The SDK saves them when a run ends, and puts them into the sandbox of the next one. With
    `checkpoint_id` it puts in those of that checkpoint. `store` is a `Client`, a URL, or None for
    `.holdfast/store.db`; it is no part of what the SDK serializes, because a URL may have a password.
    """

    type: Literal["holdfast"] = "holdfast"
    checkpoint_id: str | None = None
    place: str | None = None
    _place: _Place | None = PrivateAttr(default=None)

    def __init__(self, *, id: str, store: Any = None, **fields: Any) -> None:
        super().__init__(id=id, **({"place": None if store is None else secrets.token_hex(8)} | fields))
        self._place = _places.get(self.place or "")
        if self._place is None and (store is not None or self.place is None):
            self._place = _Place(SeamStore(store))
            if self.place is not None:
                _places[self.place] = self._place

    async def persist(self, data: io.IOBase, *, dependencies: Any = None) -> None:
        """Save the files of an archive as the session's next checkpoint."""
        try:
            files = await asyncio.to_thread(_read_archive, data)
            place = self._known_place
            about = {} if place.turn is None else {"turn": place.turn}
            place.saved = await place.store.client.save(
                "sandbox", Framework.OPENAI_AGENTS, {FILES: files}, session_id=self.id, step_name="files", **about
            )
        except Exception as error:
            raise SnapshotPersistError(snapshot_id=self.id, path=Path("<holdfast>"), cause=error) from error

    async def restore(self, *, dependencies: Any = None) -> io.IOBase:
        """Return an archive of the files."""
        try:
            checkpoint = await self._find()
            if checkpoint is None:
                raise UsageError(f"session {self.id!r:.60} has no files")
            return await asyncio.to_thread(_write_archive, checkpoint.execution_state[FILES])
        except Exception as error:
            raise SnapshotRestoreError(snapshot_id=self.id, path=Path("<holdfast>"), cause=error) from error

    async def restorable(self, *, dependencies: Any = None) -> bool:
        return await self._find() is not None

    async def close(self) -> None:
        """Close the store, if it was opened here."""
        if self._place is not None:
            await self._place.store.aclose()

    @property
    def saved(self) -> str | None:
        """The checkpoint that `persist` has saved last."""
        return self._known_place.saved

    @property
    def _known_place(self) -> _Place:
        if self._place is None:
            raise UsageError(
                f"the snapshot of session {self.id!r:.60} was loaded without its store. Give it: "
                f"HoldfastSnapshot(id={self.id!r:.60}, store=...)"
            )
        return self._place

    async def _find(self) -> Any:
        place = self._known_place
        client = place.store.client
        last = None if self.checkpoint_id is not None and place.turn is None else await client.latest(self.id)
        if place.turn is None and self.checkpoint_id is None:
            return last
        if last is not None and place.turn is not None and last.metadata.get("turn") == place.turn:
            return last  # saved by the turn that was cut off: newer than what it began with
        return None if self.checkpoint_id is None else await client.restore(self.checkpoint_id)


# -- a turn ------------------------------------------------------------------------------------------------------------


def keep_files(config: RunConfig, session_id: str, client: Any, turn: str, before: str | None) -> RunConfig:
    """Return a run config whose sandbox keeps its files with the conversation.

    A sandbox with a snapshot or a live session of the caller stays as it is.
    """
    sandbox = config.sandbox
    if sandbox is None or any((sandbox.snapshot, sandbox.session, sandbox.session_state)):
        return config
    snapshot = HoldfastSnapshot(id=f"{session_id}/sandbox", store=client, checkpoint_id=before)
    snapshot._known_place.turn = turn
    return dataclasses.replace(config, sandbox=dataclasses.replace(sandbox, snapshot=snapshot))


def find_snapshot(config: RunConfig) -> HoldfastSnapshot | None:
    found = None if config.sandbox is None else config.sandbox.snapshot
    return found if isinstance(found, HoldfastSnapshot) else None


async def save_files(tool: Any) -> None:
    """Save the files of the sandbox that a tool works in, if they are kept in a store of holdfast.

    After each call, before its result is recorded: a result that the next life replays has its files.
    """
    session = getattr(tool, "session", None)
    snapshot = getattr(getattr(session, "state", None), "snapshot", None)
    if session is None or not isinstance(snapshot, HoldfastSnapshot):
        return
    archive = await session.persist_workspace()
    try:
        await snapshot.persist(archive, dependencies=session.dependencies)
    finally:
        archive.close()


# -- archives ----------------------------------------------------------------------------------------------------------


def _read_archive(data: Any) -> list[dict[str, Any]]:
    files = []
    with tarfile.open(fileobj=data, mode="r|*") as archive:
        for member in archive:
            kind = "file" if member.isreg() else _KINDS.get(member.type)
            if kind is None:
                raise UsageError(f"{member.name!r:.100} is neither a file, a directory nor a link: it can't be stored")
            about: dict[str, Any] = {"path": member.name, "kind": kind, "mode": member.mode, "modified": member.mtime}
            about |= {name: value for name in ("uid", "gid", "linkname") if (value := getattr(member, name))}
            content = archive.extractfile(member) if kind == "file" else None
            files.append(about if content is None else {**about, "content": content.read()})
    return sorted(files, key=lambda file: file["kind"] == "link")  # after the files that they point to


def _write_archive(files: list[dict[str, Any]]) -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in files:
            member = tarfile.TarInfo(file["path"])
            member.type, member.mode, member.mtime = _TYPES[file["kind"]], file["mode"], file["modified"]
            member.uid, member.gid, member.linkname = file.get("uid", 0), file.get("gid", 0), file.get("linkname", "")
            content = file.get("content", b"")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    made.seek(0)
    return made
