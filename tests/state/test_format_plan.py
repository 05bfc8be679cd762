"""Where the skeleton of a state goes: into the record if it is small and alone, else into a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec.codec import Codec
from holdfast.format.state import write_plan
from holdfast.format.state.manifest import Manifest, Skeleton, Tail
from holdfast.format.state.split import Split, encode_whole

MESSAGES = [{"id": number, "content": "words " * 100} for number in range(12)]


def split(state: object) -> Split:
    return Split(Codec(), lambda _: None).take(state, {})


def planned(state: object, parent: Manifest | None = None) -> write_plan.WritePlan:
    return write_plan.Planner({}, iter(range(1, 9)).__next__).plan(split(state), parent)


@given(st.text(max_size=3000), st.none() | st.builds(Tail, *[st.integers(0, 1000)] * 4))
def test_a_small_state_is_planned_the_same_either_way(text, tail):
    parent = Manifest(Skeleton(1, bytes(32), b"x", None, tail), (), ()) if tail else None
    skeleton = encode_whole(Codec(), {"text": text}, {})
    small = write_plan.build_small(skeleton, parent) if skeleton is not None else None
    if small is not None:
        assert skeleton == split({"text": text}).skeleton
        assert planned({"text": text}, parent) == write_plan.WritePlan(small, [], {})


@pytest.mark.parametrize(("size", "is_inline"), [(10, True), (1400, True), (1600, False), (3000, False)])
def test_a_small_state_is_in_its_record(size, is_inline):
    made = planned({"text": "x" * size})
    assert (made.manifest.skeleton.inline is not None) == is_inline
    assert (not made.segments) == is_inline


@pytest.mark.parametrize(("size", "is_inline"), [(10, True), (1400, False)])
def test_beside_a_long_list_only_a_very_small_skeleton_is(size, is_inline):
    made = planned({"text": "x" * size, "messages": MESSAGES})
    assert len(made.manifest.lists) == 1
    assert (made.manifest.skeleton.inline is not None) == is_inline


def test_beside_a_blob_only_a_very_small_skeleton_is():
    made = planned({"text": "x" * 1400, "page": "y" * 5000})
    assert made.manifest.blobs
    assert made.manifest.skeleton.inline is None
