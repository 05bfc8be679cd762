"""Attacks by somebody who can read and change every stored byte, and has no key."""

from __future__ import annotations

import hashlib
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sealed_story import CANARY, Raw, everything_given, tell, with_crc
from stores import Store

from holdfast import (
    CorruptError,
    HoldfastError,
    KeyMissingError,
    NewerVersionError,
    PlaintextError,
    SyncClient,
    TamperedError,
)
from holdfast.backends.port import STORE, Commit, RecordWrite, RowWrite
from holdfast.format.rows import head
from holdfast.format.rows.topic import group_tree
from holdfast.model import ids
from holdfast.sealing import bridge, envelope, store_keys
from holdfast.sealing.key_ring import KeyRing, RawKey
from holdfast.sealing.store_keys import MARKER, SPACE

pytestmark = pytest.mark.every_store

OTHER_RING = KeyRing([RawKey("other", hashlib.sha256(b"another key").digest())])
LIST = [{"n": number, "text": "a long text " * 10} for number in range(60)]


@pytest.fixture
def sealed(store: Store) -> Store:
    store.is_sealed = True
    return store


@pytest.fixture
def filled(sealed: Store) -> tuple[Store, list[str]]:
    """A sealed store with two sessions of two checkpoints, each with a list and a blob."""
    with_state = sealed.client()
    saved = [
        with_state.save(
            agent_id="a",
            session_id=session,
            execution_state={"list": LIST[: 40 + number], "blob": f"{session} " * 2000},
        )
        for session in ("one", "two")
        for number in range(2)
    ]
    return sealed, saved


def id_of(checkpoint_id: str) -> bytes:
    return ids.from_text(checkpoint_id)


def refused(kind: type[HoldfastError], call: Callable[[], object]) -> HoldfastError:
    with pytest.raises(kind) as caught:
        call()
    return caught.value


# -- what is stored says nothing -------------------------------------------------------------------------------------


def test_no_name_and_no_content_reaches_the_backend(sealed: Store, tmp_path: Path):
    client, recorder = sealed.recorded()
    tell(client, tmp_path / "work")
    client.gc()
    given = list(everything_given(recorder))
    assert len(given) > 200
    for canary in (CANARY, CANARY.upper(), CANARY.encode().hex()):
        assert not [data for data in given if canary.encode() in data]
    on_disk = [path for path in sealed.where.rglob("*") if path.is_file() and "work" not in path.parts]
    for path in on_disk:
        assert CANARY.encode() not in path.read_bytes(), path
        assert CANARY not in str(path)


def test_guesses_of_names_meet_nothing_that_is_stored(sealed: Store, tmp_path: Path):
    client, recorder = sealed.recorded()
    tell(client, tmp_path / "work")
    given = b"\0".join(everything_given(recorder))
    names = [f"{CANARY}-{part}" for part in ("session", "agent", "tool", "topic", "tag", "run", "file.txt", "effect")]
    for name in names:
        for digest in (hashlib.sha256, hashlib.sha1, hashlib.md5, hashlib.blake2b):
            hashed = digest(name.encode()).digest()
            assert hashed[:16] not in given
            assert zlib.compress(name.encode())[2:-4] not in given
    for topic in names:
        for group in ("default", *names):
            assert group_tree(topic, group) not in given


def test_equal_states_in_two_stores_share_no_stored_byte(sealed: Store, tmp_path: Path):
    other = Store("memory", tmp_path / "other")
    other.is_sealed = True
    state = {"list": LIST, "blob": "equal " * 2000}
    stored = []
    for each in (sealed, other):
        each.client().save(agent_id="a", session_id="equal", execution_state=state)
        raw = Raw.of(each)
        stored.append(
            {found.session for found in raw.records()}
            | {found.data for found in raw.records()}
            | {info.hash for info in raw.blobs()}
            | {raw.segment(info) for info in raw.segments()}
            | {part for space in ("head", "session") for key, row in raw.rows(space) for part in (key.key, row.value)}
        )
    assert len(stored[0]) > 5
    assert not stored[0] & stored[1]


def test_sizes_are_padded():
    for size in [*range(2, 5000), 10**5, 10**6 + 7]:
        padded = envelope.padded_size(size)
        assert size <= padded <= size * 1.12 + 1
    assert len({envelope.padded_size(size) for size in range(60_000, 64_000)}) <= 3


# -- what is changed is refused --------------------------------------------------------------------------------------


def test_a_forged_record_is_refused(filled: tuple[Store, list[str]]):
    store, [_, newest, *others] = filled
    plain = Store("memory", store.where / "plain")
    plain.is_sealed = False
    theirs = plain.client().save(
        agent_id="a", session_id="one", execution_state={"approved": True}, checkpoint_id=newest
    )
    assert theirs == newest
    raw = Raw.of(store)
    raw.put_record(raw.record(id_of(newest)), Raw.of(plain).record(id_of(newest)).data)
    client = store.client()
    for read in (
        lambda: client.restore(newest),
        lambda: client.get(newest),
        lambda: client.latest(session_id="one"),
        lambda: client.save(agent_id="a", session_id="one", execution_state={}),
        client.gc,
    ):
        refused(PlaintextError, read)
    assert not client.verify().ok
    assert client.restore(others[0]).execution_state["list"] == LIST[:40]


def test_plain_items_of_every_kind_are_refused(filled: tuple[Store, list[str]]):
    store, saved = filled
    raw = Raw.of(store)
    [tombstone] = [raw.record(id_of(saved[0]))]
    raw.put_record(tombstone, b"HF\x01\x01" + bytes(80))
    refused(PlaintextError, lambda: store.client().get(saved[0]))
    for info in raw.segments():
        raw.put_segment(info, b"\x00plain")
    for info in raw.blobs():
        raw.put_blob(info.hash, b"\x00plain")
    refused(PlaintextError, lambda: store.client().restore(saved[3]))
    for key, _ in raw.rows("head"):
        raw.put_row(key, head.protect(key, b"\x92\xc0\x01"))
    refused(PlaintextError, lambda: store.client().latest(session_id="two"))


def test_every_flipped_bit_is_noticed_or_harmless(memory_store: Store):
    memory_store.is_sealed = True
    client = memory_store.client()
    state = {"list": LIST[:12], "blob": "b" * 5000}
    saved = client.save(agent_id="a", session_id="s", execution_state=state)
    raw, draw = Raw.of(memory_store), random.Random(3)
    found = raw.record(id_of(saved))
    places: list[tuple[bytes, Callable[[bytes], None]]] = [
        (found.data, lambda data: raw.put_record(raw.record(found.id), data)),
        *((raw.segment(info), lambda data, info=info: raw.put_segment(info, data)) for info in raw.segments()),
        *((raw.blob(info), lambda data, info=info: raw.put_blob(info.hash, data)) for info in raw.blobs()),
        *(
            (row.value, lambda data, key=key: raw.put_row(key, data))
            for space in ("head", "session", SPACE)
            for key, row in raw.rows(space)
        ),
    ]
    assert len(places) >= 6
    for original, put in places:
        for at in draw.sample(range(len(original)), min(60, len(original))):
            changed = bytearray(original)
            changed[at] ^= 1 << draw.randrange(8)
            for data in (bytes(changed), with_crc(bytes(changed))):
                put(data)
                fresh = memory_store.client()
                try:
                    assert fresh.restore(saved).execution_state == state
                    latest = fresh.latest(session_id="s")
                    assert latest is not None
                    assert latest.execution_state == state
                except HoldfastError:
                    pass
        put(original)
    assert memory_store.client().restore(saved).execution_state == state


def test_a_record_moved_to_another_place_is_refused(filled: tuple[Store, list[str]]):
    store, saved = filled
    raw = Raw.of(store)
    records = [raw.record(id_of(each)) for each in saved]
    for theirs in (records[0], records[2]):  # of the same session, and of another tree
        raw.put_record(raw.record(records[3].id), theirs.data)
        refused(TamperedError, lambda: store.client().restore(saved[3]))
        raw.put_record(raw.record(records[3].id), records[3].data)
    # The same bytes under another session or sequence number.
    raw.commit(Commit(records[1].id, delete_records=[(records[1].id, records[1].data)]))
    moved = RecordWrite(records[1].id, records[2].session, 9, records[1].data)
    raw.commit(Commit(records[1].id, moved))
    refused(TamperedError, lambda: store.client().restore(saved[1]))
    assert store.client().restore(saved[3]).execution_state["list"] == LIST[:41]


def test_a_record_of_another_store_with_the_same_ring_is_refused(filled: tuple[Store, list[str]], tmp_path: Path):
    store, saved = filled
    twin = Store("memory", tmp_path / "twin")
    twin.is_sealed = True
    store.client().copy_to(twin.client())
    assert twin.client().restore(saved[3]).execution_state["list"] == LIST[:41]
    theirs = Raw.of(twin).record(id_of(saved[3]))
    raw = Raw.of(store)
    raw.put_record(raw.record(id_of(saved[3])), theirs.data)
    refused(KeyMissingError, lambda: store.client().restore(saved[3]))  # its key is not in this store
    for key, row in Raw.of(twin).rows(SPACE):
        if key != MARKER:
            raw.put_row(key, row.value)
    refused(TamperedError, lambda: store.client().restore(saved[3]))


def test_rows_segments_and_blobs_moved_to_another_place_are_refused(filled: tuple[Store, list[str]]):
    store, saved = filled
    raw = Raw.of(store)

    def find_refused() -> list[type]:
        kinds = []
        for name in ("one", "two"):
            try:
                store.client().latest(session_id=name)
            except HoldfastError as error:
                kinds.append(type(error))
        return kinds

    assert find_refused() == []
    for space in ("head", "session"):
        (first, own), (_, theirs) = raw.rows(space)
        raw.put_row(first, theirs.value)
        assert find_refused() == [TamperedError]
        raw.put_row(first, own.value)
    one, two = [info for info in raw.segments() if info.first == 0][:2]
    raw.put_segment(two, raw.segment(one))
    refused(TamperedError, lambda: [store.client().restore(each) for each in saved])
    blobs = raw.blobs()
    raw.put_blob(blobs[0].hash, raw.blob(blobs[1]))
    refused(TamperedError, lambda: [store.client().restore(each) for each in saved])


@pytest.mark.parametrize("at", [2, 3, 4])
def test_kind_version_and_suite_are_bound(filled: tuple[Store, list[str]], at: int):
    store, saved = filled
    raw = Raw.of(store)
    found = raw.record(id_of(saved[3]))
    for value in (0, 1, 2, 0x10, 255):
        changed = bytearray(found.data)
        if changed[at] == value:
            continue
        changed[at] = value
        raw.put_record(raw.record(found.id), with_crc(bytes(changed)))
        with pytest.raises((TamperedError, NewerVersionError)):
            store.client().restore(saved[3])


def test_the_key_of_another_tree_does_not_open_a_record(filled: tuple[Store, list[str]]):
    store, saved = filled
    raw = Raw.of(store)
    mine, theirs = raw.record(id_of(saved[3])), raw.record(id_of(saved[1]))
    kid, other = envelope.record_kid(mine.data), envelope.record_kid(theirs.data)
    assert kid is not None
    assert other is not None
    raw.put_record(mine, with_crc(mine.data.replace(kid, other)))
    refused(TamperedError, lambda: store.client().restore(saved[3]))
    raw.put_record(raw.record(mine.id), mine.data)
    rows = {key.key: (key, row) for key, row in raw.rows(SPACE)}
    key_row, [of_other, value_of_other] = rows[kid][0], rows[other]
    assert of_other.key == other
    raw.put_row(key_row, value_of_other.value)
    refused(CorruptError, lambda: store.client().restore(saved[3]))
    raw.put_row(key_row, head.protect(key_row, value_of_other.value[:-4]))
    refused(TamperedError, lambda: store.client().restore(saved[3]))
    assert store.client().restore(saved[1]).execution_state["list"] == LIST[:41]


def test_a_wrapped_key_of_the_attacker_is_refused(filled: tuple[Store, list[str]]):
    store, saved = filled
    secrets = store_keys.Secrets.new()
    raw = Raw.of(store)
    marker = store_keys.wrap(secrets, os.urandom(16), OTHER_RING)
    raw.put_row(MARKER, marker.pack())
    refused(KeyMissingError, lambda: store.client().restore(saved[0]))
    named_alike = KeyRing([RawKey("test", hashlib.sha256(b"of the attacker").digest())])
    raw.put_row(MARKER, store_keys.wrap(secrets, os.urandom(16), named_alike).pack())
    refused(TamperedError, lambda: store.client().restore(saved[0]))


def test_cut_and_swollen_envelopes_are_refused(memory_store: Store):
    memory_store.is_sealed = True
    saved = memory_store.client().save(agent_id="a", session_id="s", execution_state={"x": 1})
    raw = Raw.of(memory_store)
    found = raw.record(id_of(saved))
    for size in range(len(found.data)):
        for data in (found.data[:size], with_crc(found.data[:size]) if size > 4 else b""):
            raw.put_record(raw.record(found.id), data)
            with pytest.raises(CorruptError):
                memory_store.client().restore(saved)
    raw.put_record(raw.record(found.id), with_crc(found.data + bytes(10**6)))
    with pytest.raises(TamperedError):
        memory_store.client().restore(saved)


def test_an_approval_that_was_decided_is_not_one_that_waits(sealed: Store):
    """Rows of one kind can't be put in each other's place: a decided one can't stand where one waits."""
    client = sealed.client()
    for name in ("one", "two"):
        with client.run(name, agent_id="a") as run:
            run.effect("pay", lambda **_: "paid", to="bob", key=f"invoice-{name}")
    raw = Raw.of(sealed)
    [(first, _), (_, theirs)] = raw.rows("ledger")
    raw.put_row(first, theirs.value)
    refused(TamperedError, lambda: sealed.client().effects())
    paid = []
    fresh = sealed.client()

    def pay_again(name: str) -> None:
        with fresh.run(name, agent_id="a") as run:
            run.effect("pay", lambda **_: paid.append(name), to="bob", key=f"invoice-{name}")

    for name in ("one", "two"):
        try:
            pay_again(name)
        except HoldfastError:
            continue
    assert not paid


# -- without keys, and with others -----------------------------------------------------------------------------------


def test_a_client_without_keys_is_refused_and_changes_nothing(filled: tuple[Store, list[str]], tmp_path: Path):
    store, saved = filled
    raw = Raw.of(store)
    bundle = tmp_path / "bundle"
    other = SyncClient.memory()
    other.save(agent_id="a", session_id="new", execution_state={})
    other.export(bundle)
    before = raw.dump()
    calls: list[Callable[[SyncClient], Any]] = [
        lambda client: client.save(agent_id="a", session_id="new", execution_state={}),
        lambda client: client.save(agent_id="a", session_id="one", execution_state={}),
        lambda client: client.restore(saved[0]),
        lambda client: client.latest(session_id="one"),
        lambda client: client.timeline("one"),
        lambda client: client.sessions(),
        lambda client: client.expire(saved[0]),
        lambda client: client.gc(),
        lambda client: client.import_(bundle),
        lambda client: client.publish("topic", 1),
        lambda client: client.tag("name", saved[0]),
        lambda client: client.export(tmp_path / "out"),
    ]
    for call in calls:
        store.is_sealed = False
        client = store.client()
        store.is_sealed = True
        refused(KeyMissingError, lambda call=call, client=client: call(client))
    assert raw.dump() == before


def test_a_store_that_lost_its_keys_is_no_plain_store(filled: tuple[Store, list[str]]):
    store, saved = filled
    raw = Raw.of(store)
    for key, _ in raw.rows(SPACE):
        raw.put_row(key, None)
    refused(PlaintextError, lambda: store.client().restore(saved[0]))
    refused(PlaintextError, lambda: store.client().save(agent_id="a", session_id="new", execution_state={}))
    refused(KeyMissingError, lambda: SyncClient(store.backend(), require_keys=True))
    store.is_sealed = False
    refused(KeyMissingError, lambda: store.client().restore(saved[0]))


def test_a_plain_store_is_refused_where_keys_are_given(store: Store):
    store.is_sealed = False
    saved = store.client().save(agent_id="a", session_id="s", execution_state={"x": 1})
    store.is_sealed = True
    refused(PlaintextError, lambda: store.client().restore(saved))
    refused(PlaintextError, lambda: store.client().save(agent_id="a", session_id="t", execution_state={}))
    store.is_sealed = False
    assert store.client().restore(saved).execution_state == {"x": 1}


def test_another_ring_opens_nothing_and_collects_nothing(filled: tuple[Store, list[str]]):
    store, saved = filled
    raw = Raw.of(store)
    before = raw.dump()
    for call in (
        lambda client: client.restore(saved[0]),
        lambda client: client.timeline("one"),
        lambda client: client.verify(),
        lambda client: client.gc(),
        lambda client: client.rekey(),
    ):
        client = SyncClient(store.backend(), keys=OTHER_RING)
        refused(KeyMissingError, lambda call=call, client=client: call(client))
    assert raw.dump() == before


def test_a_tree_whose_key_is_missing_is_reported_and_never_collected(filled: tuple[Store, list[str]]):
    store, saved = filled
    raw = Raw.of(store)
    kid = envelope.record_kid(raw.record(id_of(saved[1])).data)
    for key, _ in raw.rows(SPACE):
        if key.key == kid:
            raw.put_row(key, None)
    before = raw.dump()
    client = store.client()
    for call in (
        lambda: client.restore(saved[1]),
        lambda: client.latest(session_id="one"),
        lambda: client.save(agent_id="a", session_id="one", execution_state={}),
        lambda: client.pin(saved[1]),
        client.gc,
        lambda: store.client().gc(),
    ):
        refused(KeyMissingError, call)
    assert not client.verify().ok
    assert raw.dump() == before
    assert client.restore(saved[3]).execution_state["list"] == LIST[:41]


# -- controls: without the defence, the attack succeeds --------------------------------------------------------------


def test_control_without_associated_data_a_moved_record_is_returned(
    memory_store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(envelope, "record_place", lambda *_: b"")
    memory_store.is_sealed = True
    client = memory_store.client()
    first = client.save(agent_id="a", session_id="s", execution_state={"n": 1})
    second = client.save(agent_id="a", session_id="s", execution_state={"n": 2})
    raw = Raw.of(memory_store)
    raw.put_record(raw.record(id_of(second)), raw.record(id_of(first)).data)
    # It opens; only the id within, which the record had before there were keys, is another one.
    error = refused(CorruptError, lambda: memory_store.client().restore(second))
    assert not isinstance(error, TamperedError)


def test_control_a_missing_key_that_counts_as_damage_is_noticed(memory_store: Store, monkeypatch: pytest.MonkeyPatch):
    """If a missing key were absence, gc would collect: then the test above would fail."""
    memory_store.is_sealed = True
    client = memory_store.client()
    saved = client.save(agent_id="a", session_id="s", execution_state={"list": LIST, "blob": "b" * 9000})
    raw = Raw.of(memory_store)
    kid = envelope.record_kid(raw.record(id_of(saved)).data)
    [key] = [key for key, _ in raw.rows(SPACE) if key.key == kid]
    raw.put_row(key, None)
    before = raw.dump()

    async def nothing(*_: object) -> list[Any]:
        return []

    monkeypatch.setattr(bridge.SealedBridge, "_open_records", nothing)
    monkeypatch.setattr(bridge.SealedBridge, "_open_rows", nothing)
    memory_store.client().gc()
    assert raw.dump() != before


def test_a_row_put_into_the_tree_of_the_store_is_refused(filled: tuple[Store, list[str]]):
    store, _ = filled
    raw = Raw.of(store)
    key, row = raw.rows("head")[0]
    raw.commit(Commit(STORE, rows=[RowWrite(key._replace(tree=STORE, space="tag"), row.value)]))
    refused(TamperedError, lambda: store.client().tags())


def test_what_cannot_be_opened_does_not_hide_the_rest(filled: tuple[Store, list[str]]):
    store, saved = filled
    client = store.client()
    for number in range(3):
        client.save(agent_id="a", session_id=f"more {number}", execution_state={"n": number})
    client.tag("kept", saved[3])
    client.tag("lost", saved[2])
    raw = Raw.of(store)
    heads, tags = raw.rows("head"), raw.rows("tag")
    raw.put_row(heads[0][0], heads[1][1].value)
    raw.put_row(tags[0][0], b"plain")
    fresh = store.client()
    listed = {session.session_id for session in fresh.sessions()}
    assert len(listed) == 4
    assert set(fresh.session_ids()) == listed
    assert fresh.overview()
    with pytest.raises(PlaintextError):
        fresh.tags()
    report = fresh.verify()
    assert len(report.problems) >= 2
    refused(TamperedError, fresh.gc)
    restored = 0
    for checkpoint_id in saved:
        restored += fresh.restore(checkpoint_id) is not None
    assert restored == len(saved)
