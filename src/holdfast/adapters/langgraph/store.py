"""`HoldfastStore`: LangGraph's long-term memory (`BaseStore`) on any store of holdfast."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from langgraph.store.base import BaseStore, IndexConfig, Op, Result, TTLConfig

from holdfast.adapters.langgraph import registration
from holdfast.adapters.langgraph.allowed_types import SaverTypes
from holdfast.adapters.langgraph.handle import CompletedCall, StoreHandle
from holdfast.adapters.langgraph.items import Items
from holdfast.adapters.langgraph.vectors import VectorIndex
from holdfast.client.client import Client
from holdfast.client.sync import SyncClient
from holdfast.operations import gc_adapter_rows
from holdfast.sealing.key_ring import KeyRing


class HoldfastStore(StoreHandle, BaseStore):
    """LangGraph's long-term memory, shared by all threads of a graph.

    `builder.compile(store=HoldfastStore.from_sqlite("state.db"))` gives it to the nodes. One object
    serves the methods with and without `await`, several threads and several processes. It may share
    a store with a `HoldfastSaver`. A put that returned is durable; the puts of a `batch` are one
    commit.
    """

    supports_ttl = True
    _own_options = ("index", "ttl", "allow", "allow_blocking")

    def __init__(
        self,
        client: Client | SyncClient | Any = None,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        allow: Iterable[type[Any] | tuple[str, ...]] = (),
        allow_blocking: bool = False,
        conn: Any = None,
        redis_client: Any = None,
        redis_url: str | None = None,
        keys: KeyRing | None = None,
    ) -> None:
        """Make a store on a client, a connection, or by default one SQLite file, as `HoldfastSaver` does.

        `index` has an embedder and the fields to embed: then `search(query=…)` ranks by similarity,
        computed in this process over the items of the namespace. Without it a query is ignored.
        `ttl` has the time to live of items in minutes (`default_ttl`), and whether a read renews it
        (`refresh_on_read`, by default it does). `allow`, `allow_blocking` and `keys` are
        those of `HoldfastSaver`.
        """
        super().__init__()
        self._connect((client, conn, redis_client), redis_url, allow_blocking=allow_blocking, keys=keys)
        self.ttl_config = ttl
        self.index_config = index
        vector_index = VectorIndex(index) if index else None
        self.embeddings = vector_index.embeddings if vector_index else None
        codec = self._blocking_services.codec.derive(types=SaverTypes(allow), on_unknown_type="raise", warns=True)
        ctx = replace(self._blocking_services, codec=codec)
        self._items = Items(ctx, vector_index, vector_index.blocking() if vector_index else None)
        self._awaited_items = replace(
            self._items,
            ctx=replace(ctx, backend=self._awaited_services.backend),
            embedder=vector_index.awaited() if vector_index else None,
        )

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return self._run(self._items.carry_out(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await self._awaited_items.carry_out(ops)

    # -- time to live ------------------------------------------------------------------------------------------------

    def sweep_ttl(self) -> int:
        """Remove items that have outlived their time to live, and return their number.

        `gc` does so, too. They are not found either way.
        """
        return self._run(gc_adapter_rows.gc_timed(self._items.ctx, registration.ITEMS))

    async def asweep_ttl(self) -> int:
        return await gc_adapter_rows.gc_timed(self._awaited_items.ctx, registration.ITEMS)

    def start_ttl_sweeper(
        self,
        sweep_interval_minutes: float | None = None,  # noqa: ARG002 - LangGraph's name
    ) -> CompletedCall:
        """Do nothing: an item is not found once its time to live is over.

        `gc` and `sweep_ttl` remove its bytes.
        """
        return CompletedCall()

    def stop_ttl_sweeper(self, timeout: float | None = None) -> CompletedCall:  # noqa: ARG002 - LangGraph's name
        return CompletedCall()
