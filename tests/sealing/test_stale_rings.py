"""Workers whose ring is older or newer than the store's key: they follow or are refused, and lose nothing."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable

import pytest
from sealed_story import Raw
from stores import Store

from holdfast import Client, HoldfastError, KeyMissingError, KeyRing, KeyUnavailableError, SyncClient
from holdfast.format.rows import head
from holdfast.model import ids
from holdfast.sealing import envelope
from holdfast.sealing.key_ring import Context, RawKey
from holdfast.sealing.store_keys import MARKER, SPACE, tree_key

pytestmark = pytest.mark.every_store


def ring(name: str) -> KeyRing:
    return KeyRing([RawKey(name, hashlib.sha256(name.encode()).digest())])


OLD, NEW, NEWEST = ring("old"), ring("new"), ring("newest")


def opened(store: Store, keys: KeyRing) -> SyncClient:
    return SyncClient(store.backend(), keys=keys)


def test_a_worker_with_a_stale_ring_goes_on_until_it_starts_again(store: Store):
    worker = opened(store, OLD)
    saved = [worker.save("a", session_id="s", execution_state={"n": 0})]
    opened(store, NEW + OLD).rekey()
    saved.append(worker.save("a", session_id="s", execution_state={"n": 1}))
    saved.append(worker.save("a", session_id="a new tree", execution_state={"n": 2}))
    for call in (
        lambda client: client.restore(saved[0]),
        lambda client: client.save("a", session_id="s", execution_state={"n": 3}),
        lambda client: client.rekey(),
        lambda client: client.gc(),
        lambda client: client.verify(),
    ):
        before = Raw.of(store).dump()
        with pytest.raises(KeyMissingError, match="old"):
            call(opened(store, OLD))
        assert Raw.of(store).dump() == before
    fresh = opened(store, NEW)
    assert [fresh.restore(each).execution_state["n"] for each in saved] == [0, 1, 2]
    assert fresh.verify().ok


def test_a_stale_rekey_does_not_bring_the_old_key_back(store: Store):
    """A process that replaces keys, too, and began earlier: its write is refused, and it looks again."""
    opened(store, OLD).save("a", session_id="s", execution_state={"n": 0})
    late = opened(store, NEW + OLD)
    late.latest("s")
    opened(store, NEWEST + OLD).rekey()
    with pytest.raises(KeyMissingError, match="newest"):
        late.rekey()
    assert opened(store, NEWEST).key_status().protected_by == ("newest",)
    assert opened(store, NEWEST).latest("s").execution_state == {"n": 0}


def test_rekeys_at_the_same_time_leave_one_key_that_opens_everything(store: Store):
    every = NEW + NEWEST + OLD
    saved = opened(store, OLD).save("a", session_id="s", execution_state={"n": 0})
    rings = [NEW + NEWEST + OLD, NEWEST + NEW + OLD] * 2
    failed: list[BaseException] = []

    def replace(keys: KeyRing) -> None:
        try:
            for _ in range(3):
                opened(store, keys).rekey()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=replace, args=(keys,)) for keys in rings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    [protected_by] = opened(store, every).key_status().protected_by
    alone = {"new": NEW, "newest": NEWEST}[protected_by]
    assert opened(store, alone).restore(saved).execution_state == {"n": 0}


def test_a_destroyed_key_that_still_protects_the_store_is_named(store: Store):
    saved = opened(store, OLD).save("a", session_id="s", execution_state={"n": 0})
    before = Raw.of(store).dump()
    for call in (lambda client: client.restore(saved), lambda client: client.gc(), lambda client: client.rekey()):
        with pytest.raises(KeyMissingError, match="'old'"):
            call(opened(store, NEW))
    assert Raw.of(store).dump() == before
    assert opened(store, NEW).key_status().protected_by == ("old",)


def test_a_forged_mark_in_the_place_of_a_tree_key_deletes_nothing(store: Store):
    """There is no mark that says that a key was destroyed: whatever stands in its place, nothing is collected."""
    client = opened(store, OLD)
    saved = [
        client.save(
            "a", session_id=name, execution_state={"list": [f"{name} {n} " * 20 for n in range(60)], "b": name * 5000}
        )
        for name in ("one", "two")
    ]
    raw = Raw.of(store)
    kid, other = (envelope.record_kid(raw.record(ids.from_text(each)).data) for each in saved)
    key = tree_key(kid)
    [original] = [row.value for place, row in raw.rows(SPACE) if place == key]
    marks = [
        b"shredded",
        b"",
        head.protect(key, b"\x91\xa8shredded"),
        head.protect(key, b"\x94\x01\xc4\x00\x01\xa8shredded"),
        next(row.value for place, row in raw.rows(SPACE) if place == tree_key(other)),
        next(row.value for place, row in raw.rows(SPACE) if place == MARKER),
        next(row.value for place, row in raw.rows("head")),
        None,
    ]
    for mark in marks:
        raw.put_row(key, mark)
        before = raw.dump()
        for keys in (OLD, NEW + OLD):
            fresh = opened(store, keys)
            with pytest.raises(HoldfastError):
                fresh.gc()
            with pytest.raises(HoldfastError):
                fresh.restore(saved[0])
            assert not fresh.verify().ok
            assert fresh.restore(saved[1]).execution_state["b"] == "two" * 5000
        assert raw.dump() == before
    raw.put_row(key, original)
    fresh = opened(store, OLD)
    fresh.gc()
    assert fresh.restore(saved[0]).execution_state["b"] == "one" * 5000


# -- a key service that is slow --------------------------------------------------------------------------------------


def slow_ring(wait: Callable[[], None]) -> KeyRing:
    def unwrap(data: bytes, _: Context) -> bytes:
        wait()
        return bytes(byte ^ 0x5A for byte in data)

    return KeyRing.from_callable(
        wrap=lambda data, _: bytes(byte ^ 0x5A for byte in data), unwrap=unwrap, primary="slow"
    )


def test_a_slow_key_service_stops_no_other_task(store: Store):
    """The service is asked in a thread of its own, and once, however many tasks wait for it."""
    asked = 0
    began, release = threading.Event(), threading.Event()

    def wait() -> None:
        nonlocal asked
        asked += 1
        began.set()
        assert release.wait(60)

    opened(store, slow_ring(lambda: None)).save("a", session_id="s", execution_state={"n": 1})

    async def run() -> None:
        client = Client(store._open(), keys=slow_ring(wait))
        waiting = [asyncio.ensure_future(client.latest("s")) for _ in range(5)]
        await asyncio.to_thread(began.wait, 60)
        for _ in range(50):  # the loop turns meanwhile
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        release.set()
        assert [found.execution_state for found in await asyncio.gather(*waiting)] == [{"n": 1}] * 5
        await client.close()

    asyncio.run(run())
    assert asked == 1


def test_a_key_service_that_fails_is_asked_again(store: Store):
    opened(store, slow_ring(lambda: None)).save("a", session_id="s", execution_state={"n": 1})
    outages = 2

    def wait() -> None:
        nonlocal outages
        if outages:
            outages -= 1
            raise TimeoutError

    client = opened(store, slow_ring(wait))
    for _ in range(2):
        with pytest.raises(KeyUnavailableError):
            client.latest("s")
    assert client.latest("s").execution_state == {"n": 1}
