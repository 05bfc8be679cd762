"""Compression of contents in batches of a few MiB, by a thread in parallel with the reader.

A batch is compressed in one call, which releases the GIL once: file by file, two threads would
spend more time on handing it over than they gain. The reader compresses itself if the thread has
fallen behind, so that no more than a few batches are ever in memory.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.format import frame
from holdfast.operations.staging import STAGED_BYTES

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

Contents = dict[bytes, bytes]  # by their hashes
Blobs = dict[bytes, tuple[bytes, int]]  # framed, and the uncompressed size

BATCH_BYTES = 2 * 1024 * 1024  # a batch: so many bytes, or so many contents
BATCH_CONTENTS = 512
AHEAD = 2  # batches that wait for the thread, or are with it
MAX_BLOBS = 4000  # given away at once
PROBE_BYTES = 4096
PROBED_BYTES = 64 * 1024  # below it, finding out costs about what it saves
WORTH_IT = 0.95  # a beginning that does not become smaller than this is not compressed: images, archives, keys


def usable_processors() -> int:
    """Return how many processors this process may use: of a machine's, perhaps few."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_batch(size: int, count: int) -> bool:
    """Return whether contents of this size and count are enough for a batch to compress."""
    return size >= BATCH_BYTES or count >= BATCH_CONTENTS


def compress_batches(batches: Iterator[Contents], few: Contents) -> Iterator[Blobs]:
    """Yield the same contents, framed, in portions of about the size of a commit.

    A thread is started only for more than one batch, and if there is a processor for it. A single
    batch is put into `few` unframed: it may be stored as deltas.
    """
    first = list(itertools.islice(batches, 2))
    if len(first) < 2:
        few.update(*first)
        return
    gathered: Blobs = {}
    size = 0
    for blobs in _compress(itertools.chain(first, batches)):
        for hash_, blob in blobs.items():
            gathered[hash_] = blob
            size += len(blob[0])
            if size >= STAGED_BYTES or len(gathered) >= MAX_BLOBS:
                yield gathered
                gathered, size = {}, 0
    if gathered:
        yield gathered


def _compress(batches: Iterator[Contents]) -> Iterator[Blobs]:
    threads: ThreadPoolExecutor | None = None
    under_way: deque[Future[Blobs]] = deque()
    may_help = usable_processors() > 1
    try:
        for batch in batches:
            while under_way and under_way[0].done():
                yield under_way.popleft().result()
            if not may_help or len(under_way) >= AHEAD or not is_batch(sum(map(len, batch.values())), len(batch)):
                yield frame_all(batch)
                continue
            if threads is None:
                from concurrent.futures import ThreadPoolExecutor

                threads = ThreadPoolExecutor(1, "holdfast-compressing")
            under_way.append(threads.submit(frame_all, batch))
        while under_way:
            yield under_way.popleft().result()
    finally:
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)  # a reader that gives up does not wait


def frame_all(contents: Contents) -> Blobs:
    """Return contents as they are stored: compressed, unless that gains nothing."""
    deflate = frame.deflater()
    raw = {
        hash_
        for hash_, data in contents.items()
        if len(data) > PROBED_BYTES and len(deflate.compress(data[:PROBE_BYTES])) > WORTH_IT * PROBE_BYTES
    }
    smaller = {hash_: data for hash_, data in contents.items() if hash_ not in raw} if raw else contents
    frames = frame.compress_all(list(smaller.values()), deflate)
    blobs = {hash_: (packed, len(data)) for (hash_, data), packed in zip(smaller.items(), frames, strict=True)}
    for hash_ in raw:
        blobs[hash_] = (frame.frame_raw(contents[hash_]), len(contents[hash_]))
    return blobs
