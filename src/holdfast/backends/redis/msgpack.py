"""MessagePack as Redis's Lua reads it, for the arguments of scripts.

It knows strings of bytes, but not the `bin` type that other encoders use for bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

_SHORT = [bytes((0xA0 | size,)) for size in range(32)]
_SMALL = [bytes((number,)) for number in range(128)]
_FEW = [bytes((0x90 | size,)) for size in range(16)]
_LONG = Struct(">cI").pack
_LARGE = Struct(">cq").pack


def pack(value: Any) -> bytes:
    """Pack a tree of lists, bytes, words, whole numbers and booleans."""
    parts: list[bytes] = []
    _pack_all((value,), parts)
    return b"".join(parts)


def _pack_all(items: Any, parts: list[bytes]) -> None:
    # Leaves are written here, without a call for each: this runs for every save.
    for item in items:
        kind = type(item)
        if kind is bytes:
            size = len(item)
            parts += (_SHORT[size] if size < 32 else _LONG(b"\xdb", size), item)
        elif kind is int:
            parts.append(_SMALL[item] if 0 <= item < 128 else _LARGE(b"\xd3", item))
        elif kind is bool:
            parts.append(b"\xc3" if item else b"\xc2")
        elif kind is str:
            _pack_all((item.encode(),), parts)
        else:
            size = len(item)
            parts.append(_FEW[size] if size < 16 else _LONG(b"\xdd", size))
            if size:
                _pack_all(item, parts)
