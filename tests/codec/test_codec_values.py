"""Values that must come back exactly, and the bytes that are promised for them."""

from __future__ import annotations

import decimal
import threading
import uuid
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath, PureWindowsPath

import pytest

from holdfast.codec.codec import Codec, Limits, Ref, TypedObject
from holdfast.errors import CorruptError, UnsupportedValueError, UsageError

codec = Codec()

# The format is a promise: these bytes were written by a release and must be read, and written, by every later one.
GOLDEN = [
    (None, "c0"),
    (True, "c3"),
    (-1, "ff"),
    (2**64 - 1, "cfffffffffffffffff"),
    (2**64, "c70901010000000000000000"),
    (-(2**63) - 1, "c70901ff7fffffffffffffff"),
    (-0.0, "cb8000000000000000"),
    ("é", "a2c3a9"),
    ("a\ud800", "d60261eda080"),
    (b"ab", "c4026162"),
    (bytearray(b"ab"), "d5036162"),
    ([1, "a"], "9201a161"),
    ({"b": 1, "a": 2}, "82a16201a16102"),
    ((), "d40490"),
    ((1, (2,)), "c706049201d5049102"),
    ({1: "a"}, "d6059201a161"),
    ({True: "a"}, "d60592c3a161"),
    ({1.0: "a"}, "c70c0592cb3ff0000000000000a161"),
    ({}, "80"),
    ({3, 1, 2}, "d60693010203"),
    (frozenset({"a"}), "c7030791a161"),
    (datetime(2024, 2, 29, 12, 30, 45, 123456, UTC), "c70d0807e8021d0c1e2d0001e2400000"),
    (datetime(2024, 1, 2, fold=1), "c70c0807e801020000000000000001"),
    (datetime(2024, 1, 2, tzinfo=zoneinfo.ZoneInfo("UTC")), "d80807e80102000000000000000003555443"),
    (
        datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=1), "X")),
        "c7160807e801020000000000000000" + "0200000000d693a400" + "58",
    ),
    (date(1, 1, 1), "d60900010101"),
    (time(1, 2, 3, 4, timezone(timedelta(microseconds=-1))), "c7110a010203000000040001ffffffffffffffff"),
    (timedelta(days=-1, microseconds=5), "c70c0bffffffff0000000000000005"),
    (Decimal("-1.50E+7"), "d70c2d312e3530452b37"),
    (uuid.UUID(int=1), "d80d" + "00" * 15 + "01"),
    (complex(1, -0.0), "d80e3ff00000000000008000000000000000"),
    (Fraction(-1, 3), "c7030f92ff03"),
    (PurePosixPath("a/b"), "d61000612f62"),
    (Ref(1, 258), "c70312010102"),
    (TypedObject("P", {"x": 1}), "c7071192a15081a17801"),
]


@pytest.mark.parametrize(("value", "encoded"), GOLDEN, ids=lambda value: repr(value)[:40])
def test_golden_bytes(value, encoded):
    assert codec.encode(value, parts=True).hex() == encoded
    assert codec._encode_exactly(value, "", parts=True).hex() == encoded
    if not isinstance(value, (Ref, TypedObject)):
        back = codec.decode(bytes.fromhex(encoded))
        assert (back, type(back)) == (value, type(value))


@pytest.mark.parametrize(
    "value", [Ref(0, 1), TypedObject("P", {}), [Ref(1, 2)], {"a": (TypedObject("P", {}),)}], ids=repr
)
def test_our_own_parts_in_a_users_value_are_refused(value):
    with pytest.raises(UnsupportedValueError):
        codec.encode(value)
    with pytest.raises(UnsupportedValueError):
        codec.encode_each([value])


def test_uuids_keep_whether_they_are_safe():
    for safe in uuid.SafeUUID:
        value = uuid.UUID(int=7, is_safe=safe)
        assert codec.decode(codec.encode(value)).is_safe is safe


def test_decimals_are_encoded_the_same_in_any_context():
    value = Decimal("1E+30")
    expected = codec.encode(value)
    with decimal.localcontext(decimal.Context(prec=2, capitals=0, traps=[])):
        assert codec.encode(value) == expected
        assert codec.decode(expected).as_tuple() == value.as_tuple()


def test_refs_are_resolved():
    data = codec.encode({"a": Ref(0, 3), "b": (Ref(2, 70000),)}, parts=True)
    assert codec.decode(data, lambda kind, index: [kind, index]) == {"a": [0, 3], "b": ([2, 70000],)}
    with pytest.raises(CorruptError):
        codec.decode(data)
    with pytest.raises(CorruptError):
        codec.decode(data, {}.__getitem__.__call__)


def test_dicts_keep_the_order_and_the_types_of_their_keys():
    value = {"z": 1, 2: "b", None: 3, (1, True): 4, b"k": 5, date(2024, 1, 1): 6, 1.5: 7}
    back = codec.decode(codec.encode(value))
    assert list(map(repr, back.items())) == list(map(repr, value.items()))


def test_a_bytearray_is_never_taken_for_bytes():
    assert codec.encode([bytearray(b"x")]) != codec.encode([b"x"])
    assert codec.encode_joined([{"a": bytearray(b"x")}]) == codec.encode({"a": bytearray(b"x")})
    assert codec.holds_bytes(codec.encode({"a": [b""]}))
    assert not codec.holds_bytes(
        codec.encode({"a": ["Ä" * 300, 0xC4, 196.0, (b"in a tuple, which is proven by itself",)]})
    )


@pytest.mark.parametrize("beside", [0, 1, 40, 63, 64, 65, 200])
@pytest.mark.parametrize("depth", [0, 1, 22, 23, 24, 25, 100])
def test_a_bytearray_is_found_however_deep_it_is_and_among_however_many_values(depth, beside):
    value: object = bytearray(b"x")
    for level in range(depth):
        value = [*range(beside), value] if level % 2 else {**{f"k{i}": i for i in range(beside)}, "z": value}
    back = codec.decode(codec.encode({"a": value, "b": []}))["a"]
    for level in reversed(range(depth)):
        back = back[beside] if level % 2 else back["z"]
    assert type(back) is bytearray


@pytest.mark.parametrize("depth", [1, 5, 8, 14, 15, 16, 20])
def test_the_allowed_depth_is_the_same_for_few_values_as_for_many(depth):
    """However a value is looked through, one level more is refused."""
    shallow = Codec(limits=Limits(max_depth=depth))
    few: object = 1
    for _ in range(depth):
        few = [few]
    many = [*range(200), few[0]]  # type: ignore[index]  # it is a list
    for value in (few, many):
        assert shallow.decode(shallow.encode(value)) == value
        with pytest.raises(UnsupportedValueError, match="levels deep"):
            shallow.encode([value])


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 65535, 65536])
def test_joined_lists_of_every_header_size(count):
    items = [7] * count
    joined = codec.encode_joined(items)
    assert joined == b"\x07" * count
    assert codec.decode_joined([(count, joined)]) == items
    with pytest.raises(CorruptError):
        codec.decode_joined([(count + 1, joined)])
    with pytest.raises(CorruptError):
        codec.decode_joined([(count, joined + b"\x07")])


def test_joined_pieces_of_all_sizes_are_decoded_in_order():
    lists = [[], [1], ["x" * 50_000], ["y" * 10] * 3, [2.5, "z" * 40_000], [None]]
    pieces = [(len(items), memoryview(codec.encode_joined(items))) for items in lists]
    assert codec.decode_joined(pieces) == [item for items in lists for item in items]


def nest(depth, wrap):
    value = 1
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPS = {
    "list": lambda inner: [inner],
    "dict": lambda inner: {"k": inner},
    "tuple": lambda inner: (inner,),
    "odd dict": lambda inner: {1: inner},
    "frozenset": lambda inner: frozenset((inner,)),
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_depth_is_bounded_and_what_is_allowed_comes_back(wrap):
    value = nest(200, wrap)
    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(UnsupportedValueError, match="200 levels"):
        codec.encode(nest(201, wrap))
    with pytest.raises(UnsupportedValueError, match="200 levels"):
        codec.encode(nest(100_000, wrap) if wrap is not WRAPS["frozenset"] else nest(900, wrap), "state")
    small = Codec(limits=Limits(max_depth=3))
    assert small.encode(nest(3, wrap)) == codec.encode(nest(3, wrap))
    with pytest.raises(UnsupportedValueError):
        small.encode(nest(4, wrap))


def test_deep_values_in_a_thread():
    # Threads have less stack than the main thread on some systems.
    value = nest(200, WRAPS["tuple"])
    seen = []
    thread = threading.Thread(target=lambda: seen.append(codec.decode(codec.encode(value))))
    thread.start()
    thread.join()
    assert seen == [value]


def test_cycles_are_told():
    for loop in ([], {}):
        loop.append(loop) if isinstance(loop, list) else loop.update(a=[loop])
        with pytest.raises(UnsupportedValueError, match="contains itself") as caught:
            codec.encode({"memory": loop}, "execution_state")
        assert caught.value.path.startswith("execution_state.memory")


def test_a_small_value_that_unfolds_to_a_huge_one_is_refused():
    small = Codec(limits=Limits(max_items=10_000))
    laughs = ["ha"]
    for _ in range(100):
        laughs = [laughs, laughs]
    with pytest.raises(UnsupportedValueError, match="items"):
        small.encode(laughs)
    with pytest.raises(UnsupportedValueError, match="items"):
        small.encode([[0] * 5000] * 5000)
    with pytest.raises(UnsupportedValueError, match="items"):
        small.encode([0] * 10_001)


def test_values_over_the_size_limit_are_refused():
    small = Codec(limits=Limits(max_bytes=1000))
    assert small.decode(small.encode("x" * 990)) == "x" * 990
    for value in ("x" * 1001, ("x" * 1001,), ["x"] * 1001, {"\ud800" * 400}):
        with pytest.raises(UnsupportedValueError, match="bytes"):
            small.encode(value)


@pytest.mark.parametrize("size", range(90, 111))
def test_what_is_within_the_limits_can_be_read(size):
    small = Codec(limits=Limits(max_items=100))
    for value in (list(range(size)), tuple(range(size)), dict.fromkeys(map(str, range(size // 2))), {"a": [1] * size}):
        try:
            data = small.encode(value)
        except UnsupportedValueError:
            continue
        assert small.decode(data) == value


def test_limits_are_checked():
    for wrong in ({"max_depth": 0}, {"max_depth": 10_000}, {"max_bytes": 0}, {"max_items": 0}):
        with pytest.raises(UsageError):
            Limits(**wrong)


def test_odd_paths_come_back_or_are_refused():
    for text in ("./c:x", "c:", "c:/", "//server/share/x", "a//b", ""):
        value = PureWindowsPath(text)
        try:
            data = codec.encode(value)
        except UnsupportedValueError:
            continue
        assert codec.decode(data) == value


def test_many_ints_of_one_hash_are_refused():
    prime = 2**61 - 1
    with pytest.raises(UnsupportedValueError, match="hash"):
        codec.encode({i * prime for i in range(300)})
    grid = {(x, y) for x in range(-30, 30) for y in range(-30, 30)}
    assert codec.decode(codec.encode(grid)) == grid
