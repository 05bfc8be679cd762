"""Properties of exporting and importing: numbering, placing, and whole stores that are made at random."""

from __future__ import annotations

import itertools

from bundles import equal_stores, exported, imported
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from machine import StoreMachine
from strategies import same

from holdfast import SyncClient
from holdfast.backends.port import Span
from holdfast.format.bundle import sections
from holdfast.format.bundle.renumber import ElementRanges, Numbering, Placement, Ranks, list_tails
from holdfast.format.state.manifest import ListEntry, Manifest, Skeleton, Tail

stretches = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=12)


@given(stretches)
def test_stretches_are_a_set(parts: list[tuple[int, int]]) -> None:
    found, numbers = ElementRanges(), set[int]()
    for first, length in parts:
        found.add(first, first + length)
        numbers |= set(range(first, first + length))
    listed = list(found)
    assert [n for first, end in listed for n in range(first, end)] == sorted(numbers)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(listed))
    assert len(found) == len(numbers)
    ranks = Ranks(found)
    assert [ranks.count_below(n) for n in range(60)] == [sum(m < n for m in numbers) for n in range(60)]


spans = st.builds(
    lambda log, first, length: Span(log, first, first + length),
    st.integers(3, 6),
    st.integers(0, 30),
    st.integers(1, 8),
)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    lists = []
    for number in range(draw(st.integers(0, 3))):
        of_list = tuple(draw(st.lists(spans, min_size=1, max_size=4)))
        length = sum(span.end - span.first for span in of_list)
        tail = Tail(draw(st.integers(3, 7)), draw(st.integers(0, 50)), 0, 0)
        lists.append(ListEntry(("execution_state", number), length, 1, bytes(32), False, of_list, tail))
    span = draw(st.none() | spans.map(lambda span: span._replace(end=span.first + 1)))
    tail = draw(st.none() | st.builds(Tail, st.integers(3, 7), st.integers(0, 50), st.just(0), st.just(9)))
    return Manifest(Skeleton(1, bytes(32), b"x" if span is None else None, span, tail), tuple(lists), ())


def elements_of(manifest: Manifest) -> list[list[tuple[int, int]]]:
    """The elements of each list, by log and number."""
    lists = [entry.spans for entry in manifest.lists]
    if manifest.skeleton.span:
        lists.append((manifest.skeleton.span,))
    return [[(span.log, n) for span in of_list for n in range(span.first, span.end)] for of_list in lists]


def numbered(found: list[Manifest]) -> Numbering:
    numbering = Numbering()
    for manifest in found:
        numbering.note(manifest)
    numbering.settle()
    return numbering


@given(st.lists(manifests(), min_size=1, max_size=6))
def test_numbering_keeps_what_is_equal_and_what_is_not(found: list[Manifest]) -> None:
    numbering = numbered(found)
    moved = [numbering.move(manifest) for manifest in found]
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for manifest, other in zip(found, moved, strict=True):
        assert other.root() == manifest.root()
        for before, after in zip(elements_of(manifest), elements_of(other), strict=True):
            assert len(before) == len(after)
            for a, b in zip(before, after, strict=True):
                assert places.setdefault(a, b) == b
    assert len(set(places.values())) == len(places)
    used = sorted(places.values())
    assert used == [(log, n) for log, length in enumerate(numbering.lengths) for n in range(length)]
    # And numbering what was numbered changes nothing.
    assert [numbered(moved).move(manifest) for manifest in moved] == moved


@given(st.lists(manifests(), min_size=1, max_size=5), st.data())
def test_a_placement_brings_every_element_to_one_place(found: list[Manifest], data: st.DataObject) -> None:
    numbering = numbered(found)
    moved = [numbering.move(manifest) for manifest in found]
    known = data.draw(st.integers(0, len(found)))
    placement = Placement()
    for number in range(known):  # the store has these, in its own places
        placement.learn(moved[number], found[number], bytes((number,)))
    fresh = 100
    for log, length in enumerate(numbering.lengths):
        wanted = ElementRanges()
        wanted.add(0, length)
        at = 0
        for first, end in placement.find_missing(log, wanted):
            placement.put(log, first, end, fresh, at)
            at += end - first
        placement.open(log, fresh + 50)
        fresh += 1
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for number, manifest in enumerate(moved):
        back = placement.move(manifest)
        if number < known:
            assert elements_of(back) == elements_of(found[number])
        for before, after in zip(elements_of(manifest), elements_of(back), strict=True):
            for a, b in zip(before, after, strict=True):
                assert places.setdefault(a, b) == b
    assert placement.relied_on <= {bytes((number,)) for number in range(known)}


@given(st.lists(manifests(), min_size=1, max_size=5))
def test_what_was_placed_in_an_empty_store_is_numbered_as_it_was(found: list[Manifest]) -> None:
    numbering = numbered(found)
    moved = [numbering.move(manifest) for manifest in found]
    placement = Placement()
    for log, length in enumerate(numbering.lengths):
        placement.put(log, 0, length, 100 + log, 0)
    for tail in (tail for manifest in moved for tail in list_tails(manifest)):
        if not placement.has_tail(tail):
            placement.open(tail.log, 200 + tail.log)
    back = [placement.move(manifest) for manifest in moved]
    assert [numbered(back).move(manifest) for manifest in back] == moved


@given(st.binary(max_size=200), st.sampled_from(list("HTWGEBRZ")))
def test_a_section_comes_back_or_is_refused(payload: bytes, kind: str) -> None:
    data = sections.section(kind.encode(), payload)
    head = sections.read_head(data[: sections.HEAD_BYTES])
    assert sections.check(head, data[sections.HEAD_BYTES :]) == payload
    assert (head.kind, head.size) == (kind.encode(), len(payload))


class Exporting(StoreMachine):
    kind = "memory"

    def teardown(self) -> None:
        try:
            client = self.clients[0]
            data = exported(client)
            there = SyncClient.memory()
            there._ctx.now_us = client._ctx.now_us
            imported(there, data)
            equal_stores(client, there, same)
            assert exported(there) == data
            assert imported(there, data).imported == 0
            there.gc()
            equal_stores(client, there, same)
            assert there.verify().problems == ()
        finally:
            super().teardown()


def test_stores_made_at_random_come_back_equal() -> None:
    run_state_machine_as_test(
        Exporting, settings=settings(max_examples=examples(25), stateful_step_count=25, deadline=None)
    )
