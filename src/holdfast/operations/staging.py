"""Staging: writing parts of something large ahead of the commit that makes it visible, safely beside a collection.

Each part is committed with a checkpoint of its own, in a session of its own without a head, that refers to what the commit
writes: so a collection leaves it alone, as it does with any checkpoint's. The commit that all this is for requires that
these checkpoints are still there, and removes them. Should we die before it, they outlive us by their time to live, and are
then collected like everything else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.backends.port import Commit, RecordWrite, RunWrite
from holdfast.codec.parts import Ref
from holdfast.model import ids
from holdfast.objects import record, rows, staged
from holdfast.objects.manifest import BlobEntry, ListEntry, Manifest, Skeleton
from holdfast.operations.services import Services

STAGED_BYTES = 4 * 1024 * 1024  # what a commit carries, more or less
STAGED_FOR_SECONDS = 24 * 3600


class Staging:
    """What was staged for one tree. `purpose` is a word for people who look into the store meanwhile."""

    def __init__(self, services: Services, tree: bytes, purpose: str) -> None:
        self._services = services
        self._tree = tree
        self._purpose = purpose
        self.held: list[tuple[bytes, bytes]] = []  # the checkpoints that hold it: id and record

    @property
    def required(self) -> list[tuple[bytes, bytes]]:
        """The condition of the commit that it is for."""
        return [(id_, record.LIVE) for id_, _ in self.held]

    async def put(
        self,
        *,
        runs: Sequence[RunWrite] = (),
        lists: Sequence[ListEntry] = (),
        blobs: Mapping[bytes, bytes] | None = None,
        entries: Sequence[BlobEntry] = (),
        workspace: str | None = None,
    ) -> None:
        """Commits runs and blobs, with a checkpoint that refers to them; `lists` and `entries` describe them. With
        `workspace` it refers to all that this snapshot consists of, too."""
        services = self._services
        id_ = services.new_id(ids.tree_tag(self._tree))
        skeleton = b"\x92" + b"".join(
            services.codec.encode(value, name, parts=True)
            for name, value in (
                ("execution_state", [Ref(0, number) for number in range(len(lists))]),
                ("agent_context", [Ref(2, number) for number in range(len(entries))]),
            )
        )
        manifest = Manifest(
            Skeleton(len(skeleton), hashlib.sha256(skeleton).digest(), skeleton, None, None),
            tuple(lists),
            tuple(entries),
        )
        session_id = staged.session_of(self._purpose, id_)
        header: dict[str, Any] = {
            "id": id_,
            "seq": 1,
            "at": services.now_us(),
            "agent": f"holdfast {self._purpose}",
            "session": session_id,
            "ttl": STAGED_FOR_SECONDS,
        }
        if workspace is not None:
            header["ws"] = workspace
        data, stored = record.pack(services.codec, header, manifest)
        write = RecordWrite(id_, rows.session_key(session_id), 1, data, stored.labels(), stored.expires_at_us)
        self.held.append((id_, data))
        await services.backend.commit(Commit(tree=id_, record=write, runs=runs, blobs=blobs or {}))

    async def release(self) -> None:
        """Removes what holds what was staged: the next collection takes it, unless something else refers to it."""
        if self.held:
            await self._services.backend.commit(Commit(tree=self._tree, delete_records=self.held))
