"""What all routes share: the store, what may be done with it, and what is kept between requests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast.backends.bridge.step import run_inline
from holdfast.backends.bridge.wrapper import WrappingBridge
from holdfast.client.sync import SyncClient
from holdfast.errors import HoldfastError
from holdfast.json_form.unregistered import AnyTypes
from holdfast.model import ids
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.state_migration import Migrations
from holdfast.operations import ledger, lookup, operation_log, pin, tag
from holdfast.web.answer import RefusedRequest
from holdfast.web.session_index import SessionIndex
from holdfast.web.tree_layout import TreeLayout

if TYPE_CHECKING:
    from holdfast.backends.bridge.base import Bridge
    from holdfast.client.client import Client
    from holdfast.model.effect import EffectRecord
    from holdfast.model.operation import Operation
    from holdfast.model.pin import Pin, Tag
    from holdfast.workspace.sync import SyncWorkspace

RESTORED = 2  # checkpoints whose states are kept: the page asks for parts of one after the other
RESTORED_BYTES = 8_000_000  # of their states together, unless it is only one
TREES = 3  # laid out at once
MOST_FRESH = 16
FRESH_SECONDS = 2.0  # how long a listing of all runs is used again
LOCAL = ("sqlite", "files", "memory")
"""Kinds of stores that may be changed unless the server was started read-only."""
T = TypeVar("T")


def view_of(client: Client | SyncClient) -> SyncClient:
    """Return a blocking client of the same store that shows every state as it is stored."""
    if isinstance(client, SyncClient) and isinstance(client._ctx.codec.types, AnyTypes):
        return client
    bridge = cast("Bridge", client._ctx.backend)
    view = SyncClient(bridge.inner.backend, types=AnyTypes(), migrations=Migrations())
    if isinstance(bridge, WrappingBridge):  # with the keys of a sealed store
        view._ctx.backend = bridge.rewrap(cast("Bridge", view._ctx.backend).inner)
    return view


@dataclass
class Site:
    """A store, and how it is served."""

    client: SyncClient
    store: str
    by: str
    read_only_because: str | None = None
    found_by: str | None = None
    source: str = "store"
    workspace: SyncWorkspace | None = None
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._restored: OrderedDict[str, tuple[Checkpoint, int]] = OrderedDict()
        self._trees: OrderedDict[bytes, TreeLayout] = OrderedDict()
        self._fresh: dict[str, tuple[float, Any]] = {}
        self.session_index = SessionIndex(self.client)

    def require_writable(self) -> None:
        if self.read_only_because is not None:
            raise RefusedRequest(403, "read_only", self.read_only_because, "Start `holdfast ui --write` to change it")

    def restore(self, ref: str) -> Checkpoint:
        """Return a checkpoint with its state, verified. Callers don't change it."""
        id_ = self.client.resolve(ref)
        with self._lock:
            found, _ = self._restored.get(id_, (None, 0))
        if found is None or found.is_expired():
            size = self.run(lookup.load_live_record(self.client._ctx, ids.from_text(id_))).manifest().logical_size()
            self._make_room(size)
            found = self.client.restore(id_)
            with self._lock:
                self._restored[id_] = (found, size)
        return found

    def _make_room(self, size: int) -> None:
        with self._lock:
            while self._restored and (
                len(self._restored) >= RESTORED
                or sum(kept for _, kept in self._restored.values()) + size > RESTORED_BYTES
            ):
                self._restored.popitem(last=False)

    def forget_states(self) -> None:
        """Let the restored states go, before a request that needs memory of its own."""
        with self._lock:
            self._restored.clear()

    def tree(self, tree_id: str) -> TreeLayout:
        """Return the layout of a tree, brought up to date."""
        raw = ids.from_text(tree_id, "a tree's id", "a session's `tree_id` is one")
        with self._lock:
            index = self._trees.get(raw)
            if index is None:
                index = self._trees[raw] = TreeLayout(self.client._ctx, raw)
            self._trees.move_to_end(raw)
            while len(self._trees) > TREES:
                self._trees.popitem(last=False)
        try:
            index.update()
        except HoldfastError:
            with self._lock:
                self._trees.pop(raw, None)
            raise
        return index

    def fresh(self, name: str, load: Callable[[], T]) -> T:
        """Return what `load` returns, or what it returned a moment ago."""
        with self._lock:
            at, found = self._fresh.get(name, (0.0, None))
        if not at or monotonic() - at > FRESH_SECONDS:
            found = load()
            with self._lock:
                while len(self._fresh) >= MOST_FRESH:
                    self._fresh.pop(next(iter(self._fresh)))
                self._fresh[name] = (monotonic(), found)
        return found  # type: ignore[no-any-return]  # each name has one kind of value

    def forget(self) -> None:
        """Drop what a change of ours makes old."""
        with self._lock:
            self._fresh.clear()

    # Listings for the page: a damaged row is named in `damaged`, and hides no other.

    def tags(self, damaged: list[str]) -> list[Tag]:
        return cast("list[Tag]", self.run(tag.tags(self.client._ctx, damaged=damaged)))

    def pins(self, damaged: list[str]) -> list[Pin]:
        return cast("list[Pin]", self.run(pin.pins(self.client._ctx, damaged=damaged)))

    def effects(self, damaged: list[str], session_id: str | None = None) -> list[EffectRecord]:
        found = ledger.effects(self.client._ctx, session_id=session_id, damaged=damaged)
        return cast("list[EffectRecord]", self.run(found))

    def operations(
        self, damaged: list[str], session_id: str | None = None, limit: int | None = None
    ) -> list[Operation]:
        found = operation_log.operations(self.client._ctx, session_id=session_id, limit=limit, damaged=damaged)
        return cast("list[Operation]", self.run(found))

    def run(self, awaited: Any) -> Any:
        """Run an operation of the core on this store."""
        return run_inline(awaited)
