"""Elements of logs, read in pieces of bounded size, and lists checked against their digests."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from holdfast.backends.port import Backend, Span
from holdfast.errors import CorruptError
from holdfast.format.state import log_segment, split
from holdfast.format.state.list_digest import Chain
from holdfast.format.state.manifest import Manifest

if TYPE_CHECKING:
    from hashlib import _Hash as Hasher

CHUNK_BYTES = 512 * 1024
MAX_ELEMENTS = 4096  # requested at once
REMEMBERED = 512

Pieces = Callable[[Span], AsyncIterator[bytes]]


async def elements(backend: Backend, span: Span) -> AsyncIterator[list[bytes]]:
    """Yield the elements of a span in pieces of about `CHUNK_BYTES`, judged by the sizes before."""
    count, first = 16, span.first
    while first < span.end:
        asked = Span(span.log, first, min(first + count, span.end))
        [found] = await backend.segments([asked])
        reached = found[-1].first + found[-1].length if found else 0
        part = Span(span.log, first, min(max(reached, asked.end), span.end))
        chunk = log_segment.elements(part, found)
        yield chunk
        first = part.end
        size = sum(map(len, chunk))
        count = max(1, min(MAX_ELEMENTS, 4 * len(chunk), CHUNK_BYTES * len(chunk) // max(size, 1)))


class ElementChecker:
    """A checker for the skeletons and lists of checkpoints.

    Of successive ones that share the beginning of a list, only the additions are read.
    """

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        # By spans, the last one without its end: the hash, and the end that it covers.
        self._hashed: OrderedDict[tuple[Span, ...], tuple[int, int, Chain]] = OrderedDict()

    async def check(self, manifest: Manifest) -> None:
        skeleton = manifest.skeleton
        hasher, size = hashlib.sha256(skeleton.inline or b""), len(skeleton.inline or b"")
        if skeleton.span is not None:
            size += await self._feed(hasher, skeleton.span)
        if (size, hasher.digest()) != (skeleton.size, skeleton.digest):
            raise _mismatch("the skeleton")
        for entry in manifest.lists:
            size, chain = await self._list(entry.spans)
            if (size, chain.digest()) != (entry.size, entry.digest):
                raise _mismatch(f"the list {split.path_text(entry.path)}")
            if sum(span.end - span.first for span in entry.spans) != entry.length:
                raise _mismatch(f"the list {split.path_text(entry.path)}")

    async def _list(self, spans: tuple[Span, ...]) -> tuple[int, Chain]:
        done, size, chain = 0, 0, Chain()
        rest = list(spans)
        for count in range(len(spans), 0, -1):
            known = self._hashed.get(_open_ended(spans[:count]))
            last = spans[count - 1]
            if known is not None and (known[0] == last.end or (count == len(spans) and known[0] < last.end)):
                done, size, chain = count - 1, known[1], known[2].copy()
                rest = [Span(last.log, known[0], last.end), *spans[count:]]
                break
        for number, span in enumerate(rest, start=done):
            size += await self._feed(chain, span)
            self._remember(spans[: number + 1], size, chain)
        return size, chain

    def _remember(self, spans: tuple[Span, ...], size: int, chain: Chain) -> None:
        key = _open_ended(spans)
        self._hashed[key] = (spans[-1].end, size, chain.copy())
        self._hashed.move_to_end(key)
        if len(self._hashed) > REMEMBERED:
            self._hashed.popitem(last=False)

    async def _feed(self, hasher: Hasher | Chain, span: Span) -> int:
        size = 0
        if span.first < span.end:
            async for piece in self._pieces(span):
                hasher.update(piece)
                size += len(piece)
        return size


def _open_ended(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    return (*spans[:-1], spans[-1]._replace(end=-1))


def _mismatch(subject: str) -> CorruptError:
    return CorruptError(f"{subject} is not what was saved: its digest does not match")
