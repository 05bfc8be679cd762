"""diff: the differences between two checkpoints. Only differing parts are read, where spans tell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from holdfast.backends.port import Span
from holdfast.codec.codec import Codec
from holdfast.codec.placeholders import TypedObject
from holdfast.codec.stored_objects import put_together, stored_codec
from holdfast.errors import CorruptError, HoldfastError
from holdfast.format.state import log_segment, record, run_journal, split
from holdfast.format.state.assemble import check_blobs
from holdfast.format.state.diff import (
    Differ,
    Middle,
    Part,
    blob_stub,
    is_list,
    is_stub,
    list_stub,
)
from holdfast.format.state.manifest import Manifest
from holdfast.format.state.record import StoredRecord
from holdfast.format.state.span_match import cut, find_gaps
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.diff import PARTS, Diff, Drop, Edit, Field, Put, RecordedCall, Splice
from holdfast.model.framework import Framework
from holdfast.model.snapshot import FileChange
from holdfast.model.state_view import StateView
from holdfast.operations import ledger, lookup, snapshot_read
from holdfast.operations.context import StoreContext


async def diff(ctx: StoreContext, a: bytes, b: bytes) -> Diff:
    """Return the difference between checkpoint `a` and checkpoint `b`, of any sessions.

    States are compared as they are stored, not migrated.
    """
    records = [await lookup.load_live_record(ctx, id_) for id_ in (a, b)]
    shown = [record.checkpoint(ctx.codec, stored) for stored in records]
    states = await _States.read(ctx, records)
    old, new = (
        dict(zip(PARTS, (*state, dict(checkpoint.metadata), checkpoint.tasks), strict=True))
        for state, checkpoint in zip(states.skeletons, shown, strict=True)
    )
    edits = tuple(await states.edits(old, new))
    return Diff(
        a=shown[0],
        b=shown[1],
        edits=edits,
        objects=_CodecObjects(ctx.codec) if any(Field in map(type, edit.path) for edit in edits) else None,
        recorded=await _find_recorded(ctx, edits, [stored.tree for stored in records]),
        files=await _files(ctx, *records),
        view=_view(ctx, shown),
    )


def _view(ctx: StoreContext, checkpoints: Sequence[Checkpoint]) -> StateView | None:
    """Return the view of checkpoints that one adapter has made."""
    if any(checkpoint.framework is Framework.CUSTOM for checkpoint in checkpoints):
        return None
    return next(
        (adapter.view for adapter in ctx.load_adapters() if all(map(adapter.view.is_made_by, checkpoints))), None
    )


async def _find_recorded(ctx: StoreContext, edits: Sequence[Edit], trees: Sequence[bytes]) -> tuple[RecordedCall, ...]:
    """Return the records that only one of two runs' journals has, from the edits of the journal."""
    went, came = list[Any](), list[Any]()
    for edit in edits:
        if isinstance(edit, Splice) and edit.path == run_journal.PATH:
            went += edit.removed
            came += edit.added
        elif isinstance(edit, Put | Drop) and (edit.path == run_journal.PATH or edit.path == run_journal.PATH[:-1]):
            went += _entries(edit.was)
            came += _entries(edit.value) if isinstance(edit, Put) else ()
    last = [{entry[0]: run_journal.JournalRecord(*entry) for entry in entries} for entries in (went, came)]
    both = {place for place, value in last[0].items() if place in last[1] and _is_same(value, last[1][place])}
    listed = [
        (is_new, item)
        for is_new, of in zip((False, True), last, strict=True)
        for item in of.values()
        if item.place not in both
    ]
    found = []
    for is_new, item in listed:
        is_effect = item.kind == run_journal.EFFECT
        entry = await ledger.find(ctx, bytes(item.about[0]), trees[is_new]) if is_effect else None
        name = item.about[1] if is_effect else run_journal.name_of(item.place)
        status = str(item.about[0]) if item.kind == run_journal.TASK else item.status
        found.append(RecordedCall(is_new, item.kind, name, status, entry.effect(ctx.codec) if entry else None))
    return tuple(found)


def _is_same(record: run_journal.JournalRecord, other: run_journal.JournalRecord) -> bool:
    """Return whether two records are equal, apart from their times."""
    return (record.kind, record.status, record.payload, record.about) == (
        other.kind,
        other.status,
        other.payload,
        other.about,
    )


def _entries(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        value = value.get(run_journal.PATH[-1])
    return value if isinstance(value, list) else ()


async def _files(ctx: StoreContext, a: StoredRecord, b: StoredRecord) -> tuple[FileChange, ...] | None:
    """Return the differences between the two checkpoints' own snapshots; None unless both have one."""
    references = [snapshot_read.reference_of(stored) for stored in (a, b)]
    if references[0] is None or references[1] is None:
        return None
    if references[0] == references[1]:
        return ()
    before, after = [await snapshot_read.load(ctx, reference) for reference in references if reference is not None]
    if before.tree is None or after.tree is None:
        return None
    return tuple([change async for change in snapshot_read.diff(ctx, before, after)])


class _States:
    """Two states whose skeletons were read."""

    def __init__(self, ctx: StoreContext, manifests: Sequence[Manifest], skeletons: Sequence[tuple[Any, Any]]) -> None:
        self.skeletons = skeletons
        self._ctx = ctx
        self._lists = {entry.digest: entry for manifest in manifests for entry in manifest.lists}
        self._blobs = {blob.hash: blob for manifest in manifests for blob in manifest.blobs}
        self._middles: dict[tuple[Part, Part], Sequence[Middle]] = {}
        self._stored = stored_codec(ctx.codec)
        self._contents: dict[Part, Any] = {}

    @classmethod
    async def read(cls, ctx: StoreContext, records: Sequence[StoredRecord]) -> _States:
        manifests = [stored.manifest() for stored in records]
        wanted = [manifest.skeleton.span for manifest in manifests if manifest.skeleton.span]
        found = iter(zip(wanted, await ctx.backend.segments(wanted) if wanted else [], strict=True))
        skeletons = []
        for manifest in manifests:
            content = manifest.skeleton.inline
            if content is None:
                span, stored = next(found)
                content = b"".join(data for _, data in log_segment.payload(span, stored))
            skeleton = _decode_with_stubs(ctx, manifest, content)
            skeletons.append(skeleton or await lookup.load_state(ctx, manifest, verify=True))
        return cls(ctx, manifests, skeletons)

    async def edits(self, old: dict[str, Any], new: dict[str, Any]) -> list[Edit]:
        while True:
            differ = Differ(self._ctx.codec, self._middles, self._contents)
            edits = [_fill_edit(differ, edit) for name in old for edit in differ.edits(old[name], new[name], (name,))]
            if not differ.pairs and not differ.whole:
                return edits
            for pair in differ.pairs:
                self._middles[pair] = await self._middles_of(pair)
            for part in differ.whole:
                self._contents[part] = await self._content(part)

    async def _middles_of(self, pair: tuple[Part, Part]) -> list[Middle]:
        old, new = (self._lists[digest].spans for digest, _ in pair)
        between = find_gaps(old, new)
        wanted = [
            spans
            for gap in between
            for spans in (cut(old, gap.old_first, gap.old_end), cut(new, gap.new_first, gap.new_end))
        ]
        read = iter(await self._elements([span for spans in wanted for span in spans]))
        found = [[*islice(read, sum(span.end - span.first for span in spans))] for spans in wanted]
        return [
            Middle(gap.old_first, *both)
            for gap, both in zip(between, zip(found[::2], found[1::2], strict=True), strict=True)
        ]

    async def _content(self, part: Part) -> Any:
        digest, kind = part[0], -part[1]
        if is_list(part):
            elements = await self._elements(self._lists[digest].spans)
            return self._stored.decode_joined([(1, element) for element in elements])
        stored = await self._ctx.backend.blobs([digest])
        [content] = check_blobs([self._blobs[digest]], stored)
        return split.blob_value(kind, content)

    async def _elements(self, spans: Sequence[Span]) -> list[bytes]:
        found = await self._ctx.backend.segments(spans) if spans else []
        return [
            element for span, stored in zip(spans, found, strict=True) for element in log_segment.elements(span, stored)
        ]


def _decode_with_stubs(ctx: StoreContext, manifest: Manifest, skeleton: bytes) -> tuple[Any, Any] | None:
    """Return the state with stubs for its lists and blobs, and stored objects; None if impossible."""
    given: list[TypedObject] = []

    def resolve(kind: int, index: int) -> object:
        parts: Sequence[Any] = manifest.lists if kind == split.LIST else manifest.blobs
        if not 0 <= index < len(parts):
            raise CorruptError("a state refers to a part that its manifest does not have: run `verify`")
        given.append(list_stub(parts[index]) if kind == split.LIST else blob_stub(kind, parts[index].hash))
        return given[-1]

    try:
        state = stored_codec(ctx.codec).decode(skeleton, resolve)
    except HoldfastError:
        if manifest.lists or manifest.blobs:
            return None  # read as a whole, which reports the damage, if there is any
        raise
    return (state[0], state[1]) if _stubs_in(state) == len(given) else None


def _stubs_in(value: Any) -> int:
    if type(value) is dict:
        return sum(map(_stubs_in, value.values()))
    if type(value) is list:
        return sum(map(_stubs_in, value))
    if type(value) is TypedObject and not is_stub(value):
        return _stubs_in(value.fields)
    return int(type(value) is TypedObject)


def _fill_edit(differ: Differ, edit: Edit) -> Edit:
    """Return the edit with values instead of stubs."""
    if isinstance(edit, Put):
        return edit._replace(value=differ.fill_stubs(edit.value, edit.path), was=differ.fill_stubs(edit.was, edit.path))
    if isinstance(edit, Drop):
        return edit._replace(was=differ.fill_stubs(edit.was, edit.path))
    if isinstance(edit, Splice):
        removed, added = ([differ.fill_stubs(item, edit.path) for item in part] for part in (edit.removed, edit.added))
        return edit._replace(removed=tuple(removed), added=tuple(added))
    return edit


class _CodecObjects:
    """The interface with which `Diff.apply` edits objects."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def take_apart(self, value: Any) -> Any:
        return self._codec.take_apart(value)

    def put_together(self, value: Any) -> Any:
        return put_together(self._codec, value, "value")
