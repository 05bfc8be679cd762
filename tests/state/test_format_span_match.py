"""Which elements two stored lists share by their places, and what is not to be confused with them."""

from __future__ import annotations

import pytest

from holdfast import CorruptError
from holdfast.backends.port import Span
from holdfast.codec.codec import Codec, TypedObject
from holdfast.codec.stored_objects import NO_TYPE, stored_codec
from holdfast.format.state.span_match import MOST_PAIRS, Gap, find_gaps


def test_an_insertion_at_both_ends_leaves_two_gaps() -> None:
    old, new = [Span(1, 0, 15_000)], [Span(1, 15_000, 15_001), Span(1, 0, 15_000), Span(1, 15_001, 15_002)]
    assert find_gaps(old, new) == [Gap(0, 0, 0, 1), Gap(15_000, 15_000, 15_001, 15_002)]
    assert find_gaps(new, old) == [Gap(0, 1, 0, 0), Gap(15_001, 15_002, 15_000, 15_000)]


def test_of_what_moved_the_longer_part_is_shared() -> None:
    assert find_gaps([Span(1, 0, 10)], [Span(1, 3, 10), Span(1, 0, 3)]) == [Gap(0, 3, 0, 0), Gap(10, 10, 7, 10)]


def test_elements_that_stand_twice() -> None:
    assert find_gaps([Span(1, 0, 10)], [Span(1, 0, 6), Span(1, 4, 10)]) == [Gap(6, 6, 6, 8)]


def test_more_spans_than_are_ever_written_are_read_as_a_whole() -> None:
    many = [Span(1, 2 * number, 2 * number + 1) for number in range(MOST_PAIRS)]
    assert find_gaps(many, many[:-1]) == [Gap(0, MOST_PAIRS, 0, MOST_PAIRS - 1)]


def test_an_object_without_a_name_is_damage() -> None:
    """The name stands for parts that were not read yet: stored data must not pass for these."""
    with pytest.raises(CorruptError, match="no name"):
        stored_codec(Codec()).decode(Codec().encode(TypedObject(NO_TYPE, (b"digest", 1)), parts=True))
