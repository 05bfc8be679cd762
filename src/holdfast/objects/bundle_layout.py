"""Places: how the logs of a store become those of a bundle, and the other way. Pure.

A record's checksum covers what it holds and not where that is (see `manifest.py`), so a record can be moved to other logs:
its manifest gets other places and stays true.

On the way out, logs are numbered in the order in which the records name them, and their elements are numbered anew,
without those that no record of the bundle refers to. So neither the numbers that a store happened to give, nor what it
has collected or not, nor how it has cut logs into runs, can be told from a bundle.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from holdfast.backends.port import Span
from holdfast.errors import CorruptError
from holdfast.objects.manifest import Manifest, Tail

Stretch = tuple[int, int]  # [first, end)


def moved(manifest: Manifest, span: Callable[[Span], list[Span]], tail: Callable[[Tail], Tail]) -> Manifest:
    """The manifest with other places for the same content."""
    skeleton = manifest.skeleton
    return Manifest(
        skeleton._replace(
            span=span(skeleton.span)[0] if skeleton.span else None, tail=tail(skeleton.tail) if skeleton.tail else None
        ),
        tuple(
            entry._replace(spans=tuple(_joined(new for old in entry.spans for new in span(old))), tail=tail(entry.tail))
            for entry in manifest.lists
        ),
        manifest.blobs,
    )


def tails(manifest: Manifest) -> list[Tail]:
    own = [manifest.skeleton.tail] if manifest.skeleton.tail else []
    return own + [entry.tail for entry in manifest.lists]


def _joined(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for span in spans:
        if found and (found[-1].log, found[-1].end) == (span.log, span.first):
            found[-1] = Span(span.log, found[-1].first, span.end)
        else:
            found.append(span)
    return found


class Stretches:
    """A set of numbers, as stretches in order that neither overlap nor meet."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[Stretch]:
        return zip(self._firsts, self._ends, strict=True)

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._firsts)

    def add(self, first: int, end: int) -> None:
        if first >= end:
            return
        low = bisect_left(self._ends, first)  # the first one that meets it, or lies behind it
        high = bisect_right(self._firsts, end)  # behind the last one that meets it
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]


class Ranks:
    """A set that is complete: how many of its numbers are lower than another, at once."""

    def __init__(self, stretches: Stretches) -> None:
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

    def below(self, number: int) -> int:
        at = bisect_left(self._firsts, number) - 1
        return self._before[at] + min(self._ends[at], number) - self._firsts[at] if at >= 0 else 0


class Numbering:
    """From the logs of a store to those of a bundle. First every manifest is noted, then each can be moved."""

    def __init__(self) -> None:
        self._logs: dict[int, Stretches] = {}  # in the order in which they were first named
        self._numbers: dict[int, int] = {}
        self._ranks: dict[int, Ranks] = {}

    def note(self, manifest: Manifest) -> None:
        for span in manifest.spans():
            self._logs.setdefault(span.log, Stretches()).add(span.first, span.end)
        for tail in tails(manifest):
            self._logs.setdefault(tail.log, Stretches())  # it may have nothing that is referred to

    def settle(self) -> None:
        """Everything was noted."""
        self._numbers = {log: number for number, log in enumerate(self._logs)}
        self._ranks = {log: Ranks(stretches) for log, stretches in self._logs.items()}

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(ranks.count for ranks in self._ranks.values())

    def sources(self) -> Iterator[tuple[int, int, list[Stretch]]]:
        """Each log of the bundle: its number, the store's number, and what is taken from there."""
        for log, stretches in self._logs.items():
            yield self._numbers[log], log, list(stretches)

    def moved(self, manifest: Manifest) -> Manifest:
        return moved(manifest, self._span, self._tail)

    def _span(self, span: Span) -> list[Span]:
        first = self._ranks[span.log].below(span.first)
        return [Span(self._numbers[span.log], first, first + span.end - span.first)]

    def _tail(self, tail: Tail) -> Tail:
        # As if all of it were sealed: what is not depends on how the store was written, not on what it holds.
        end = self._ranks[tail.log].below(tail.end)
        return Tail(self._numbers[tail.log], end, end, 0)


class Piece(NamedTuple):
    """The elements `[first, end)` of a bundle's log stand at `[at, …)` of the store's `log`."""

    first: int
    end: int
    log: int
    at: int
    by: bytes | None  # the checkpoint of the store that refers to them; None: they are written by the import


class Placement:
    """From the logs of a bundle to those of a store."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[Piece]] = {}
        self._empty: dict[int, int] = {}
        self.relied_on: set[bytes] = set()  # checkpoints of the store whose elements were used

    def learn(self, theirs: Manifest, ours: Manifest, by: bytes) -> None:
        """A checkpoint is in both: what it refers to need not be written again."""
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
        """Says where the elements are, of which those that have a place already keep it."""
        pieces = self._pieces.setdefault(log, [])
        for low, high in list(self._without_place(log, first, end)):
            new = Piece(low, high, to, at + low - first, by)
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

    def missing(self, log: int, wanted: Stretches) -> list[Stretch]:
        return [part for first, end in wanted for part in self._without_place(log, first, end)]

    def end_of(self, log: int, number: int) -> tuple[int, int] | None:
        """Where the element before that number ends in the store: its log and the next number there."""
        piece = self._piece(log, number - 1)
        return (piece.log, piece.at + number - piece.first) if piece else None

    def has_tail(self, tail: Tail) -> bool:
        return tail.log in self._empty or self._place_of(tail) is not None

    def open(self, log: int, to: int) -> None:
        """A log without elements: where its first one may go."""
        self._empty[log] = to

    def moved(self, manifest: Manifest) -> Manifest:
        return moved(manifest, self._spans, self._tail)

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
        """Behind the element before it or, where none of those that were before it is left, at the first that followed: it
        must stay in the log that went on from it, or the bundle's logs would be others when it is exported again."""
        if tail.end:
            return self.end_of(tail.log, tail.end)
        first = self._piece(tail.log, 0)
        return (first.log, first.at) if first else None

    def _piece(self, log: int, number: int) -> Piece | None:
        pieces = self._pieces.get(log, ())
        index = bisect_right(pieces, number, key=lambda piece: piece.first) - 1
        return pieces[index] if index >= 0 and number < pieces[index].end else None

    def _without_place(self, log: int, first: int, end: int) -> Iterator[Stretch]:
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
