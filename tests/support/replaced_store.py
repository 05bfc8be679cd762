"""Plugin for LangGraph's own tests of its stores: `InMemoryStore` is `HoldfastStore`."""

from __future__ import annotations

from typing import Any

import langgraph.store.memory

from holdfast import SyncClient
from holdfast.langgraph import HoldfastStore


class ReplacedStore(HoldfastStore):
    def __init__(self, *, index: Any = None) -> None:
        super().__init__(SyncClient.memory(), index=index, allow_blocking=True)


langgraph.store.memory.InMemoryStore = ReplacedStore  # type: ignore[misc, assignment]  # that is what it is for
