"""The contract: the order in which records became visible."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from holdfast.backends.port import BlockingBackend, Change, Commit, CommitConflict, Record
from holdfast.testing.contract_concurrency import run_in_threads
from holdfast.testing.harness import OTHER_TREE, TREE, Harness, check, check_equal, hash_bytes, record, record_id, skip

SESSIONS = 4
PER_SESSION = 25


class ChangeContract(Harness):
    def all_changes(self, backend: BlockingBackend | None = None) -> list[Change]:
        return (backend or self.backend).changes(0, 1000)

    def sequences(self, after: int = 0) -> list[int]:
        return [change.record.sequence for change in self.backend.changes(after, 1000)]

    def save(self, number: int, backend: BlockingBackend | None = None) -> None:
        self.commit(Commit(TREE, record(number)), backend)

    def delete(self, *numbers: int) -> None:
        self.commit(Commit(TREE, delete_records=[(record_id(n, TREE), b"record %d" % n) for n in numbers]))

    def test_changes_come_in_the_order_of_commits(self) -> None:
        check_equal(self.all_changes(), [], "an empty store has no changes")
        check_equal(self.backend.last_change(), 0, "last_change of an empty store")
        for number in (5, 3, 9, 1):  # commits follow neither the order of ids nor that of sequence numbers
            tree = TREE if number % 2 else OTHER_TREE
            self.commit(Commit(tree, record(number, session=b"s%d" % number, tree=tree)))
        found = self.all_changes()
        check_equal(
            [change.record for change in found],
            [Record(record_id(n, TREE), b"s%d" % n, n, b"record %d" % n) for n in (5, 3, 9, 1)],
            "changes gives whole records, of all sessions and trees, in the order in which they were committed",
        )
        positions = [change.position for change in found]
        check(positions == sorted(set(positions)) and positions[0] > 0, f"positions rise, from 1 on: {positions}")
        check_equal(self.backend.last_change(), positions[-1], "last_change is the position of the last one")

    def test_reading_on_from_a_position(self) -> None:
        for number in range(1, 11):
            self.save(number)
        walked: list[int] = []
        after = 0
        while page := self.backend.changes(after, 3):
            check(len(page) <= 3, f"changes(limit=3) gave {len(page)}")
            walked += [change.record.sequence for change in page]
            after = page[-1].position
        check_equal(walked, list(range(1, 11)), "paging by position meets every record once, in order")
        check_equal(self.backend.changes(self.backend.last_change(), 9), [], "after the last one there is none")
        self.save(11)
        check_equal(self.sequences(after), [11], "what is new is after the last position that was read")

    def test_the_newest_records_come_first(self) -> None:
        check_equal(self.backend.recent(None, 9), [], "an empty store has no recent records")
        for number in (5, 3, 9, 1, 7):
            self.save(number)
        self.delete(9)
        newest = self.backend.recent(None, 9)
        check_equal(newest, self.all_changes()[::-1], "recent is changes, read from its end")
        walked: list[Change] = []
        before: int | None = None
        while page := self.backend.recent(before, 2):
            check(len(page) <= 2, f"recent(limit=2) gave {len(page)}")
            walked += page
            before = page[-1].position
        check_equal(walked, newest, "paging by position meets every record once, the newest first")
        check_equal(self.backend.recent(newest[0].position + 1, 1), newest[:1], "`before` may lie above the newest")

    def test_commits_that_go_together_keep_their_order(self) -> None:
        blob = {hash_bytes(b"b"): b"b"}  # commits of several kinds, in case they are carried out in different ways
        commits = [Commit(TREE, record(n), blobs=blob if n % 3 == 0 else {}) for n in range(1, 21)]
        commits.insert(7, Commit(TREE, record(2)))  # refused
        outcomes = self.backend.commit_all(commits)
        check_equal([type(outcome) for outcome in outcomes].count(CommitConflict), 1, "one of them is refused")
        check_equal(
            self.sequences(), list(range(1, 21)), "commits of one commit_all are in its order; a refused one is not"
        )

    def test_the_records_of_one_commit_keep_their_order(self) -> None:
        self.save(1)
        ended = record(1, b"dead")._replace(replaces=b"record 1")
        self.commit(Commit(TREE, record(3), more_records=[record(2), ended, record(4)]))
        self.commit(Commit(TREE, more_records=[record(5), record(6)]))
        self.save(7)
        check_equal(
            self.sequences(), [1, 3, 2, 4, 5, 6, 7], "`record` comes first, then `more_records` as they are given"
        )

    def test_a_replaced_record_keeps_its_position(self) -> None:
        for number in (1, 2, 3):
            self.save(number)
        before = self.all_changes()
        self.commit(Commit(TREE, record(1, b"dead")._replace(replaces=b"record 1")))
        after = self.all_changes()
        check_equal([change.position for change in after], [change.position for change in before], "positions are kept")
        check_equal(
            [change.record.data for change in after], [b"dead", b"record 2", b"record 3"], "with the bytes of now"
        )
        check_equal(self.backend.changes(before[-1].position, 9), [], "replacing a record is no change")

    def test_rows_and_blobs_are_no_changes(self) -> None:
        self.save(1)
        last = self.backend.last_change()
        self.write(blobs=(b"one",))
        check_equal((self.backend.last_change(), self.sequences()), (last, [1]), "only new records are changes")

    def test_a_deleted_record_is_not_there_any_more(self) -> None:
        for number in range(1, 6):
            self.save(number)
        self.delete(1, 3)
        check_equal(self.sequences(), [2, 4, 5], "the others keep their places")

    def test_no_position_is_given_twice(self) -> None:
        """Check that neither a deletion of the newest or of all records nor a reused id repeats a position."""
        given: set[int] = set()
        for number in (1, 2, 3):
            self.save(number)
        for deleted in ((3,), (1, 2, 3), (3,)):
            given |= {change.position for change in self.all_changes()}
            self.delete(*deleted)
            last = self.backend.last_change()
            check(last >= max(given), f"last_change went back from {max(given)} to {last}")
            self.save(3)
            (newest,) = self.backend.changes(last, 9)
            check(newest.position > max(given), f"position {newest.position} was given before: {sorted(given)}")
            check_equal(
                [change.record.id for change in self.all_changes()].count(record_id(3, TREE)), 1,
                "a record whose id was deleted and used again is one change",
            )  # fmt: skip

    def test_no_position_is_given_twice_within_one_call(self) -> None:
        self.save(1)
        last = self.backend.last_change()
        delete = Commit(TREE, delete_records=[(record_id(1, TREE), b"record 1")])
        check_equal(
            self.backend.commit_all([delete, Commit(TREE, record(2)), Commit(TREE, record(3))]),
            [None] * 3,
            "the newest record is deleted, and two are added",
        )
        check_equal(self.sequences(last), [2, 3], "they have positions of their own")
        delete = Commit(TREE, delete_records=[(record_id(3, TREE), b"record 3")])
        last = self.backend.last_change()
        check_equal(
            self.backend.commit_all([Commit(TREE, record(4)), delete, Commit(TREE, record(5))]), [None] * 3, "again"
        )
        check_equal(self.sequences(last), [4, 5], "and so in the other order")

    def test_positions_after_opening_again(self) -> None:
        if not self.backend.capabilities.durable:
            skip("capabilities.durable is False")
        for number in (1, 2, 3):
            self.save(number)
        before = self.all_changes()
        self.delete(3)
        self.backend.close()
        self.backend = self.open_again()
        check_equal(self.all_changes(), before[:2], "positions are kept when the store is closed and opened again")
        self.save(4)
        check_equal(self.sequences(before[-1].position), [4], "and that of a record deleted before is not given again")

    def test_two_handles_see_the_same_changes(self) -> None:
        second = self.second_handle()
        for number in range(1, 13):
            self.save(number, (self.backend, second)[number % 2])
            if number == 7:
                self.delete(7)
        expected = [n for n in range(1, 13) if n != 7]
        check_equal(self.sequences(), expected, "records of both handles in the order of their commits")
        check_equal(self.all_changes(second), self.all_changes(), "both handles see the same positions")

    def test_following_many_writers(self) -> None:
        self.follow([self.backend])

    def test_following_writers_through_several_handles(self) -> None:
        self.follow([self.backend, self.second_handle(), self.second_handle()])

    def follow(self, backends: Sequence[BlockingBackend]) -> None:
        """Run writers that add to their own sessions, and a reader that polls from its last position."""
        received: list[tuple[bytes, int]] = []
        done = threading.Event()
        left = list(range(SESSIONS))

        def write(number: int) -> None:
            try:
                backend = backends[number % len(backends)]
                for sequence in range(1, PER_SESSION + 1):
                    id_ = 100 * number + sequence
                    write = record(id_, session=b"s%d" % number)._replace(sequence=sequence)
                    blobs = {hash_bytes(b"b"): b"b"} if sequence % 7 == 0 else {}
                    self.commit(Commit(TREE, write, blobs=blobs), backend)
            finally:  # after a failure no thread is waited for: the reader ends, and the error is raised
                left.pop()
                if not left:
                    done.set()

        def read() -> None:
            reader, after = backends[-1], 0
            while True:
                was_done = done.is_set()
                page = reader.changes(after, 7)
                received.extend((change.record.session, change.record.sequence) for change in page)
                if page:
                    after = page[-1].position
                elif was_done or len(received) > SESSIONS * PER_SESSION:
                    return

        run_in_threads(read, *(partial(write, number) for number in range(SESSIONS)))
        for number in range(SESSIONS):
            check_equal(
                [sequence for session, sequence in received if session == b"s%d" % number],
                list(range(1, PER_SESSION + 1)),
                "a reader that continues from the last position meets every record once, each session's in order",
            )
