"""The manifest: where the parts of a checkpoint's state are stored.

A state is cut (see `split.py`) into *long lists*, kept as spans of logs; *blobs*, large strings
found by their hash; and the *skeleton*, everything else, with references to the lists and blobs. A
skeleton is itself an element of a log (so that the nearly equal skeletons of successive checkpoints
are compressed together), or inline if it is small.

The parts about content (sizes and digests) are the same on every backend and in every history, and
the root digest covers them. The parts about positions (logs, spans) are not.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import ormsgpack

from holdfast.backends.port import Span
from holdfast.errors import CorruptError
from holdfast.format.state.list_digest import NO_LINK

Path = tuple[str | int, ...]
MAX_SPANS = 64
ROOT = b"holdfast root 1\0"
_THREE = struct.Struct("<QQQ").pack


class Tail(NamedTuple):
    """The end of a log as the checkpoint left it: the next element's number, and the unsealed elements."""

    log: int
    end: int
    unsealed_from: int
    unsealed_bytes: int


class ListEntry(NamedTuple):
    path: Path
    length: int
    size: int  # of all elements' encodings
    digest: bytes  # of the elements' encodings, one after the other: see list_digest.py
    has_bytes: bool  # whether an element holds `bytes`, which takes a closer check to tell from a `bytearray`
    spans: tuple[Span, ...]
    tail: Tail  # of the log that takes this list's next elements
    link: bytes = NO_LINK  # of the digest's chain, to continue from
    open_from: int = 0  # the first element that has bytes after that link


class BlobEntry(NamedTuple):
    hash: bytes
    size: int


class Skeleton(NamedTuple):
    size: int
    digest: bytes
    inline: bytes | None
    span: Span | None  # of one element, where it is not inline
    tail: Tail | None


class Manifest(NamedTuple):
    skeleton: Skeleton
    lists: tuple[ListEntry, ...]
    blobs: tuple[BlobEntry, ...]

    def root(self) -> bytes:
        """One digest over all content, and over nothing else."""
        skeleton, lists, blobs = self
        first = ROOT + _THREE(skeleton.size, len(lists), len(blobs)) + skeleton.digest
        if not lists and not blobs:
            return hashlib.sha256(first).digest()
        parts = [first]
        for entry in lists:
            parts += (struct.pack("<QQ", entry.length, entry.size), entry.digest)
        for blob in blobs:
            parts.append(blob.hash)
        return hashlib.sha256(b"".join(parts)).digest()

    def logical_size(self) -> int:
        """Return the size of the whole state's encoding, as if nothing were shared."""
        return self.skeleton.size + sum(e.size for e in self.lists) + sum(blob.size for blob in self.blobs)

    def spans(self) -> list[Span]:
        """Return every span that it refers to, the skeleton's first."""
        spans = [] if self.skeleton.span is None else [self.skeleton.span]
        for entry in self.lists:
            spans += entry.spans
        return spans

    def list_at(self, path: Path) -> ListEntry | None:
        return next((entry for entry in self.lists if entry.path == path), None)

    def pack(self) -> bytes:
        (size, digest, inline, span, tail), lists, blobs = self
        skeleton = (size, digest, inline, None if span is None else tuple(span), None if tail is None else tuple(tail))
        if not lists and not blobs:
            return ormsgpack.packb((skeleton, (), ()))
        return ormsgpack.packb(
            [
                skeleton,
                [
                    [list(e.path), e.length, e.size, e.digest, e.has_bytes, _numbers(e.spans), list(e.tail)]
                    + ([] if e.link == NO_LINK else [e.link, e.open_from])
                    for e in lists
                ],
                [list(blob) for blob in blobs],
            ]
        )


def unpack(data: bytes) -> Manifest:
    try:
        skeleton, lists, blobs = ormsgpack.unpackb(data)
        size, digest, inline, span, tail = skeleton
        manifest = Manifest(
            Skeleton(size, digest, inline, Span(*span) if span else None, Tail(*tail) if tail else None),
            tuple(
                ListEntry(tuple(path), length, size, digest, has_bytes, _spans(spans), Tail(*tail), *chained)
                for path, length, size, digest, has_bytes, spans, tail, *chained in lists
            ),
            tuple(BlobEntry(*blob) for blob in blobs),
        )
        _check_types(manifest)
    except (ValueError, TypeError) as error:
        raise CorruptError(f"a manifest can't be read ({error}): the store is damaged. Run `verify`") from error
    return manifest


def references(data: bytes) -> tuple[list[Span], list[bytes]]:
    """Return only the spans and the blobs that a manifest refers to, for counting those of many.

    The caller must have checked that the bytes are intact, by the record's CRC.
    """
    try:
        (_, _, _, span, _), lists, blobs = ormsgpack.unpackb(data)
        spans = [Span(*span)] if span else []
        for entry in lists:
            numbers = entry[5]
            spans += [Span(*numbers[i : i + 3]) for i in range(0, len(numbers), 3)]
        return spans, [blob[0] for blob in blobs]
    except (ValueError, TypeError, LookupError) as error:
        raise CorruptError(f"a manifest can't be read ({error}): the store is damaged. Run `verify`") from error


def _check_types(manifest: Manifest) -> None:
    skeleton = manifest.skeleton
    if (type(skeleton.inline) is bytes) == (skeleton.span is not None):
        raise TypeError("its skeleton is in no place, or in two")
    tails = [entry.tail for entry in manifest.lists] + ([skeleton.tail] if skeleton.tail else [])
    numbers = [skeleton.size, *(number for place in (*manifest.spans(), *tails) for number in place)]
    digests = [skeleton.digest]
    for entry in manifest.lists:
        numbers += (entry.length, entry.size, entry.open_from)
        digests += (entry.digest, entry.link)
    for blob in manifest.blobs:
        numbers.append(blob.size)
        digests.append(blob.hash)
    if {*map(type, numbers)} != {int} or min(numbers) < 0:
        raise TypeError("a size or a place is no number")
    if {*map(type, digests)} != {bytes} or {*map(len, digests)} != {32}:
        raise TypeError("a digest is none")


def _numbers(spans: Sequence[Span]) -> list[int]:
    return [number for span in spans for number in span]


def _spans(numbers: list[Any]) -> tuple[Span, ...]:
    return tuple(Span(*numbers[i : i + 3]) for i in range(0, len(numbers), 3))
