"""What a save writes: what is new, and nothing else."""

from __future__ import annotations

import random

import pytest
from stores import Store, messages

from holdfast import SyncClient
from holdfast.format.state import record
from holdfast.format.state.manifest import MAX_SPANS
from holdfast.model import ids


def spans_of(client: SyncClient, id_: str) -> int:
    [found] = client._ctx.backend.backend.records([ids.from_text(id_)])
    manifest = record.unpack(client._ctx.codec, found.data).manifest()
    return sum(len(entry.spans) for entry in manifest.lists)


def test_an_append_writes_what_is_appended(store: Store):
    client, recorder = store.recorded()
    for size in (20, 200, 2000):
        session = f"s{size}"
        client.save("a", session_id=session, execution_state={"m": messages(size)})
        client.save("a", session_id=session, execution_state={"m": messages(size + 1)})
        recorder.forget()
        client.save("a", session_id=session, execution_state={"m": messages(size + 2)})
        assert recorder.written_bytes() < 800
        assert recorder.record_bytes() < 600


def test_over_many_steps_each_element_is_written_about_once(memory_store: Store):
    """Once as it came, and once, compressed, when it is sealed."""
    client, recorder = memory_store.recorded()
    rng = random.Random(1)
    items = [f"{i} {rng.randbytes(150).hex()}" for i in range(1000)]
    for count in range(1, 1001):
        client.save("a", session_id="s", execution_state={"m": items[:count]})
    total = sum(map(len, items))
    assert recorder.written_bytes() < 1.9 * total
    assert client.stats().segment_bytes < 0.8 * total  # hex text, of which half is noise
    assert client.latest(session_id="s").execution_state == {"m": items}


def test_an_unchanged_skeleton_is_not_written_again(store: Store):
    client, recorder = store.recorded()
    rest = {f"key {i}": f"value {i}" for i in range(100)}
    client.save("a", session_id="s", execution_state={"m": messages(20), "rest": rest})
    recorder.forget()
    client.save("a", session_id="s", execution_state={"m": messages(20), "rest": rest})
    assert recorder.written_bytes() == 0
    recorder.forget()
    client.save("a", session_id="s", execution_state={"m": messages(21), "rest": rest})
    assert recorder.written_bytes() < 800


def test_a_blob_is_written_once_and_not_again_by_children(store: Store):
    client, recorder = store.recorded()
    blob = random.Random(2).randbytes(100_000)
    client.save("a", session_id="s", execution_state={"file": blob})
    recorder.forget()
    for step in range(5):
        client.save("a", session_id="s", execution_state={"file": blob, "step": step})
    client.fork(client.latest(session_id="s").checkpoint_id, session_id="t")
    client.save("a", session_id="t", execution_state={"other name": blob, "step": 6})
    assert recorder.written_bytes() < 1000
    client.save("a", session_id="elsewhere", execution_state=[blob, blob])
    copies = 2 if store.shards else 1  # a tree in another shard has its own
    assert client.stats().blob_bytes < copies * 110_000
    assert client.latest(session_id="elsewhere").execution_state == [blob, blob]


@pytest.mark.parametrize("size", [70_000, 3_000_000])
def test_a_huge_single_element(store: Store, size: int):
    client, recorder = store.recorded()
    huge = {"image": random.Random(3).randbytes(size)}
    items = [*messages(10), huge, *messages(10, 10)]
    client.save("a", session_id="s", execution_state={"m": items})
    recorder.forget()
    saved = client.save("a", session_id="s", execution_state={"m": [*items, "next"]})
    assert recorder.written_bytes() < 10_000
    assert client.restore(saved).execution_state == {"m": [*items, "next"]}
    edited = [*items[:3], *items[4:], huge]
    recorder.forget()
    saved = client.save("a", session_id="s", execution_state={"m": edited})
    assert recorder.written_bytes() < 10_000
    assert client.restore(saved).execution_state == {"m": edited}


def test_an_edit_in_the_middle_writes_what_changed(store: Store):
    client, recorder = store.recorded()
    items = messages(500)
    whole = client.save("a", session_id="s", execution_state={"m": items})
    changes = [
        ("replaced", [*items[:250], {"new": "x" * 100}, *items[251:]]),
        ("inserted", [*items[:100], {"new": "y" * 100}, *items[100:]]),
        ("deleted", [*items[:100], *items[200:]]),
        ("moved", [*items[400:], *items[:400]]),
        ("first dropped", items[1:]),
        ("reversed ends", [items[-1], *items[1:-1], items[0]]),
    ]
    for what, edited in changes:
        recorder.forget()
        saved = client.save("a", session_id="s", parent_id=whole, execution_state={"m": edited})
        assert recorder.written_bytes() < 3000, what
        assert client.restore(saved).execution_state == {"m": edited}


def test_a_sliding_window_writes_what_is_new(store: Store):
    client, recorder = store.recorded()
    client.save("a", session_id="s", execution_state={"m": messages(100)})
    recorder.forget()
    for start in range(1, 41):
        saved = client.save("a", session_id="s", execution_state={"m": messages(100, start)})
        assert spans_of(client, saved) == 1
    assert recorder.written_bytes() < 40 * 800 + 70_000
    assert client.restore(saved).execution_state == {"m": messages(100, 40)}


def test_too_many_spans_are_written_anew_as_one(store: Store):
    """A list that was cut to pieces is read in as many pieces: beyond 64 it is stored whole again."""
    client = store.client()
    items = messages(300, size=60)
    client.save("a", session_id="s", execution_state={"m": items})
    most = 0
    for step in range(0, 200, 4):
        items = [*items[:step], {"edit": f"{step}" * 20}, *items[step + 1 :]]
        saved = client.save("a", session_id="s", execution_state={"m": items})
        most = max(most, spans_of(client, saved))
        assert client.restore(saved).execution_state == {"m": items}
    assert 30 < most <= MAX_SPANS
    grown = client.save("a", session_id="s", append={"m": ["end"]})
    assert client.restore(grown).execution_state == {"m": [*items, "end"]}
    assert client.verify().ok


def test_many_scattered_edits_at_once(store: Store):
    client = store.client()
    items = messages(400, size=60)
    client.save("a", session_id="s", execution_state={"m": items})
    edited = [{"edit": str(i) * 30} if i % 3 == 0 else item for i, item in enumerate(items)]
    saved = client.save("a", session_id="s", execution_state={"m": edited})
    assert spans_of(client, saved) == 1
    assert client.restore(saved).execution_state == {"m": edited}
    assert client.restore(client.get(saved).parent_id).execution_state == {"m": items}


def test_a_list_of_ten_megabytes(store: Store):
    client, recorder = store.recorded()
    items = messages(5000, size=2000)
    client.save("a", session_id="s", execution_state={"m": items})
    recorder.forget()
    saved = client.save("a", session_id="s", append={"m": messages(1, 5000, 2000)})
    assert recorder.written_bytes() < 140_000  # at most what gathered since the last sealed run
    cold = store.client()
    assert cold.restore(saved).execution_state == {"m": messages(5001, size=2000)}


def test_a_summary_in_the_place_of_the_history_and_back(store: Store):
    client, recorder = store.recorded()
    full = client.save("a", session_id="s", execution_state={"m": messages(200)})
    client.save("a", session_id="s", execution_state={"m": ["summary", *messages(10, 190)]})
    client.rollback("s", to=full)
    recorder.forget()
    saved = client.save("a", session_id="s", execution_state={"m": messages(201)})
    assert recorder.written_bytes() < 1500  # one message, twice: the log had gone on, so a new one was opened
    assert client.restore(saved).execution_state == {"m": messages(201)}


def test_many_long_lists_in_one_state(store: Store):
    client, recorder = store.recorded()
    state = {"agents": {f"agent {i}": {"history": messages(12, 100 * i)} for i in range(40)}}
    client.save("a", session_id="s", execution_state=state)
    state["agents"]["agent 7"]["history"].append("more")
    recorder.forget()
    saved = client.save("a", session_id="s", execution_state=state)
    assert recorder.written_bytes() < 6000
    assert client.restore(saved).execution_state == state
