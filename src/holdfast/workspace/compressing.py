"""Compressing what is read, a few MiB at a time, by a thread beside the one that reads.

A batch is compressed in one call, which lets go of the interpreter's lock once: file by file, two threads would spend more
time on handing it over than they gain. Whoever reads takes a hand where the thread has fallen behind, so that no more than a
few batches are ever in memory.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.objects import frame
from holdfast.operations.staging import STAGED_BYTES
from holdfast.workspace.processors import usable_processors

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Contents = dict[bytes, bytes]  # by their hashes
Blobs = dict[bytes, tuple[bytes, int]]  # framed, and the size of what is in them

BATCH_BYTES = 2 * 1024 * 1024  # what is compressed at once: so many bytes, or so many contents
BATCH_CONTENTS = 512
AHEAD = 2  # batches that wait for the thread, or are with it
MAX_BLOBS = 4000  # given away at once
PROBE_BYTES = 4096
PROBED_BYTES = 64 * 1024  # below it, finding out costs about what it saves
WORTH_IT = 0.95  # a beginning that does not become smaller than this is not compressed: images, archives, keys


def is_batch(size: int, count: int) -> bool:
    """Whether contents of so many bytes, and so many of them, are to be compressed before there are more."""
    return size >= BATCH_BYTES or count >= BATCH_CONTENTS


def compressed(batches: Iterator[Contents], few: Contents) -> Iterator[Blobs]:
    """The same contents, framed, in portions of about what a commit carries. There is no thread unless there is more than a
    batch, and a processor for it. If there is one batch only it is put into `few`, as it is: it may be stored as differences."""
    begun = list(itertools.islice(batches, 2))
    if len(begun) < 2:
        few.update(*begun)
        return
    gathered: Blobs = {}
    size = 0
    for blobs in _pressed(itertools.chain(begun, batches)):
        for hash_, blob in blobs.items():
            gathered[hash_] = blob
            size += len(blob[0])
            if size >= STAGED_BYTES or len(gathered) >= MAX_BLOBS:
                yield gathered
                gathered, size = {}, 0
    if gathered:
        yield gathered


def _pressed(batches: Iterator[Contents]) -> Iterator[Blobs]:
    threads: ThreadPoolExecutor | None = None
    under_way: deque[Future[Blobs]] = deque()
    may_help = usable_processors() > 1
    try:
        for batch in batches:
            while under_way and under_way[0].done():
                yield under_way.popleft().result()
            if not may_help or len(under_way) >= AHEAD or not is_batch(sum(map(len, batch.values())), len(batch)):
                yield framed(batch)
                continue
            if threads is None:
                from concurrent.futures import ThreadPoolExecutor

                threads = ThreadPoolExecutor(1, "holdfast-compressing")
            under_way.append(threads.submit(framed, batch))
        while under_way:
            yield under_way.popleft().result()
    finally:
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)  # who gives up does not wait for what nobody needs


def framed(contents: Contents) -> Blobs:
    """All of them, as they are to be stored."""
    deflate = frame.deflater()
    raw = {
        hash_
        for hash_, data in contents.items()
        if len(data) > PROBED_BYTES and len(deflate.compress(data[:PROBE_BYTES])) > WORTH_IT * PROBE_BYTES
    }
    smaller = {hash_: data for hash_, data in contents.items() if hash_ not in raw} if raw else contents
    frames = frame.all_compressed(list(smaller.values()), deflate)
    blobs = {hash_: (packed, len(data)) for (hash_, data), packed in zip(smaller.items(), frames, strict=True)}
    for hash_ in raw:
        blobs[hash_] = (frame.raw(contents[hash_]), len(contents[hash_]))
    return blobs
