"""Arrays in the form in which PostgreSQL receives them, made by hand: nothing is escaped, nothing guessed."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack

from psycopg import pq
from psycopg.abc import AdaptContext
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.postgres import adapters

# Types by their numbers in the server's catalogue; those in the plural are arrays.
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


def bytes_array(elements: Sequence[bytes | None]) -> BytesArray:
    return BytesArray(array(BYTEA, elements))


def text_array(elements: Sequence[str]) -> TextArray:
    return TextArray(array(TEXT, [element.encode() for element in elements]))


def ints_array(elements: Sequence[int]) -> IntsArray:
    numbers = [part for element in elements for part in (8, element)]
    return IntsArray(_header(BIGINT, len(elements)) + pack(">" + "iq" * len(elements), *numbers))


def array(type_: int, elements: Sequence[bytes | None]) -> bytes:
    """An array of what has that type, each element as the server receives one of them."""
    parts = [_header(type_, len(elements), has_nulls=None in elements)]
    for element in elements:
        if element is None:
            parts.append(_NULL)
        else:
            parts += (_LENGTH(len(element)), element)
    return b"".join(parts)


def _header(type_: int, length: int, *, has_nulls: bool = False) -> bytes:
    return _HEADER.pack(1, has_nulls, type_, length, 1) if length else pack(">iiI", 0, 0, type_)


class _AsItIs(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return obj


class _BytesArrayDumper(_AsItIs):
    oid = BYTEAS


class _IntsArrayDumper(_AsItIs):
    oid = BIGINTS


class _TextArrayDumper(_AsItIs):
    oid = TEXTS


class Context:
    """What a connection is opened with, so that it knows these arrays."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(adapters)
        for kind, dumper in (
            (BytesArray, _BytesArrayDumper),
            (IntsArray, _IntsArrayDumper),
            (TextArray, _TextArrayDumper),
        ):
            self.adapters.register_dumper(kind, dumper)


CONTEXT: AdaptContext = Context()
