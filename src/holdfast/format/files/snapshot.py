"""The other objects of a snapshot: the snapshot itself, and the list of chunks of a large file.

Each is a blob, found by the SHA-256 of its bytes. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import ormsgpack

from holdfast.codec.structure_check import check_structure
from holdfast.errors import CorruptError, NewerVersionError
from holdfast.model.ids import reference_to
from holdfast.model.snapshot import (
    DEFAULT_OPTIONS,
    WHOLE_BYTES,
    ExcludedPath,
    RuleFile,
    SkippedPath,
    Snapshot,
    SnapshotOptions,
    SnapshotSkipped,
)

VERSION = 1
_SMALL_LIST = 64 * 1024
HOLE = b""  # instead of a chunk's hash: only zeros


class Chunk(NamedTuple):
    size: int
    hash: bytes  # `HOLE` for zeros, which are not stored; a hole may have any size


def pack(snapshot: Snapshot) -> bytes:
    """Return the snapshot's object.

    It records no time and no place: equal directories have equal snapshots.
    """
    fields: dict[str, Any] = {"v": VERSION}
    if snapshot.tree is not None:
        counts = [snapshot.files, snapshot.directories, snapshot.symlinks, snapshot.size]
        fields |= {"tree": snapshot.tree, "counts": counts}
    if snapshot.skipped:
        fields["skipped"] = [[skipped_path.path, skipped_path.reason] for skipped_path in snapshot.skipped]
    if snapshot.excluded_count:
        fields["excluded"] = [snapshot.excluded_count, [[path.path, path.rule] for path in snapshot.excluded]]
    if snapshot.notes:
        fields["notes"] = list(snapshot.notes)
    if snapshot.not_taken is not None:
        fields["not_taken"] = snapshot.not_taken.reason
    if snapshot.options != DEFAULT_OPTIONS:
        fields["options"] = list(snapshot.options)
    if snapshot.deciding:
        fields["rules"] = [[rule_file.path, rule_file.content] for rule_file in snapshot.deciding]
    return ormsgpack.packb(fields)


def unpack(data: bytes) -> Snapshot:
    try:
        fields = ormsgpack.unpackb(data)
        if fields["v"] > VERSION:
            raise NewerVersionError("a snapshot was taken by a newer holdfast. Upgrade to read it")
        counts = fields.get("counts", (0, 0, 0, 0))
        if any(type(count) is not int or count < 0 for count in counts):
            raise ValueError("its counts are none")
        files, directories, symlinks, size = counts
        excluded_count, excluded = fields.get("excluded", (0, ()))
        tree = fields.get("tree")
        if tree is not None and (type(tree) is not bytes or len(tree) != 32):
            raise ValueError("its tree is no hash")
        not_taken = fields.get("not_taken")
        return Snapshot(
            reference=reference_to(hashlib.sha256(data).digest()),
            tree=tree,
            files=files,
            directories=directories,
            symlinks=symlinks,
            size=size,
            skipped=tuple(SkippedPath(path, reason) for path, reason in fields.get("skipped", ())),
            excluded=tuple(ExcludedPath(path, rule) for path, rule in excluded),
            excluded_count=excluded_count,
            notes=tuple(fields.get("notes", ())),
            not_taken=SnapshotSkipped(not_taken) if not_taken is not None else None,
            options=SnapshotOptions(*fields.get("options", DEFAULT_OPTIONS)),
            deciding=tuple(RuleFile(path, content) for path, content in fields.get("rules", ())),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptError(f"a snapshot can't be read ({error}): the store is damaged. Run `verify`") from error


def pack_chunks(chunks: Iterable[Chunk]) -> bytes:
    """Return the list of chunks: sizes and hashes. Adjacent holes are merged."""
    return ormsgpack.packb([[chunk.size, chunk.hash] for chunk in _join_chunks(chunks)])


def unpack_chunks(data: bytes) -> list[Chunk]:
    try:
        if len(data) > _SMALL_LIST:
            check_structure(data, 3, len(data) // 6)  # a chunk has three values in 36 bytes, a hole between two in 4
        chunks = [Chunk(size, hash_) for size, hash_ in ormsgpack.unpackb(data)]
        if not all(type(size) is int and size > 0 and type(hash_) is bytes for size, hash_ in chunks):
            raise ValueError("a chunk is none")
        if not all(len(hash_) in (0, 32) for _, hash_ in chunks):
            raise ValueError("a hash is none")
        if not all(size <= WHOLE_BYTES or hash_ == HOLE for size, hash_ in chunks):
            raise ValueError("a chunk is too long")
    except (ValueError, TypeError) as error:
        raise CorruptError(f"a list of chunks can't be read ({error}): run `verify`") from error
    return chunks


def _join_chunks(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    hole = 0
    for chunk in chunks:
        if chunk.hash == HOLE:
            hole += chunk.size
            continue
        if hole:
            yield Chunk(hole, HOLE)
            hole = 0
        yield chunk
    if hole:
        yield Chunk(hole, HOLE)
