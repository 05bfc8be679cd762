"""What a script is asked, as the MessagePack that Redis's Lua reads: it knows strings of bytes, but not the `bin` type
that other encoders write bytes as."""

from __future__ import annotations

from typing import Any


def pack(value: Any) -> bytes:
    """A tree of lists, bytes, words, whole numbers and booleans."""
    parts: list[bytes] = []
    _pack(value, parts.append)
    return b"".join(parts)


def _pack(value: Any, write: Any) -> None:
    if isinstance(value, (list, tuple)):
        size = len(value)
        write(bytes((0x90 | size,)) if size < 16 else b"\xdd" + size.to_bytes(4, "big"))
        for item in value:
            _pack(item, write)
    elif isinstance(value, bytes):
        size = len(value)
        write(bytes((0xA0 | size,)) if size < 32 else b"\xdb" + size.to_bytes(4, "big"))
        write(value)
    elif isinstance(value, bool):
        write(b"\xc3" if value else b"\xc2")
    elif isinstance(value, int):
        write(bytes((value,)) if 0 <= value < 128 else b"\xd3" + value.to_bytes(8, "big", signed=True))
    else:
        _pack(value.encode(), write)
