"""Paged reads of a thread's checkpoints: listings, and the ancestors that delta channels need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory, PendingWrite

from holdfast.adapters.langgraph import pending_writes
from holdfast.adapters.langgraph.row_keys import IndexEntry, ThreadNamespace
from holdfast.adapters.langgraph.shared_decode import StateLoader

if TYPE_CHECKING:
    from holdfast.adapters.langgraph.thread_store import Threads

FIRST_PAGE, PAGE = 4, 32
DELTA_COUNTERS = "counters_since_delta_snapshot"


async def iterate_listed(
    threads: Threads, entries: AsyncIterator[IndexEntry], wanted: Mapping[str, Any] | None, limit: int | None
) -> AsyncIterator[CheckpointTuple]:
    """Yield the checkpoints of these entries whose metadata matches.

    Only the decoded data is held between two of them: each checkpoint is the caller's own, though
    shared parts are decoded once.
    """
    loader = StateLoader(threads.ctx)
    left = limit
    size = min(PAGE, FIRST_PAGE if left is None else left)
    while left is None or left > 0:
        page = [entry async for entry in _first(entries, size)]
        live = [
            (entry, stored, about)
            for entry, stored, about in await threads.load_live(page)
            if not wanted or all(_is_equal(about["metadata"].get(name), value) for name, value in wanted.items())
        ]
        manifests = [stored.manifest() for _, stored, _ in live[:left]]
        await loader.read(manifests)
        # Neighbours have neighbouring writes, too: one pass gets them. Those that were picked out
        # may be far apart.
        places = {entry.place for entry, _, _ in live}
        written = None
        if len(places) == 1 and not wanted:
            written = await pending_writes.pending_of(
                threads.ctx, places.pop(), [entry.id for entry, _, _ in live[:left]]
            )
        for (entry, _, about), manifest in zip(live, manifests, strict=False):
            pending = None if written is None else written.get(entry.id, [])
            yield await threads.as_tuple(entry, about, await loader.state(manifest), pending)
            left = None if left is None else left - 1
        if len(page) < size:
            return
        size = PAGE


async def delta_history(
    threads: Threads, place: ThreadNamespace, id_: str | None, channels: Sequence[str]
) -> dict[str, DeltaChannelHistory]:
    """Return each channel's writes of the checkpoint's ancestors, oldest first, with the `seed`.

    They reach back to the nearest ancestor that has a value of the channel; `seed` is that value.
    """
    collected: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
    seeds: dict[str, Any] = {}
    passed: list[tuple[IndexEntry, set[str]]] = []  # the checkpoint's ancestors, and the requested channels
    target = await threads.newest(place, id_) if channels else None
    if target is not None:
        async for entry, values in _ancestors(threads, place, target):
            asked = collected.keys() - seeds.keys()
            passed.append((entry, set(asked)))
            seeds.update((channel, values[channel]) for channel in asked if channel in values)
            if len(seeds) == len(collected):
                break
    found = await pending_writes.pending_of(threads.ctx, place, [entry.id for entry, _ in passed])
    for entry, asked in reversed(passed):
        for write in found.get(entry.id, ()):
            if write[1] in asked:
                collected[write[1]].append(write)
    return {
        channel: DeltaChannelHistory(writes=writes, seed=seeds[channel])
        if channel in seeds
        else DeltaChannelHistory(writes=writes)
        for channel, writes in collected.items()
    }


async def needed_for(threads: Threads, place: ThreadNamespace, kept: Sequence[str]) -> set[str]:
    """These checkpoints, and those of their ancestors that their delta channels are made from."""
    lacking: dict[str, set[str]] = {}  # by checkpoint the delta channels that it has no value of
    entries: dict[str, IndexEntry] = {}
    loader = StateLoader(threads.ctx)
    for start in range(0, len(kept), PAGE):
        found = [await threads.find(place, id_) for id_ in kept[start : start + PAGE]]
        live = [
            (entry, stored, set(counted))
            for entry, stored, about in await threads.load_live([entry for entry in found if entry is not None])
            if (counted := about["metadata"].get(DELTA_COUNTERS))
        ]
        manifests = [stored.manifest() for _, stored, _ in live]
        await loader.read(manifests)
        for (entry, _, channels), manifest in zip(live, manifests, strict=True):
            entries[entry.id] = entry
            lacking[entry.id] = channels - (await loader.state(manifest))["channel_values"].keys()
    needed = set(kept)
    for id_, channels in lacking.items():
        parent = entries[id_].parent
        if not channels or (parent in lacking and channels <= lacking[parent]):
            continue  # its parent's channels include its own
        missing = set(channels)
        async for ancestor, values in _ancestors(threads, place, entries[id_]):
            needed.add(ancestor.id)
            missing -= values.keys()
            if not missing:
                break
    return needed


async def _ancestors(
    threads: Threads, place: ThreadNamespace, entry: IndexEntry
) -> AsyncIterator[tuple[IndexEntry, dict[str, Any]]]:
    """Yield a checkpoint's ancestors, nearest first, with their channels' values, until one is missing.

    Ids rise from parent to child, so the entries before a checkpoint are its ancestors and those of
    other branches.
    """
    loader = StateLoader(threads.ctx)
    older = threads.scan_place(place, entry.id)
    known: dict[str, IndexEntry] = {}
    reached: str | None = entry.id  # the lowest id that was looked at; None: there are no others
    parent, size = entry.parent, FIRST_PAGE
    while parent is not None:
        ancestors: list[IndexEntry] = []
        while parent is not None and len(ancestors) < size:
            while parent not in known and reached is not None and reached > parent:
                page = [index_entry async for index_entry in _first(older, PAGE)]
                known.update((index_entry.id, index_entry) for index_entry in page)
                reached = page[-1].id if page else None
            found = known.pop(parent, None) or await threads.find(place, parent)
            if found is None:
                break
            ancestors.append(found)
            parent = found.parent
        live = await threads.load_live(ancestors)
        manifests = [stored.manifest() for _, stored, _ in live]
        await loader.read(manifests)
        for (index_entry, _, _), manifest in zip(live, manifests, strict=True):
            yield index_entry, (await loader.state(manifest))["channel_values"]
        if len(live) < len(ancestors) or len(ancestors) < size:
            return
        size = PAGE


def _is_equal(stored: Any, wanted: Any) -> bool:
    """Return whether metadata matches a filter. A tuple equals a list: LangGraph's savers keep no tuples."""
    if isinstance(stored, list | tuple) and isinstance(wanted, list | tuple):
        return len(stored) == len(wanted) and all(map(_is_equal, stored, wanted))
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        return stored.keys() == wanted.keys() and all(_is_equal(stored[key], wanted[key]) for key in stored)
    return bool(stored == wanted)


async def _first(entries: AsyncIterator[IndexEntry], count: int) -> AsyncIterator[IndexEntry]:
    for _ in range(count):
        try:
            yield await anext(entries)
        except StopAsyncIteration:
            return
