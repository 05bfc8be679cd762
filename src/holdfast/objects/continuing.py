"""What a save comes to that goes on from its parent in one list: the manifest and the writes, without looking for more.

A run saves after every step. Its state is small mostly, and what is new is one element of one long list, the journal. For
that case the same is made here as by splitting and planning (`split.py`, `plan.py`), byte for byte, in a few steps; a
property test compares them. For anything else the answer is None: then those have to do it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import NamedTuple

import ormsgpack

from holdfast.backends.port import MAX_LOG_ELEMENTS, RunWrite, Span
from holdfast.codec.codec import Codec
from holdfast.codec.parts import Ref
from holdfast.objects import runs
from holdfast.objects.chain import BLOCK, NO_LINK, open_from
from holdfast.objects.manifest import ROOT, ListEntry, Manifest, Skeleton, Tail
from holdfast.objects.plan import INLINE_BYTES, sealed
from holdfast.objects.split import BLOB_LENGTH, LIST, LONG_BYTES, ROOTS, KnownList

FEW = 15  # entries of a dict whose number, and one more, still fit into the first byte of its encoding
_SMALL = min(LONG_BYTES, BLOB_LENGTH)
_packb = ormsgpack.packb
_NOTHING: Sequence[RunWrite] = ()
_new = tuple.__new__  # a named tuple made without its own `__new__`, which takes longer than all that is in it
_SIZES = struct.Struct(f"<{len(ROOT)}sQQQ32sQQ32s").pack  # what the root is a digest of, with one list and no blob


class Continued(NamedTuple):
    manifest: Manifest
    body: bytes  # the manifest, packed
    root: bytes  # its digest
    runs: list[RunWrite]
    known: KnownList  # of the list, for the save that follows


class Trail:
    """What was made for the last save of a run and is used again for the next one: the elements that are not sealed yet, and
    the skeleton. It only spares work: what is in it counts as long as the list is where that save left it."""

    __slots__ = ("content", "digest", "encoded", "packed_skeleton", "skeleton", "tail", "unsealed")

    def __init__(self) -> None:
        self.digest = b""  # of the list
        self.tail: Tail | None = None
        self.unsealed: list[bytes] | None = None  # those from `tail.unsealed_from` on, if they are known
        self.skeleton: Skeleton | None = None
        self.packed_skeleton = b""
        self.encoded: tuple[bytes, bytes, bytes] | None = None  # what the content of a skeleton is made from
        self.content: bytes | None = None  # and what that comes to


def part_with_list(codec: Codec, key: str, part: dict[str, object], name: str) -> bytes:
    """What the run's own part of a context is encoded as, under its key, with the only long list in it under `name`."""
    return codec.encode({key: {**part, name: Ref(LIST, 0)}}, ROOTS[1], parts=True)[1:]


def skeleton(trail: Trail, codec: Codec, state: object, context: dict[str, object], part: bytes) -> bytes | None:
    """The skeleton of a state with a context that ends with `part`; None unless it is sure to hold no other long list, and
    no blob: all of it takes fewer bytes than either would."""
    encoded_state = codec.encode(state, ROOTS[0])
    encoded_context = codec.encode(context, ROOTS[1])
    encoded = encoded_state, encoded_context, part
    if encoded != trail.encoded:
        trail.encoded, trail.content = encoded, _joined(encoded_state, encoded_context, len(context), part)
    return trail.content


def _joined(encoded_state: bytes, encoded_context: bytes, count: int, part: bytes) -> bytes | None:
    if len(encoded_state) + len(encoded_context) + len(part) >= _SMALL:
        return None
    if count >= FEW or encoded_context[0] != 0x80 | count:
        return None
    return b"\x92%b%c%b%b" % (encoded_state, 0x81 + count, encoded_context[1:], part)


def continued(
    trail: Trail, parent: Manifest, known: KnownList, content: bytes, fresh: Sequence[bytes], *, has_bytes: bool
) -> Continued | None:
    """`content` is the skeleton, `fresh` the elements that follow the list that is known; `has_bytes` says of these what
    `ListEntry` does."""
    path, length, size, digest, had_bytes, spans, tail, was_link, opened = known.entry
    if known.chain is None or not fresh:
        return None
    kept, further = parent.skeleton, _NOTHING
    if content != kept.inline:
        found = _skeleton_of(kept, content)
        if found is None:
            return None
        kept, further = found
    log, end, unsealed_from, unsealed_bytes = tail
    if trail.digest != digest or trail.tail != tail:
        trail.unsealed = [] if unsealed_from == end else None
    unsealed = trail.unsealed
    added = sum(map(len, fresh))
    after = end + len(fresh)
    if after > MAX_LOG_ELEMENTS // 2:
        return None
    if unsealed_bytes + added < runs.SEAL_BYTES:
        writes = [_new(RunWrite, (log, end, len(fresh), runs.pack(fresh, seal=False), end))]
        tail = _new(Tail, (log, after, unsealed_from, unsealed_bytes + added))
        if unsealed is not None:
            unsealed += fresh
    elif unsealed is not None:
        writes, tail = sealed(log, unsealed_from, end, [*unsealed, *fresh])
        trail.unsealed = [] if tail.unsealed_from == after else None
    else:
        return None
    writes += further
    chain = known.chain.followed_by(fresh)
    digest, link = chain.digest(), chain.link
    length += len(fresh)
    if link != was_link or not size % BLOCK:  # else the open block is still the same one, and begins where it did
        opened = open_from(opened, length, size + added, fresh) if link != NO_LINK else 0
    size += added
    has_bytes = had_bytes or has_bytes
    last_log, first, last_end = spans[-1]
    if last_log == log and last_end == end:
        spans = (*spans[:-1], _new(Span, (log, first, after)))
    else:
        spans = (*spans, _new(Span, (log, end, after)))
    entry = _new(ListEntry, (path, length, size, digest, has_bytes, spans, tail, link, opened))
    trail.digest, trail.tail = digest, tail
    if kept is not trail.skeleton:
        of_skeleton = [kept.size, kept.digest, kept.inline, kept.span and [*kept.span], kept.tail and [*kept.tail]]
        trail.skeleton, trail.packed_skeleton = kept, _packb(of_skeleton)
    places = [*spans[0]] if len(spans) == 1 else [number for span in spans for number in span]
    if link == NO_LINK:
        packed = _packb([path, length, size, digest, has_bytes, places, [*tail]])
    else:
        packed = _packb([path, length, size, digest, has_bytes, places, [*tail], link, opened])
    body = b"\x93%b\x91%b\x90" % (trail.packed_skeleton, packed)  # three parts: the skeleton, one list, no blob
    root = hashlib.sha256(_SIZES(ROOT, kept.size, 1, 0, kept.digest, length, size, digest)).digest()
    manifest = _new(Manifest, (kept, (entry,), ()))
    return _new(Continued, (manifest, body, root, writes, KnownList(entry, None, chain, True)))


def _skeleton_of(old: Skeleton, content: bytes) -> tuple[Skeleton, Sequence[RunWrite]] | None:
    """The skeleton after one that had another content, or that is not inline; and what is written for it."""
    digest = hashlib.sha256(content).digest()
    if len(content) <= INLINE_BYTES:
        return Skeleton(len(content), digest, content, None, old.tail), ()
    if old.span is not None and old.digest == digest:
        return old, ()
    grown = _grown(old.tail, (content,), len(content)) if old.tail is not None else None
    if grown is None:
        return None
    tail, write = grown
    return Skeleton(len(content), digest, None, Span(tail.log, write.first, tail.end), tail), (write,)


def _grown(tail: Tail, elements: Sequence[bytes], size: int) -> tuple[Tail, RunWrite] | None:
    """The elements at the end of a log, unless that is due for sealing, or full."""
    log, end, unsealed_from, unsealed_bytes = tail
    after = end + len(elements)
    if unsealed_bytes + size >= runs.SEAL_BYTES or after > MAX_LOG_ELEMENTS // 2:
        return None
    write = _new(RunWrite, (log, end, len(elements), runs.pack(elements, seal=False), end))
    return _new(Tail, (log, after, unsealed_from, unsealed_bytes + size)), write
