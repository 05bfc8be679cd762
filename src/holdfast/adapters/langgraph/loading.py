"""Loading the states of one checkpoint or of many: what they share is read and decoded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.adapters.langgraph.copies import Copies
from holdfast.backends.port import Run, Span
from holdfast.codec.decoding import collector_paused
from holdfast.objects import assemble
from holdfast.objects.groups import witnesses_from
from holdfast.objects.manifest import ListEntry, Manifest
from holdfast.objects.shelf import Shelf
from holdfast.objects.split import KnownList
from holdfast.operations.memory import Line
from holdfast.operations.services import Services


class Loader:
    """For one listing. First `read` a page of manifests, then take their states one by one: they are large."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._shelf = Shelf(services.codec, Copies)
        self._skeletons: dict[Span, Sequence[Run]] = {}
        self._blobs: dict[bytes, bytes | None] = {}

    async def read(self, manifests: Sequence[Manifest]) -> None:
        backend = self._services.backend
        entries = [entry for manifest in manifests for entry in manifest.lists]
        skeletons = [manifest.skeleton.span for manifest in manifests if manifest.skeleton.span is not None]
        elements = self._shelf.missing(entries)
        spans = [*skeletons, *elements]
        found = await backend.runs(spans) if spans else []
        self._skeletons = dict(zip(skeletons, found, strict=False))
        self._shelf.add(dict(zip(elements, found[len(skeletons) :], strict=True)))
        self._shelf.verify(entries)
        hashes = list({blob.hash for manifest in manifests for blob in manifest.blobs})
        self._blobs = dict(zip(hashes, await backend.blobs(hashes), strict=True)) if hashes else {}

    def state(self, manifest: Manifest) -> Any:
        span = manifest.skeleton.span
        content = assemble.skeleton_of(manifest, self._skeletons[span] if span is not None else ())
        lists = [self._shelf.take(entry) for entry in manifest.lists]
        blobs = [self._blobs[blob.hash] for blob in manifest.blobs]
        return assemble.put_together(self._services.codec, manifest, content, lists, blobs, verify=True)[0]


async def load_state(services: Services, session: bytes, manifest: Manifest) -> Any:
    """The state of one checkpoint. Lists that this process has put last, and whose objects are unchanged since, are copied from
    these; and the copies are watched, so that the next put, which hands them over, need not encode them."""
    line = services.memory.get(session)
    with collector_paused():
        lists = [_remembered(services, line, entry) for entry in manifest.lists]
    spans = [] if manifest.skeleton.span is None else [manifest.skeleton.span]
    for entry, known in zip(manifest.lists, lists, strict=True):
        if known is None:
            spans += entry.spans
    found = dict(zip(spans, await services.backend.runs(spans), strict=True)) if spans else {}
    blobs = await services.backend.blobs([blob.hash for blob in manifest.blobs]) if manifest.blobs else []
    skeleton = manifest.skeleton.span
    content = assemble.skeleton_of(manifest, found[skeleton] if skeleton is not None else ())
    taken = [
        assemble.list_of(services.codec, entry, [found[span] for span in entry.spans]) if known is None else known
        for entry, known in zip(manifest.lists, lists, strict=True)
    ]
    return assemble.put_together(services.codec, manifest, content, taken, blobs, verify=True)[0]


def _remembered(services: Services, line: Line | None, entry: ListEntry) -> list[Any] | None:
    known = line.lists.get(entry.path) if line is not None else None
    if line is None or known is None or known.groups is None or not known.groups.witnesses:
        return None
    groups = known.groups
    if (known.entry.length, known.entry.size, known.entry.digest) != (entry.length, entry.size, entry.digest):
        return None
    copies: list[Any] = []
    for witness in groups.witnesses:
        if witness is None:
            return None
        try:
            copies += Copies(witness.elements).take(0, len(witness.elements))
        except KeyError:
            return None
        if not witness.is_unchanged():  # asked afterwards: nothing can have changed while it was copied
            return None
    watched = groups._replace(witnesses=witnesses_from(copies, 0, services.codec))
    line.lists[entry.path] = KnownList(known.entry, watched, known.chain, known.was_appended_to)
    return copies
