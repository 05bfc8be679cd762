"""The plan of a commit: the writes that store a split state, given the stored parts of its parent.

Pure: it gets the segments that it asked for (`wanted`), and returns a manifest and the writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.backends.port import MAX_LOG_ELEMENTS, Segment, SegmentWrite, Span
from holdfast.errors import CorruptError
from holdfast.format import frame
from holdfast.format.state import log_segment
from holdfast.format.state.list_alignment import Kept, align
from holdfast.format.state.list_digest import BLOCK, NO_LINK, Chain, chain_of, open_from
from holdfast.format.state.manifest import (
    MAX_SPANS,
    ListEntry,
    Manifest,
    Path,
    Skeleton,
    Tail,
)
from holdfast.format.state.split import Image, Split

INLINE_BYTES = 256
INLINE_ALONE_BYTES = 1536  # two such records fit in a page of SQLite's
MERGED_ELEMENTS = 16  # of a log, if small segments are merged
_MAX_MERGED_APPEND = 4  # elements: larger appends leave few segments, and a merge costs a read
StoredSegments = Mapping[Span, Sequence[Segment]]


class WritePlan(NamedTuple):
    manifest: Manifest
    segments: Sequence[SegmentWrite]
    blobs: Mapping[bytes, bytes]


def list_wanted_spans(split: Split, parent: Manifest | None, *, merge: bool = False) -> list[Span]:
    """Return the spans whose segments the plan needs.

    These are the spans of lists that were edited, the open blocks of lists that are appended to and
    that this process has not seen, and the unsealed ends of logs that are due for sealing. With
    `merge`, also those of small segments that the plan merges.
    """
    if parent is None:
        return []
    tail = parent.skeleton.tail
    spans: list[Span] = []
    if tail is not None and not _is_inline(split) and _is_due(tail, len(split.skeleton)):
        spans.append(_get_unsealed(tail))
    for image in split.lists:
        entry = image.proven or parent.list_at(image.path)
        if entry is None:
            continue
        if image.proven is None:
            spans += entry.spans
        elif image.chain is None:
            spans += _open_spans(entry)
        if image.proven is None or _is_due(entry.tail, sum(map(len, image.fresh))):
            spans.append(_get_unsealed(entry.tail))
        elif merge and (small := _get_small(entry.tail, len(image.fresh))) is not None:
            spans.append(small)
    return spans


def list_append_spans(parent: Manifest, paths: Iterable[Path]) -> list[Span]:
    """Return the spans whose segments the plan needs for declared appends to these lists."""
    entries = (parent.list_at(path) for path in paths)
    spans = [span for entry in entries if entry is not None for span in _open_spans(entry)]
    # The skeleton says whether their paths lead through dicts only.
    return [parent.skeleton.span, *spans] if spans and parent.skeleton.span else spans


def logs_needed(split: Split, parent: Manifest | None, closed: Collection[int]) -> int:
    """Return how many new logs the plan may need: none if all new elements follow the parent's."""
    if parent is None or closed:
        return 2 * len(split.lists) + 1
    tails = [image.proven.tail if image.proven else None for image in split.lists]
    if not _is_inline(split):
        tails.append(parent.skeleton.tail)
    return 2 * sum(tail is None or tail.end >= MAX_LOG_ELEMENTS // 2 for tail in tails)


def build_small(skeleton: bytes, parent: Manifest | None) -> Manifest | None:
    """Return the manifest of a state that is only this skeleton; None if it is too large for that.

    Such a state needs no reading, no log and no write but the record's.
    """
    if len(skeleton) > INLINE_ALONE_BYTES:
        return None
    return Manifest(_inline(skeleton, parent.skeleton if parent is not None else None), (), ())


class Planner:
    """The planner of one commit.

    `take_log` returns the number of a new log. Logs in `closed` take no more elements of this
    session, because another branch has continued them. With `merge`, small segments become one from
    time to time: where each is encrypted by itself, many cost more than their bytes.
    """

    def __init__(
        self,
        stored: StoredSegments,
        take_log: Callable[[], int],
        closed: Collection[int] = (),
        *,
        merge: bool = False,
    ) -> None:
        self._stored = stored
        self._take_log = take_log
        self._closed = closed
        self._merge = merge
        self._writes: list[SegmentWrite] = []

    def plan(self, split: Split, parent: Manifest | None) -> WritePlan:
        lists = tuple(self._list(image, parent.list_at(image.path) if parent else None) for image in split.lists)
        skeleton = self._skeleton(split, parent.skeleton if parent else None)
        inherited = {blob.hash for blob in parent.blobs} if parent else set()
        blobs = {
            hash_: frame.compress(content) for hash_, content in split.blob_contents.items() if hash_ not in inherited
        }
        return WritePlan(Manifest(skeleton, lists, tuple(split.blobs)), self._writes, blobs)

    # -- lists -------------------------------------------------------------------------------------------------------

    def _list(self, image: Image, parent: ListEntry | None) -> ListEntry:
        if image.proven is not None:
            return self._follow(image, image.proven)
        assert image.chain is not None
        if parent is not None:
            spans, tail = self._plan_edit(image, parent)
        else:
            span, tail = self._append(None, image.fresh)
            spans = [span]
        return _entry(image, image.chain, 0, spans, tail)

    def _follow(self, image: Image, parent: ListEntry) -> ListEntry:
        """Return the entry of the parent's elements and those that follow them."""
        if image.chain is None:
            image.chain = self._resume_chain(parent)
            image.chain.update(b"".join(image.fresh))
        if not image.fresh:
            return parent
        span, tail = self._append(parent.tail, image.fresh)
        return _entry(image, image.chain, parent.open_from, _join_spans([*parent.spans, span]), tail)

    def _resume_chain(self, entry: ListEntry) -> Chain:
        """Return the chain over a list, from its entry and the elements of its open block."""
        chain = Chain(entry.link)
        pieces = [data for span in _open_spans(entry) for _, data in log_segment.payload(span, self._stored[span])]
        open_block = b"".join(pieces)
        chain.update(open_block[len(open_block) - entry.size % BLOCK :])
        if chain.digest() != entry.digest:
            raise CorruptError("the list to append to is damaged: run `verify`, and save on from an older checkpoint")
        return chain

    def _plan_edit(self, image: Image, parent: ListEntry) -> tuple[list[Span], Tail]:
        old = self._intact_elements(parent)
        spans: list[Span] = []
        pieces = align(old, image.fresh)
        fresh = [element for piece in pieces if isinstance(piece, list) for element in piece]
        tail = parent.tail
        placed = 0
        if fresh:
            written, tail = self._append(parent.tail, fresh)
            placed = written.first
        for piece in pieces:
            if isinstance(piece, Kept):
                spans += _cut(parent.spans, piece)
            else:
                spans.append(Span(tail.log, placed, placed + len(piece)))
                placed += len(piece)
        spans = _join_spans(spans)
        if len(spans) > MAX_SPANS:
            self._writes = [write for write in self._writes if not fresh or write.log != tail.log]
            span, tail = self._append(None, image.fresh)
            return [span], tail
        return spans, tail

    def _intact_elements(self, entry: ListEntry) -> list[bytes]:
        """Return the list's stored elements; none if it is damaged, so that nothing new builds on it."""
        try:
            found = [element for span in entry.spans for element in log_segment.elements(span, self._stored[span])]
        except CorruptError:
            return []
        return found if chain_of(found).digest() == entry.digest else []

    # -- skeleton ----------------------------------------------------------------------------------------------------

    def _skeleton(self, split: Split, parent: Skeleton | None) -> Skeleton:
        content = split.skeleton
        if _is_inline(split):
            return _inline(content, parent)
        digest = hashlib.sha256(content).digest()
        tail = parent.tail if parent else None
        if parent is not None and parent.digest == digest and parent.span is not None:
            return parent
        span, tail = self._append(tail, [content])
        return Skeleton(len(content), digest, None, span, tail)

    # -- logs --------------------------------------------------------------------------------------------------------

    def _append(self, tail: Tail | None, elements: Sequence[bytes]) -> tuple[Span, Tail]:
        """Append the elements to the log, or to a new one; seal the unsealed elements when it is due."""
        if tail is None or tail.log in self._closed or tail.end + len(elements) > MAX_LOG_ELEMENTS:
            tail = Tail(self._take_log(), 0, 0, 0)
        log, end, unsealed_from, unsealed_bytes = tail
        span = Span(log, end, end + len(elements))
        size = sum(map(len, elements))
        if unsealed_bytes + size < log_segment.SEAL_BYTES:
            first, small = end, list[bytes]()
            if self._merge and (found := _get_small(tail, len(elements))) is not None:
                first, small = self._gather(found)
            packed = log_segment.pack([*small, *elements], seal=False)
            self._writes.append(SegmentWrite(log, first, span.end - first, packed, end))
            return span, Tail(log, span.end, unsealed_from, unsealed_bytes + size)
        first, unsealed = self._gather(_get_unsealed(tail))
        writes, tail = seal_elements(log, first, end, [*unsealed, *elements])
        self._writes += writes
        return span, tail

    def _gather(self, span: Span) -> tuple[int, list[bytes]]:
        """Return the elements of whole segments at the end of a span, and the number of their first.

        Only those without a gap before the end, since garbage collection may have removed older
        ones.
        """
        first, gathered = span.end, list[Segment]()
        for segment in reversed(self._stored.get(span, ())):
            if segment.first < span.first or segment.first + segment.length != first:
                break
            first = segment.first
            gathered.append(segment)
        return first, [element for segment in reversed(gathered) for element in log_segment.unpack(segment)]


def seal_elements(log: int, first: int, end: int, elements: Sequence[bytes]) -> tuple[list[SegmentWrite], Tail]:
    """Return the writes that seal the elements of a log from `first` on, and the new tail.

    They are compressed, except for a rest that is too small. `end` is the present end of the log.
    """
    writes: list[SegmentWrite] = []
    segments = log_segment.segments(elements)
    for segment in segments:
        size = sum(map(len, segment))
        seal = size >= log_segment.SEAL_BYTES
        writes.append(
            SegmentWrite(log, first, len(segment), log_segment.pack(segment, seal=seal), first if writes else end)
        )
        first += len(segment)
    if seal:
        return writes, Tail(log, first, first, 0)
    return writes, Tail(log, first, first - len(segments[-1]), size)


def _entry(image: Image, chain: Chain, open_before: int, spans: Sequence[Span], tail: Tail) -> ListEntry:
    return ListEntry(
        image.path,
        image.length,
        image.size,
        chain.digest(),
        image.has_bytes,
        tuple(spans),
        tail,
        chain.link,
        open_from(open_before, image.length, image.size, image.fresh) if chain.link != NO_LINK else 0,
    )


def _open_spans(entry: ListEntry) -> list[Span]:
    """Return the positions of the elements that have bytes in the open block of the list's chain."""
    return _cut(entry.spans, Kept(entry.open_from, entry.length))


def _is_inline(split: Split) -> bool:
    """Return whether the skeleton is stored in the manifest.

    A skeleton that is the whole state may be larger than one next to lists: a small save is then
    one record and no segment, and nothing is ever sealed. Next to lists, the skeleton changes least
    from step to step, and takes a tenth of the bytes in a sealed segment.
    """
    size = len(split.skeleton)
    return size <= INLINE_BYTES or (size <= INLINE_ALONE_BYTES and not split.lists and not split.blobs)


def _inline(content: bytes, parent: Skeleton | None) -> Skeleton:
    return Skeleton(len(content), hashlib.sha256(content).digest(), content, None, parent.tail if parent else None)


def _is_due(tail: Tail, size: int) -> bool:
    return tail.unsealed_bytes + size >= log_segment.SEAL_BYTES and tail.unsealed_from < tail.end


def _get_unsealed(tail: Tail) -> Span:
    return Span(tail.log, tail.unsealed_from, tail.end)


def _get_small(tail: Tail, count: int) -> Span | None:
    """Return the end of a log whose small segments are merged with `count` new elements, if it is time."""
    start = max(tail.end // MERGED_ELEMENTS * MERGED_ELEMENTS, tail.unsealed_from)
    is_time = tail.end // MERGED_ELEMENTS < (tail.end + count) // MERGED_ELEMENTS and count <= _MAX_MERGED_APPEND
    return Span(tail.log, start, tail.end) if is_time and start < tail.end else None


def _join_spans(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].log == span.log and joined[-1].end == span.first:
            joined[-1] = Span(span.log, joined[-1].first, span.end)
        elif span.first < span.end:
            joined.append(span)
    return joined


def _cut(spans: Sequence[Span], kept: Kept) -> list[Span]:
    """Return the positions of the elements `[first, end)` of a list that is stored in these spans."""
    cut, number = [], 0
    for log, first, end in spans:
        low, high = max(kept.first - number, 0), min(kept.end - number, end - first)
        if low < high:
            cut.append(Span(log, first + low, first + high))
        number += end - first
    return cut
