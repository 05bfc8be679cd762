"""The standard library's value types that have no parts of their own: type to payload and back.

Encoders raise `Refused` for a value that would come back different. Decoders may raise anything for damaged payloads:
the decoder turns it into a CorruptError.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections import Counter
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import ormsgpack

from holdfast.codec import tags
from holdfast.codec.refusals import Refused
from holdfast.codec.zones import decode_zone, encode_zone
from holdfast.errors import CorruptError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_DATETIME = struct.Struct(">HBBBBBIB")
_DATE = struct.Struct(">HBB")
_TIME = struct.Struct(">BBBIB")
_TIMEDELTA = struct.Struct(">iii")
_COMPLEX = struct.Struct(">dd")

# Python's own str(Decimal). Anything else that Decimal() would take (blanks, underscores, other digits) was not
# written by us, and what Decimal() does with nonsense depends on the caller's decimal context.
_DECIMAL = re.compile(rb"-?(?:\d+(?:\.\d+)?(?:E[+-]\d{1,20})?|Infinity|s?NaN\d*)")

# The greatest common divisor, taken when a Fraction is built, takes quadratic time.
_MAX_FRACTION_BYTES = 4096
# Members with one and the same hash make a set or dict quadratic. No honest data comes near this.
_MAX_SAME_HASH = 200


def encode_int(value: int) -> bytes:
    # One bit more than the magnitude, for the sign.
    return value.to_bytes(value.bit_length() // 8 + 1, signed=True)


def _decode_int(data: bytes) -> int:
    return int.from_bytes(data, signed=True)


def encode_surrogates(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def decode_surrogates(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _encode_datetime(value: datetime) -> bytes:
    v = value
    return _DATETIME.pack(v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.fold) + encode_zone(
        v.tzinfo
    )


def _decode_datetime(data: bytes) -> datetime:
    year, month, day, hour, minute, second, micro, fold = _DATETIME.unpack_from(data)
    zone = decode_zone(data[_DATETIME.size :])
    return datetime(year, month, day, hour, minute, second, micro, zone, fold=fold)


def _encode_date(value: date) -> bytes:
    return _DATE.pack(value.year, value.month, value.day)


def _decode_date(data: bytes) -> date:
    return date(*_DATE.unpack(data))


def _encode_time(value: time) -> bytes:
    return _TIME.pack(value.hour, value.minute, value.second, value.microsecond, value.fold) + encode_zone(value.tzinfo)


def _decode_time(data: bytes) -> time:
    hour, minute, second, micro, fold = _TIME.unpack_from(data)
    return time(hour, minute, second, micro, decode_zone(data[_TIME.size :]), fold=fold)


def _encode_timedelta(value: timedelta) -> bytes:
    return _TIMEDELTA.pack(value.days, value.seconds, value.microseconds)


def _decode_timedelta(data: bytes) -> timedelta:
    return timedelta(*_TIMEDELTA.unpack(data))


def _encode_decimal(value: Decimal) -> bytes:
    # The caller's decimal context may ask for a small e.
    return str(value).replace("e", "E").encode("ascii")


def _decode_decimal(data: bytes) -> Decimal:
    if not _DECIMAL.fullmatch(data):
        raise CorruptError("A stored Decimal is damaged")
    return Decimal(data.decode("ascii"))


def _encode_uuid(value: uuid.UUID) -> bytes:
    if value.is_safe is uuid.SafeUUID.unknown:
        return value.bytes
    return value.bytes + (b"\x00" if value.is_safe is uuid.SafeUUID.safe else b"\x01")


def _decode_uuid(data: bytes) -> uuid.UUID:
    if len(data) == 17:
        return uuid.UUID(bytes=data[:16], is_safe=(uuid.SafeUUID.safe, uuid.SafeUUID.unsafe)[data[16]])
    return uuid.UUID(bytes=data)


def _encode_complex(value: complex) -> bytes:
    return _COMPLEX.pack(value.real, value.imag)


def _decode_complex(data: bytes) -> complex:
    return complex(*_COMPLEX.unpack(data))


def _fraction_part(value: int) -> bytes:
    if value.bit_length() > _MAX_FRACTION_BYTES * 8:
        raise Refused(
            f"a Fraction of more than {_MAX_FRACTION_BYTES} bytes can't be stored",
            "Store its numerator and denominator as a tuple of two ints",
        )
    if -(1 << 63) <= value < 1 << 64:
        return ormsgpack.packb(value)
    return ormsgpack.packb(ormsgpack.Ext(tags.BIGINT, encode_int(value)))


def _encode_fraction(value: Fraction) -> bytes:
    return b"\x92" + _fraction_part(value.numerator) + _fraction_part(value.denominator)


def _decode_fraction(data: bytes) -> Fraction:
    # Both parts and their headers fit; nothing larger was written by us.
    if len(data) > 2 * _MAX_FRACTION_BYTES + 16:
        raise CorruptError("A stored Fraction is damaged: it is too long")
    numerator, denominator = ormsgpack.unpackb(data, ext_hook=_decode_fraction_part)
    if type(numerator) is not int or type(denominator) is not int:
        raise CorruptError("A stored Fraction is damaged: its parts are no ints")
    value = Fraction(numerator, denominator)
    if _encode_fraction(value) != data:
        raise CorruptError("A stored Fraction is damaged: it is not in lowest terms, or bytes follow it")
    return value


def _decode_fraction_part(code: int, data: bytes) -> int:
    if code != tags.BIGINT:
        raise CorruptError("A stored Fraction is damaged: its parts are no ints")
    return _decode_int(data)


def _decode_path(data: bytes) -> Any:
    from holdfast.codec import paths  # brings pathlib, which few programs need before they have a path

    return paths.decode(data)


def path_encoder(kind: type[Any]) -> Callable[[Any], bytes] | None:
    """The encoder of a pathlib type, None for any other."""
    if kind.__module__.partition(".")[0] != "pathlib":
        return None
    from holdfast.codec import paths

    return paths.encode if kind in paths.FLAVOURS else None


# By exact type. An int or str comes here only if msgpack can't hold it.
ENCODERS: dict[type[Any], tuple[int, Callable[[Any], bytes]]] = {
    int: (tags.BIGINT, encode_int),
    bytearray: (tags.BYTEARRAY, bytes),
    datetime: (tags.DATETIME, _encode_datetime),
    date: (tags.DATE, _encode_date),
    time: (tags.TIME, _encode_time),
    timedelta: (tags.TIMEDELTA, _encode_timedelta),
    Decimal: (tags.DECIMAL, _encode_decimal),
    uuid.UUID: (tags.UUID, _encode_uuid),
    complex: (tags.COMPLEX, _encode_complex),
    Fraction: (tags.FRACTION, _encode_fraction),
}

DECODERS: dict[int, Callable[[bytes], Any]] = {
    tags.BIGINT: _decode_int,
    tags.SURROGATE: decode_surrogates,
    tags.BYTEARRAY: bytearray,
    tags.DATETIME: _decode_datetime,
    tags.DATE: _decode_date,
    tags.TIME: _decode_time,
    tags.TIMEDELTA: _decode_timedelta,
    tags.DECIMAL: _decode_decimal,
    tags.UUID: _decode_uuid,
    tags.COMPLEX: _decode_complex,
    tags.FRACTION: _decode_fraction,
    tags.PATH: _decode_path,
}

CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
ATOMS = frozenset({type(None), bool, int, float, str, bytes})
BUILTIN_TYPES = frozenset(ENCODERS) | CONTAINERS | ATOMS


def hashes_are_spread(members: Collection[Any]) -> bool:
    """Whether a dict or set of `members` is built in reasonable time. They must be hashable."""
    if len(members) <= _MAX_SAME_HASH:
        return True
    hashes = list(map(hash, members))
    if len(hashes) - len(set(hashes)) < _MAX_SAME_HASH:
        return True
    return Counter(hashes).most_common(1)[0][1] <= _MAX_SAME_HASH
