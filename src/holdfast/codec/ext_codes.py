"""The Ext codes of the format and how every payload is laid out.

Numbers are big-endian. "msgpack" is one value in this same format; "utf-8*" is UTF-8 in which lone surrogates are
three bytes each ('surrogatepass'). None, bool, int of 64 bits, float (always 64 bits), str without lone surrogates,
bytes, list, and dict whose keys are all such str are plain msgpack (nil, bool, int, float64, str, bin, array, map).

    code  name       payload
       1  BIGINT     signed two's complement, as few bytes as hold it; ints outside -2**63 .. 2**64-1
       2  SURROGATE  utf-8* of a str that has lone surrogates
       3  BYTEARRAY  its bytes
       4  TUPLE      msgpack array of the items
       5  MAP        msgpack array [key, value, key, value, ...] in insertion order; any dict that is no plain map
       6  SET        msgpack array of the members, sorted by their encoded bytes
       7  FROZENSET  as SET
       8  DATETIME   u16 year, u8 month, u8 day, u8 hour, u8 minute, u8 second, u32 microsecond, u8 fold, zone
       9  DATE       u16 year, u8 month, u8 day
      10  TIME       u8 hour, u8 minute, u8 second, u32 microsecond, u8 fold, zone
      11  TIMEDELTA  i32 days, i32 seconds, i32 microseconds
      12  DECIMAL    ASCII text as str() gives it, exponent with a capital E
      13  UUID       16 bytes; then u8 is_safe (0 safe, 1 unsafe) only if that is known
      14  COMPLEX    f64 real, f64 imaginary
      15  FRACTION   msgpack array [numerator, denominator]
      16  PATH       u8 flavour (0 PurePosixPath, 1 PureWindowsPath, 2 PosixPath, 3 WindowsPath), utf-8* of its text
      17  OBJECT     msgpack array [registered name, stored parts]
      18  REF        u8 kind, then the index, unsigned, 1 to 8 bytes
      19  REDACTED   msgpack array [1, "drop", rule, name or nil, type]: a value that was not stored

    zone:  nothing (naive)
           u8 0                              datetime.timezone.utc
           u8 1, i64 offset in microseconds  a fixed offset
           u8 2, i64 offset, utf-8* name     a fixed offset that was given a name
           u8 3, ASCII key                   zoneinfo.ZoneInfo(key)

The stored parts of an OBJECT depend on its class:

- dataclass, attrs class or NamedTuple: a dict of field name to value;
- Enum: its member's name; a Flag without one name: its int value;
- pydantic model: a dict of field name to value, with the key "" added for [names of the fields that
  were set, sorted; extra attributes or None; private attributes or None];
- class registered with `encode`: the data that `encode` returned;
- class under a name of holdfast's own (`python:deque`): see `standard_types.py` and
  `array_types.py`.

A code, once released, keeps its meaning. A reader reports an unknown code as newer data.
"""

from __future__ import annotations

from typing import Final

import ormsgpack

BIGINT: Final = 1
SURROGATE: Final = 2
BYTEARRAY: Final = 3
TUPLE: Final = 4
MAP: Final = 5
SET: Final = 6
FROZENSET: Final = 7
DATETIME: Final = 8
DATE: Final = 9
TIME: Final = 10
TIMEDELTA: Final = 11
DECIMAL: Final = 12
UUID: Final = 13
COMPLEX: Final = 14
FRACTION: Final = 15
PATH: Final = 16
OBJECT: Final = 17
REF: Final = 18
REDACTED: Final = 19

# Types that ormsgpack would convert on its own (and so lose) come to our `default` instead.
PACK_OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)


def array_header(count: int) -> bytes:
    """Return the msgpack header of an array of `count` items, as ormsgpack would write it."""
    if count < 16:
        return bytes((0x90 | count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2)
    return b"\xdd" + count.to_bytes(4)
