"""Envelopes that are cut, swollen or claim a size of their own: refused by name, in bounded memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
import zstandard
from sealed_story import Raw, with_crc
from sealed_world import Item, items
from stores import Store

from holdfast import CorruptError, HoldfastError, PlaintextError, SyncClient, TamperedError
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit, SegmentWrite
from holdfast.format import frame
from holdfast.sealing import envelope
from holdfast.sealing.cipher import new_cipher
from holdfast.sealing.store_keys import MARKER, SPACE, Marker

pytestmark = pytest.mark.every_store
STATE = {"list": [f"{number} " * 30 for number in range(60)], "blob": "b" * 5000}
MEGABYTE = 1 << 20


@pytest.fixture
def saved(store: Store) -> str:
    store.is_sealed = True
    client = store.client()
    client.tag("name", client.save("a", session_id="s", execution_state={"n": 1}))
    return client.save("a", session_id="s", execution_state=STATE)


@contextmanager
def bounded_memory(limit: int) -> Iterator[None]:
    """Fails if more memory than that is allocated at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def read_all(client: SyncClient, checkpoint_id: str) -> None:
    """Read what needs each kind of item."""
    client.restore(checkpoint_id)
    client.latest("s")
    client.tags()


def one_of_each(raw: Raw) -> list[Item]:
    """An item of each kind that `read_all` needs."""
    found = {
        item.kind: item for item in items(raw) if item.kind in ("segment", "blob", "head", "session", "tag", "keys")
    }
    newest = max(raw.records(), key=lambda record: record.sequence)
    return [Item("record", newest, newest.data), *found.values()]


def test_an_item_of_each_kind_that_is_cut_is_refused(store: Store, saved: str):
    raw, draw = Raw.of(store), random.Random(2)
    for item in one_of_each(raw):
        size = len(item.data)
        lengths = [*range(min(size, 100)), *draw.sample(range(size), min(size, 100))]
        for length in lengths if store.kind == "memory" else draw.sample(range(5, size), 2):
            for data in {item.data[:length], with_crc(item.data[:length]) if length > 4 else b""}:
                item.put(raw, data)
                with pytest.raises(HoldfastError):
                    read_all(store.client(), saved)
        item.put(raw, item.data)
    read_all(store.client(), saved)


def test_an_item_of_each_kind_that_is_swollen_is_refused_in_bounded_memory(store: Store, saved: str):
    raw = Raw.of(store)
    for item in one_of_each(raw):
        item.put(raw, with_crc(item.data + bytes(4 * MEGABYTE)))
        with bounded_memory(64 * MEGABYTE), pytest.raises(HoldfastError):
            read_all(store.client(), saved)
        item.put(raw, item.data)
    read_all(store.client(), saved)


@cache
def bomb(size: int) -> bytes:
    """A frame of a few bytes that inflates to many."""
    compressor = zstandard.ZstdCompressor(level=1)
    pieces = compressor.chunker(size=size)
    packed = [part for _ in range(size // MEGABYTE) for part in pieces.compress(bytes(MEGABYTE))]
    return frame.ZSTD + b"".join([*packed, *pieces.finish()])


def test_a_bomb_that_an_attacker_sealed_is_never_inflated(store: Store, saved: str):
    """It opens under the attacker's key only: it is refused before anything looks at the frame."""
    raw = Raw.of(store)
    content = bomb(512 * MEGABYTE)
    assert len(content) < MEGABYTE
    theirs = new_cipher(random.Random(1).randbytes(32))
    [marker] = [row for key, row in raw.rows(SPACE) if key == MARKER]
    prefix = envelope.SealScope(Marker.unpack(marker).store).prefix
    for item in one_of_each(raw):
        if item.kind not in ("segment", "blob"):
            continue
        kid = item.data[2:10]
        place = (
            envelope.segment_place(item.place.log, item.place.first, item.place.length)
            if item.kind == "segment"
            else item.place.hash
        )
        scope = prefix + (envelope.SEGMENT if item.kind == "segment" else envelope.BLOB)
        for data in (envelope.seal(theirs, kid, bytes(12), scope, place, b"", content), content):
            item.put(raw, data)
            with bounded_memory(64 * MEGABYTE), pytest.raises((TamperedError, PlaintextError)):
                store.client().restore(saved)
        item.put(raw, item.data)
    store.client().restore(saved)


def test_a_size_that_a_holder_of_the_key_claims_is_refused_before_it_is_inflated(memory_store: Store):
    """Sealed as it should be: a frame has a limit of its own."""
    memory_store.is_sealed = True
    client = memory_store.client()
    saved = client.save("a", session_id="s", execution_state=STATE)
    raw = Raw.of(memory_store)
    [info] = [info for info in raw.segments() if info.length > 1]
    claim = frame.ZSTD + b"\x28\xb5\x2f\xfd\xe0" + (frame.MAX_CONTENT + 1).to_bytes(8, "little") + bytes(20)
    tree = raw.records()[0].id
    commit = Commit(tree, segments=[SegmentWrite(info.log, info.first, info.length, claim, info.length)])

    async def write() -> None:
        await client._ctx.backend.commit(commit)

    run_inline(write())
    with bounded_memory(64 * MEGABYTE), pytest.raises(CorruptError, match="claims"):
        memory_store.client().restore(saved)


def test_control_without_the_tag_the_bomb_is_inflated(memory_store: Store, monkeypatch: pytest.MonkeyPatch):
    """Were an envelope opened without its tag, the frame within would be inflated."""
    memory_store.is_sealed = True
    saved = memory_store.client().save("a", session_id="s", execution_state=STATE)
    raw = Raw.of(memory_store)
    content = bomb(128 * MEGABYTE)
    [info] = [info for info in raw.segments() if info.length > 1]
    raw.put_segment(info, envelope.MAGIC + envelope.SUITE + raw.segment(info)[2:10] + content)
    monkeypatch.setattr(
        envelope,
        "try_open_segments",
        lambda _ciphers, _scope, _log, found: [one._replace(data=one.data[10:]) for one in found],
    )
    with pytest.raises(AssertionError), bounded_memory(64 * MEGABYTE), pytest.raises(CorruptError):
        memory_store.client().restore(saved)


def test_a_segment_in_another_place_of_its_log_is_refused(store: Store):
    """Its first element and the number of its elements are bound, as its log is."""
    store.is_sealed = True
    client = store.client()
    texts = [f"{number} " * 200 for number in range(40)]
    for count in (20, 21, 22, 23):
        saved = client.save("a", session_id="s", execution_state={"list": texts[:count]})
    raw = Raw.of(store)
    single = sorted(info for info in raw.segments() if info.length == 1 and info.first >= 20)
    assert len(single) == 3
    original = [raw.segment(info) for info in single]
    for at in range(3):
        for other in {0, 1, 2} - {at}:
            raw.put_segment(single[at], original[other])
            with pytest.raises(TamperedError):
                store.client().restore(saved)
        raw.put_segment(single[at], original[at])
    assert store.client().restore(saved).execution_state == {"list": texts[:23]}
    last = single[-1]
    longer = SegmentWrite(last.log, last.first, 2, original[-1], last.first + 1)  # said to be two elements
    raw.commit(Commit(raw.records()[0].id, segments=[longer]))
    with pytest.raises(TamperedError):
        store.client().restore(saved)
