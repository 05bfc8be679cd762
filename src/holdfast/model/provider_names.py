"""Names and ids of calls that every provider takes.

The strictest rules that are known: OpenAI's chat API takes ids of at most 40 characters, Anthropic's
only letters, digits, `_` and `-`; Gemini wants names to begin with a letter or `_`, and all of them
take at most 64 characters.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

LONGEST_NAME = 64
LONGEST_ID = 40
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_DIGITS = 8  # of the digest that tells shortened names apart


def is_valid_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_valid_id(id_: str) -> bool:
    return _ID.fullmatch(id_) is not None


def valid_name(name: str) -> str:
    """Return the name, or one like it that every provider takes; other names give other ones."""
    if is_valid_name(name):
        return name
    plain = _OTHER.sub("_", name)
    begin = plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}"
    return f"{begin[: LONGEST_NAME - _DIGITS - 1]}_{_digest(name)}"


def valid_id(id_: str, used: Collection[str], number: int = 0) -> str:
    """Return the id, or one like it that every provider takes and that is not among those `used`.

    `number` is how often the id was replaced before: none of those that came of it is tried again.
    """
    if is_valid_id(id_) and id_ not in used:
        return id_
    begin = _OTHER.sub("_", id_)[: LONGEST_ID - _DIGITS - 1] or "call"
    while (made := f"{begin}_{_digest(f'{id_}#{number}')}") in used:
        number += 1
    return made


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
