"""File names for any bytes: readable where possible, one name per key and one key per name.

Lowercase letters, digits, `_` and `-` stand for themselves, every other byte for its percent
escape. So no name has a slash or a dot of its own, and no two differ only in case or in the form of
an accent. A name that would be too long for a file system is cut and ends in `~` and the SHA-256 of
the key.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote_to_bytes

EMPTY = "%"  # an escape without digits: no other key has it
LONGEST = 120
KEPT = 60

_CUT = re.compile(f"[a-z0-9_%-]{{{KEPT}}}~[0-9a-f]{{64}}")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_SHOWN = [chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in range(256)]


def name_of(key: bytes) -> str:
    name = "".join([_SHOWN[byte] for byte in key]) or EMPTY
    if len(name) <= LONGEST:
        return name
    return f"{name[:KEPT]}~{hashlib.sha256(key).hexdigest()}"


def key_of(name: str) -> bytes | None:
    """Return the key of a name that `name_of` made, None if it was cut: then the file itself has it."""
    if "~" in name:
        return None
    return b"" if name == EMPTY else unquote_to_bytes(name)


def is_name(name: str) -> bool:
    """Return whether `name_of` can have made this name."""
    key = key_of(name)
    return _CUT.fullmatch(name) is not None if key is None else name_of(key) == name
