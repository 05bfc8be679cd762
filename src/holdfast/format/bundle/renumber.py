"""The renumbering of logs from a store to a bundle, and back. Pure.

A record's checksum covers its content and not the positions (see `manifest.py`), so a record can be
moved to other logs: its manifest gets other positions and stays valid.

On export, logs are numbered in the order in which the records name them. Their elements are
renumbered, without those that no record of the bundle refers to. So a bundle reveals neither the
numbers that a store happened to give, nor its garbage collections, nor its segment boundaries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from holdfast.backends.port import Span
from holdfast.errors import CorruptError
from holdfast.format.state.manifest import Manifest, Tail

ElementRange = tuple[int, int]  # [first, end)


def move_manifest(manifest: Manifest, span: Callable[[Span], list[Span]], tail: Callable[[Tail], Tail]) -> Manifest:
    """Return the manifest with other positions for the same content."""
    skeleton = manifest.skeleton
    return Manifest(
        skeleton._replace(
            span=span(skeleton.span)[0] if skeleton.span else None, tail=tail(skeleton.tail) if skeleton.tail else None
        ),
        tuple(
            entry._replace(
                spans=tuple(_join_spans(new for old in entry.spans for new in span(old))), tail=tail(entry.tail)
            )
            for entry in manifest.lists
        ),
        manifest.blobs,
    )


def list_tails(manifest: Manifest) -> list[Tail]:
    own = [manifest.skeleton.tail] if manifest.skeleton.tail else []
    return own + [entry.tail for entry in manifest.lists]


def _join_spans(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for span in spans:
        if found and (found[-1].log, found[-1].end) == (span.log, span.first):
            found[-1] = Span(span.log, found[-1].first, span.end)
        else:
            found.append(span)
    return found


class ElementRanges:
    """A set of numbers, as ordered ranges that neither overlap nor touch."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[ElementRange]:
        return zip(self._firsts, self._ends, strict=True)

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._firsts)

    def add(self, first: int, end: int) -> None:
        if first >= end:
            return
        low = bisect_left(self._ends, first)  # the first one that touches it, or lies behind it
        high = bisect_right(self._firsts, end)  # behind the last one that touches it
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]


class Ranks:
    """A completed set that tells at once how many of its numbers are lower than another."""

    def __init__(self, stretches: ElementRanges) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._before: list[int] = []
        count = 0
        for first, end in stretches:
            self._firsts.append(first)
            self._ends.append(end)
            self._before.append(count)
            count += end - first
        self.count = count

    def count_below(self, number: int) -> int:
        at = bisect_left(self._firsts, number) - 1
        return self._before[at] + min(self._ends[at], number) - self._firsts[at] if at >= 0 else 0


class Numbering:
    """The mapping from the logs of a store to those of a bundle.

    Every manifest must be noted before the first one can be moved.
    """

    def __init__(self) -> None:
        self._logs: dict[int, ElementRanges] = {}  # in the order in which they were first named
        self._numbers: dict[int, int] = {}
        self._ranks: dict[int, Ranks] = {}

    def note(self, manifest: Manifest) -> None:
        for span in manifest.spans():
            self._logs.setdefault(span.log, ElementRanges()).add(span.first, span.end)
        for tail in list_tails(manifest):
            self._logs.setdefault(tail.log, ElementRanges())  # it may have no element that is referred to

    def settle(self) -> None:
        """Complete the numbering after the last manifest was noted."""
        self._numbers = {log: number for number, log in enumerate(self._logs)}
        self._ranks = {log: Ranks(stretches) for log, stretches in self._logs.items()}

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(ranks.count for ranks in self._ranks.values())

    def sources(self) -> Iterator[tuple[int, int, list[ElementRange]]]:
        """Yield each log of the bundle: its number, the store's number, and the ranges to copy."""
        for log, stretches in self._logs.items():
            yield self._numbers[log], log, list(stretches)

    def move(self, manifest: Manifest) -> Manifest:
        return move_manifest(manifest, self._span, self._tail)

    def _span(self, span: Span) -> list[Span]:
        first = self._ranks[span.log].count_below(span.first)
        return [Span(self._numbers[span.log], first, first + span.end - span.first)]

    def _tail(self, tail: Tail) -> Tail:
        # As if everything were sealed: sealing depends on how the store was written, not on its
        # content.
        end = self._ranks[tail.log].count_below(tail.end)
        return Tail(self._numbers[tail.log], end, end, 0)


class RenumberedRange(NamedTuple):
    """The elements `[first, end)` of a bundle's log, which are at `[at, …)` of the store's `log`."""

    first: int
    end: int
    log: int
    at: int
    by: bytes | None  # the checkpoint of the store that refers to them; None: the import writes them


class Placement:
    """The mapping from the logs of a bundle to those of a store."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[RenumberedRange]] = {}
        self._empty: dict[int, int] = {}
        self.relied_on: set[bytes] = set()  # checkpoints of the store whose elements were used

    def learn(self, theirs: Manifest, ours: Manifest, by: bytes) -> None:
        """Note a checkpoint that is in both: its elements need not be written again."""
        if theirs.skeleton.span and ours.skeleton.span:
            self._learn([theirs.skeleton.span], [ours.skeleton.span], by)
        for entry, known in zip(theirs.lists, ours.lists, strict=True):
            self._learn(list(entry.spans), list(known.spans), by)

    def _learn(self, theirs: list[Span], ours: list[Span], by: bytes) -> None:
        theirs, ours = theirs[::-1], ours[::-1]
        while theirs and ours:
            a, b = theirs.pop(), ours.pop()
            length = min(a.end - a.first, b.end - b.first)
            self.put(a.log, a.first, a.first + length, b.log, b.first, by)
            if a.end - a.first > length:
                theirs.append(Span(a.log, a.first + length, a.end))
            if b.end - b.first > length:
                ours.append(Span(b.log, b.first + length, b.end))

    def put(self, log: int, first: int, end: int, to: int, at: int, by: bytes | None = None) -> None:
        """Note where elements are; those that have a position already keep it."""
        pieces = self._pieces.setdefault(log, [])
        for low, high in list(self._without_place(log, first, end)):
            new = RenumberedRange(low, high, to, at + low - first, by)
            index = bisect_left(pieces, (low,))
            before = pieces[index - 1] if index else None
            if before and (before.end, before.log, before.at + before.end - before.first, before.by) == (
                low,
                to,
                new.at,
                by,
            ):
                pieces[index - 1] = before._replace(end=high)
            else:
                pieces.insert(index, new)

    def find_missing(self, log: int, wanted: ElementRanges) -> list[ElementRange]:
        return [part for first, end in wanted for part in self._without_place(log, first, end)]

    def end_of(self, log: int, number: int) -> tuple[int, int] | None:
        """Return where the element before that number ends in the store: its log and the next number."""
        piece = self._piece(log, number - 1)
        return (piece.log, piece.at + number - piece.first) if piece else None

    def has_tail(self, tail: Tail) -> bool:
        return tail.log in self._empty or self._place_of(tail) is not None

    def open(self, log: int, to: int) -> None:
        """Note where the first element of an empty log may go."""
        self._empty[log] = to

    def move(self, manifest: Manifest) -> Manifest:
        return move_manifest(manifest, self._spans, self._tail)

    def _spans(self, span: Span) -> list[Span]:
        found, number = [], span.first
        while number < span.end:
            piece = self._piece(span.log, number)
            if piece is None:
                raise CorruptError(f"element {number} of log {span.log} is not in the file: it is damaged")
            end = min(piece.end, span.end)
            at = piece.at + number - piece.first
            found.append(Span(piece.log, at, at + end - number))
            if piece.by is not None:
                self.relied_on.add(piece.by)
            number = end
        return found

    def _tail(self, tail: Tail) -> Tail:
        log, end = self._place_of(tail) or (self._empty[tail.log], 0)
        return Tail(log, end, end, 0)

    def _place_of(self, tail: Tail) -> tuple[int, int] | None:
        """Return the position of a tail: behind the element before it, else at the first that followed.

        A tail must stay in the log that continued from it; otherwise another export would have
        other logs.
        """
        if tail.end:
            return self.end_of(tail.log, tail.end)
        first = self._piece(tail.log, 0)
        return (first.log, first.at) if first else None

    def _piece(self, log: int, number: int) -> RenumberedRange | None:
        pieces = self._pieces.get(log, ())
        index = bisect_right(pieces, number, key=lambda piece: piece.first) - 1
        return pieces[index] if index >= 0 and number < pieces[index].end else None

    def _without_place(self, log: int, first: int, end: int) -> Iterator[ElementRange]:
        pieces = self._pieces.get(log, [])
        index = max(bisect_right(pieces, first, key=lambda piece: piece.first) - 1, 0)
        for piece in pieces[index:]:
            if piece.first >= end:
                break
            if piece.first > first:
                yield first, piece.first
            first = max(first, piece.end)
        if first < end:
            yield first, end
