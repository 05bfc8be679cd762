"""The contract: threads, handles, reopening, closing."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial

from holdfast.backends.port import ABSENT, BlockingBackend, Commit, CommitConflict, RowKey, SegmentWrite, Span
from holdfast.errors import StoreError
from holdfast.testing.contract_commits import make_full_commit
from holdfast.testing.harness import (
    TREE,
    Harness,
    append,
    check,
    check_equal,
    check_raises,
    hash_bytes,
    head,
    record,
    record_id,
    skip,
)

HEAD = RowKey("head", b"run-001", TREE)
COUNTER = RowKey("head", b"counter", TREE)
THREADS = 6
PER_THREAD = 8
STEPS = 40
DEADLOCK_SECONDS = 240  # far above the time of a loaded machine, and below the test run's own limit


def run_in_threads(*tasks: Callable[[], None]) -> None:
    """Run tasks at the same time and raise the first error as soon as it occurs.

    A task that waits for another must end when that one has failed: `in_threads` can't end it.
    """
    outcomes: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            outcomes.put(error)
        else:
            outcomes.put(None)

    threads = [threading.Thread(target=guarded, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + DEADLOCK_SECONDS
    for _ in threads:
        try:
            error = outcomes.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError("after four minutes a thread still waits: is there a deadlock?") from None
        if error is not None:
            for thread in threads:  # so that the store is not closed under threads that are about to end
                thread.join(2)
            raise error


class SharingContract(Harness):
    def increment(self, backend: BlockingBackend) -> None:
        """Add one to the counter by compare-and-set, as often as it takes."""
        while True:
            (row,) = backend.rows([COUNTER])
            value, version = (int(row.value), row.version) if row else (0, ABSENT)
            (outcome,) = backend.commit_all([Commit(TREE, rows=[head(b"%d" % (value + 1), version, key=COUNTER.key)])])
            if outcome is None:
                return
            if not isinstance(outcome, CommitConflict):
                raise outcome

    def race(self, *backends: BlockingBackend) -> None:
        def add(backend: BlockingBackend) -> None:
            for _ in range(PER_THREAD):
                self.increment(backend)

        run_in_threads(*(partial(add, backends[number % len(backends)]) for number in range(THREADS)))
        total = THREADS * PER_THREAD
        check_equal(
            self.backend.rows([COUNTER]), [(b"%d" % total, total)], "no update is lost when many threads race for a row"
        )

    def test_threads_racing_for_a_row(self) -> None:
        self.race(self.backend)

    def test_handles_racing_for_a_row(self) -> None:
        self.race(self.backend, self.second_handle())

    def test_threads_racing_for_a_sequence_number(self) -> None:
        won: list[int] = []

        def save(number: int) -> None:
            (outcome,) = self.backend.commit_all([Commit(TREE, record(number)._replace(sequence=1))])
            if outcome is None:
                won.append(number)

        run_in_threads(*(partial(save, number) for number in range(1, THREADS + 1)))
        check_equal(len(won), 1, "one writer gets the sequence number, the others a conflict")
        check_equal(
            [got.id for got in self.backend.session_records(b"run-001")], [record_id(won[0], TREE)], "and it is there"
        )

    def test_what_a_reader_sees_of_a_commit_it_sees_whole(self) -> None:
        self.watch(self.backend, self.backend)

    def test_what_another_handle_sees_of_a_commit_it_sees_whole(self) -> None:
        self.watch(self.backend, self.second_handle())

    def watch(self, writer: BlockingBackend, reader: BlockingBackend) -> None:
        """Run a writer and a reader: any visible part of a commit implies the rest of it."""
        done = threading.Event()
        seen: list[int] = []

        def write() -> None:
            try:
                for number in range(1, STEPS + 1):
                    blob = b"blob %d" % number
                    seal = number % 8 == 0
                    segment = SegmentWrite(1, 0, number, b"sealed", number - 1) if seal else append(1, number - 1, b"x")
                    self.commit(
                        Commit(
                            TREE,
                            record(number),
                            segments=[segment],
                            blobs={hash_bytes(blob): blob},
                            rows=[head(b"%d" % number, number - 1)],
                        ),
                        writer,
                    )
            finally:
                done.set()

        def read() -> None:
            last = 0
            while last < STEPS:
                was_done = done.is_set()  # before reading: then everything that was ever written is there
                newest = reader.session_records(b"run-001", limit=1)
                number = newest[0].sequence if newest else 0
                check(number >= last, f"record {last} was there, and is not any more")
                self.check_visible(reader, number)
                (row,) = reader.rows([HEAD])
                self.check_visible(reader, int(row.value) if row else 0)
                last = number
                if was_done:  # failed, or nothing is left to see
                    break
            seen.append(last)

        run_in_threads(write, read)
        check_equal(seen, [STEPS], "what was committed is there for who looks afterwards")

    def check_visible(self, reader: BlockingBackend, number: int) -> None:
        """Assert that all of commit `number` can be read, and that the log is whole up to it."""
        if not number:
            return
        rule = f"part of commit {number} is visible, but not"
        (row,) = reader.rows([HEAD])
        check(row is not None and int(row.value) >= number, f"{rule} its row: {row!r}")
        check(reader.records([record_id(number, TREE)])[0], f"{rule} its record by id")
        check(reader.blobs([hash_bytes(b"blob %d" % number)])[0], f"{rule} its blob")
        (segments,) = reader.segments([Span(1, 0, number)])
        at = 0
        for segment in segments:
            check_equal(
                segment.first,
                at,
                f"the segments of a log don't overlap and leave no hole, at any moment: {segments!r:.300}",
            )
            at += segment.length
        check(at >= number, f"{rule} its run: {segments!r:.300}")

    def test_two_handles_on_one_store(self) -> None:
        second = self.second_handle()
        for number in range(1, 11):
            self.commit(make_full_commit(number), (self.backend, second)[number % 2])
            changed = self.dump(self.backend).differences(self.dump(second))
            check(not changed, f"two handles on one store see the same: {changed}")

    def test_reopening_sees_everything(self) -> None:
        if not self.backend.capabilities.durable:
            skip("capabilities.durable is False")
        for number in range(1, 6):
            self.commit(make_full_commit(number))
        before = self.dump()
        self.backend.close()
        self.backend = self.open_again()
        changed = before.differences(self.dump())
        check(not changed, f"what was committed is there after closing and opening again: {changed}")
        self.commit(make_full_commit(6))
        check_equal(len(self.dump().records), 6, "and the store continues where it was")

    def test_calls_after_close_raise(self) -> None:
        self.commit(make_full_commit(1))
        backend = self.backend
        backend.close()
        backend.close()
        calls: dict[str, Callable[[], object]] = {
            "commit_all": lambda: self.commit(make_full_commit(2)),
            "records": lambda: backend.records([record_id(1, TREE)]),
            "session_records": lambda: backend.session_records(b"run-001"),
            "find_ids": lambda: backend.find_ids("1"),
            "segments": lambda: backend.segments([Span(1, 0, 1)]),
            "blobs": lambda: backend.blobs([hash_bytes(b"blob 1")]),
            "rows": lambda: backend.rows([HEAD]),
            "scan": lambda: backend.scan("head"),
            "page_records": lambda: backend.page_records(None, 1),
            "changes": lambda: backend.changes(0, 1),
            "recent": lambda: backend.recent(None, 1),
            "last_change": backend.last_change,
            "page_segments": lambda: backend.page_segments(None, 1),
            "page_blobs": lambda: backend.page_blobs(None, 1),
            "usage": backend.usage,
        }
        for name, call in calls.items():
            check_raises(StoreError, call, f"{name} after close raises StoreError (and closing twice is allowed)")

    def test_usage(self) -> None:
        empty = self.backend.usage()
        check_equal(
            (empty.records, empty.segments, empty.blobs, empty.rows), (0, 0, 0, 0), "an empty store holds nothing"
        )
        for number in range(1, 5):
            self.commit(make_full_commit(number))
        used, found = self.backend.usage(), self.dump()
        check_equal(used.records, len(found.records), "usage counts records")
        check_equal(used.segments, sum(map(len, found.segments.values())), "usage counts segments")
        check_equal(used.blobs, len(found.blobs), "usage counts blobs")
        check_equal(used.rows, len(found.rows), "usage counts rows")
        sizes = (used.record_bytes, used.segment_bytes, used.blob_bytes, used.row_bytes)
        check(all(size > 0 for size in sizes), f"what is there has a size: {used}")
        check(used.total_bytes >= sum(sizes), f"the total includes all of it, and the store's own overhead: {used}")

    def test_compact_keeps_everything(self) -> None:
        for number in range(1, 5):
            self.commit(make_full_commit(number))
        before = self.dump()
        self.backend.compact()
        changed = before.differences(self.dump())
        check(not changed, f"compact changes nothing that can be read: {changed}")
        self.commit(make_full_commit(5))

    def test_capabilities_say_who_it_is(self) -> None:
        check(self.backend.capabilities.name, "a backend has a name")
        check(self.backend.capabilities.durability, "a backend says how durable a commit is")
