"""A shelf: the elements that several checkpoints of a listing share, read, verified and decoded once.

Checkpoints of one conversation refer to the same log, each a little further back. An element is known by its log and number,
and never changes. So all that a page of checkpoints needs is read at once, one pass over the longest list verifies all that
it begins with, and each element is decoded once. What is given out are copies: they are the caller's to change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.backends.port import Run, Span
from holdfast.codec.codec import Codec
from holdfast.codec.decoding import collector_paused
from holdfast.errors import CorruptError
from holdfast.objects import runs
from holdfast.objects.assemble import Prefix, list_mismatch
from holdfast.objects.chain import Chain
from holdfast.objects.manifest import ListEntry

Copies = Callable[[Any], Callable[[], Any]]  # gives what makes copies of a value, or raises KeyError


class Shelf:
    def __init__(self, codec: Codec, copies_of: Copies) -> None:
        self._codec = codec
        self._copies_of = copies_of
        self._encoded: dict[int, dict[int, bytes]] = {}  # by log and number
        self._makers: dict[int, dict[int, Callable[[], Any]]] = {}
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
                makers = self._made_ready(span)
                taken += [makers[number]() for number in range(span.first, span.end)]
        return taken

    def _made_ready(self, span: Span) -> dict[int, Callable[[], Any]]:
        makers = self._makers.setdefault(span.log, {})
        new = [number for number in range(span.first, span.end) if number not in makers]
        if new:
            encoded = self._encoded[span.log]
            for number, value in zip(new, self._codec.decode_joined([(1, encoded[one]) for one in new]), strict=True):
                makers[number] = self._maker(value, encoded[number])
        return makers

    def _maker(self, value: Any, encoded: bytes) -> Callable[[], Any]:
        try:
            return self._copies_of(value)
        except KeyError:
            return partial(self._codec.decode, encoded)

    def _elements(self, span: Span) -> list[bytes]:
        encoded = self._encoded.get(span.log, {})
        try:
            return [encoded[number] for number in range(span.first, span.end)]
        except KeyError:
            raise CorruptError(f"elements of log {span.log} are missing: the store is damaged. Run `verify`") from None


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
