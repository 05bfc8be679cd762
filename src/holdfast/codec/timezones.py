"""The time zone at the end of a stored datetime or time."""

from __future__ import annotations

import re
import struct
from datetime import timedelta, timezone, tzinfo
from typing import TYPE_CHECKING

from holdfast.codec.unsupported import Refusal
from holdfast.errors import CorruptError, UnknownTypeError

# Imported on demand: few values have a zone, and `import holdfast` stays light.
if TYPE_CHECKING:
    import zoneinfo

_UTC, _OFFSET, _NAMED_OFFSET, _ZONE = 0, 1, 2, 3
_OFFSET_LAYOUT = struct.Struct(">Bq")
_MICROSECOND = timedelta(microseconds=1)
# The characters of IANA keys. It keeps a key read from data inside the time zone folders.
_KEY = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*", re.ASCII)


def encode_zone(zone: tzinfo | None) -> bytes:
    if zone is None:
        return b""
    if zone is timezone.utc:  # noqa: UP017 - the singleton itself is meant
        return b"\x00"
    if type(zone) is timezone:
        # Only these arguments tell a named zone from one that makes up its own name.
        offset, *names = zone.__getinitargs__()  # type: ignore[attr-defined]  # typeshed leaves it out
        micros = offset // _MICROSECOND
        if names:
            name: str = names[0]
            return _OFFSET_LAYOUT.pack(_NAMED_OFFSET, micros) + name.encode("utf-8", "surrogatepass")
        return _OFFSET_LAYOUT.pack(_OFFSET, micros)
    import zoneinfo

    if type(zone) is zoneinfo.ZoneInfo:
        return b"\x03" + _checked_key(zone).encode("ascii")
    raise Refusal(
        f"a time zone of type {type(zone).__module__}.{type(zone).__qualname__} can't be stored exactly",
        "Use datetime.timezone or zoneinfo.ZoneInfo, for instance x.astimezone(zoneinfo.ZoneInfo('Europe/Paris'))",
    )


def _checked_key(zone: zoneinfo.ZoneInfo) -> str:
    import zoneinfo

    remedy = "Use zoneinfo.ZoneInfo(key) with an IANA key"
    key = zone.key
    if key is None or not _KEY.fullmatch(key):
        raise Refusal(f"a ZoneInfo with the key {key!r} can't be found again", remedy)
    try:
        if zoneinfo.ZoneInfo(key) is not zone:
            zone.__reduce__()  # fails for a zone read from a file, whose key may name another zone
    except Exception as error:
        raise Refusal(f"the ZoneInfo {key!r} can't be found again by its key", remedy) from error
    return key


def decode_zone(data: bytes) -> tzinfo | None:
    if not data:
        return None
    kind = data[0]
    if kind == _UTC and len(data) == 1:
        return timezone.utc  # noqa: UP017 - as above
    if kind in (_OFFSET, _NAMED_OFFSET):
        offset = timedelta(microseconds=_OFFSET_LAYOUT.unpack_from(data)[1])
        rest = data[_OFFSET_LAYOUT.size :]
        if kind == _NAMED_OFFSET:
            return timezone(offset, rest.decode("utf-8", "surrogatepass"))
        if not rest:
            return timezone(offset)
    if kind == _ZONE:
        return zone_of_key(data[1:].decode("ascii"))
    raise CorruptError("A stored time zone is damaged: its layout is unknown")


def zone_of_key(key: str) -> tzinfo:
    """Return the zone of an IANA key that was read from data."""
    if len(key) > 255 or not _KEY.fullmatch(key):
        raise CorruptError(f"A stored time zone key is damaged: {key[:80]!r}")
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(key)
    except Exception as error:
        raise UnknownTypeError(
            f"The data uses the time zone {key!r}, which this machine doesn't know. "
            "Install the tzdata package (pip install tzdata) or the system's time zone database"
        ) from error
