"""Values of numpy and pandas: arrays, scalars and timestamps, from and to plain data.

An array is the name of its dtype, its shape and its bytes. Only dtypes of plain numbers, texts and
times are accepted: no objects, no records, nothing that numpy would pickle. The number of bytes is
exactly that of dtype and shape.
"""

from __future__ import annotations

import math
import re
import sys
from types import ModuleType
from typing import Any

from holdfast.codec.registry import RegisteredType
from holdfast.codec.standard_types import expect, standard_type
from holdfast.codec.timezones import decode_zone, encode_zone
from holdfast.codec.unsupported import Refusal
from holdfast.errors import UnknownTypeError

_ARRAY, _SCALAR, _TIMESTAMP, _NAT = "numpy:ndarray", "numpy:scalar", "pandas:Timestamp", "pandas:NaT"
_MAX_DIMENSIONS = 32
# As `dtype.str` writes them. A long double differs between processors.
_DTYPE = re.compile(
    r"\|b1|\|[iu]1|[<>][iu][248]|[<>]f[248]|[<>]c(?:8|16)|\|S[1-9]\d{0,8}|[<>]U[1-9]\d{0,8}"
    r"|[<>][Mm]8(?:\[\d{0,9}(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)
_UNITS = frozenset({"s", "ms", "us", "ns"})


def entry_of(cls: type[Any]) -> RegisteredType | None:
    """Return how values of a class of these libraries are stored; None if they are not.

    The library is imported: it has made the class.
    """
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if numpy is not None and hasattr(numpy, "generic"):  # else it is being imported just now
        if cls is numpy.ndarray:
            return standard_type(cls, _ARRAY, _take_array, _array)
        if issubclass(cls, numpy.generic) and cls.__module__ == "numpy" and not issubclass(cls, numpy.void):
            return standard_type(cls, _SCALAR, _take_scalar, _scalar)
    if pandas is not None and hasattr(pandas, "Timestamp"):
        if cls is pandas.Timestamp:
            return standard_type(cls, _TIMESTAMP, _take_timestamp, _timestamp)
        if cls is type(pandas.NaT):
            return standard_type(cls, _NAT, lambda _value: None, _nat)
    return None


def find_entry(name: str) -> RegisteredType | None:
    build = {_ARRAY: _array, _SCALAR: _scalar, _TIMESTAMP: _timestamp, _NAT: _nat}.get(name)
    # The class is of no use to a reader, and its library may be missing.
    return None if build is None else standard_type(object, name, lambda value: value, build)


def _library(name: str) -> ModuleType:
    """Return the library if the program has imported it: data makes a process import nothing."""
    library = sys.modules.get(name)
    if library is None:
        raise UnknownTypeError(
            f"The data holds a value of {name}, which this program has not imported. Import {name} before reading the "
            f"data (pip install {name}, where it is not installed)"
        )
    return library


def _checked_dtype(numpy: Any, text: Any) -> Any:
    if not _DTYPE.fullmatch(expect(text, str)):
        raise ValueError(f"{text!r:.40} is no dtype that is stored")
    return numpy.dtype(text)


# -- numpy -------------------------------------------------------------------------------------------------------------


def _take_array(value: Any) -> dict[str, Any]:
    dtype = value.dtype.str
    if value.dtype.fields is not None or not _DTYPE.fullmatch(dtype):
        raise Refusal(
            f"an array of the dtype {value.dtype!s:.60} can't be stored exactly",
            "Store x.tolist(), or arrays of plain numbers, texts or times",
        )
    if value.ndim > _MAX_DIMENSIONS:
        raise Refusal(
            f"an array of more than {_MAX_DIMENSIONS} dimensions can't be stored", "Store x.reshape(-1) and x.shape"
        )
    order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
    return {"dtype": dtype, "shape": list(value.shape), "order": order, "data": value.tobytes(order)}


def _array(parts: Any) -> Any:
    numpy: Any = _library("numpy")
    dtype = _checked_dtype(numpy, expect(parts, dict)["dtype"])
    shape = [expect(length, int) for length in expect(parts["shape"], list)]
    data, order = expect(parts["data"], bytes), expect(parts["order"], str)
    # Lengths first: the product of a few numbers of a megabyte each would take hours.
    is_shape = len(shape) <= _MAX_DIMENSIONS and all(0 <= length < 1 << 63 for length in shape)
    if not is_shape or order not in ("C", "F"):
        raise ValueError("it has no shape")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"it has {len(data)} bytes, which is not what its shape asks for")
    # A copy of the bytes, which is writable like any new array.
    return numpy.ndarray(shape, dtype, bytearray(data), order=order)


def _take_scalar(value: Any) -> list[Any]:
    if isinstance(value, str):
        return ["U", str.__str__(value)]
    if isinstance(value, bytes):
        return ["S", bytes(memoryview(value))]
    dtype = value.dtype
    if not _DTYPE.fullmatch(dtype.str) or sys.modules["numpy"].dtype(dtype.str).type is not type(value):
        raise Refusal(f"a numpy.{type(value).__name__} can't be stored exactly", "Store x.item()")
    return [dtype.str, value.tobytes()]


def _scalar(parts: Any) -> Any:
    numpy: Any = _library("numpy")
    text, data = expect(parts, list)
    if text == "U":
        return numpy.str_(expect(data, str))
    if text == "S":
        return numpy.bytes_(expect(data, bytes))
    dtype = _checked_dtype(numpy, text)
    if dtype.kind in "SU" or len(expect(data, bytes)) != dtype.itemsize:
        raise ValueError("it has not as many bytes as its dtype asks for")
    return numpy.frombuffer(data, dtype)[0]


# -- pandas ------------------------------------------------------------------------------------------------------------


def _take_timestamp(value: Any) -> list[Any]:
    parts = [int(value.to_datetime64().view("i8")), value.unit, encode_zone(value.tzinfo)]
    again = _timestamp(parts)
    if again != value or again.fold != value.fold or again.unit != value.unit:
        raise Refusal("a Timestamp of this fold can't be stored exactly", "Store x.to_pydatetime()")
    return parts


def _timestamp(parts: Any) -> Any:
    number, unit, zone = expect(parts, list)
    if expect(unit, str) not in _UNITS or not -(1 << 63) < expect(number, int) < 1 << 63:
        raise ValueError("it is no time")
    tz = decode_zone(expect(zone, bytes))
    pandas: Any = _library("pandas")
    value = pandas.Timestamp(_library("numpy").datetime64(number, unit))
    return value if tz is None else value.tz_localize("UTC").tz_convert(tz)


def _nat(parts: Any) -> Any:
    expect(parts, type(None))
    return _library("pandas").NaT
