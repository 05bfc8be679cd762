"""Runs: how the elements of a log are stored.

A run's content is a table of its elements' sizes (unsigned 32-bit, little-endian, one for each element), then the
elements one after the other. The table lets a reader cut out any of them without parsing the rest. Small runs are
stored raw; once `SEAL_BYTES` of them have gathered at the end of a log, they are *sealed*: written anew as one
compressed run, in the same commit. Elements keep their numbers, so nothing that refers to them changes.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from holdfast.backends.port import Run, Span
from holdfast.errors import CorruptError
from holdfast.objects import frame
from holdfast.objects.inflating import Inflating

SEAL_BYTES = 64 * 1024
_SMALL = 8 * 1024

Payload = bytes | memoryview


def pack(elements: Sequence[bytes], *, seal: bool) -> bytes:
    """The stored form of a run of these elements."""
    if len(elements) == 1 and not seal:  # what most saves write
        return frame.RAW + len(elements[0]).to_bytes(4, "little") + elements[0]
    content = struct.pack(f"<{len(elements)}I", *map(len, elements)) + b"".join(elements)
    return frame.compressed(content) if seal else frame.raw(content)


def unpack(run: Run) -> list[bytes]:
    """The elements of a stored run."""
    data = run.data
    if run.length == 1 and data[:1] == frame.RAW and int.from_bytes(data[1:5], "little") == len(data) - 5 >= 0:
        return [data[5:]]  # as most are that a save has appended
    content, ends = _table(run, memoryview(frame.content(data)))
    return [bytes(content[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def payload(span: Span, runs: Iterable[Run], inflating: Inflating | None = None) -> list[tuple[int, Payload]]:
    """The bytes of all elements of a span, in pieces: how many elements, and their bytes. The runs must cover it without
    a gap."""
    return list(pieces(span, runs, inflating or Inflating()))


def pieces(span: Span, runs: Iterable[Run], inflating: Inflating) -> Iterator[tuple[int, Payload]]:
    """The same one by one, so that each can be hashed as it comes. Whether there is a gap is known only at the end."""
    small: list[memoryview] = []  # of runs that are not sealed yet: many, and quicker to work through as one
    count, reached = 0, span.first
    for run in runs:
        if run.first > reached:
            break
        end = min(run.first + run.length, span.end)
        if end <= reached:  # what it says it has was read already: its place is damaged
            continue
        piece = _piece(run, reached, end, inflating.content(run.data))
        small.append(piece)
        count += end - reached
        reached = end
        if len(piece) >= _SMALL:
            yield count, piece if len(small) == 1 else b"".join(small)
            small, count = [], 0
    if small:
        yield count, b"".join(small)
    if reached != span.end:
        raise CorruptError(
            f"elements {reached} to {span.end} of log {span.log} are missing: the store is damaged. Run `verify` "
            "to see which checkpoints it concerns"
        )


def _piece(run: Run, first: int, end: int, content: memoryview) -> memoryview:
    """The bytes of the elements `[first, end)` of the log, which lie in this run."""
    low, high = first - run.first, end - run.first
    if low == 0 and high == run.length:
        return content[4 * run.length :]  # all: the table need not be read
    elements, ends = _table(run, content)
    return elements[ends[low - 1] if low else 0 : ends[high - 1]]


def elements(span: Span, runs: Iterable[Run]) -> list[bytes]:
    """The elements of a span one by one."""
    found: list[bytes] = []
    for run in runs:
        found += unpack(run)[max(span.first - run.first, 0) : span.end - run.first]
    if len(found) != span.end - span.first:
        raise CorruptError(f"elements of log {span.log} are missing: the store is damaged. Run `verify`")
    return found


def segments(elements: Sequence[bytes]) -> list[list[bytes]]:
    """The elements cut into stretches of at least `SEAL_BYTES`, and a last one that may be shorter."""
    cut: list[list[bytes]] = [[]]
    size = 0
    for element in elements:
        if size >= SEAL_BYTES:
            cut.append([])
            size = 0
        cut[-1].append(element)
        size += len(element)
    return cut


def _table(run: Run, content: memoryview) -> tuple[memoryview, list[int]]:
    table_size = 4 * run.length
    sizes = array("I")
    if len(content) < table_size or run.length < 0:
        raise CorruptError("a run is shorter than its table: the store is damaged. Run `verify`")
    sizes.frombytes(content[:table_size])
    if sys.byteorder == "big":
        sizes.byteswap()
    ends = list(accumulate(sizes))
    payload = content[table_size:]
    if (ends[-1] if ends else 0) != len(payload):
        raise CorruptError("a run does not have the size its table says: the store is damaged. Run `verify`")
    return payload, ends
