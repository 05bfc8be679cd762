"""Builders of standard-library values from the data of LangGraph's own savers.

They also cover the types that the saver stores in addition to the codec's
(codec/standard_types.py). As there, each builder checks the kinds of its arguments before it calls
anything.
"""

from __future__ import annotations

import collections
import datetime as dt
import ipaddress
import json
import pathlib
import uuid
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from holdfast.codec.builtin_types import DECODERS
from holdfast.codec.ext_codes import DECIMAL
from holdfast.codec.standard_types import address_builder, compile_pattern, expect, members_of, short_text
from holdfast.codec.timezones import zone_of_key

MAX_ADDRESSES = 1 << 16  # of a network that an unknown constructor is given
MAX_UNFINISHED = 256  # characters of JSON that LangChain may complete
MAX_EXPONENT = 10_000  # of a Decimal that an unknown constructor is given

ADDRESSES = tuple(
    getattr(ipaddress, f"{version}{kind}")
    for version in ("IPv4", "IPv6")
    for kind in ("Address", "Interface", "Network")
)
_NETWORKS = (ipaddress.IPv4Network, ipaddress.IPv6Network)
_CONTAINERS = (list, tuple, set, frozenset, collections.deque)


def _timezone(parts: Any) -> dt.timezone:
    return fixed_zone(*expect(parts, list, tuple))


def fixed_zone(offset: Any, *names: Any) -> dt.timezone:
    return dt.timezone(expect(offset, dt.timedelta), *(expect(name, str) for name in names))


def zone(key: Any) -> dt.tzinfo:
    return zone_of_key(expect(key, str))


STORED: dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    dt.timezone: (lambda value: list(value.__getinitargs__()), _timezone),
    zoneinfo.ZoneInfo: (lambda value: value.key, zone),
}
"""By class: what is stored of a value, and how that becomes the value again."""


# -- as LangGraph stores them ------------------------------------------------------------------------------------------


def _path(cls: type[Any]) -> Callable[..., Any]:
    return lambda *parts: cls(*(expect(part, str) for part in parts))


def _build_of_ints(cls: type[Any]) -> Callable[..., Any]:
    return lambda *numbers: cls(*(expect(number, int) for number in numbers))


def _time(**given: Any) -> dt.time:
    for name, value in given.items():
        if name != "tzinfo":
            expect(value, int)
        elif value is not None:
            expect(value, dt.timezone, zoneinfo.ZoneInfo)
    return dt.time(**given)


def _decimal(text: Any) -> Decimal:
    value: Decimal = DECODERS[DECIMAL](expect(text, str).replace("e", "E").encode("ascii"))
    return value


BUILDERS: dict[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "set"): lambda members: set(members_of(members)),
    ("builtins", "frozenset"): lambda members: frozenset(members_of(members)),
    ("collections", "deque"): lambda members: collections.deque(expect(members, list, tuple)),
    ("datetime", "date"): _build_of_ints(dt.date),
    ("datetime", "datetime"): _build_of_ints(dt.datetime),
    ("datetime", "time"): _time,
    ("datetime", "timedelta"): _build_of_ints(dt.timedelta),
    ("datetime", "timezone"): fixed_zone,
    ("decimal", "Decimal"): _decimal,
    ("re", "compile"): compile_pattern,
    ("uuid", "UUID"): lambda text: uuid.UUID(short_text(text)),
    ("zoneinfo", "ZoneInfo"): zone,
    **{("ipaddress", cls.__name__): address_builder(cls) for cls in ADDRESSES},
    **{
        (module, name): _path(getattr(pathlib, name))
        for module in ("pathlib", "pathlib._local")
        for name in ("Path", "PosixPath", "WindowsPath")
    },
}
"""By module and name, as the data has them: what takes plain data, and gives the value."""


def expands(value: Any) -> bool:
    """Return whether a value may be huge once a constructor iterates over it or makes a number of it."""
    waiting = [value]
    while waiting:
        decimal = waiting.pop()
        if isinstance(decimal, _NETWORKS):
            if decimal.num_addresses > MAX_ADDRESSES:
                return True
        elif isinstance(decimal, Decimal):
            if decimal.is_finite() and abs(decimal.adjusted()) > MAX_EXPONENT:
                return True
        elif isinstance(decimal, Mapping):
            waiting += [*decimal.keys(), *decimal.values()]
        elif isinstance(decimal, _CONTAINERS):
            waiting += decimal
    return False


def has_unfinished_json(fields: Mapping[str, Any]) -> bool:
    """Return whether the tool calls of a message's chunk hold a long text that is no JSON.

    LangChain completes it when it validates the message, and parses it once for each of its
    characters. A message was stored with what came of that.
    """
    more = fields.get("additional_kwargs")
    waiting = [fields.get("tool_call_chunks"), more.get("tool_calls") if isinstance(more, Mapping) else None]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str | bytes | bytearray):
            if len(item) > MAX_UNFINISHED and not _is_json(item):
                return True
        elif isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, _CONTAINERS):
            waiting += item
    return False


def _is_json(text: str | bytes | bytearray) -> bool:
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def arguments_of(given: Any) -> Sequence[Any]:
    """Arguments by position, which must be a plain sequence."""
    arguments: Sequence[Any] = expect(given, list, tuple)
    return arguments


def keywords_of(given: Any) -> dict[str, Any]:
    """Arguments by name."""
    for name in expect(given, dict):
        expect(name, str)
    keywords: dict[str, Any] = given
    return keywords
