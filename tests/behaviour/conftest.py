"""Two clients of one store under one clock."""

from __future__ import annotations

import pytest

from holdfast import SyncClient
from support import Clock, Store


@pytest.fixture
def one(store: Store, clock: Clock) -> SyncClient:
    client = store.client()
    clock.rules(client)
    return client


@pytest.fixture
def other(store: Store, clock: Clock) -> SyncClient:
    """A second client on the same store, with a memory of its own."""
    client = store.client()
    clock.rules(client)
    return client
