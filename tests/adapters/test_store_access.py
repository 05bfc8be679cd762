"""The `store` argument of seam classes: what is opened there, and who closes it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import Client, StoreError, SyncClient, UsageError
from holdfast.adapters.base.store_access import SeamStore


def test_a_url_is_opened_once_and_closed_by_its_owner(tmp_path):
    store = SeamStore(f"sqlite:///{tmp_path}/store.db", is_async=False)
    assert not (tmp_path / "store.db").exists()  # opened by its first use, not before
    with ThreadPoolExecutor(4) as threads:
        clients = list(threads.map(lambda _: store.client, range(16)))
    assert len(set(map(id, clients))) == 1
    clients[0].save("agent", session_id="s")
    store.close()
    with pytest.raises(StoreError):
        clients[0].latest("s")
    assert store.client.latest("s") is not None  # opened again
    store.close()
    store.close()


def test_none_is_the_default_file_below_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = SeamStore(is_async=False)
    store.client.save("agent", session_id="s")
    store.close()
    assert (tmp_path / ".holdfast" / "store.db").exists()


def test_a_client_that_was_given_stays_open():
    async def story():
        async with Client.memory() as client:
            store = SeamStore(client)
            await store.client.save("agent", session_id="s")
            await store.aclose()
            assert await client.latest("s") is not None

    asyncio.run(story())


def test_a_client_is_used_in_one_event_loop_after_the_other(tmp_path):
    store = SeamStore(f"sqlite:///{tmp_path}/store.db")

    async def save():
        return await store.client.save("agent", session_id="s")

    first = asyncio.run(save())
    assert asyncio.run(save()) != first
    asyncio.run(store.aclose())


@pytest.mark.parametrize(("store", "is_async", "wanted"), [(SyncClient, True, "Client"), (Client, False, "SyncClient")])
def test_a_client_of_the_other_kind_is_refused(store, is_async, wanted):
    given = store.memory()
    with pytest.raises(UsageError, match=f"it must be a {wanted},"):
        SeamStore(given, is_async=is_async)
