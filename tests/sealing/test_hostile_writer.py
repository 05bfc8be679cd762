"""Somebody without a key changes any stored item: it is refused by name, and every other answer is exact."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sealed_story import Raw, with_crc
from sealed_world import FOREIGN, Answers, Item, Refused, World, build, items
from stores import Store

from holdfast import HoldfastError, SyncClient, TamperedError
from holdfast.format.rows import head
from holdfast.sealing import envelope
from holdfast.sealing.store_keys import MARKER

pytestmark = [pytest.mark.every_store, pytest.mark.slow]

SOAK = "HOLDFAST_SOAK" in os.environ
# Lists leave out what can't be read, and say so in the log: then they have fewer entries, never others.
LISTS = (
    "sessions",
    "session_ids",
    "approvals",
    "effects",
    "inbox",
    "messages",
    "runs",
    "topics",
    "tags",
    "pins",
    "dead",
)
OF_LISTS = ("status", "tree", "team")  # their parts come from such lists


@pytest.fixture
def world(store: Store, tmp_path: Path) -> tuple[Store, World]:
    store.is_sealed = True
    return store, build(store, tmp_path / "work")


def changes(draw: random.Random, item: Item, others: list[Item]) -> Iterator[tuple[str, bytes | None]]:
    """What an attacker may put in the place of an item, by name."""
    data = item.data
    flipped = bytearray(data)
    flipped[draw.randrange(len(data) - 4)] ^= 1 << draw.randrange(8)
    yield "flip", bytes(flipped)
    yield "flip with a CRC", with_crc(bytes(flipped))
    yield "cut", data[: draw.randrange(len(data))]
    yield "cut with a CRC", with_crc(data[: draw.randrange(5, len(data))])
    yield "longer with a CRC", with_crc(data + bytes(draw.randrange(1, 100)))
    yield "empty", b""
    yield "zeros", bytes(len(data))
    alike = [other for other in others if other.kind == item.kind and other.data != data]
    if alike:
        yield "another of its kind", draw.choice(alike).data
    yield "another", draw.choice([other for other in others if other.data != data]).data
    if item.kind == "record":
        yield "plain", b"HF\x01\x01" + bytes(60)
    elif item.kind in ("segment", "blob"):
        yield "plain", b"\0plain"
    else:
        yield "plain", head.protect(item.place, b"\x92\xc0\x01")
        yield "none", None


def is_allowed(question: str, before: object, after: object) -> bool:
    """Whether an answer is exact, refused, or a list without what can't be read."""
    if after == before or isinstance(after, Refused):
        return True
    kind = question.split(maxsplit=1)[0]
    if isinstance(after, str) and after.startswith(FOREIGN):
        return False
    if kind in LISTS and isinstance(before, list) and isinstance(after, list):
        return len(after) <= len(before)
    return kind in (*LISTS, *OF_LISTS, "verify")


def attack(store: Store, world: World, raw: Raw, item: Item, name: str, data: bytes | None, known: Answers) -> None:
    item.put(raw, data)
    found = world.ask(store.client())
    wrong = {one: found[one] for one in found if not is_allowed(one, known[one], found[one])}
    if name == "none":  # a row that is deleted is what a rollback of the store would leave: not found by itself
        wrong = {one: answer for one, answer in wrong.items() if str(answer).startswith(FOREIGN) or "restore" in one}
    assert not wrong, (item.kind, name)
    if name != "none":
        assert found["verify"] is not True, (item.kind, name)
    item.put(raw, item.data)


@pytest.mark.parametrize("seed", range(40) if SOAK else [0])
def test_what_is_put_in_the_place_of_an_item_is_refused(world: tuple[Store, World], seed: int):
    store, questions = world
    draw = random.Random(seed)
    known = questions.ask(store.client())
    assert not [one for one, answer in known.items() if isinstance(answer, Refused) or FOREIGN in str(answer)]
    raw = Raw.of(store)
    found = items(raw)
    by_kind: dict[str, list[Item]] = {}
    for item in found:
        by_kind.setdefault(item.kind, []).append(item)
    assert len(by_kind) > 18
    kinds = sorted(by_kind) if store.kind == "memory" else draw.sample(sorted(by_kind), 5)
    for kind in kinds:
        item = draw.choice(by_kind[kind])
        every = list(changes(draw, item, found))
        for name, data in every if SOAK or store.kind == "memory" else draw.sample(every, 2):
            attack(store, questions, raw, item, name, data, known)
    assert questions.ask(store.client()) == known


def test_gc_deletes_nothing_that_the_rest_needs_whatever_was_changed(world: tuple[Store, World]):
    store, questions = world
    draw = random.Random(5)
    known = questions.ask(store.client())
    raw = Raw.of(store)
    found = items(raw)
    for item in draw.sample(found, len(found) if SOAK else 40 if store.kind == "memory" else 3):
        [flipped] = [data for name, data in changes(draw, item, found) if name == "flip with a CRC"]
        item.put(raw, flipped)
        with suppress(HoldfastError):  # it stops, where it can't know what is needed
            store.client().gc()
        item.put(raw, item.data)
    assert questions.ask(store.client()) == known


def test_items_of_another_store_under_the_same_ring_are_refused(world: tuple[Store, World], tmp_path: Path):
    """Also with the rows of their keys: they are bound to the store."""
    store, questions = world
    twin = Store("memory", tmp_path / "twin")
    twin.is_sealed = True
    store.client().copy_to(twin.client())
    known = questions.ask(store.client())
    raw = Raw.of(store)
    mine = items(raw)
    theirs = items(Raw.of(twin))
    kinds = [kind for kind in sorted({item.kind for item in mine} & {item.kind for item in theirs}) if kind != "keys"]
    assert len(kinds) >= 6
    if store.kind != "memory":
        kinds = random.Random(1).sample(kinds, 6)
    for item in theirs:
        if item.kind == "keys" and item.place != MARKER:
            raw.put_row(item.place, item.data)
    for kind in kinds:
        item = next(one for one in mine if one.kind == kind)
        for other in [one for one in theirs if one.kind == kind][:2]:
            attack(store, questions, raw, item, "of another store", other.data, known)
    assert questions.ask(store.client()) == known


def test_control_without_places_what_was_moved_is_returned(memory_store: Store, monkeypatch: pytest.MonkeyPatch):
    """Were rows not bound to their places, a tag would name the checkpoint of another one."""
    monkeypatch.setattr(envelope, "row_place", lambda *_: b"")
    memory_store.is_sealed = True
    client = memory_store.client()
    saved = [client.save("a", session_id=name, execution_state={"n": name}) for name in ("one", "two")]
    client.handoff(saved[0], "x")
    raw = Raw.of(memory_store)
    (first, _), (_, other) = raw.rows("head")
    raw.put_row(first, other.value)
    # It opens, and only the CRC with the row's clear key, which is no protection against a forger, differs.
    with pytest.raises(Exception) as caught:
        memory_store.client().latest(session_id=_name_of(memory_store, first))
    assert not isinstance(caught.value, TamperedError)


def _name_of(store: Store, key: object) -> str:
    client: SyncClient = store.client()
    names = client._ctx.backend.store
    client.session_ids()
    return next(one for one in ("one", "two") if names.names.key(head.head_key(one.encode(), key.tree)) == key)
