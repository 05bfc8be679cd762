"""What a save comes to that goes on from its parent in one list: the manifest and the writes, without looking for more.

A run saves after every step. Its state is small mostly, and what is new is one element of one long list, the journal. For
that case the same is made here as by splitting and planning (`split.py`, `plan.py`), byte for byte, in a few steps; a
property test compares them. For anything else the answer is None: then those have to do it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.backends.port import MAX_LOG_ELEMENTS, RunWrite, Span
from holdfast.codec.codec import Codec
from holdfast.codec.parts import Ref
from holdfast.objects import runs
from holdfast.objects.chain import NO_LINK, open_from
from holdfast.objects.manifest import ListEntry, Manifest, Skeleton, Tail
from holdfast.objects.plan import INLINE_BYTES
from holdfast.objects.split import BLOB_LENGTH, LIST, LONG_BYTES, ROOTS, KnownList

FEW = 15  # entries of a dict whose number, and one more, still fit into the first byte of its encoding
_SMALL = min(LONG_BYTES, BLOB_LENGTH)


class Continued(NamedTuple):
    manifest: Manifest
    runs: list[RunWrite]
    known: KnownList  # of the list, for the save that follows


def part_with_list(codec: Codec, key: str, part: dict[str, object], name: str) -> bytes:
    """What the run's own part of a context is encoded as, under its key, with the only long list in it under `name`."""
    return codec.encode({key: {**part, name: Ref(LIST, 0)}}, ROOTS[1], parts=True)[1:]


def skeleton(codec: Codec, state: object, context: dict[str, object], part: bytes) -> bytes | None:
    """The skeleton of a state with a context that ends with `part`; None unless it is sure to hold no other long list, and
    no blob: all of it takes fewer bytes than either would."""
    encoded_state = codec.encode(state, ROOTS[0])
    encoded_context = codec.encode(context, ROOTS[1])
    count = len(context)
    if len(encoded_state) + len(encoded_context) + len(part) >= _SMALL:
        return None
    if count >= FEW or encoded_context[0] != 0x80 | count:
        return None
    return b"\x92%b%c%b%b" % (encoded_state, 0x81 + count, encoded_context[1:], part)


def continued(
    parent: Manifest, known: KnownList, content: bytes, fresh: Sequence[bytes], *, has_bytes: bool
) -> Continued | None:
    """`content` is the skeleton, `fresh` the elements that follow the list that is known; `has_bytes` says of these what
    `ListEntry` does."""
    before = known.entry
    if known.chain is None or not fresh:
        return None
    size = sum(map(len, fresh))
    grown = _grown(before.tail, fresh, size)
    if grown is None:
        return None
    tail, write = grown
    writes = [write]
    digest = hashlib.sha256(content).digest()
    old = parent.skeleton
    if len(content) <= INLINE_BYTES:
        kept = Skeleton(len(content), digest, content, None, old.tail)
    elif old.span is not None and old.digest == digest:
        kept = old
    else:
        grown = _grown(old.tail, (content,), len(content)) if old.tail is not None else None
        if grown is None:
            return None
        skeleton_tail, skeleton_write = grown
        writes.append(skeleton_write)
        span = Span(skeleton_tail.log, skeleton_write.first, skeleton_tail.end)
        kept = Skeleton(len(content), digest, None, span, skeleton_tail)
    chain = known.chain.copy()
    for element in fresh:
        chain.update(element)
    length, all_size = before.length + len(fresh), before.size + size
    entry = ListEntry(
        before.path,
        length,
        all_size,
        chain.digest(),
        before.has_bytes or has_bytes,
        _followed(before.spans, Span(tail.log, write.first, tail.end)),
        tail,
        chain.link,
        open_from(before.open_from, length, all_size, fresh) if chain.link != NO_LINK else 0,
    )
    return Continued(Manifest(kept, (entry,), ()), writes, KnownList(entry, None, chain))


def _grown(tail: Tail, elements: Sequence[bytes], size: int) -> tuple[Tail, RunWrite] | None:
    """The elements at the end of a log, unless that is due for sealing, or full."""
    log, end, unsealed_from, unsealed_bytes = tail
    after = end + len(elements)
    if unsealed_bytes + size >= runs.SEAL_BYTES or after > MAX_LOG_ELEMENTS // 2:
        return None
    write = RunWrite(log, end, len(elements), runs.pack(elements, seal=False), end)
    return Tail(log, after, unsealed_from, unsealed_bytes + size), write


def _followed(spans: tuple[Span, ...], span: Span) -> tuple[Span, ...]:
    last = spans[-1]
    if last.log == span.log and last.end == span.first:
        return (*spans[:-1], Span(last.log, last.first, span.end))
    return (*spans, span)
