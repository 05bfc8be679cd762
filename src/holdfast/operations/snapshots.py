"""Reading snapshots of directories: what is in one, the bytes of a file, what differs between two, what one refers to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.errors import CorruptError, UsageError
from holdfast.model.snapshot_reference import is_ours
from holdfast.model.workspace import Entry, FileChange, Home, Snapshot
from holdfast.objects import filetree, frame
from holdfast.objects import snapshot as objects
from holdfast.objects.checking import checked
from holdfast.objects.record import Stored
from holdfast.operations import deltas, reading
from holdfast.operations.services import Services

BLOBS_AT_ONCE = 64
ZEROS = bytes(256 * 1024)


class Piece(NamedTuple):
    """Some bytes of a file; a hole is `size` zeros that nobody has to write: `data` is None."""

    size: int
    data: bytes | None


def reference_of(stored: Stored) -> str | None:
    """The snapshot of ours that a checkpoint carries."""
    reference = stored.header.get("ws")
    return reference if is_ours(reference) else None


def home_of(stored: Stored) -> Home | None:
    """The directory that a checkpoint's snapshot was taken of, or that was made with it; None if it does not say."""
    said = stored.header.get("dir")
    return None if said is None else Home(*said)


async def load(services: Services, reference: str) -> Snapshot:
    """The snapshot that a checkpoint's `workspace` names."""
    if not is_ours(reference):
        raise UsageError(f"{reference!r:.80} is no snapshot of holdfast's: another service took it, and can restore it")
    [data] = await objects_of(services, [bytes.fromhex(reference.partition(":")[2])])
    return objects.unpack(data)


async def nearest(services: Services, stored: Stored) -> Snapshot | None:
    """The snapshot of a checkpoint, or of the nearest one before it that has one; None if none has. One that was asked for and
    not taken is an answer, too: the files of then are not known, and older ones are not what they were."""
    found: Stored | None = stored
    home: Home | None = None
    while found is not None:
        home = home or home_of(found)  # of a fork it is the new directory, though the files are those of the old one
        reference = reference_of(found)
        if reference is not None:
            return replace(await load(services, reference), home=home)
        found = await reading.nearest_live(services, found.parent, found.tree) if found.parent else None
    return None


async def objects_of(services: Services, hashes: Sequence[bytes]) -> list[bytes]:
    """The contents of these blobs, each checked against its hash."""
    contents: list[bytes] = []
    inflate = frame.inflater()
    for start in range(0, len(hashes), BLOBS_AT_ONCE):
        part = hashes[start : start + BLOBS_AT_ONCE]
        frames = await frames_of(services, part)
        contents += [checked(hash_, framed, inflate) for hash_, framed in zip(part, frames, strict=True)]
    return contents


async def frames_of(services: Services, hashes: Sequence[bytes]) -> list[bytes]:
    """These blobs, framed. Nothing about them is checked but that they are there, unless they are stored as differences."""
    stored = await services.backend.blobs(hashes)
    frames = [framed for framed in stored if framed is not None]
    if len(frames) == len(stored):
        return frames
    missing = list(dict.fromkeys(hash_ for hash_, framed in zip(hashes, stored, strict=True) if framed is None))
    made = await deltas.whole(services, missing)
    for hash_ in missing:
        if hash_ not in made:
            raise CorruptError(f"the blob {hash_.hex()[:16]}… of a snapshot is missing: run `verify`")
    return [frame.raw(made[hash_]) if framed is None else framed for hash_, framed in zip(hashes, stored, strict=True)]


def loader(services: Services) -> filetree.Load:
    """How the functions of `objects/filetree.py` get at the nodes of trees in the store."""

    async def load_nodes(hashes: Sequence[bytes]) -> list[bytes]:
        return await objects_of(services, hashes)

    return load_nodes


async def entries(services: Services, snapshot: Snapshot) -> AsyncIterator[Entry]:
    """All entries of a snapshot, in the order of their paths: a directory before what is in it."""
    async for entry in filetree.entries(tree_of(snapshot), loader(services)):
        yield entry


def tree_of(snapshot: Snapshot) -> bytes:
    """The tree of a snapshot. If it was not taken, the error says why."""
    if snapshot.tree is None:
        why = snapshot.not_taken.reason if snapshot.not_taken else "no snapshot was taken"
        raise UsageError(f"what the files were at that checkpoint is not known: {why}. Choose another one")
    return snapshot.tree


async def find(services: Services, snapshot: Snapshot, path: bytes) -> Entry | None:
    return await filetree.find(tree_of(snapshot), path, loader(services))


async def diff(services: Services, before: Snapshot, after: Snapshot) -> AsyncIterator[FileChange]:
    """What differs between two snapshots that were taken, in the order of paths."""
    async for change in filetree.diff(tree_of(before), tree_of(after), loader(services)):
        yield change


async def pieces(services: Services, entry: Entry) -> AsyncIterator[Piece]:
    """The bytes of a file as they were, in pieces of at most 1 MiB, but for holes."""
    assert entry.kind == "file"
    if entry.size == 0:
        return
    if not entry.is_chunked:
        [data] = await objects_of(services, [entry.content])
        yield Piece(_checked(entry, len(data)), data)
        return
    [listed] = await objects_of(services, [entry.content])
    chunks = objects.unpack_chunks(listed)
    _checked(entry, sum(chunk.size for chunk in chunks))
    for chunk in chunks:
        if chunk.hash == objects.HOLE:
            yield Piece(chunk.size, None)
            continue
        [data] = await objects_of(services, [chunk.hash])
        if len(data) != chunk.size:
            raise CorruptError(f"a chunk of {entry.text!r:.80} is damaged: it is not as long as its list says")
        yield Piece(chunk.size, data)


async def content(services: Services, entry: Entry) -> AsyncIterator[bytes]:
    """The bytes of a file; holes as the zeros that they read as."""
    async for piece in pieces(services, entry):
        if piece.data is not None:
            yield piece.data
            continue
        left = piece.size
        while left:
            size = min(left, len(ZEROS))
            yield ZEROS[:size]
            left -= size


def _checked(entry: Entry, size: int) -> int:
    if size != entry.size:
        raise CorruptError(f"the content of {entry.text!r:.80} has {size} bytes, not the {entry.size} that were saved")
    return size
