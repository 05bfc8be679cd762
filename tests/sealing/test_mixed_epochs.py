"""Somebody without a key mixes what was stored before and after new data keys: exact, or refused by name."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from sealed_story import Raw
from sealed_world import FOREIGN, Item, Refused, World, build, items
from stores import Store

from holdfast import HoldfastError, KeyMissingError
from holdfast.sealing.store_keys import MARKER

pytestmark = [pytest.mark.every_store, pytest.mark.slow]


@pytest.fixture
def world(store: Store, tmp_path: Path) -> tuple[Store, World]:
    store.is_sealed = True
    return store, build(store, tmp_path / "work")


def places(found: list[Item]) -> dict[object, Item]:
    """Items by their places, which stay when they are sealed again."""
    return {
        (item.kind, item.place.id if item.kind == "record" else item.place[:3]): item
        for item in found
        if item.kind not in ("keys", "blob")
    }


def sample(store: Store, pairs: list[tuple[Item, Item]]) -> list[tuple[Item, Item]]:
    return pairs if store.kind == "memory" else random.Random(3).sample(pairs, 8)


def pairs_of(before: list[Item], after: list[Item]) -> list[tuple[Item, Item]]:
    older = places(before)
    pairs = [(item, older[place]) for place, item in places(after).items() if place in older]
    assert len(pairs) > 60
    assert all(item.data != old.data for item, old in pairs)
    return pairs


def test_what_was_sealed_under_older_keys_is_exact_or_refused(world: tuple[Store, World]):
    store, questions = world
    raw = Raw.of(store)
    before = items(raw)
    store.client().rekey(data=True)
    known = questions.ask(store.client())
    assert not [one for one in known.values() if isinstance(one, Refused)]
    pairs = sample(store, pairs_of(before, items(raw)))
    for item, old in pairs:  # the old keys are still accepted: what is put back says the same
        item.put(raw, old.data)
    assert questions.ask(store.client()) == known
    for item, _ in pairs:
        item.put(raw, item.data)
    store.client().rekey(destroy_old=True)
    assert questions.ask(store.client()) == known
    for item, old in pairs:
        item.put(raw, old.data)
        answers = questions.ask(store.client())
        assert answers["verify"] is not True, item.kind
        assert not [one for one in answers.values() if str(one).startswith(FOREIGN)], item.kind
        item.put(raw, item.data)
    assert questions.ask(store.client()) == known


def test_rows_of_destroyed_keys_that_are_put_back_open_nothing(world: tuple[Store, World]):
    store, questions = world
    raw = Raw.of(store)
    before = items(raw)
    client = store.client()
    client.rekey(data=True)
    client.rekey(destroy_old=True)
    known = questions.ask(store.client())
    pairs = sample(store, pairs_of(before, items(raw)))
    old_keys = [item for item in before if item.kind == "keys" and item.place != MARKER]
    for item in old_keys:
        raw.put_row(item.place, item.data)
    assert questions.ask(store.client()) == known
    for item, old in pairs:
        item.put(raw, old.data)
    answers = questions.ask(store.client())
    assert answers["verify"] is not True
    changed = [one for one in answers if answers[one] != known[one]]
    assert changed
    for one in changed:
        assert not str(answers[one]).startswith(FOREIGN)
        if one.startswith(("restore", "latest", "file", "messages")):
            assert isinstance(answers[one], Refused) or len(answers[one]) < len(known[one])
    for item, _ in pairs:
        item.put(raw, item.data)
    assert questions.ask(store.client()) == known


def test_an_older_row_of_the_stores_key_opens_nothing_that_is_newer(world: tuple[Store, World]):
    store, questions = world
    raw = Raw.of(store)
    [marker] = [item for item in items(raw) if item.place == MARKER]
    client = store.client()
    client.rekey(data=True)
    client.rekey(destroy_old=True)
    known = questions.ask(store.client())
    [newest] = [item for item in items(raw) if item.place == MARKER]
    raw.put_row(MARKER, marker.data)
    before = raw.dump()
    fresh = store.client()
    with pytest.raises(KeyMissingError):
        fresh.restore(next(iter(questions.checkpoints.values())))
    with pytest.raises(HoldfastError):
        fresh.save("a", session_id="one", execution_state={})
    with pytest.raises(HoldfastError):
        fresh.gc()
    with suppress(HoldfastError):
        assert not fresh.verify().ok
    assert raw.dump() == before
    # A process that has the store open goes on with the keys that it knows.
    assert client.restore(next(iter(questions.checkpoints.values())))
    raw.put_row(MARKER, newest.data)
    assert questions.ask(store.client()) == known
