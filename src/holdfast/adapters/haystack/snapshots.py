"""Haystack's own seam: `pipeline.run(..., snapshot_callback=...)`, with snapshots in a store."""

from __future__ import annotations

from typing import Any

from haystack.dataclasses import PipelineSnapshot

from holdfast.adapters.base.store_access import SeamStore
from holdfast.adapters.haystack.manual import extract, load_snapshot


class HoldfastSnapshots:
    """The snapshots of one session: a `snapshot_callback` that saves, and `load()`.

    Haystack makes a snapshot at a breakpoint, and when a component raises. It makes none of a process
    that is killed: `resumable` continues after that. `store` is a `SyncClient`, a URL, or None.
    """

    def __init__(self, session_id: str, *, store: Any = None, agent_id: str = "pipeline") -> None:
        self.session_id = session_id
        self._agent_id = agent_id
        self._store = SeamStore(store, is_async=False)

    def __call__(self, snapshot: PipelineSnapshot) -> str:
        """Save a snapshot, and return the id of its checkpoint."""
        checkpoint = extract(snapshot, agent_id=self._agent_id, session_id=self.session_id)
        saved: str = self._store.client.save_checkpoint(checkpoint)
        return saved

    def load(self) -> PipelineSnapshot | None:
        """Return the last snapshot for `pipeline.run({}, pipeline_snapshot=...)`; None if there is none."""
        found = self._store.client.latest(self.session_id)
        return None if found is None else load_snapshot(found)

    def close(self) -> None:
        self._store.close()
