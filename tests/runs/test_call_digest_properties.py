"""What an approval is bound to: the value of a call, not the way it was written down."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec.codec import Codec
from holdfast.format.rows.approval import call_digest

codec = Codec()
plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary(max_size=4)
)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=12,
)
arguments = st.dictionaries(st.text(max_size=4), values, max_size=4)


def turned(value):
    """An equal value, whose dicts were filled the other way round."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    if isinstance(value, list | tuple):
        return type(value)(turned(item) for item in value)
    return value


@given(arguments, arguments)
def test_the_order_of_keys_makes_no_difference_at_any_depth(identity, given_arguments):
    digest = call_digest(codec, "tool", identity, given_arguments)
    assert call_digest(codec, "tool", turned(identity), turned(given_arguments)) == digest


@given(arguments, arguments)
def test_calls_of_other_values_have_other_digests(one, other):
    same = codec.encode(sorted_deeply(one)) == codec.encode(sorted_deeply(other))
    assert (call_digest(codec, "tool", {}, one) == call_digest(codec, "tool", {}, other)) == same
    assert call_digest(codec, "tool", {}, one) != call_digest(codec, "tool2", {}, one)
    if one:
        assert call_digest(codec, "tool", one, {}) != call_digest(codec, "tool", {}, one)


def sorted_deeply(value):
    """Written another way than the library does it: pairs instead of dicts, sorted by their encodings."""
    if isinstance(value, dict):
        return [
            "dict",
            *sorted(([codec.encode(key), sorted_deeply(item)] for key, item in value.items()), key=lambda p: p[0]),
        ]
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(sorted_deeply, value)]
    return [type(value).__name__, value]
