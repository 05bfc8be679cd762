"""Types of the standard library, numpy and pandas that are kept without being registered."""

from __future__ import annotations

import collections
import ipaddress
import re
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import ormsgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import Store, python
from strategies import keys, values

import holdfast
from holdfast import HoldfastError, TypeRegistry, UnsupportedValueError
from holdfast.codec import ext_codes
from holdfast.codec.codec import Codec

codec = Codec(TypeRegistry())
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def back(value: Any) -> Any:
    encoded = codec.encode(value)
    assert codec._encode_exactly(value, "") == encoded
    found = codec.decode(encoded)
    assert codec.encode(found) == encoded  # the same value in every part
    assert type(found) is type(value)
    return found


@relaxed
@given(st.lists(values()), st.none() | st.integers(0, 20))
def test_deques(members: list[Any], most: int | None) -> None:
    value = collections.deque(members, most)
    assert back(value).maxlen == most


@relaxed
@given(st.dictionaries(keys(), values()))
def test_dicts_of_collections(held: dict[Any, Any]) -> None:
    ordered = collections.OrderedDict(held)
    if held:
        ordered.move_to_end(next(iter(held)))
    back(ordered)  # its order is part of what is stored
    for factory in (None, list, int, set, dict, str, float, bytearray):
        assert back(collections.defaultdict(factory, held)).default_factory is factory


@relaxed
@given(st.dictionaries(keys(), st.integers()))
def test_counters(held: dict[Any, int]) -> None:
    back(collections.Counter(held))


@pytest.mark.parametrize("pattern", ["a+", b"[a-z]", "(?i)x", "é[ab]"])
@pytest.mark.parametrize("flags", [0, re.IGNORECASE | re.DOTALL])
def test_patterns(pattern: Any, flags: int) -> None:
    value = re.compile(pattern, flags)
    assert back(value) == value
    assert back(value).flags == value.flags


@relaxed
@given(st.ip_addresses())
def test_addresses(address: Any) -> None:
    for value in (address, ipaddress.ip_interface(address), ipaddress.ip_network(address)):
        assert back(value) == value


def test_networks_and_scopes() -> None:
    for text in ("10.0.0.0/8", "2001:db8::/32"):
        assert back(ipaddress.ip_network(text)) == ipaddress.ip_network(text)
    assert back(ipaddress.ip_address("fe80::1%eth0")) == ipaddress.ip_address("fe80::1%eth0")


@relaxed
@given(st.binary(), st.booleans())
def test_memoryviews(data: bytes, writable: bool) -> None:
    for value in (memoryview(bytearray(data) if writable else data), memoryview(b"ab" + data)[2:]):
        assert back(value) == value
        assert back([{"deep": value}][0]["deep"]).readonly == value.readonly


def test_what_is_not_plain_is_refused() -> None:
    released = memoryview(b"x")
    released.release()
    for value, remedy in (
        (collections.defaultdict(lambda: 1), r"Store dict\(x\)"),
        (memoryview(b"abcd").cast("I"), r"Store bytes\(x\)"),
        (memoryview(b"abcd")[::2], r"Store bytes\(x\)"),
        (released, "while it is in use"),
        (re.compile("a" * 5000), "compile it where it is used"),
    ):
        with pytest.raises(UnsupportedValueError, match=remedy):
            codec.encode({"v": value})


class Deque(collections.deque):
    pass


Deque.__module__, Deque.__qualname__ = "collections", "deque"


def test_a_class_that_only_calls_itself_so_is_none_of_them() -> None:
    with pytest.raises(UnsupportedValueError):
        codec.encode(Deque([1]))


def forged(name: str, parts: Any) -> bytes:
    inner = ormsgpack.packb(name) + codec.encode(parts)
    return ormsgpack.packb(ormsgpack.Ext(ext_codes.OBJECT, b"\x92" + inner))


FORGED = [
    ("python:deque", [ipaddress.ip_network("10.0.0.0/8"), None]),
    ("python:deque", [[1], "x"]),
    ("python:OrderedDict", [[1]]),
    ("python:OrderedDict", [(number * (2**61 - 1), 1) for number in range(1, 400)]),
    ("python:Counter", ipaddress.ip_network("10.0.0.0/8")),
    ("python:defaultdict", ["eval", {}]),
    ("python:defaultdict", ["__import__", {}]),
    ("python:Pattern", ["a" * 5000, 0]),
    ("python:Pattern", ["(", 0]),
    ("python:memoryview", [1, 2]),
    ("python:IPv4Address", 10**9),
    ("python:IPv4Network", "1" * 1000),
    ("python:system", "true"),
    ("numpy:ndarray", {"dtype": "|O", "shape": [1], "order": "C", "data": b"12345678"}),
    ("numpy:ndarray", {"dtype": "<f8,<f8", "shape": [1], "order": "C", "data": b"12345678" * 2}),
    ("numpy:ndarray", {"dtype": "<f8", "shape": [2**40], "order": "C", "data": b"12345678"}),
    ("numpy:ndarray", {"dtype": "<f8", "shape": [-1, -1], "order": "C", "data": b"12345678"}),
    ("numpy:ndarray", {"dtype": "<f8", "shape": [1] * 100, "order": "C", "data": b"12345678"}),
    ("numpy:ndarray", {"dtype": "|S0", "shape": [2**40], "order": "C", "data": b""}),
    ("numpy:ndarray", {"dtype": "<U999999999", "shape": [0], "order": "X", "data": b""}),
    ("numpy:ndarray", {"dtype": "<f8", "shape": [1]}),
    ("numpy:ndarray", []),
    ("numpy:scalar", ["<f8", b""]),
    ("numpy:scalar", ["|O", b"12345678"]),
    ("numpy:scalar", ["|S8", b"12345678"]),
    ("numpy:load", b""),
    ("pandas:Timestamp", [2**70, "ns", b""]),
    ("pandas:Timestamp", [0, "Y", b""]),
    ("pandas:Timestamp", [0, "ns", b"\x03../../etc/passwd"]),
    ("pandas:NaT", [1]),
    ("pandas:read_pickle", "x"),
]


@pytest.mark.parametrize(("name", "parts"), FORGED)
def test_forged_parts_are_refused(name: str, parts: Any) -> None:
    with pytest.raises(HoldfastError):
        codec.decode(forged(name, parts))


def test_what_can_not_be_built_comes_back_as_plain_data_on_request() -> None:
    plain = Codec(TypeRegistry(), on_unknown_type="plain")
    encoded = forged("python:Pattern", ["(", 0])
    with pytest.warns(holdfast.HoldfastWarning, match="can't be built here"):
        found = plain.decode(encoded)
    assert found == ["(", 0]
    assert plain.encode(found) == encoded


def test_a_store_keeps_them(store: Store) -> None:
    state = {
        "queue": collections.deque(["x" * 100] * 100, 200),
        "counts": collections.Counter(abracadabra=5),
        "view": memoryview(b"x" * 10_000),
        "by": collections.defaultdict(list, {"a": [1]}),
    }
    saved = store.client().save(agent_id="a", execution_state=state)
    found = store.client().restore(saved).execution_state
    assert found == state
    assert [*map(type, found.values())] == [*map(type, state.values())]
    assert store.client().diff(saved, saved).edits == ()


# -- numpy and pandas --------------------------------------------------------------------------------------------------

numpy_dtypes = ["?", "i1", "<u2", ">i4", "<i8", "<f2", "<f4", ">f8", "<c8", "<c16", "S3", "<U4", "<M8[ns]", "<m8[25s]"]


@pytest.fixture(scope="module")
def np() -> Any:
    return pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def pd() -> Any:
    return pytest.importorskip("pandas")


def same_array(found: Any, value: Any) -> bool:
    return (
        found.dtype.str == value.dtype.str
        and found.shape == value.shape
        and found.tobytes() == value.tobytes()
        and found.flags.writeable
    )


@relaxed
@given(st.sampled_from(numpy_dtypes), st.lists(st.integers(0, 4), max_size=4), st.booleans(), st.randoms())
def test_arrays(np: Any, dtype: str, shape: list[int], in_columns: bool, random: Any) -> None:
    size = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    data = bytes(size) if dtype in ("?", "<U4") else random.randbytes(size)
    value = np.frombuffer(data, dtype).reshape(shape)
    value = np.asfortranarray(value) if in_columns else value
    found = back(value)
    assert same_array(found, value)
    assert found.flags.f_contiguous == value.flags.f_contiguous


def test_views_of_arrays(np: Any) -> None:
    whole = np.arange(24).reshape(4, 6)
    for value in (whole[::2, 1::2], whole.T, whole[0, 0:0], np.array(5), whole[:, ::-1]):
        assert same_array(back(value), value)


def test_numpy_scalars(np: Any) -> None:
    for value in (
        np.float64(0.1), np.float32("nan"), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True), np.complex64(1j),
        np.str_("a\0"), np.str_(""), np.bytes_(b"a\0"), np.datetime64("2026-01-01"), np.datetime64("NaT"),
        np.timedelta64(3, "ms"), np.float16(1),
    ):  # fmt: skip
        found = back(value)
        assert repr(found) == repr(value)
    assert back({np.int64(1): {np.float64(2)}}) == {1: {2.0}}


def test_arrays_that_are_more_than_numbers_are_refused(np: Any) -> None:
    for value in (np.array([object()]), np.zeros(2, dtype=[("a", "i4")]), np.longdouble(1), np.ma.array([1])):
        with pytest.raises(UnsupportedValueError):
            codec.encode({"v": value})


def test_timestamps(np: Any, pd: Any) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for value in (
        pd.Timestamp("2026-01-01T12:00:00.123456789"),
        pd.Timestamp("2026-01-01", tz=UTC),
        pd.Timestamp("2026-06-01", tz=berlin),
        pd.Timestamp("2026-10-25T02:30", tz=timezone(timedelta(hours=2))),
        pd.Timestamp("2026-10-25T00:30", tz=UTC).tz_convert(berlin),
        pd.Timestamp("2026-10-25T01:30", tz=UTC).tz_convert(berlin),
        pd.Timestamp("2026-01-01").as_unit("s"),
        pd.NaT,
    ):
        found = back(value)
        assert repr(found) == repr(value)
        assert getattr(found, "unit", None) == getattr(value, "unit", None)


def test_a_store_keeps_arrays_and_compares_them(np: Any, store: Store) -> None:
    client = store.client()
    first = client.save(agent_id="a", session_id="s", execution_state={"x": np.arange(3000.0), "n": np.float64(1)})
    second = client.save(agent_id="a", session_id="s", execution_state={"x": np.arange(3001.0), "n": np.float64(1)})
    assert same_array(store.client().restore(first).execution_state["x"], np.arange(3000.0))
    assert client.diff(first, first).edits == ()
    found = client.diff(first, second)
    assert [edit.path for edit in found.edits] == [("execution_state", "x")]
    assert same_array(found.apply(client.restore(first)).execution_state["x"], np.arange(3001.0))


@pytest.mark.slow
def test_a_library_that_is_not_used_is_not_imported(np: Any, tmp_path: Path) -> None:
    said = python(
        f"""
        import sys
        from holdfast import SyncClient
        with SyncClient.sqlite({str(tmp_path / "a.db")!r}) as client:
            client.save(agent_id="a", execution_state={{"x": [1, "a", (2.5,)]}})
            print("numpy" in sys.modules, "pandas" in sys.modules)
        """
    )
    assert said.stdout.split() == ["False"] * 2


@pytest.mark.slow
def test_where_the_library_is_not_imported_the_error_says_so(np: Any) -> None:
    encoded = codec.encode(np.arange(3))
    said = python(
        f"""
        import sys
        import warnings
        from holdfast import UnknownTypeError
        from holdfast.codec.codec import Codec
        try:
            Codec().decode({encoded!r})
        except UnknownTypeError as error:
            print("pip install numpy" in str(error))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = Codec(on_unknown_type="plain")
            print(plain.encode(plain.decode({encoded!r})) == {encoded!r})
        print("numpy" in sys.modules)
        import numpy
        print(Codec().decode({encoded!r}).tolist() == [0, 1, 2])
        """
    )
    assert said.stdout.split() == ["True", "True", "False", "True"]


def test_the_recipe_for_a_dataframe(pd: Any, store: Store) -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "data.md").read_text("utf-8")
    recipe = text.partition("## DataFrames")[2].partition("```python")[2].partition("```")[0]
    types = TypeRegistry()
    code = recipe.replace("holdfast.register(", "register(").replace("import holdfast\n", "")
    exec(code, {"register": types.register})
    frame = pd.DataFrame(
        {"n": [1, 2], "x": [0.5, float("nan")], "t": ["a", "b"], "at": pd.to_datetime(["2026-01-01", "2026-01-02"])},
        index=pd.Index([10, 20], name="key"),
    )
    with pytest.raises(UnsupportedValueError, match="recipe"):
        store.client(types=TypeRegistry()).save(agent_id="a", execution_state={"frame": frame})
    saved = store.client(types=types).save(agent_id="a", execution_state={"frame": frame})
    pd.testing.assert_frame_equal(store.client(types=types).restore(saved).execution_state["frame"], frame)
