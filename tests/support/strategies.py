"""Hypothesis strategies for states of agents, and an equality that tells types apart.

Each is made once: what Hypothesis finds out about a strategy before the first example takes longer
than a few examples do.
"""

from __future__ import annotations

import math
import struct
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

ZONES = ("UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu", "Etc/GMT+5")


@cache
def texts() -> st.SearchStrategy[str]:
    """Any str, lone surrogates and NUL included."""
    return st.text(st.characters(codec=None, exclude_categories=()), max_size=20)


@cache
def plain_texts() -> st.SearchStrategy[str]:
    return st.text(max_size=20)


@cache
def floats() -> st.SearchStrategy[float]:
    """Any bit pattern: every NaN, both zeros."""
    from_bits = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack(">d", bits.to_bytes(8))[0])
    return st.floats() | from_bits


@cache
def ints() -> st.SearchStrategy[int]:
    edges = [sign * 2**power + off for sign in (1, -1) for power in (7, 8, 15, 31, 63, 64, 127) for off in (-1, 0, 1)]
    return st.integers() | st.sampled_from(edges)


@cache
def zones() -> st.SearchStrategy[Any]:
    offsets = st.timedeltas(timedelta(hours=-23, minutes=-59), timedelta(hours=23, minutes=59))
    return st.one_of(
        st.none(),
        st.just(UTC),
        st.builds(timezone, offsets),
        st.builds(timezone, offsets, texts()),
        st.sampled_from(ZONES).map(zoneinfo.ZoneInfo),
    )


def _dated(moment: datetime, zone: Any, fold: int) -> datetime:
    return moment.replace(tzinfo=zone, fold=fold)


@cache
def paths() -> st.SearchStrategy[PurePath]:
    # Some odd Windows paths don't come back from their own text, and are refused: not what is asked for here.
    windows = st.text("abc.:\\/ é", max_size=12).filter(
        lambda text: PureWindowsPath(str(PureWindowsPath(text))).parts == PureWindowsPath(text).parts
    )
    return st.one_of(texts().map(PurePosixPath), windows.map(PureWindowsPath), texts().map(PosixPath))


@cache
def decimals() -> st.SearchStrategy[Decimal]:
    special = st.sampled_from(
        ["NaN", "-NaN123", "sNaN", "-sNaN7", "Infinity", "-Infinity", "-0", "0E+9", "-0E-9", "1E+999"]
    )
    return st.decimals() | special.map(Decimal)


@cache
def atoms() -> st.SearchStrategy[Any]:
    """Every supported value without parts, all hashable."""
    return st.one_of(
        st.none(),
        st.booleans(),
        ints(),
        floats(),
        texts(),
        st.binary(max_size=20),
        st.builds(_dated, st.datetimes(), zones(), st.integers(0, 1)),
        st.dates(),
        st.builds(lambda t, zone, fold: t.replace(tzinfo=zone, fold=fold), st.times(), zones(), st.integers(0, 1)),
        st.timedeltas(),
        decimals(),
        st.uuids(),
        st.builds(complex, floats(), floats()),
        st.fractions(),
        paths(),
    )


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:  # a signalling NaN, the one Decimal without a hash
        return False
    return True


@cache
def keys() -> st.SearchStrategy[Any]:
    """Every supported value that can be a key or a member."""
    hashable = atoms().filter(_is_hashable)
    return st.recursive(
        hashable,
        lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
        max_leaves=4,
    )


@cache
def values() -> st.SearchStrategy[Any]:
    """Any supported value but registered objects."""
    return st.recursive(
        atoms() | st.binary(max_size=20).map(bytearray),
        lambda inner: st.one_of(
            st.lists(inner, max_size=5),
            st.lists(inner, max_size=5).map(tuple),
            st.dictionaries(plain_texts(), inner, max_size=5),
            st.dictionaries(keys(), inner, max_size=5),
            st.sets(keys(), max_size=4),
            st.frozensets(keys(), max_size=4),
        ),
        max_leaves=20,
    )


@cache
def json_values() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | plain_texts(),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(plain_texts(), inner, max_size=5),
        max_leaves=20,
    )


@cache
def states() -> st.SearchStrategy[dict[str, Any]]:
    """What agents keep: a dict with str keys, mostly JSON-like."""
    names = st.sampled_from(["messages", "plan", "memory", "user", "step", "notes"]) | plain_texts()
    mostly_json = st.one_of(json_values(), json_values(), json_values(), values())
    return st.dictionaries(names, mostly_json, max_size=6)


def same(a: Any, b: Any) -> bool:
    """Whether `a` and `b` can't be told apart: types, NaN bits, signs of zero, time zones, order of keys."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack(">d", a) == struct.pack(">d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, (set, frozenset)):
        return len(a) == len(b) and _same_members(list(a), list(b))
    if isinstance(a, (datetime, time)):
        return a.replace(tzinfo=None) == b.replace(tzinfo=None) and a.fold == b.fold and _same_zone(a.tzinfo, b.tzinfo)
    if isinstance(a, Decimal):
        return a.as_tuple() == b.as_tuple()
    if isinstance(a, UUID):
        return a == b and a.is_safe is b.is_safe
    if isinstance(a, PurePath):
        return str(a) == str(b) and a == b
    if isinstance(a, (int, str, bytes, bytearray, date, timedelta, Fraction, type(None))):
        return bool(a == b)
    raise TypeError(f"same() doesn't know {type(a)}")


def _same_members(left: list[Any], right: list[Any]) -> bool:
    for member in left:
        index = next((i for i, other in enumerate(right) if same(member, other)), None)
        if index is None:
            return False
        del right[index]
    return not right


def _same_zone(a: Any, b: Any) -> bool:
    if type(a) is timezone:
        return type(b) is timezone and a.__getinitargs__() == b.__getinitargs__() and (a is UTC) == (b is UTC)
    return a is b


assert not same(0.0, -0.0)
assert same(math.nan, math.nan)
