"""The standard library's value types without parts of their own: type to payload and back.

Encoders raise `Refusal` for a value that would come back different. Decoders may raise anything for
damaged payloads: the decoder turns it into a CorruptError.
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

from holdfast.codec import ext_codes
from holdfast.codec.redacted import RedactedValue, decode_redacted, encode_redacted
from holdfast.codec.timezones import decode_zone, encode_zone
from holdfast.codec.unsupported import Refusal
from holdfast.errors import CorruptError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_DATETIME = struct.Struct(">HBBBBBIB")
_DATE = struct.Struct(">HBB")
_TIME = struct.Struct(">BBBIB")
_TIMEDELTA = struct.Struct(">iii")
_COMPLEX = struct.Struct(">dd")

# Python's own str(Decimal). We did not write any other text that Decimal() accepts (blanks,
# underscores, other digits), and the result of invalid text depends on the caller's decimal
# context.
_DECIMAL = re.compile(rb"-?(?:\d+(?:\.\d+)?(?:E[+-]\d{1,20})?|Infinity|s?NaN\d*)")

# The greatest common divisor, computed when a Fraction is built, takes quadratic time.
_MAX_FRACTION_BYTES = 4096
# Members with the same hash make a set or dict quadratic. No honest data comes near this.
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
    # The caller's decimal context may use a small e.
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
        raise Refusal(
            f"a Fraction of more than {_MAX_FRACTION_BYTES} bytes can't be stored",
            "Store its numerator and denominator as a tuple of two ints",
        )
    if -(1 << 63) <= value < 1 << 64:
        return ormsgpack.packb(value)
    return ormsgpack.packb(ormsgpack.Ext(ext_codes.BIGINT, encode_int(value)))


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
    if code != ext_codes.BIGINT:
        raise CorruptError("A stored Fraction is damaged: its parts are no ints")
    return _decode_int(data)


def _decode_path(data: bytes) -> Any:
    from holdfast.codec import path_types  # imports pathlib, which few programs need before they have a path

    return path_types.decode(data)


def path_encoder(kind: type[Any]) -> Callable[[Any], bytes] | None:
    """Return the encoder of a pathlib type, None for any other."""
    if kind.__module__.partition(".")[0] != "pathlib":
        return None
    from holdfast.codec import path_types

    return path_types.encode if kind in path_types.FLAVOURS else None


# By exact type. An int or str comes here only if msgpack can't hold it.
ENCODERS: dict[type[Any], tuple[int, Callable[[Any], bytes]]] = {
    int: (ext_codes.BIGINT, encode_int),
    bytearray: (ext_codes.BYTEARRAY, bytes),
    datetime: (ext_codes.DATETIME, _encode_datetime),
    date: (ext_codes.DATE, _encode_date),
    time: (ext_codes.TIME, _encode_time),
    timedelta: (ext_codes.TIMEDELTA, _encode_timedelta),
    Decimal: (ext_codes.DECIMAL, _encode_decimal),
    uuid.UUID: (ext_codes.UUID, _encode_uuid),
    complex: (ext_codes.COMPLEX, _encode_complex),
    Fraction: (ext_codes.FRACTION, _encode_fraction),
    RedactedValue: (ext_codes.REDACTED, encode_redacted),
}

DECODERS: dict[int, Callable[[bytes], Any]] = {
    ext_codes.BIGINT: _decode_int,
    ext_codes.SURROGATE: decode_surrogates,
    ext_codes.BYTEARRAY: bytearray,
    ext_codes.DATETIME: _decode_datetime,
    ext_codes.DATE: _decode_date,
    ext_codes.TIME: _decode_time,
    ext_codes.TIMEDELTA: _decode_timedelta,
    ext_codes.DECIMAL: _decode_decimal,
    ext_codes.UUID: _decode_uuid,
    ext_codes.COMPLEX: _decode_complex,
    ext_codes.FRACTION: _decode_fraction,
    ext_codes.PATH: _decode_path,
    ext_codes.REDACTED: decode_redacted,
}

CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
ATOMS = frozenset({type(None), bool, int, float, str, bytes})
BUILTIN_TYPES = frozenset(ENCODERS) | CONTAINERS | ATOMS


def has_spread_hashes(members: Collection[Any]) -> bool:
    """Return whether a dict or set of `members` is built in reasonable time. They must be hashable."""
    if len(members) <= _MAX_SAME_HASH:
        return True
    hashes = list(map(hash, members))
    if len(hashes) - len(set(hashes)) < _MAX_SAME_HASH:
        return True
    return Counter(hashes).most_common(1)[0][1] <= _MAX_SAME_HASH
