"""Arrays in PostgreSQL's binary format, made by hand: nothing is escaped, nothing guessed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from struct import Struct, pack
from typing import cast

from psycopg import pq
from psycopg.abc import AdaptContext
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.postgres import adapters

# Type numbers in the server's catalogue; those in the plural are arrays.
BOOL, BYTEA, BIGINT, TEXT = 16, 17, 20, 25
BYTEAS, BIGINTS, TEXTS = 1001, 1016, 1009
_HEADER = Struct(">iiIii")  # dimensions, whether there are nulls, type, length, number of the first element
_LENGTH = Struct(">i").pack
_NULL = _LENGTH(-1)


class BytesArray(bytes):
    """A bytea[]."""


class IntsArray(bytes):
    """A bigint[]."""


class TextArray(bytes):
    """A text[]."""


ENCODED: dict[int, type[bytes]] = {
    BYTEAS: BytesArray,
    BIGINTS: IntsArray,
    TEXTS: TextArray,
    **{number: type(f"Encoded{number}", (bytes,), {}) for number in (BOOL, BYTEA, BIGINT, TEXT)},
}
"""By their numbers: types whose values are bytes that the server takes as they are."""


def bytes_array(elements: Sequence[bytes | None]) -> BytesArray:
    return BytesArray(array(BYTEA, elements))


def text_array(elements: Sequence[str]) -> TextArray:
    return TextArray(array(TEXT, [element.encode() for element in elements]))


def ints_array(elements: Sequence[int]) -> IntsArray:
    numbers = chain.from_iterable(zip(repeat(8), elements))
    return IntsArray(_header(BIGINT, len(elements)) + pack(">" + "iq" * len(elements), *numbers))


def array(type_: int, elements: Sequence[bytes | None]) -> bytes:
    """Return an array of a type, each element in the server's binary form."""
    count = len(elements)
    nulls = elements.count(None)
    header = _header(type_, count, has_nulls=nulls > 0)
    if nulls == count:
        return header + _NULL * count
    if nulls:
        return header + b"".join(
            [_NULL if element is None else _LENGTH(len(element)) + element for element in elements]
        )
    values = cast("Sequence[bytes]", elements)
    lengths = set(map(len, values))
    if len(lengths) == 1:  # ids, mostly
        length = _LENGTH(lengths.pop())
        return header + length + length.join(values)
    return header + b"".join(chain.from_iterable(zip(map(_LENGTH, map(len, values)), values, strict=True)))


def _header(type_: int, length: int, *, has_nulls: bool = False) -> bytes:
    return _HEADER.pack(1, has_nulls, type_, length, 1) if length else pack(">iiI", 0, 0, type_)


class _AsItIs(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return obj


class Context:
    """The adaptation context of a connection, so that it knows these arrays."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(adapters)
        for number, kind in ENCODED.items():
            self.adapters.register_dumper(kind, type(f"{kind.__name__}Dumper", (_AsItIs,), {"oid": number}))


CONTEXT: AdaptContext = Context()
