"""What checkpnt's checksum proves of a payload, over any state that checkpnt can save."""

from datetime import datetime, timedelta, timezone

import checkpnt
from checkpnt.backends.sqlite import _encode
from checkpnt.schemas.checkpoint import CheckpointBuilder
from hypothesis import given
from hypothesis import strategies as st

from holdfast.importers.checkpnt import _parents_first
from holdfast.importers.checkpnt_database import RowLocation
from holdfast.importers.checkpnt_state import Content, judge, unpack

offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(timezones=st.none() | offsets)
leaves = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
keys = st.text() | st.just("at")
numbered = st.dictionaries(st.integers(-100, 100), leaves, max_size=3)
# Within one state what stands under the same key is of the same kind, as it is in programs: text or datetime.
values = st.recursive(
    leaves | numbered,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)
states = st.dictionaries(keys, values, max_size=4)


def packed_and_judged(state, context):
    built = CheckpointBuilder("a", checkpnt.Framework.CUSTOM).execution_state(state).context(context).build()
    said = unpack(_encode(built))
    return judge(Content(said["execution_state"], said["agent_context"]), said["checksum"])


@given(states, states)
def test_a_state_without_datetimes_matches(state, context):
    judged = packed_and_judged(state, context)
    assert judged.matches
    assert not judged.datetimes
    assert judged.content == (state, context)


@given(states, st.lists(moments, min_size=1, max_size=5), st.lists(moments.map(datetime.isoformat), max_size=3))
def test_datetimes_are_told_from_texts(state, dates, texts):
    state = {**state, "due": dates[0], "log": [{"when": date, "n": {1: date}} for date in dates], "said": texts}
    judged = packed_and_judged(state, {})
    assert judged.matches
    assert judged.datetimes
    assert judged.content.execution_state == state


def test_what_can_not_be_told_apart_is_left_as_it_is_stored():
    text = "2026-01-01T00:00:00"
    state = {"mixed": [text, datetime.fromisoformat(text)]}  # under the same keys, one of each
    judged = packed_and_judged(state, {})
    assert not judged.matches
    assert judged.content.execution_state == {"mixed": [text, text]}


def test_a_zone_comes_back_as_its_offset():
    state = {"at": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3)))}
    assert packed_and_judged(state, {}).content.execution_state == state


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 12)), max_size=12))
def test_no_row_comes_before_its_parent_and_none_is_lost(drawn):
    order = sorted(
        (
            RowLocation(row, str(row), "a", "s", str(parent) if parent >= 0 else None, created, None)
            for row, (created, parent) in enumerate(drawn)
        ),
        key=lambda place: (place.created_at_ms, place.rowid),
    )
    places = {place.checkpoint_id: place for place in order}
    came = [place.checkpoint_id for place in _parents_first(order, places)]
    assert sorted(came) == sorted(places)
    for place in order:
        if place.parent_id in places and not _is_own_ancestor(place, places):
            assert came.index(place.parent_id) < came.index(place.checkpoint_id)


def _is_own_ancestor(place, places) -> bool:
    """Whether the line upward from it ends in a circle."""
    passed = set()
    while place is not None and place.checkpoint_id not in passed:
        passed.add(place.checkpoint_id)
        place = places.get(place.parent_id)
    return place is not None
