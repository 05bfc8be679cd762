"""A check of the structure of encoded bytes that builds nothing.

The C decoder neither counts items nor knows its depth when an Ext payload holds another msgpack
value. Where one of these matters (huge data, deep nesting of payloads), this much slower check
comes first.
"""

from __future__ import annotations

from holdfast.codec import ext_codes
from holdfast.errors import CorruptError

# Per first byte: the size of the length field, and the unit of that length.
FIXED, BYTES, EXT, ARRAY, MAP, UNKNOWN = range(6)
_PAYLOADS_WITH_VALUES = frozenset(
    {ext_codes.TUPLE, ext_codes.MAP, ext_codes.SET, ext_codes.FROZENSET, ext_codes.OBJECT, ext_codes.FRACTION}
)


def _layout(first: int) -> tuple[int, int, int]:
    """Return (kind, size of the length field, length or extra bytes if known)."""
    if first <= 0x7F or first >= 0xE0 or first in (0xC0, 0xC2, 0xC3):
        return FIXED, 0, 0
    if first <= 0x8F:
        return MAP, 0, first & 0x0F
    if first <= 0x9F:
        return ARRAY, 0, first & 0x0F
    if first <= 0xBF:
        return FIXED, 0, first & 0x1F
    table = {
        0xC4: (BYTES, 1, 0), 0xC5: (BYTES, 2, 0), 0xC6: (BYTES, 4, 0),
        0xC7: (EXT, 1, 0), 0xC8: (EXT, 2, 0), 0xC9: (EXT, 4, 0),
        0xCA: (FIXED, 0, 4), 0xCB: (FIXED, 0, 8),
        0xCC: (FIXED, 0, 1), 0xCD: (FIXED, 0, 2), 0xCE: (FIXED, 0, 4), 0xCF: (FIXED, 0, 8),
        0xD0: (FIXED, 0, 1), 0xD1: (FIXED, 0, 2), 0xD2: (FIXED, 0, 4), 0xD3: (FIXED, 0, 8),
        0xD4: (EXT, 0, 1), 0xD5: (EXT, 0, 2), 0xD6: (EXT, 0, 4), 0xD7: (EXT, 0, 8), 0xD8: (EXT, 0, 16),
        0xD9: (BYTES, 1, 0), 0xDA: (BYTES, 2, 0), 0xDB: (BYTES, 4, 0),
        0xDC: (ARRAY, 2, 0), 0xDD: (ARRAY, 4, 0), 0xDE: (MAP, 2, 0), 0xDF: (MAP, 4, 0),
    }  # fmt: skip
    return table.get(first, (UNKNOWN, 0, 0))


LAYOUTS = tuple(_layout(first) for first in range(256))

# A depth that no value within the limits reaches: for callers that only count items.
STRUCTURE_DEPTH = 4096


def check_structure(data: bytes, max_depth: int, max_items: int) -> None:
    """Raise `CorruptError` if the value in `data`, payloads included, is too deep or has too many items.

    Truncated or invalid bytes are left to the decoder, as are bytes that follow the value.
    """
    at, end = 0, len(data)
    items = 0
    # Open containers: the number of values that each still lacks. A payload is one open container of
    # one value.
    open_counts = [1]
    while open_counts:
        if not open_counts[-1]:
            open_counts.pop()
            continue
        open_counts[-1] -= 1
        items += 1
        if items > max_items:
            raise CorruptError(f"The data holds more than {max_items} items in one value")
        if at >= end:
            return
        kind, size, length = LAYOUTS[data[at]]
        at += 1
        if size:
            length = int.from_bytes(data[at : at + size])
            at += size
        if kind <= BYTES:
            at += length
        elif kind == EXT:
            if data[at : at + 1] and data[at] in _PAYLOADS_WITH_VALUES:
                open_counts.append(1)
                at += 1
            else:
                at += 1 + length
        elif kind == ARRAY:
            open_counts.append(length)
        elif kind == MAP:
            open_counts.append(2 * length)
        else:
            return
        if len(open_counts) > max_depth + 1:
            raise CorruptError(f"The data is nested more than {max_depth} levels deep")


def holds_bin(data: bytes) -> bool:
    """Return whether `data`, well-formed values, has a msgpack bin outside Ext payloads."""
    if b"\xc4" not in data and b"\xc5" not in data and b"\xc6" not in data:
        return False
    at, end = 0, len(data)
    while at < end:
        first = data[at]
        if 0xC4 <= first <= 0xC6:
            return True
        kind, size, length = LAYOUTS[first]
        at += 1
        if size:
            length = int.from_bytes(data[at : at + size])
            at += size
        if kind <= BYTES:
            at += length
        elif kind == EXT:
            at += 1 + length
    return False
