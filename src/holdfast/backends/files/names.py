"""File names for any bytes: readable where they can be, never two for one key, never one for two.

Lowercase letters, digits, `_` and `-` stand for themselves, every other byte for its percent escape: so no name has a
slash or a dot of its own, and no two differ only in case or in the form of an accent. A name that would get longer
than a file system takes is cut and ends in `~` and the SHA-256 of the key.
"""

from __future__ import annotations

import hashlib
from urllib.parse import unquote_to_bytes

EMPTY = "%"  # an escape without digits: no other key has it
LONGEST = 120
KEPT = 60

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_SHOWN = [chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in range(256)]


def name_of(key: bytes) -> str:
    name = "".join([_SHOWN[byte] for byte in key]) or EMPTY
    if len(name) <= LONGEST:
        return name
    return f"{name[:KEPT]}~{hashlib.sha256(key).hexdigest()}"


def key_of(name: str) -> bytes | None:
    """The key of a name that `name_of` made, None if it was cut: then the file itself says it."""
    if "~" in name:
        return None
    return b"" if name == EMPTY else unquote_to_bytes(name)
