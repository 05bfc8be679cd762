"""Staging: parts of a large commit, written ahead of it. Safe with a concurrent gc.

Each part is committed with a checkpoint of its own, in a session of its own without a head, that
refers to the objects of the commit: so gc leaves them alone, as it does with any checkpoint's. The
final commit requires that these checkpoints are still there, and removes them. After a crash before
it, they stay until their time to live is over, and are then collected like everything else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.backends.port import Commit, RecordWrite, SegmentWrite
from holdfast.codec.placeholders import Ref
from holdfast.format.rows import head, staging
from holdfast.format.state import record
from holdfast.format.state.manifest import BlobEntry, ListEntry, Manifest, Skeleton
from holdfast.model import ids
from holdfast.operations.context import StoreContext

STAGED_BYTES = 4 * 1024 * 1024  # the approximate size of a commit
STAGED_FOR_SECONDS = 24 * 3600


class Staging:
    """The staged parts of one tree. `purpose` is a word for people who look into the store meanwhile."""

    def __init__(self, ctx: StoreContext, tree: bytes, purpose: str) -> None:
        self._ctx = ctx
        self._tree = tree
        self._purpose = purpose
        self.held: list[tuple[bytes, bytes]] = []  # the checkpoints that hold the parts: id and record

    @property
    def required(self) -> list[tuple[bytes, bytes]]:
        """The condition of the final commit."""
        return [(id_, record.LIVE) for id_, _ in self.held]

    async def put(
        self,
        *,
        segments: Sequence[SegmentWrite] = (),
        lists: Sequence[ListEntry] = (),
        blobs: Mapping[bytes, bytes] | None = None,
        entries: Sequence[BlobEntry] = (),
        workspace: str | None = None,
    ) -> None:
        """Commit segments and blobs, with a checkpoint that refers to them.

        `lists` and `entries` describe them. With `workspace` it also refers to all objects of this
        snapshot.
        """
        ctx = self._ctx
        id_ = ctx.new_id(ids.tree_tag(self._tree))
        skeleton = b"\x92" + b"".join(
            ctx.codec.encode(value, name, parts=True)
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
        session_id = staging.session_of(self._purpose, id_)
        header: dict[str, Any] = {
            "id": id_,
            "seq": 1,
            "at": ctx.now_us(),
            "agent": f"holdfast {self._purpose}",
            "session": session_id,
            "ttl": STAGED_FOR_SECONDS,
        }
        if workspace is not None:
            header["ws"] = workspace
        data, stored = record.pack(ctx.codec, header, manifest)
        write = RecordWrite(id_, head.session_key(session_id), 1, data, stored.labels(), stored.expires_at_us)
        self.held.append((id_, data))
        await ctx.backend.commit(Commit(tree=id_, record=write, segments=segments, blobs=blobs or {}))

    async def release(self) -> None:
        """Remove the checkpoints that hold the parts: gc collects them unless they are referred to."""
        if self.held:
            await self._ctx.backend.commit(Commit(tree=self._tree, delete_records=self.held))
