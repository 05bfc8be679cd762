"""Policies and shares: properties that hold for any history."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Retention, UsageError
from holdfast.backends.port import BlobInfo, SegmentInfo, Span
from holdfast.format.state.reachable import MarkSet
from holdfast.format.state.usage import LogBytes, Shares, estimate_remaining
from holdfast.model.retention import LiveCheckpoint, choose_fewest, may_go

NOW = 10_000_000
small = st.none() | st.integers(0, 8)
policies = st.builds(
    Retention,
    keep_last=small,
    keep_every=st.none() | st.integers(1, 5),
    older_than=st.none() | st.integers(0, 12).map(lambda seconds: timedelta(seconds=seconds)),
    max_bytes=st.integers(0, 100),
)


@st.composite
def histories(draw: st.DrawFn) -> list[LiveCheckpoint]:
    """Sessions whose sequence numbers have gaps, by clocks that may go back, of which each has a protected head."""
    entries = []
    for session in draw(st.lists(st.sampled_from("abcd"), unique=True)):
        numbers = sorted(draw(st.sets(st.integers(1, 30), min_size=1, max_size=12)))
        head = draw(st.sampled_from(numbers))
        for number in numbers:
            made = draw(st.integers(0, NOW))
            is_protected = number == head or draw(st.integers(0, 5)) == 0
            entries.append(LiveCheckpoint(f"{session}{number}".encode(), session, number, made, is_protected))
    return draw(st.permutations(entries))


@given(policies, histories())
def test_what_is_protected_young_or_kept_by_a_rule_never_goes(policy, entries):
    going = may_go(policy, entries, NOW)
    for entry in going:
        assert not entry.is_protected
        if policy.older_than is not None:
            assert NOW - entry.created_at_us >= policy.older_than / timedelta(microseconds=1)
        if policy.keep_every is not None:
            assert entry.sequence % policy.keep_every
        if policy.keep_last is not None:
            newer = [one for one in entries if one.session == entry.session and one.sequence > entry.sequence]
            assert len(newer) >= policy.keep_last
    kept = set(entries) - set(going)
    for entry in kept:  # and what nothing keeps goes
        newer = [one for one in entries if one.session == entry.session and one.sequence > entry.sequence]
        assert (
            entry.is_protected
            or (policy.keep_last is not None and len(newer) < policy.keep_last)
            or (policy.keep_every is not None and entry.sequence % policy.keep_every == 0)
            or (
                policy.older_than is not None
                and entry.created_at_us > NOW - policy.older_than // timedelta(microseconds=1)
            )
        )


@given(policies, histories())
def test_a_second_time_nothing_goes(policy, entries):
    gone = set(may_go(policy, entries, NOW))
    assert may_go(policy, [entry for entry in entries if entry not in gone], NOW) == []


@given(policies, histories(), st.integers(0, 8), st.integers(0, 8))
def test_keeping_more_lets_less_go(policy, entries, few, more):
    def going(count: int) -> set[LiveCheckpoint]:
        changed = Retention(
            keep_last=count, keep_every=policy.keep_every, older_than=policy.older_than, max_bytes=policy.max_bytes
        )
        return set(may_go(changed, entries, NOW))

    assert going(few + more) <= going(few)


@given(policies, histories())
def test_the_oldest_goes_first_and_the_order_does_not_depend_on_that_of_the_entries(policy, entries):
    going = may_go(policy, entries, NOW)
    for session in "abcd":
        numbers = [entry.sequence for entry in going if entry.session == session]
        assert numbers == sorted(numbers)
    assert may_go(policy, sorted(entries), NOW) == going


@given(st.integers(0, 200), st.integers(0, 250))
def test_the_fewest_that_fit(candidates, needed):
    asked = []

    def fits(count: int) -> bool:
        asked.append(count)
        return count >= needed

    assert choose_fewest(candidates, fits) == min(needed, candidates)
    assert len(asked) <= 8


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"keep_last": -1},
        {"keep_last": True},
        {"keep_every": 0},
        {"keep_every": 1.5},
        {"max_bytes": -1},
        {"older_than": 30},
        {"older_than": timedelta(seconds=-1)},
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(rules):
    with pytest.raises(UsageError):
        Retention(**rules)


# -- who takes how much ------------------------------------------------------------------------------------------------


@st.composite
def stores(draw: st.DrawFn) -> tuple[list[SegmentInfo], list[BlobInfo], list[MarkSet]]:
    runs = []
    for log in draw(st.lists(st.integers(1, 4), unique=True).map(sorted)):
        first = 0
        for length, size, gap in draw(
            st.lists(st.tuples(st.integers(1, 9), st.integers(1, 1000), st.sampled_from([0, 0, 0, 3])), max_size=6)
        ):
            runs.append(SegmentInfo(log, first + gap, length, size))
            first += gap + length
    blobs = [BlobInfo(bytes([number]), draw(st.integers(1, 100)), 0) for number in range(draw(st.integers(0, 4)))]
    marks = []
    for _ in range(draw(st.integers(0, 4))):
        of_owner = MarkSet()
        for run in runs:
            if draw(st.booleans()):
                first = draw(st.integers(0, run.length - 1))
                end = draw(st.integers(first + 1, run.length))
                of_owner.add([Span(run.log, run.first + first, run.first + end)], [])
        of_owner.add([], [blob.hash for blob in blobs if draw(st.booleans())])
        marks.append(of_owner)
    return runs, blobs, marks


@given(stores())
def test_shares_add_up_to_what_is_stored(store):
    runs, blobs, marks = store
    shares = Shares(len(marks))
    shares.add_segments(runs, marks)
    shares.add_blobs(blobs, marks)
    stored = sum(run.size for run in runs) + sum(blob.size for blob in blobs)
    assert sum(shares.alone) + shares.shared + shares.unused == stored
    assert all(0 <= alone <= referred for alone, referred in zip(shares.alone, shares.referred, strict=True))
    assert shares.shared == 0 or sum(shares.referred) - sum(shares.alone) >= 2 * shares.shared
    assert shares.unused >= 0


@given(stores())
def test_without_one_owner_what_it_had_alone_is_unused(store):
    runs, blobs, marks = store
    if not marks:
        return
    shares = [Shares(len(marks)), Shares(len(marks) - 1)]
    for counted, of_owners in zip(shares, (marks, marks[1:]), strict=True):
        counted.add_segments(runs, of_owners)
        counted.add_blobs(blobs, of_owners)
    assert shares[1].unused - shares[0].unused == shares[0].alone[0]


@given(stores())
def test_the_more_is_marked_the_more_is_left(store):
    runs, blobs, marks = store
    stored = sum(run.size for run in runs) + sum(blob.size for blob in blobs)
    together = MarkSet()
    before = estimate_remaining(runs, blobs, together)
    assert before == 0
    for of_owner in marks:
        for log in of_owner.logs():
            together.add([Span(log, first, end) for first, end in of_owner.merged_spans(log)], [])
        together.add([], of_owner.blobs)
        left = estimate_remaining(runs, blobs, together)
        assert before <= left <= stored
        before = left


def test_the_bytes_of_a_log_are_shared_out_evenly_within_a_run():
    log = LogBytes([SegmentInfo(1, 0, 4, 100), SegmentInfo(1, 10, 10, 1000)])
    assert (log.measure(0, 2), log.measure(2, 4), log.measure(4, 10), log.measure(0, 20)) == (50, 50, 0, 1100)
    assert log.measure(3, 11) == 25 + 100
