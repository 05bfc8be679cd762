"""A shelf: the elements that several checkpoints of a listing share, read, verified and decoded once.

Checkpoints of one conversation refer to the same log, each a little further back. An element is known by its log and number,
and never changes. So all that a page of checkpoints needs is read at once, one pass over the longest list verifies all that
it begins with, and each element is decoded once. What is given out are copies: they are the caller's to change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from holdfast.backends.port import Run, Span
from holdfast.codec.codec import Codec
from holdfast.codec.decoding import collector_paused
from holdfast.errors import CorruptError
from holdfast.objects import runs
from holdfast.objects.assemble import Prefix, list_mismatch
from holdfast.objects.chain import Chain
from holdfast.objects.manifest import ListEntry


class Copying(Protocol):
    """Makes copies of values: see `Shelf`."""

    def take(self, first: int, end: int) -> list[Any]: ...


class _Stretch(NamedTuple):
    """Decoded elements of a log, from one number up to another."""

    first: int
    end: int
    copies: Copying


class Shelf:
    """`copies_of` gives, for some values and for what makes each of them anew by its number, what copies any stretch of them."""

    def __init__(self, codec: Codec, copies_of: Callable[[list[Any], Callable[[int], Any]], Copying]) -> None:
        self._codec = codec
        self._copies_of = copies_of
        self._encoded: dict[int, dict[int, bytes]] = {}  # by log and number
        self._decoded: dict[int, list[_Stretch]] = {}  # by log, in order; they don't overlap
        self._verified: set[tuple[bytes, tuple[Span, ...]]] = set()

    def missing(self, entries: Iterable[ListEntry]) -> list[Span]:
        """What has to be read, and given to `add`, before these lists can be had."""
        wanted: dict[int, list[Span]] = {}
        for entry in entries:
            for span in entry.spans:
                wanted.setdefault(span.log, []).append(span)
        found = []
        for log, spans in wanted.items():
            here = self._encoded.get(log, {})
            for span in _merged(spans):
                first, end = span.first, span.end
                while first < end and first in here:
                    first += 1
                while first < end and end - 1 in here:
                    end -= 1
                if first < end:
                    found.append(Span(log, first, end))
        return found

    def add(self, stored: Mapping[Span, Sequence[Run]]) -> None:
        for span, found in stored.items():
            elements = runs.elements(span, found)
            self._encoded.setdefault(span.log, {}).update(enumerate(elements, span.first))

    def verify(self, entries: Iterable[ListEntry]) -> None:
        """Raises CorruptError unless each list is what its digest says. Those that begin a log are hashed in one pass."""
        hashed: dict[int, Prefix] = {}
        for entry in sorted(entries, key=lambda entry: entry.length):
            if (entry.digest, entry.spans) in self._verified:
                continue
            first = entry.spans[0] if entry.spans else None
            is_prefix = first is not None and len(entry.spans) == 1 and first.first == 0
            before = hashed.get(first.log) if first is not None and is_prefix else None
            chain, size, spans = Chain(), 0, entry.spans
            if before is not None and first is not None:
                chain, size, spans = before.chain.copy(), before.size, (first._replace(first=before.end),)
            for span in spans:
                data = b"".join(self._elements(span))
                chain.update(data)
                size += len(data)
            if size != entry.size or chain.digest() != entry.digest or _length(entry) != entry.length:
                list_mismatch(entry)
            if is_prefix and first is not None:
                hashed[first.log] = Prefix(first.end, size, chain)
            self._verified.add((entry.digest, entry.spans))

    def take(self, entry: ListEntry) -> list[Any]:
        """A list of the caller's own."""
        taken: list[Any] = []
        with collector_paused():
            for span in entry.spans:
                number = span.first
                while number < span.end:
                    first, end, copies = self._stretch_at(number, span)
                    end = min(end, span.end)
                    taken += copies.take(number - first, end - first)
                    number = end
        return taken

    def _stretch_at(self, number: int, span: Span) -> _Stretch:
        """The stretch that has this element; decoded now, up to the next one that is or to the end of the span."""
        stretches = self._decoded.setdefault(span.log, [])
        place = bisect_right(stretches, number, key=_first)
        if place and number < stretches[place - 1].end:
            return stretches[place - 1]
        end = min(span.end, stretches[place].first) if place < len(stretches) else span.end
        encoded = self._elements(Span(span.log, number, end))
        values = self._codec.decode_joined([(1, element) for element in encoded])
        stretch = _Stretch(number, end, self._copies_of(values, lambda one: self._codec.decode(encoded[one])))
        stretches.insert(place, stretch)
        return stretch

    def _elements(self, span: Span) -> list[bytes]:
        encoded = self._encoded.get(span.log, {})
        try:
            return [encoded[number] for number in range(span.first, span.end)]
        except KeyError:
            raise CorruptError(f"elements of log {span.log} are missing: the store is damaged. Run `verify`") from None


def _first(stretch: _Stretch) -> int:
    return stretch.first


def _length(entry: ListEntry) -> int:
    return sum(span.end - span.first for span in entry.spans)


def _merged(spans: list[Span]) -> list[Span]:
    """The same elements of one log, in as few spans as there are gaps."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.first <= merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged
