"""Reads of directory snapshots: entries, the bytes of a file, differences, and references."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.errors import CheckpointNotFoundError, CorruptError, UsageError
from holdfast.format import frame
from holdfast.format.files import file_tree
from holdfast.format.files import snapshot as objects
from holdfast.format.frame import unframe
from holdfast.format.state.record import StoredRecord
from holdfast.model.ids import is_ours
from holdfast.model.snapshot import FileChange, FileEntry, Home, Snapshot
from holdfast.operations import lookup, snapshot_deltas
from holdfast.operations.context import StoreContext

BLOBS_AT_ONCE = 64
ZEROS = bytes(256 * 1024)


class FilePiece(NamedTuple):
    """Some bytes of a file; for a hole of `size` zeros that need not be written, `data` is None."""

    size: int
    data: bytes | None


def reference_of(stored: StoredRecord) -> str | None:
    """Return the holdfast snapshot that a checkpoint carries."""
    reference = stored.header.get("ws")
    return reference if is_ours(reference) else None


def home_of(stored: StoredRecord) -> Home | None:
    """Return the directory of a checkpoint's snapshot, or the one made with it; None if not recorded."""
    fields = stored.header.get("dir")
    return None if fields is None else Home(*fields)


async def load(ctx: StoreContext, reference: str) -> Snapshot:
    """Return the snapshot that a checkpoint's `workspace` names."""
    if not is_ours(reference):
        raise UsageError(f"{reference!r:.80} is no snapshot of holdfast's: another service took it, and can restore it")
    [data] = await objects_of(ctx, [bytes.fromhex(reference.partition(":")[2])])
    return objects.unpack(data)


async def load_snapshot(ctx: StoreContext, id_: bytes) -> Snapshot | None:
    """Return the snapshot that a checkpoint was saved with; None if it has none of its own."""
    stored = await lookup.load_live_record(ctx, id_)
    reference = reference_of(stored)
    return None if reference is None else replace(await load(ctx, reference), home=home_of(stored))


async def read_file(ctx: StoreContext, id_: bytes, path: bytes, name: str) -> bytes:
    """Return the bytes of a file as of a checkpoint; errors name the checkpoint by `name`."""
    snapshot = await find_nearest(ctx, await lookup.load_live_record(ctx, id_))
    entry = None if snapshot is None else await find(ctx, snapshot, path)
    if entry is None or entry.kind != "file":
        where = "that snapshot" if snapshot is not None else f"{name!r:.60}, which has no snapshot of files"
        raise CheckpointNotFoundError(f"there is no file {os.fsdecode(path)!r:.120} in {where}")
    return b"".join([piece async for piece in content(ctx, entry)])


async def find_nearest(ctx: StoreContext, stored: StoredRecord) -> Snapshot | None:
    """Return the snapshot of a checkpoint or of its nearest ancestor with one; None if none has one.

    A snapshot that was requested and skipped is an answer, too: the files of that time are unknown,
    and older ones may differ.
    """
    found: StoredRecord | None = stored
    home: Home | None = None
    while found is not None:
        home = home or home_of(found)  # of a fork it is the new directory, though the files are those of the old one
        reference = reference_of(found)
        if reference is not None:
            return replace(await load(ctx, reference), home=home)
        found = await lookup.find_nearest_live(ctx, found.parent, found.tree) if found.parent else None
    return None


async def objects_of(ctx: StoreContext, hashes: Sequence[bytes]) -> list[bytes]:
    """Return the contents of these blobs, each checked against its hash."""
    contents: list[bytes] = []
    inflate = frame.inflater()
    for start in range(0, len(hashes), BLOBS_AT_ONCE):
        part = hashes[start : start + BLOBS_AT_ONCE]
        frames = await frames_of(ctx, part)
        contents += [unframe(hash_, framed, inflate) for hash_, framed in zip(part, frames, strict=True)]
    return contents


async def frames_of(ctx: StoreContext, hashes: Sequence[bytes]) -> list[bytes]:
    """Return these blobs, framed. Only their existence is checked, unless they are stored as deltas."""
    stored = await ctx.backend.blobs(hashes)
    frames = [framed for framed in stored if framed is not None]
    if len(frames) == len(stored):
        return frames
    missing = list(dict.fromkeys(hash_ for hash_, framed in zip(hashes, stored, strict=True) if framed is None))
    made = await snapshot_deltas.load_whole(ctx, missing)
    for hash_ in missing:
        if hash_ not in made:
            raise CorruptError(f"the blob {hash_.hex()[:16]}… of a snapshot is missing: run `verify`")
    return [
        frame.frame_raw(made[hash_]) if framed is None else framed for hash_, framed in zip(hashes, stored, strict=True)
    ]


def make_loader(ctx: StoreContext) -> file_tree.Load:
    """Return the loader of stored nodes for the functions of `format/files/file_tree.py`."""

    async def load_nodes(hashes: Sequence[bytes]) -> list[bytes]:
        return await objects_of(ctx, hashes)

    return load_nodes


async def entries(ctx: StoreContext, snapshot: Snapshot) -> AsyncIterator[FileEntry]:
    """Yield all entries of a snapshot, in the order of their paths: a directory before its contents."""
    async for entry in file_tree.entries(tree_of(snapshot), make_loader(ctx)):
        yield entry


def tree_of(snapshot: Snapshot) -> bytes:
    """Return the tree of a snapshot. If it was skipped, raise an error that says why."""
    if snapshot.tree is None:
        why = snapshot.not_taken.reason if snapshot.not_taken else "no snapshot was taken"
        raise UsageError(f"what the files were at that checkpoint is not known: {why}. Choose another one")
    return snapshot.tree


async def find(ctx: StoreContext, snapshot: Snapshot, path: bytes) -> FileEntry | None:
    return await file_tree.find(tree_of(snapshot), path, make_loader(ctx))


async def diff(ctx: StoreContext, before: Snapshot, after: Snapshot) -> AsyncIterator[FileChange]:
    """Yield the differences between two snapshots, in the order of paths."""
    async for change in file_tree.diff(tree_of(before), tree_of(after), make_loader(ctx)):
        yield change


async def pieces(ctx: StoreContext, entry: FileEntry) -> AsyncIterator[FilePiece]:
    """Yield the bytes of a file, in pieces of at most 1 MiB, except for holes."""
    assert entry.kind == "file"
    if entry.size == 0:
        return
    if not entry.is_chunked:
        [data] = await objects_of(ctx, [entry.content])
        yield FilePiece(_check_size(entry, len(data)), data)
        return
    [listed] = await objects_of(ctx, [entry.content])
    chunks = objects.unpack_chunks(listed)
    _check_size(entry, sum(chunk.size for chunk in chunks))
    for chunk in chunks:
        if chunk.hash == objects.HOLE:
            yield FilePiece(chunk.size, None)
            continue
        [data] = await objects_of(ctx, [chunk.hash])
        if len(data) != chunk.size:
            raise CorruptError(f"a chunk of {entry.text!r:.80} is damaged: it is not as long as its list says")
        yield FilePiece(chunk.size, data)


async def content(ctx: StoreContext, entry: FileEntry) -> AsyncIterator[bytes]:
    """Yield the bytes of a file; holes as zeros."""
    async for piece in pieces(ctx, entry):
        if piece.data is not None:
            yield piece.data
            continue
        left = piece.size
        while left:
            size = min(left, len(ZEROS))
            yield ZEROS[:size]
            left -= size


def _check_size(entry: FileEntry, size: int) -> int:
    if size != entry.size:
        raise CorruptError(f"the content of {entry.text!r:.80} has {size} bytes, not the {entry.size} that were saved")
    return size
