"""diff: what leads from one checkpoint to another. Only what differs is read, as far as the stored places tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.backends.port import Span
from holdfast.codec.parts import Typed
from holdfast.errors import CorruptError, HoldfastError
from holdfast.model.diff import PARTS, Diff, Drop, Edit, Put, Recorded, Splice
from holdfast.model.workspace import FileChange
from holdfast.objects import journal, record, runs, split
from holdfast.objects.assemble import check_blobs
from holdfast.objects.differ import Differ, Middles, Part, blob_stub, cut, is_list, list_stub, shared_ends
from holdfast.objects.manifest import Manifest
from holdfast.objects.record import Stored
from holdfast.operations import ledger, reading, snapshots
from holdfast.operations.services import Services


async def diff(services: Services, a: bytes, b: bytes) -> Diff:
    """What leads from checkpoint `a` to checkpoint `b`, which may be of any sessions. States are compared as they are
    stored, not migrated."""
    records = [await reading.live_record(services, id_) for id_ in (a, b)]
    shown = [record.checkpoint(services.codec, stored) for stored in records]
    states = await _States.read(services, records)
    old, new = (
        dict(zip(PARTS, (*state, dict(checkpoint.metadata), checkpoint.tasks), strict=True))
        for state, checkpoint in zip(states.skeletons, shown, strict=True)
    )
    edits = tuple(await states.edits(old, new))
    return Diff(
        a=shown[0],
        b=shown[1],
        edits=edits,
        recorded=await _recorded(services, edits, [stored.tree for stored in records]),
        files=await _files(services, *records),
    )


async def _recorded(services: Services, edits: Sequence[Edit], trees: Sequence[bytes]) -> tuple[Recorded, ...]:
    """What a run has done in the one and not in the other: the edits of its journal say so."""
    went, came = list[Any](), list[Any]()
    for edit in edits:
        if isinstance(edit, Splice) and edit.path == journal.PATH:
            went += edit.removed
            came += edit.added
        elif isinstance(edit, Put | Drop) and (edit.path == journal.PATH or edit.path == journal.PATH[:-1]):
            went += _entries(edit.was)
            came += _entries(edit.value) if isinstance(edit, Put) else ()
    last = [{entry[0]: journal.Record(*entry) for entry in entries} for entries in (went, came)]
    both = {place for place, one in last[0].items() if place in last[1] and _is_same(one, last[1][place])}
    listed = [
        (is_new, one)
        for is_new, of in zip((False, True), last, strict=True)
        for one in of.values()
        if one.place not in both
    ]
    found = []
    for is_new, one in listed:
        is_effect = one.kind == journal.EFFECT
        entry = await ledger.find(services, bytes(one.about[0]), trees[is_new]) if is_effect else None
        name = one.about[1] if is_effect else journal.name_of(one.place)
        status = str(one.about[0]) if one.kind == journal.TASK else one.status
        found.append(Recorded(is_new, one.kind, name, status, entry.effect(services.codec) if entry else None))
    return tuple(found)


def _is_same(one: journal.Record, other: journal.Record) -> bool:
    """Whether two records say the same, whenever it was."""
    return (one.kind, one.status, one.payload, one.about) == (other.kind, other.status, other.payload, other.about)


def _entries(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        value = value.get(journal.PATH[-1])
    return value if isinstance(value, list) else ()


async def _files(services: Services, a: Stored, b: Stored) -> tuple[FileChange, ...] | None:
    """What differs between the snapshots that the two have of their own; None unless both have one."""
    references = [snapshots.reference_of(stored) for stored in (a, b)]
    if references[0] is None or references[1] is None:
        return None
    if references[0] == references[1]:
        return ()
    before, after = [await snapshots.load(services, one) for one in references if one is not None]
    if before.tree is None or after.tree is None:
        return None
    return tuple([change async for change in snapshots.diff(services, before, after)])


class _States:
    """Two states, of which the skeletons were read."""

    def __init__(self, services: Services, manifests: Sequence[Manifest], skeletons: Sequence[tuple[Any, Any]]) -> None:
        self.skeletons = skeletons
        self._services = services
        self._lists = {entry.digest: entry for manifest in manifests for entry in manifest.lists}
        self._blobs = {blob.hash: blob for manifest in manifests for blob in manifest.blobs}
        self._middles: dict[tuple[Part, Part], Middles] = {}
        self._contents: dict[Part, Any] = {}

    @classmethod
    async def read(cls, services: Services, records: Sequence[Stored]) -> _States:
        manifests = [stored.manifest() for stored in records]
        wanted = [manifest.skeleton.span for manifest in manifests if manifest.skeleton.span]
        found = iter(zip(wanted, await services.backend.runs(wanted) if wanted else [], strict=True))
        skeletons = []
        for manifest in manifests:
            content = manifest.skeleton.inline
            if content is None:
                span, stored = next(found)
                content = b"".join(data for _, data in runs.payload(span, stored))
            skeleton = _with_stubs(services, manifest, content)
            skeletons.append(skeleton or await reading.load_state(services, manifest, verify=True))
        return cls(services, manifests, skeletons)

    async def edits(self, old: dict[str, Any], new: dict[str, Any]) -> list[Edit]:
        while True:
            differ = Differ(self._services.codec, self._middles, self._contents)
            edits = [_filled(differ, edit) for name in old for edit in differ.edits(old[name], new[name], (name,))]
            if not differ.pairs and not differ.whole:
                return edits
            for pair in differ.pairs:
                self._middles[pair] = await self._middles_of(pair)
            for part in differ.whole:
                self._contents[part] = await self._content(part)

    async def _middles_of(self, pair: tuple[Part, Part]) -> Middles:
        old, new = (self._lists[digest] for digest, _ in pair)
        ends = shared_ends(old, new)
        return Middles(ends.first, old=await self._elements(cut(old, ends)), new=await self._elements(cut(new, ends)))

    async def _content(self, part: Part) -> Any:
        digest, kind = part[0], -part[1]
        if is_list(part):
            elements = await self._elements(self._lists[digest].spans)
            return self._services.codec.decode_joined([(1, element) for element in elements])
        stored = await self._services.backend.blobs([digest])
        [content] = check_blobs([self._blobs[digest]], stored)
        return split.blob_value(kind, content)

    async def _elements(self, spans: Sequence[Span]) -> list[bytes]:
        found = await self._services.backend.runs(spans) if spans else []
        return [element for span, stored in zip(spans, found, strict=True) for element in runs.elements(span, stored)]


def _with_stubs(services: Services, manifest: Manifest, skeleton: bytes) -> tuple[Any, Any] | None:
    """The state with stubs in the places of its lists and blobs; None where one of them is inside of an object of the
    user's, which may not take a stub for a list."""
    given: list[Typed] = []

    def resolve(kind: int, index: int) -> object:
        parts: Sequence[Any] = manifest.lists if kind == split.LIST else manifest.blobs
        if not 0 <= index < len(parts):
            raise CorruptError("a state refers to a part that its manifest does not have: run `verify`")
        given.append(list_stub(parts[index]) if kind == split.LIST else blob_stub(kind, parts[index].hash))
        return given[-1]

    try:
        state = services.codec.decode(skeleton, resolve)
    except HoldfastError:
        if manifest.lists or manifest.blobs:
            return None  # read as a whole, which tells what is wrong, if anything is
        raise
    return (state[0], state[1]) if _stubs_in(state) == len(given) else None


def _stubs_in(value: Any) -> int:
    if type(value) is dict:
        return sum(map(_stubs_in, value.values()))
    if type(value) is list:
        return sum(map(_stubs_in, value))
    return int(type(value) is Typed)


def _filled(differ: Differ, edit: Edit) -> Edit:
    """The edit with values in the places of stubs."""
    if isinstance(edit, Put):
        return edit._replace(value=differ.filled(edit.value), was=differ.filled(edit.was))
    if isinstance(edit, Drop):
        return edit._replace(was=differ.filled(edit.was))
    if isinstance(edit, Splice):
        return edit._replace(
            removed=tuple(map(differ.filled, edit.removed)), added=tuple(map(differ.filled, edit.added))
        )
    return edit
