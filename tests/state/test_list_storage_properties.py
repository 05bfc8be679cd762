"""The objects a state is stored as, for any content: align, split, plan, runs, manifests, records, marks."""

from __future__ import annotations

import contextlib
import copy
import itertools
import zlib

import pytest
from examples import examples
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from machine_values import large, stretches
from strategies import same, states, values

from holdfast.backends.port import Segment, SegmentInfo, Span
from holdfast.codec.codec import Codec
from holdfast.errors import CorruptError, NewerVersionError
from holdfast.format import frame
from holdfast.format.state import assemble, reachable, record, write_plan
from holdfast.format.state import log_segment as runs
from holdfast.format.state import manifest as manifests
from holdfast.format.state.list_alignment import Kept, align
from holdfast.format.state.manifest import BlobEntry, ListEntry, Manifest, Skeleton, Tail
from holdfast.format.state.split import KnownList, Split

codec = Codec()
slow_data = settings(suppress_health_check=list(HealthCheck))
items = st.lists(st.sampled_from([b"", b"a", b"b", b"x" * 30, b"y" * 40, b"z" * 24, b"w" * 25]), max_size=30)


class TestAlign:
    @staticmethod
    def rebuilt(old, pieces) -> list[bytes]:
        return [e for piece in pieces for e in (old[piece.first : piece.end] if isinstance(piece, Kept) else piece)]

    @given(items, items)
    def test_rebuilds_the_new_list_exactly(self, old, new):
        pieces = align(old, new)
        assert self.rebuilt(old, pieces) == new
        assert all(piece if isinstance(piece, list) else piece.first < piece.end for piece in pieces)

    @given(st.lists(st.binary(min_size=30, max_size=40), unique=True, max_size=20), st.data())
    def test_writes_nothing_that_is_stored_already(self, old, data):
        new = data.draw(st.permutations(old))
        assert not any(isinstance(piece, list) for piece in align(old, new))

    @given(items, items)
    def test_an_append_keeps_the_whole_and_adds_the_rest(self, old, more):
        pieces = align(old, [*old, *more])
        assert pieces == ([Kept(0, len(old))] if old else []) + ([more] if more else [])

    @given(items, st.integers(0, 30), items)
    def test_what_both_begin_and_end_with_is_kept(self, old, at, between):
        at = min(at, len(old))
        new = [*old[:at], *between, *old[at:]]
        written = [e for piece in align(old, new) if isinstance(piece, list) for e in piece]
        assert len(written) <= len(between)


class TestRuns:
    @given(items, st.booleans())
    def test_come_back(self, elements, seal):
        run = Segment(5, len(elements), runs.pack(elements, seal=seal))
        assert runs.unpack(run) == elements

    @given(st.lists(items.filter(bool), min_size=1, max_size=4), st.data())
    def test_any_stretch_can_be_cut_out(self, groups, data):
        stored, first = [], 100
        for number, group in enumerate(groups):
            stored.append(Segment(first, len(group), runs.pack(group, seal=number % 2 == 0)))
            first += len(group)
        everything = [e for group in groups for e in group]
        low = data.draw(st.integers(0, len(everything)))
        high = data.draw(st.integers(low, len(everything)))
        span = Span(1, 100 + low, 100 + high)
        overlapping = [run for run in stored if run.first < span.end and run.first + run.length > span.first]
        assert b"".join(data for _, data in runs.payload(span, overlapping)) == b"".join(everything[low:high])
        assert runs.elements(span, overlapping) == everything[low:high]

    @given(st.lists(items.filter(bool), min_size=2, max_size=4), st.data())
    def test_a_missing_one_is_noticed(self, groups, data):
        stored, first = [], 0
        for group in groups:
            stored.append(Segment(first, len(group), runs.pack(group, seal=False)))
            first += len(group)
        del stored[data.draw(st.integers(0, len(stored) - 1))]
        for read in (runs.payload, runs.elements):
            with pytest.raises(CorruptError):
                read(Span(1, 0, first), stored)

    @given(st.lists(st.tuples(st.integers(-9, 30), items), max_size=5), st.integers(0, 20), st.integers(0, 20))
    def test_wherever_they_say_they_are_a_span_gets_as_many_elements_as_it_has_or_an_error_of_ours(
        self, placed, low, size
    ):
        stored = [Segment(first, len(group), runs.pack(group, seal=False)) for first, group in placed]
        span = Span(1, low, low + size)
        with contextlib.suppress(CorruptError):
            assert sum(count for count, _ in runs.payload(span, stored)) == size
        with contextlib.suppress(CorruptError):
            assert len(runs.elements(span, stored)) == size

    @given(items, st.binary(max_size=60), st.integers(0, 40))
    def test_any_bytes_give_elements_or_an_error_of_ours(self, elements, noise, length):
        for data in (noise, runs.pack(elements, seal=False) + noise, b"\x01" + noise):
            with contextlib.suppress(CorruptError, NewerVersionError):
                assert len(runs.unpack(Segment(0, length, data))) == length

    @given(st.lists(st.binary(max_size=50_000), max_size=12))
    def test_segments_are_large_enough_to_seal_and_lose_nothing(self, elements):
        cut = runs.segments(elements)
        assert [e for segment in cut for e in segment] == elements
        assert all(sum(map(len, segment)) >= runs.SEAL_BYTES for segment in cut[:-1])


class TestFrames:
    @given(st.binary(max_size=2000))
    def test_come_back(self, content):
        assert frame.content(frame.frame_raw(content)) == content
        assert frame.content(frame.compress(content)) == content
        assert len(frame.compress(content)) <= len(content) + 1

    @given(st.binary(max_size=300))
    def test_any_bytes_are_content_or_an_error_of_ours(self, data):
        with contextlib.suppress(CorruptError, NewerVersionError):
            frame.content(data)

    def test_a_frame_cannot_inflate_beyond_what_it_claims(self):
        import zstandard

        bomb = b"\x01" + zstandard.ZstdCompressor(write_content_size=False).compress(b"\0" * 10_000_000)
        with pytest.raises(CorruptError):
            frame.content(bomb)


numbers = st.integers(0, 2**40)
digests = st.binary(min_size=32, max_size=32)
spans = st.builds(Span, numbers, numbers, numbers)
tails = st.builds(Tail, numbers, numbers, numbers, numbers)
list_entries = st.builds(
    ListEntry,
    path=st.lists(st.text(max_size=5) | st.integers(0, 9), min_size=1, max_size=3).map(tuple),
    length=numbers,
    size=numbers,
    digest=digests,
    has_bytes=st.booleans(),
    spans=st.lists(spans, max_size=4).map(tuple),
    tail=tails,
    link=digests,
    open_from=numbers,
).map(lambda entry: entry if any(entry.link) else entry._replace(open_from=0))  # without a link all of it is open
skeletons = st.builds(Skeleton, numbers, digests, st.binary(max_size=20), st.none(), st.none() | tails) | st.builds(
    Skeleton, numbers, digests, st.none(), spans, tails
)
any_manifest = st.builds(
    Manifest,
    skeleton=skeletons,
    lists=st.lists(list_entries, max_size=3).map(tuple),
    blobs=st.lists(st.builds(BlobEntry, digests, numbers), max_size=3).map(tuple),
)


class TestManifests:
    @given(any_manifest)
    def test_come_back(self, manifest):
        again = manifests.unpack(manifest.pack())
        assert again == manifest
        assert again.root() == manifest.root()

    @given(any_manifest, spans, tails)
    def test_the_root_covers_content_and_not_places(self, manifest, span, tail):
        moved = manifest._replace(
            skeleton=manifest.skeleton._replace(tail=tail),
            lists=tuple(entry._replace(spans=(span,), tail=tail) for entry in manifest.lists),
        )
        assert moved.root() == manifest.root()

    @given(any_manifest, any_manifest)
    def test_other_content_has_another_root(self, one, other):
        def content(manifest):
            return (
                manifest.skeleton[:2],
                [(e.length, e.size, e.digest) for e in manifest.lists],
                [blob.hash for blob in manifest.blobs],
            )

        assert (one.root() == other.root()) == (content(one) == content(other))

    @given(st.binary(max_size=100))
    def test_any_bytes_are_a_manifest_or_corrupt(self, data):
        with contextlib.suppress(CorruptError):
            manifests.unpack(data)


HEADER = {"id": b"i" * 16, "seq": 3, "at": 1_800_000_000_000_000, "agent": "a", "session": "s", "parent": b"p" * 16,
          "psum": b"c" * 32, "tree": b"t" * 16, "step": 7, "name": "plan", "ttl": 60.5}  # fmt: skip


class TestRecords:
    @given(any_manifest, st.text(st.characters(codec=None, exclude_categories=()), max_size=10))
    def test_come_back(self, manifest, session):
        data, stored = record.pack(codec, HEADER | {"session": session}, manifest)
        again = record.unpack(codec, data, expected_id=b"i" * 16)
        assert again == stored
        assert again.manifest() == manifest
        assert again.session == session

    @slow_data
    @given(any_manifest, st.data())
    def test_changed_bytes_are_noticed_and_nothing_else_is_raised(self, manifest, data):
        """Also when whoever changed them knew to fix the CRC. What is not covered by it is only where content lies."""
        packed, stored = record.pack(codec, HEADER, manifest)
        at = data.draw(st.integers(0, len(packed) - 1))
        kind = data.draw(st.sampled_from(["flip", "insert", "delete", "replace"]))
        noise = data.draw(st.binary(min_size=1, max_size=8))
        changed = {
            "flip": packed[:at] + bytes([packed[at] ^ (1 << noise[0] % 8)]) + packed[at + 1 :],
            "insert": packed[:at] + noise + packed[at:],
            "delete": packed[:at] + packed[at + len(noise) :],
            "replace": packed[:at] + noise + packed[at + len(noise) :],
        }[kind]
        assume(changed != packed)
        with pytest.raises((CorruptError, NewerVersionError)):
            record.unpack(codec, changed, expected_id=b"i" * 16)
        fixed = changed[:-4] + zlib.crc32(changed[:-4]).to_bytes(4, "big")
        try:
            again = record.unpack(codec, fixed, expected_id=b"i" * 16)
            found = again.manifest()
        except (CorruptError, NewerVersionError):
            return
        assert (again.header, again.root, again.is_tombstone) == (stored.header, stored.root, False)
        assert found.root() == stored.root

    @given(st.binary(max_size=200))
    def test_any_bytes_are_refused(self, noise):
        for data in (noise, b"HF\x00\x01" + noise, b"HF\x00\x01" + noise + bytes(80)):
            with pytest.raises((CorruptError, NewerVersionError)):
                record.unpack(codec, data)

    @given(any_manifest, numbers)
    def test_a_tombstone_says_which_it_was_and_why_it_went(self, manifest, when):
        _, stored = record.pack(codec, HEADER, manifest)
        tombstone = record.unpack(codec, record.pack_tombstone(codec, stored, when, "by hand"), expected_id=b"i" * 16)
        assert tombstone.is_tombstone
        assert tombstone.is_expired(0)
        assert (tombstone.parent, tombstone.tree, tombstone.sequence) == (stored.parent, stored.tree, 3)
        assert (tombstone.header["sum"], tombstone.header["when"], tombstone.header["why"]) == (
            stored.checksum,
            when,
            "by hand",
        )

    def test_another_record_in_its_place_is_noticed(self):
        data, _ = record.pack(codec, HEADER, Manifest(Skeleton(0, b"d" * 32, b"", None, None), (), ()))
        with pytest.raises(CorruptError, match="is that of"):
            record.unpack(codec, data, expected_id=b"j" * 16)


class FakeStore:
    """Logs in dictionaries, as a backend keeps them: for plans without a backend."""

    def __init__(self, *, merge: bool = False) -> None:
        self.merge = merge
        self.logs: dict[int, list[Segment]] = {}
        self.blobs: dict[bytes, bytes] = {}
        self.numbers = itertools.count(1)

    def segments(self, wanted: list[Span]) -> list[list[Segment]]:
        return [
            [run for run in self.logs.get(log, []) if run.first < end and run.first + run.length > first]
            for log, first, end in wanted
        ]

    def save(self, split: Split, parent: Manifest | None) -> Manifest:
        spans = write_plan.list_wanted_spans(split, parent, merge=self.merge)
        stored = dict(zip(spans, self.segments(spans), strict=True))
        planned = write_plan.Planner(stored, self.numbers.__next__, merge=self.merge).plan(split, parent)
        for write in planned.segments:
            kept = [run for run in self.logs.get(write.log, []) if run.first < write.first]
            tail = kept[-1].first + kept[-1].length if kept else 0
            assert tail == write.first, "a run begins where the one before it ends"
            self.logs[write.log] = [*kept, Segment(write.first, write.length, write.data)]
        self.blobs |= planned.blobs
        return planned.manifest

    def load(self, manifest: Manifest) -> tuple:
        blobs = [self.blobs.get(blob.hash) for blob in manifest.blobs]
        return assemble.assemble(codec, manifest, self.segments(manifest.spans()), blobs, verify=True)


def split_of(state, parent: Manifest | None = None) -> Split:
    def known(path):
        entry = parent.list_at(path) if parent else None
        return KnownList(entry, None, None) if entry else None

    return Split(codec, known).take(state, {"context": 1})


def most_merged(end: int, counts: list[int]) -> int:
    """Return how many segments a list of `end` elements has at the most after appends of so many, if small ones merge.

    A small append that begins another 64 elements merges those before it; a large one leaves them as they are.
    """
    most, unmerged = 0, 1
    for count in counts:
        begun, end = end // write_plan.MERGED_ELEMENTS, end + count
        unmerged += 1
        if end // write_plan.MERGED_ELEMENTS > begun:
            most += unmerged if count > write_plan._MAX_MERGED_APPEND else min(2, unmerged)
            unmerged = 0
    return most + unmerged


class TestSplitAndPlan:
    @settings(slow_data, max_examples=examples(50))
    @given(states() | values())
    def test_any_state_comes_back_from_its_parts(self, state):
        before = codec.encode(state)
        split = split_of(state)
        assert codec.encode(state) == before  # the caller's state was not changed
        assert same(split.thaw()[0], state)
        store = FakeStore()
        assert same(store.load(store.save(split, None))[0], state)

    @slow_data
    @given(
        st.lists(st.tuples(stretches, st.integers(0, 50), st.integers(0, 50), large), min_size=1, max_size=6),
        st.booleans(),
    )
    def test_a_history_of_edits_comes_back_and_its_roots_are_those_of_its_values(self, history, merge):
        store = FakeStore(merge=merge)
        parent = None
        saved = []
        items: list = []
        for new, at, until, text in history:
            items = [*items[:at], *copy.deepcopy(new), *items[max(at, until) :]]
            state = {"m": items, "deep": {"v": [text, {"m": items[::2]}]}}
            parent = store.save(split_of(state, parent), parent)
            saved.append((parent, copy.deepcopy(state)))
        for manifest, state in saved:
            assert same(store.load(manifest)[0], state)
            assert manifest.root() == FakeStore().save(split_of(state), None).root()

    @slow_data
    @given(st.lists(st.integers(1, 12), min_size=30, max_size=80))
    def test_merged_segments_are_few_and_hold_the_same_elements(self, counts):
        plain, merged = FakeStore(), FakeStore(merge=True)
        of_plain = of_merged = None
        items = [f"a longer element {n} of a list " * 4 for n in range(40)]
        for count in [0, *counts]:
            items += [f"element {len(items) + n} of a list " * 3 for n in range(count)]
            state = {"m": items}
            of_plain = plain.save(split_of(state, of_plain), of_plain)
            of_merged = merged.save(split_of(state, of_merged), of_merged)
        assert of_merged.root() == of_plain.root()
        assert same(merged.load(of_merged)[0], {"m": items})
        assert len(of_plain.lists) == 1
        [log] = {span.log for span in of_merged.lists[0].spans}
        assert len(plain.logs[log]) == len(counts) + 1
        assert len(merged.logs[log]) <= most_merged(40, counts)

    @slow_data
    @given(stretches, stretches)
    def test_what_is_known_of_the_parent_changes_nothing_in_the_parts(self, old, new):
        store = FakeStore()
        parent = store.save(split_of({"m": old}), None)
        state = {"m": [*old, *new]}
        informed, ignorant = split_of(state, parent), split_of(state)
        assert informed.skeleton == ignorant.skeleton
        assert [(image.path, image.length, image.size) for image in informed.lists] == [
            (image.path, image.length, image.size) for image in ignorant.lists
        ]


class TestMarks:
    @given(
        st.lists(st.tuples(st.integers(1, 3), st.integers(0, 50), st.integers(0, 50)), max_size=12),
        st.integers(1, 3),
        st.integers(0, 40),
        st.integers(1, 30),
    )
    def test_live_parts_are_exactly_what_is_referred_to(self, referred, log, first, length):
        marks = reachable.MarkSet()
        alive = set()
        for of_log, one, other in referred:
            span = Span(of_log, min(one, other), max(one, other) + 1)
            entry = ListEntry(("m",), 0, 0, b"d" * 32, False, (span,), Tail(0, 0, 0, 0))
            marks.mark(Manifest(Skeleton(0, b"", b"", None, None), (entry,), (BlobEntry(bytes([one]), 1),)))
            if of_log == log:
                alive |= set(range(span.first, span.end))
        run = SegmentInfo(log, first, length, 0)
        parts = marks.live_parts(run)
        found = [number for start, end in parts for number in range(start, end)]
        assert found == sorted(alive & set(range(first, first + length)))
        assert all(end < start for (_, end), (start, _) in itertools.pairwise(parts))
        assert marks.blobs == {bytes([one]) for _, one, _ in referred}

    @given(items.filter(lambda elements: len(elements) > 1), st.data())
    def test_a_trimmed_run_has_its_live_elements_where_they_were(self, elements, data):
        bounds = data.draw(st.lists(st.integers(0, len(elements)), min_size=2, max_size=6, unique=True).map(sorted))
        live = [(10 + low, 10 + high) for low, high in zip(bounds[::2], bounds[1::2], strict=False)]
        run = Segment(10, len(elements), runs.pack(elements, seal=True))
        trimmed = reachable.trim_segment(7, run, live)
        assert (trimmed.log, trimmed.first, trimmed.length) == (7, 10, len(elements))
        for (first, end), piece in zip(live, trimmed.pieces, strict=True):
            assert piece[:2] == (first, end - first)
            assert runs.unpack(Segment(*piece)) == elements[first - 10 : end - 10]
