"""Segments: the stored form of the elements of a log.

A segment's content is a table of its elements' sizes (unsigned 32-bit, little-endian, one for each element), then the
elements one after the other. The table lets a reader cut out any of them without parsing the rest. Small segments are
stored raw. Once `SEAL_BYTES` of them have gathered at the end of a log, they are *sealed*: replaced by one compressed
segment, in the same commit. Elements keep their numbers, so nothing that refers to them changes.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

from holdfast.backends.port import Segment, Span
from holdfast.errors import CorruptError
from holdfast.format import frame

SEAL_BYTES = 64 * 1024
_SMALL = 8 * 1024

Payload = bytes | memoryview


def pack(elements: Sequence[bytes], *, seal: bool) -> bytes:
    """Return the stored form of a segment of these elements."""
    if len(elements) == 1 and not seal:  # the usual segment of a save
        return frame.RAW + len(elements[0]).to_bytes(4, "little") + elements[0]
    content = struct.pack(f"<{len(elements)}I", *map(len, elements)) + b"".join(elements)
    return frame.compress(content) if seal else frame.frame_raw(content)


def unpack(segment: Segment) -> list[bytes]:
    """Return the elements of a stored segment."""
    data = segment.data
    if segment.length == 1 and data[:1] == frame.RAW and int.from_bytes(data[1:5], "little") == len(data) - 5 >= 0:
        return [data[5:]]  # as most are that a save has appended
    content, ends = _table(segment, memoryview(frame.content(data)))
    return [bytes(content[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def payload(span: Span, segments: Iterable[Segment]) -> list[tuple[int, Payload]]:
    """Return the bytes of all elements of a span in pieces: how many elements, and their bytes.

    Raise `CorruptError` if the segments leave a gap.
    """
    pieces: list[tuple[int, Payload]] = []
    small: list[memoryview] = []  # of segments that are not sealed yet: many, and quicker to hash and decode as one
    count, reached = 0, span.first
    inflate: frame.Inflater | None = None
    for segment in segments:
        if segment.first > reached:
            break
        end = min(segment.first + segment.length, span.end)
        if end <= reached:  # its elements were read already: its position is damaged
            continue
        if segment.data[:1] == frame.RAW:
            content = memoryview(segment.data)[1:]  # not copied
        else:
            inflate = inflate or frame.inflater()
            content = memoryview(frame.content(segment.data, inflate))
        piece = _piece(segment, reached, end, content)
        small.append(piece)
        count += end - reached
        reached = end
        if len(piece) >= _SMALL:
            pieces.append((count, piece if len(small) == 1 else b"".join(small)))
            small, count = [], 0
    if small:
        pieces.append((count, b"".join(small)))
    if reached != span.end:
        raise CorruptError(
            f"elements {reached} to {span.end} of log {span.log} are missing: the store is damaged. Run `verify` "
            "to see which checkpoints it concerns"
        )
    return pieces


def _piece(segment: Segment, first: int, end: int, content: memoryview) -> memoryview:
    """Return the bytes of the elements `[first, end)` of the log, which lie in this segment."""
    low, high = first - segment.first, end - segment.first
    if low == 0 and high == segment.length:
        return content[4 * segment.length :]  # all: the table need not be read
    elements, ends = _table(segment, content)
    return elements[ends[low - 1] if low else 0 : ends[high - 1]]


def elements(span: Span, segments: Iterable[Segment]) -> list[bytes]:
    """Return the elements of a span one by one."""
    found: list[bytes] = []
    for segment in segments:
        found += unpack(segment)[max(span.first - segment.first, 0) : span.end - segment.first]
    if len(found) != span.end - span.first:
        raise CorruptError(f"elements of log {span.log} are missing: the store is damaged. Run `verify`")
    return found


def segments(elements: Sequence[bytes]) -> list[list[bytes]]:
    """Return the elements in groups of at least `SEAL_BYTES`, and a last one that may be smaller."""
    cut: list[list[bytes]] = [[]]
    size = 0
    for element in elements:
        if size >= SEAL_BYTES:
            cut.append([])
            size = 0
        cut[-1].append(element)
        size += len(element)
    return cut


def _table(segment: Segment, content: memoryview) -> tuple[memoryview, list[int]]:
    table_size = 4 * segment.length
    sizes = array("I")
    if len(content) < table_size or segment.length < 0:
        raise CorruptError("a segment is shorter than its table: the store is damaged. Run `verify`")
    sizes.frombytes(content[:table_size])
    if sys.byteorder == "big":
        sizes.byteswap()
    ends = list(accumulate(sizes))
    payload = content[table_size:]
    if (ends[-1] if ends else 0) != len(payload):
        raise CorruptError("a segment does not have the size its table says: the store is damaged. Run `verify`")
    return payload, ends
