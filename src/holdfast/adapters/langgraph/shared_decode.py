"""A fast path of listings: elements that checkpoints share are read, verified and decoded once.

Checkpoints of one conversation refer to the same log, each a little further back. An element is
identified by its log and number, and never changes. So all elements that a page of checkpoints
needs are read at once, one pass over the longest list verifies every list that is its beginning,
and each element is decoded once. Each checkpoint gets copies, which are the caller's to change.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from holdfast.adapters.langgraph.message_fields import MESSAGE_CLASSES, make_message
from holdfast.backends.port import Segment, Span
from holdfast.errors import CorruptError
from holdfast.format.state import assemble, log_segment
from holdfast.format.state.assemble import Prefix
from holdfast.format.state.list_digest import Chain
from holdfast.format.state.manifest import ListEntry, Manifest
from holdfast.format.state.split import path_text
from holdfast.operations import lookup
from holdfast.operations.context import StoreContext

SHARE_FROM = 2  # checkpoints of a page; fewer, with no one to share with, are loaded the plain way
_ATOMS = frozenset((str, int, float, bool, type(None), bytes, complex))  # they never change: copies share them


class StateLoader:
    """The state loader of one listing: `read` a page of manifests, then get the `state` of each."""

    def __init__(self, ctx: StoreContext) -> None:
        self._ctx = ctx
        self._is_shared = False  # the page read last
        self._encoded: dict[int, dict[int, bytes]] = {}  # by log and number
        self._decoded: dict[int, dict[int, Any]] = {}
        self._verified: set[tuple[bytes, tuple[Span, ...]]] = set()
        self._skeletons: dict[Span, Sequence[Segment]] = {}
        self._blobs: dict[bytes, bytes | None] = {}

    async def read(self, manifests: Sequence[Manifest]) -> None:
        self._is_shared = len(manifests) >= SHARE_FROM
        if not self._is_shared:
            return
        backend = self._ctx.backend
        entries = [entry for manifest in manifests for entry in manifest.lists]
        skeletons = [manifest.skeleton.span for manifest in manifests if manifest.skeleton.span is not None]
        missing = [*self._find_missing(entries)]
        spans = [*skeletons, *missing]
        found = await backend.segments(spans) if spans else []
        self._skeletons = dict(zip(skeletons, found, strict=False))
        for span, segments in zip(missing, found[len(skeletons) :], strict=True):
            elements = log_segment.elements(span, segments)
            self._encoded.setdefault(span.log, {}).update(enumerate(elements, span.first))
        self._verify(entries)
        hashes = list({blob.hash for manifest in manifests for blob in manifest.blobs})
        self._blobs = dict(zip(hashes, await backend.blobs(hashes), strict=True)) if hashes else {}

    async def state(self, manifest: Manifest) -> Any:
        """Return the state of a checkpoint of the page, which shares nothing mutable with any other."""
        if not self._is_shared:
            return (await lookup.load_state(self._ctx, manifest, verify=True))[0]
        span = manifest.skeleton.span
        content = assemble.skeleton_of(manifest, self._skeletons[span] if span is not None else ())
        lists = [self._list(entry) for entry in manifest.lists]
        blobs = [self._blobs[blob.hash] for blob in manifest.blobs]
        return assemble.put_together(self._ctx.codec, manifest, content, lists, blobs, verify=True)[0]

    def _find_missing(self, entries: Iterable[ListEntry]) -> Iterator[Span]:
        """Yield the spans that these lists need and that were not read yet."""
        for span in _merge(span for entry in entries for span in entry.spans):
            yield from _without(span, self._encoded.get(span.log, {}))

    def _verify(self, entries: Iterable[ListEntry]) -> None:
        """Raise `CorruptError` unless each list matches its digest.

        Lists that begin a log are hashed in one pass.
        """
        hashed: dict[int, Prefix] = {}
        for entry in sorted(entries, key=lambda entry: entry.length):
            if (entry.digest, entry.spans) in self._verified:
                continue
            spans = entry.spans
            is_prefix = assemble.is_prefix_of_log(entry)
            before = hashed.get(spans[0].log) if is_prefix else None
            chain, size = Chain(), 0
            if before is not None:
                chain, size, spans = before.chain.copy(), before.size, (spans[0]._replace(first=before.end),)
            for span in spans:
                data = b"".join(self._elements(span))
                chain.update(data)
                size += len(data)
            length = sum(span.end - span.first for span in entry.spans)
            if size != entry.size or chain.digest() != entry.digest or length != entry.length:
                assemble.list_mismatch(entry)
            if is_prefix:
                hashed[entry.spans[0].log] = Prefix(entry.spans[0].end, size, chain)
            self._verified.add((entry.digest, entry.spans))

    def _elements(self, span: Span) -> list[bytes]:
        encoded = self._encoded.get(span.log, {})
        try:
            return [encoded[number] for number in range(span.first, span.end)]
        except KeyError:
            raise CorruptError(f"elements of log {span.log} are missing: the store is damaged. Run `verify`") from None

    def _list(self, entry: ListEntry) -> list[Any]:
        copies: list[Any] = []
        for span in entry.spans:
            self._decode(span, entry, len(copies))
            encoded, decoded = self._encoded[span.log], self._decoded[span.log]
            for number in range(span.first, span.end):
                try:
                    copies.append(copy_value(decoded[number]))
                except KeyError:  # warnings were given by the first decoding
                    copies.append(self._ctx.codec.decode(encoded[number], path=None))
        return copies

    def _decode(self, span: Span, entry: ListEntry, index: int) -> None:
        """Decode the new elements of a span; `index` is its place in the list of `entry`."""
        decoded = self._decoded.setdefault(span.log, {})
        for missing in _without(span, decoded):
            pieces = [(1, element) for element in self._elements(missing)]
            values = self._ctx.codec.decode_joined(pieces, path_text(entry.path), index + missing.first - span.first)
            decoded.update(enumerate(values, missing.first))


def _without(span: Span, known: Container[int]) -> list[Span]:
    """Return the span from its first to its last unknown element, in a list that is empty if it has none."""
    unknown = [number for number in range(span.first, span.end) if number not in known]
    return [Span(span.log, unknown[0], unknown[-1] + 1)] if unknown else []


def _merge(spans: Iterable[Span]) -> list[Span]:
    """Return the same elements in as few spans as possible."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.log == merged[-1].log and span.first <= merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def copy_value(value: Any) -> Any:
    """Return a copy; raise KeyError if the value holds other things than messages and plain data."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return (
            {name: item if type(item) in _ATOMS else copy_value(item) for name, item in value.items()} if value else {}
        )
    if kind is list:
        return [item if type(item) in _ATOMS else copy_value(item) for item in value] if value else []
    if kind not in MESSAGE_CLASSES:
        raise KeyError(kind)
    held = value.__dict__.copy()
    for name, item in held.items():
        if type(item) not in _ATOMS:
            held[name] = copy_value(item)
    extra, private = copy_value(value.__pydantic_extra__), copy_value(value.__pydantic_private__)
    return make_message(kind, held, value.__pydantic_fields_set__.copy(), extra, private)
