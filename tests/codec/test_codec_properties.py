"""The codec's promises, for any value and any bytes."""

from __future__ import annotations

import contextlib
import time
import tracemalloc

from examples import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from strategies import json_values, keys, same, states, values

from holdfast.codec.codec import Codec
from holdfast.errors import CorruptError, NewerVersionError, UnknownTypeError, UnsupportedValueError

codec = Codec()
# Time is bounded where it is the subject; elsewhere a busy machine is no failure.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
TOLD = (CorruptError, UnknownTypeError, NewerVersionError)


@relaxed
@given(values())
@example({1: "a"})
@example({True: "a"})
@example({1.0: "a"})
@example({"a": 1, 1: 2, None: 3, (1, "\ud800"): 4, b"a": 5})
@example("\ud83d\ude00")
@example({"\udc00": {"\ud800"}})
@example(((((1,),),),))
def test_what_comes_back_is_what_went_in(value):
    assert same(codec.decode(codec.encode(value)), value)


@relaxed
@given(states())
def test_states_come_back(state):
    assert same(codec.decode(memoryview(codec.encode(state))), state)


@relaxed
@given(values())
def test_both_ways_to_encode_give_the_same_bytes(value):
    assert codec._encode_exactly(value, "") == codec.encode(value)


@relaxed
@given(values(), st.integers(-2, 2))
@example([((1, 2), (3,))] * 9, 0)
@example([((1, 2), (3,))] * 9, -1)
def test_short_is_the_whole_or_nothing(value, more):
    whole = codec.encode(value)
    most = max(0, len(whole) + more)
    assert codec.encode_short(value, "", most) == (whole if len(whole) <= most else None)


@relaxed
@given(st.lists(keys(), max_size=6))
def test_sets_encode_the_same_whatever_their_history(members):
    forwards, backwards = set(members), {*reversed(members)}
    other = set(range(1000)) | backwards
    other -= set(range(1000)) - backwards
    if same(forwards, backwards):  # 1 and True are one member: which of them stays depends on the order
        assert codec.encode(forwards) == codec.encode(backwards)
    if same(forwards, other):
        assert codec.encode(forwards) == codec.encode(other)


@relaxed
@given(st.lists(values(), max_size=6))
def test_joined_is_each_joined(items):
    each = codec.encode_each(items)
    assert each == [codec.encode(item) for item in items]
    assert codec.encode_joined(items) == b"".join(each)
    assert same(codec.decode_joined([(len(items), b"".join(each))]), items)


@relaxed
@given(st.lists(json_values(), max_size=40))
def test_joined_is_each_joined_for_plain_items(items):
    each = codec.encode_each(items)
    assert codec.encode_joined(items, no_bytes=True) == b"".join(each)
    assert not codec.holds_bytes(b"".join(each))


def decode_or_told(data: bytes) -> None:
    try:
        value = codec.decode(data)
    except TOLD:
        return
    # Whatever it was, it is now an ordinary value; a path may be one that only this platform writes differently.
    with contextlib.suppress(UnsupportedValueError):
        codec.decode(codec.encode(value))


@relaxed
@given(st.binary(max_size=200))
def test_random_bytes_are_decoded_or_told(data):
    decode_or_told(data)


ext_codes = st.integers(-128, 127) | st.integers(1, 18)


def exts(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda code, payload: b"\xc8" + len(payload).to_bytes(2) + code.to_bytes(1, signed=True) + payload,
        ext_codes,
        inner,
    )


@settings(relaxed, max_examples=examples(500))
@given(
    st.recursive(
        st.binary(max_size=30) | values().map(codec.encode),
        lambda inner: (
            exts(inner) | st.lists(inner, max_size=4).map(lambda parts: bytes([0x90 + len(parts)]) + b"".join(parts))
        ),
        max_leaves=6,
    )
)
def test_forged_structures_are_decoded_or_told(data):
    decode_or_told(data)


@settings(relaxed, max_examples=examples(500))
@given(values(), st.data())
def test_damaged_encodings_are_decoded_or_told(value, data):
    damaged = bytearray(codec.encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        what = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        if what == "flip":
            damaged[at] = data.draw(st.integers(0, 255))
        elif what == "cut" and len(damaged) > 1:
            del damaged[at : at + data.draw(st.integers(1, 4))]
        else:
            damaged[at:at] = data.draw(st.binary(min_size=1, max_size=6))
        if not damaged:
            return
    decode_or_told(bytes(damaged))


@relaxed
@given(values(), st.binary(min_size=1, max_size=5))
def test_bytes_after_a_value_are_noticed(value, rest):
    data = codec.encode(value)
    try:
        codec.decode(data + rest)
    except TOLD:
        pass
    else:
        raise AssertionError("bytes that follow the value were ignored")
    try:
        codec.decode(data[:-1])
    except TOLD:
        pass
    else:
        raise AssertionError("a cut value was decoded")


@settings(relaxed, max_examples=examples(50))
@given(st.binary(max_size=64), st.integers(1, 3000))
def test_no_bytes_take_long_or_much_memory(unit, times):
    data = unit * times
    tracemalloc.start()
    started = time.thread_time()  # what others take of the machine does not count
    decode_or_told(data)
    taken = time.thread_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 5  # seconds of CPU: a hundred times what it takes, and nothing for what grows faster than its input
    assert peak < 20_000_000 + 200 * len(data)
