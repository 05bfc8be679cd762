"""A directory with full-read snapshots, for tests that restores don't depend on change detection."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from restore_trees import Content, on_disk

from holdfast import SyncClient, WorkspaceLimits
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit
from holdfast.format import frame
from holdfast.format.files import file_tree, snapshot
from holdfast.format.files.snapshot import Chunk
from holdfast.model.snapshot import CHUNK_BYTES, WHOLE_BYTES, FileEntry, Snapshot
from holdfast.workspace.restore.engine import RestoreEngine
from holdfast.workspace.restore.request import CurrentState, RestoreOptions, RestoreTarget


class PlainDirectory:
    def __init__(self, client: SyncClient, root: Path) -> None:
        self.client = client
        self.ctx = client._ctx
        self.root = os.fsencode(root)
        self.limits = WorkspaceLimits()
        self.taken: list[str] = []  # snapshots that `last_known` names
        self.safeties: list[str] = []
        self.excluded: Callable[[bytes], bool] = lambda path: False
        self.on_look: Callable[[], None] = lambda: None

    def snapshot(self) -> Snapshot:
        found = run_inline(self.scan()).snapshot
        self.taken = [found.reference]
        return found

    def restore(self, target: Snapshot, **options):
        return run_inline(self.restoring.restore(RestoreTarget(snapshot=target), RestoreOptions(**options)))

    @property
    def restoring(self) -> RestoreEngine:
        return RestoreEngine(self)

    async def scan(self) -> CurrentState:
        blobs: dict[bytes, bytes] = {}
        entries = [
            _entry(path, content, blobs)
            for path, content in on_disk(self.root).items()
            if content[0] != "special" and not self.excluded(path)
        ]
        built = file_tree.build(entries)
        data = snapshot.pack(Snapshot(reference="holdfast:", tree=built.root, files=len(entries)))
        blobs |= built.nodes | {hashlib.sha256(data).digest(): data}
        self.ctx.backend.backend.commit_all(
            [Commit(tree=b"", blobs={hash_: frame.frame_raw(content) for hash_, content in blobs.items()})]
        )
        self.on_look()
        return CurrentState(snapshot.unpack(data))

    async def take_safety(self, why: str) -> CurrentState:
        taken = await self.scan()
        self.safeties.append(taken.snapshot.reference)
        return CurrentState(taken.snapshot, checkpoint_id=taken.snapshot.reference)

    async def keep_safety(self, checkpoint_id: str) -> None:
        assert checkpoint_id in self.safeties

    async def drop_safety(self, checkpoint_id: str) -> None:
        self.safeties.remove(checkpoint_id)

    async def make_exclusion_test(self, *given: object) -> Callable[[bytes], bool]:
        return self.excluded

    async def last_known(self, target_id: str | None) -> list[str]:
        return list(self.taken)

    async def head_of(self, session_id: str) -> str | None:
        return None

    async def move_head(self, session_id: str, to: str) -> None:
        raise NotImplementedError  # restores of these tests move no head


def _entry(path: bytes, content: Content, blobs: dict[bytes, bytes]) -> FileEntry:
    kind, mode, data = content
    if kind == "dir":
        return FileEntry(path, "dir", mode, 0, b"")
    if kind == "symlink":
        return FileEntry(path, "symlink", 0o777, len(data), data)
    if len(data) <= WHOLE_BYTES:
        hash_ = hashlib.sha256(data).digest()
        blobs[hash_] = data
        return FileEntry(path, "file", mode, len(data), hash_)
    chunks = []
    for start in range(0, len(data), CHUNK_BYTES):
        piece = data[start : start + CHUNK_BYTES]
        hash_ = b"" if piece.count(0) == len(piece) else hashlib.sha256(piece).digest()
        if hash_:
            blobs[hash_] = piece
        chunks.append(Chunk(len(piece), hash_))
    listed = snapshot.pack_chunks(chunks)
    blobs[hashlib.sha256(listed).digest()] = listed
    return FileEntry(path, "file", mode, len(data), hashlib.sha256(listed).digest())
