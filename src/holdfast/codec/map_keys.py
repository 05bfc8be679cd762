"""A check of the keys of other programs' MessagePack maps, before the C decoder builds dicts.

Holdfast's own maps have text keys only, whose hashes no file can know. Other programs also write
arrays as keys, which become tuples: all tuples of -1 and -2 of one length have the same hash, and a
dict of them takes quadratic time, which nothing interrupts.
"""

from __future__ import annotations

import ormsgpack

from holdfast.codec.builtin_types import has_spread_hashes
from holdfast.codec.structure_check import ARRAY, BYTES, EXT, LAYOUTS, MAP

_FEW = 15  # keys of a map without a length field: too few to matter


def keys_are_spread(data: bytes) -> bool:
    """Return whether the dicts of the value in `data` are built in reasonable time.

    Ext payloads are not looked into. Invalid bytes are left to the decoder.
    """
    if b"\xde" not in data and b"\xdf" not in data:  # as nearly always: no map has a length field
        return True
    at, end = 0, len(data)
    # Open containers: the values that each still lacks, the array keys of a map, and where the present
    # key began.
    frames: list[tuple[int, list[bytes] | None, int]] = [(1, None, -1)]
    while frames:
        left, keys, began = frames.pop()
        if keys is not None and began >= 0:
            keys.append(data[began:at])
        if not left:
            if keys and not has_spread_hashes([_key(key) for key in keys]):
                return False
            continue
        if at >= end:
            return True
        kind, size, length = LAYOUTS[data[at]]
        is_key = keys is not None and left % 2 == 0 and kind == ARRAY
        frames.append((left - 1, keys, at if is_key else -1))
        at += 1
        if size:
            length = int.from_bytes(data[at : at + size])
            at += size
        if kind <= BYTES:
            at += length
        elif kind == EXT:
            at += 1 + length
        elif kind == ARRAY:
            frames.append((length, None, -1))
        elif kind == MAP:
            frames.append((2 * length, [] if length > _FEW else None, -1))
        else:
            return True
    return True


def _key(encoded: bytes) -> object:
    """Return a key as the decoder makes it."""
    [key] = ormsgpack.unpackb(b"\x81" + encoded + b"\xc0", option=ormsgpack.OPT_NON_STR_KEYS)
    return key
