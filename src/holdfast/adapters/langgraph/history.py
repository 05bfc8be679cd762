"""Reading many of a thread's checkpoints: listings, and what delta channels are made from. Page by page, never one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory, PendingWrite

from holdfast.adapters.langgraph import writes
from holdfast.adapters.langgraph.keys import Entry, Place
from holdfast.adapters.langgraph.loading import Loader

if TYPE_CHECKING:
    from holdfast.adapters.langgraph.threads import Threads

FIRST_PAGE, PAGE = 4, 32
DELTA_COUNTERS = "counters_since_delta_snapshot"


async def listed(
    threads: Threads, entries: AsyncIterator[Entry], wanted: Mapping[str, Any] | None, limit: int | None
) -> AsyncIterator[CheckpointTuple]:
    """The checkpoints of these entries whose metadata is as wanted. Nothing is held between two of them but what was read:
    each is the caller's own, though what they share was decoded once."""
    loader = Loader(threads.services)
    left = limit
    size = min(PAGE, FIRST_PAGE if left is None else left)
    while left is None or left > 0:
        page = [entry async for entry in _first(entries, size)]
        live = [
            (entry, stored, about)
            for entry, stored, about in await threads.live(page)
            if not wanted or all(about["metadata"].get(name) == value for name, value in wanted.items())
        ]
        manifests = [stored.manifest() for _, stored, _ in live[:left]]
        await loader.read(manifests)
        # Neighbours have neighbouring writes, too: one pass gets them. Those that were picked out may be far apart.
        places = {entry.place for entry, _, _ in live}
        written = None
        if len(places) == 1 and not wanted:
            written = await writes.pending_of(threads.services, places.pop(), [entry.id for entry, _, _ in live[:left]])
        for (entry, _, about), manifest in zip(live, manifests, strict=False):
            pending = None if written is None else written.get(entry.id, [])
            yield await threads.as_tuple(entry, about, loader.state(manifest), pending)
            left = None if left is None else left - 1
        if len(page) < size:
            return
        size = PAGE


async def delta_history(
    threads: Threads, place: Place, id_: str | None, channels: Sequence[str]
) -> dict[str, DeltaChannelHistory]:
    """For each channel the writes of the checkpoint's ancestors, oldest first, back to the nearest one that has a value of the
    channel, and that value as `seed`."""
    collected: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
    seeds: dict[str, Any] = {}
    passed: list[
        tuple[Entry, set[str]]
    ] = []  # what the checkpoint descends from, and the channels that it is asked for
    target = await threads.newest(place, id_) if channels else None
    if target is not None:
        async for entry, values in _ancestors(threads, place, target):
            asked = collected.keys() - seeds.keys()
            passed.append((entry, set(asked)))
            seeds.update((channel, values[channel]) for channel in asked if channel in values)
            if len(seeds) == len(collected):
                break
    found = await writes.pending_of(threads.services, place, [entry.id for entry, _ in passed])
    for entry, asked in reversed(passed):
        for write in found.get(entry.id, ()):
            if write[1] in asked:
                collected[write[1]].append(write)
    return {
        channel: DeltaChannelHistory(writes=its, seed=seeds[channel])
        if channel in seeds
        else DeltaChannelHistory(writes=its)
        for channel, its in collected.items()
    }


async def needed_for(threads: Threads, place: Place, kept: Sequence[str]) -> set[str]:
    """These checkpoints, and those of their ancestors that their delta channels are made from."""
    lacking: dict[str, set[str]] = {}  # by checkpoint the delta channels that it has no value of
    entries: dict[str, Entry] = {}
    loader = Loader(threads.services)
    for start in range(0, len(kept), PAGE):
        found = [await threads.find(place, id_) for id_ in kept[start : start + PAGE]]
        live = [
            (entry, stored, set(counted))
            for entry, stored, about in await threads.live([entry for entry in found if entry is not None])
            if (counted := about["metadata"].get(DELTA_COUNTERS))
        ]
        manifests = [stored.manifest() for _, stored, _ in live]
        await loader.read(manifests)
        for (entry, _, channels), manifest in zip(live, manifests, strict=True):
            entries[entry.id] = entry
            lacking[entry.id] = channels - loader.state(manifest)["channel_values"].keys()
    needed = set(kept)
    for id_, channels in lacking.items():
        parent = entries[id_].parent
        if not channels or (parent in lacking and channels <= lacking[parent]):
            continue  # what its parent needs is enough for it
        missing = set(channels)
        async for ancestor, values in _ancestors(threads, place, entries[id_]):
            needed.add(ancestor.id)
            missing -= values.keys()
            if not missing:
                break
    return needed


async def _ancestors(threads: Threads, place: Place, entry: Entry) -> AsyncIterator[tuple[Entry, dict[str, Any]]]:
    """The checkpoints that one descends from, nearest first, with their channels' values; up to where one is gone.

    Ids rise from parent to child, so the entries before it are its ancestors, and those of other branches.
    """
    loader = Loader(threads.services)
    older = threads.of_place(place, entry.id)
    known: dict[str, Entry] = {}
    reached: str | None = entry.id  # the lowest id that was looked at; None: there are no others
    parent, size = entry.parent, FIRST_PAGE
    while parent is not None:
        line: list[Entry] = []
        while parent is not None and len(line) < size:
            while parent not in known and reached is not None and reached > parent:
                page = [one async for one in _first(older, PAGE)]
                known.update((one.id, one) for one in page)
                reached = page[-1].id if page else None
            found = known.pop(parent, None) or await threads.find(place, parent)
            if found is None:
                break
            line.append(found)
            parent = found.parent
        live = await threads.live(line)
        manifests = [stored.manifest() for _, stored, _ in live]
        await loader.read(manifests)
        for (one, _, _), manifest in zip(live, manifests, strict=True):
            yield one, loader.state(manifest)["channel_values"]
        if len(live) < len(line) or len(line) < size:
            return
        size = PAGE


async def _first(entries: AsyncIterator[Entry], count: int) -> AsyncIterator[Entry]:
    for _ in range(count):
        try:
            yield await anext(entries)
        except StopAsyncIteration:
            return
