"""What can't be kept is refused with its path and a remedy."""

from __future__ import annotations

import array
import collections
import dataclasses
import enum
import io
import threading
import types
import typing
import zoneinfo
from datetime import datetime, tzinfo
from fractions import Fraction
from pathlib import Path

import attrs
import ormsgpack
import pydantic
import pytest

from holdfast.codec.codec import Codec
from holdfast.errors import UnsupportedValueError

codec = Codec()


@dataclasses.dataclass
class Data:
    x: int = 1


@attrs.define
class Attrs:
    x: int = 1


class Model(pydantic.BaseModel):
    x: int = 1


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


class Point(typing.NamedTuple):
    x: int = 1


class MyStr(str):
    __slots__ = ()


class MyZone(tzinfo):
    pass


def fake_numpy(shape):
    return type("float64", (), {"__module__": "numpy", "shape": shape})()


async def coroutine():
    pass


async def agenerator():
    yield 1


def closed(thing):
    thing.close()
    return thing


REFUSED = {
    "function": (lambda: 1, "name"),
    "builtin": (len, "name"),
    "method": ([].append, "name"),
    "generator": ((i for i in ()), "list(x)"),
    "coroutine": (closed(coroutine()), "await"),
    "async generator": (agenerator(), "list(x)"),
    "lock": (threading.Lock(), "Leave it out"),
    "rlock": (threading.RLock(), "Leave it out"),
    "file": (io.BytesIO(), "path or its contents"),
    "exception": (ValueError("x"), "repr(x)"),
    "class": (int, "name"),
    "module": (types, "Leave it out"),
    "memoryview": (memoryview(b"abcd").cast("I"), "bytes(x)"),
    "secret": (pydantic.SecretStr("hush"), "never stored in clear"),
    "secret bytes": (pydantic.SecretBytes(b"hush"), "never stored in clear"),
    "numpy scalar": (fake_numpy(()), "x.item()"),
    "numpy dtype": (type("Int32DType", (), {"__module__": "numpy.dtypes", "shape": ()})(), "x.str"),
    "numpy array": (fake_numpy((3,)), "x.tolist()"),
    "dataclass": (Data(), "holdfast.register(Data)"),
    "attrs": (Attrs(), "holdfast.register(Attrs)"),
    "pydantic": (Model(), "holdfast.register(Model), or store x.model_dump()"),
    "enum": (Color.RED, "holdfast.register(Color)"),
    "int enum": (Level.LOW, "holdfast.register(Level)"),
    "str enum": (Word.A, "holdfast.register(Word)"),
    "named tuple": (Point(), "holdfast.register(Point)"),
    "str subclass": (MyStr("x"), "str(x)"),
    "defaultdict": (collections.defaultdict(lambda: 7), "dict(x)"),
    "array": (array.array("d"), "tolist"),
    "range": (range(3), "list(x)"),
    "keys": ({}.keys(), "list(x)"),
    "iterator": (iter([]), "create it again"),
    "object": (object(), "register"),
    "ellipsis": (..., "plain data"),
    "Ext": (ormsgpack.Ext(4, b"\x90"), "made from"),
    "Fragment": (ormsgpack.Fragment(b"\x01"), "made from"),
    "zone": (datetime(2024, 1, 1, tzinfo=MyZone()), "zoneinfo"),
    "huge fraction": (Fraction(1 << 40_000, 3), "numerator"),
}


@pytest.mark.parametrize(("value", "remedy"), REFUSED.values(), ids=REFUSED)
def test_refused_with_path_and_remedy(value, remedy):
    for wrapped, path in [
        (value, "state"),
        ({"user": {"created": value}}, "state.user.created"),
        ([0, {"content": (1, value)}], "state[1].content[1]"),
        ({"odd key": [value]}, 'state["odd key"][0]'),
        ({7: value}, "state[7]"),
        ({(1, 2): value, "": 1}, "state[<tuple>]"),
    ]:
        with pytest.raises(UnsupportedValueError) as caught:
            codec.encode(wrapped, "state")
        assert caught.value.path == path
        assert remedy in str(caught.value)
        assert str(caught.value).startswith(path + ": ")
    with pytest.raises(UnsupportedValueError) as caught:
        codec.encode_each([1, 2, {"content": value}], "messages", start=10)
    assert caught.value.path == "messages[12].content"
    with pytest.raises(UnsupportedValueError) as caught:
        codec.encode_joined(["\xc4", b"", {"content": value}], "messages")
    assert caught.value.path == "messages[2].content"


@pytest.mark.parametrize("value", [Point(), Color.RED, MyStr("a"), len, Word.A], ids=repr)
def test_keys_and_members_are_refused_too(value):
    with pytest.raises(UnsupportedValueError) as caught:
        codec.encode({"a": {value: 1}})
    assert caught.value.path == "a<key>"
    with pytest.raises(UnsupportedValueError) as caught:
        codec.encode({"a": {value}})
    assert caught.value.path == "a<member>"


def test_a_zone_read_from_a_file_is_refused():
    files = [Path(folder, "Europe/Paris") for folder in zoneinfo.TZPATH]
    found = next(filter(Path.exists, files), None)
    if found is None:
        pytest.skip("no time zone files here")
    zone = zoneinfo.ZoneInfo.from_file(io.BytesIO(found.read_bytes()), key="Europe/London")
    with pytest.raises(UnsupportedValueError, match="ZoneInfo"):
        codec.encode(datetime(2024, 1, 1, tzinfo=zone))


def test_an_interrupt_during_encoding_is_an_interrupt():
    from holdfast.codec.registry import TypeRegistry

    def interrupted(_value):
        raise KeyboardInterrupt

    types_ = TypeRegistry()
    types_.register(Data, encode=interrupted, decode=interrupted)
    own = Codec(types_)
    for call in (own.encode, own.encode_each, own.encode_joined):
        with pytest.raises(KeyboardInterrupt):
            call([Data()])
