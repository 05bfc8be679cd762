"""A state that was encoded before its parent was known is in the same parts as one that was split against it."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from holdfast.codec.codec import Codec
from holdfast.objects import plan
from holdfast.objects.ahead import Ahead
from holdfast.objects.manifest import Manifest, Path
from holdfast.objects.split import Appended, KnownList, Split

CODEC = Codec()
elements = st.one_of(
    st.text(max_size=300),
    st.fixed_dictionaries({"content": st.text(min_size=150, max_size=300), "at": st.floats(allow_nan=False)}),
    st.binary(max_size=40),
    st.just(b"words " * 60),
    st.builds(bytearray, st.binary(max_size=40)),
    st.tuples(st.integers()),
)


@st.composite
def lists(draw: st.DrawFn) -> list[Any]:
    """Long ones of few different elements: so many can be drawn."""
    some = draw(st.lists(elements, min_size=1, max_size=8))
    return [some[number % len(some)] for number in range(draw(st.integers(0, 150)))]


def whole(state: Any, parent: Manifest | None = None) -> Split:
    return Split(CODEC, knowing(parent)).take(state, {})


def knowing(parent: Manifest | None) -> Any:
    def known(path: Path) -> KnownList | None:
        entry = parent.list_at(path) if parent else None
        return KnownList(entry, None, None) if entry else None

    return known


def saved(state: Any) -> Manifest:
    return plan.Planner({}, iter(range(1, 99)).__next__).plan(whole(state), None).manifest


def parts(split: Split) -> tuple[Any, ...]:
    images = [
        (i.path, i.length, i.size, i.proven, list(i.fresh), i.groups, i.chain and i.chain.digest(), i.has_bytes)
        for i in split.lists
    ]
    return split.skeleton, images, split.blobs, split.blob_contents


@given(before=lists(), after=lists(), note=st.text(max_size=5000))
@example(before=["words " * 60] * 100, after=["more"] * 20, note="")
@example(before=["words " * 60] * 100, after=[], note="words " * 1000)
def test_encoded_ahead_a_state_is_split_in_the_same_way(before, after, note):
    parent = saved({"values": {"messages": before}, "note": "first"})
    state = {"values": {"messages": after}, "note": note}
    ahead = Ahead(CODEC)
    ahead.try_to_take(state, {})
    if ahead.is_taken:
        assert ahead.follows(knowing(parent))
        assert parts(ahead) == parts(whole(state, parent))


@given(after=lists())
def test_only_a_state_without_long_lists_is_taken(after):
    ahead = Ahead(CODEC)
    ahead.try_to_take({"messages": after}, {})
    assert ahead.is_taken == (not saved({"messages": after}).lists and len(after) < 64)


@given(before=lists(), added=st.lists(elements, max_size=30))
def test_a_declared_append_is_followed_in_the_same_way(before, added):
    parent = saved({"messages": before})
    assume(parent.lists)
    state = {"messages": Appended(added), "note": 1}
    ahead = Ahead(CODEC)
    ahead.try_to_take(state, {})
    assert ahead.is_taken
    assert ahead.follows(knowing(parent))
    assert parts(ahead) == parts(whole(state, parent))


def test_an_append_to_what_is_no_log_is_not_followed():
    ahead = Ahead(CODEC)
    ahead.try_to_take({"messages": Appended(["one"])}, {})
    assert not ahead.follows(knowing(saved({"messages": ["short"]})))


def test_what_can_t_be_stored_is_not_taken():
    ahead = Ahead(CODEC)
    ahead.try_to_take({"messages": [object()] * 100}, {})
    assert not ahead.is_taken
