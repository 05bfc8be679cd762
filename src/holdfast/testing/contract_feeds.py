"""The contract: feeds, the parts of the order of records that readers follow by themselves."""

from __future__ import annotations

import threading
from functools import partial

from holdfast.backends.port import BlockingBackend, Change, Commit, CommitConflict
from holdfast.testing.contract_concurrency import run_in_threads
from holdfast.testing.harness import (
    OTHER_TREE,
    TREE,
    Harness,
    check,
    check_equal,
    hash_bytes,
    head,
    record,
    record_id,
    skip,
)

FEED, OTHER = b"drafts", b"drafts/\x00\xff and more"
PUBLISHERS = 3
PER_PUBLISHER = 20


class FeedContract(Harness):
    def need_feeds(self) -> None:
        if not self.backend.capabilities.feeds:
            skip("capabilities.feeds is False")

    def put(self, number: int, feed: bytes | None = FEED, tree: bytes = TREE) -> None:
        self.commit(Commit(tree, record(number, session=b"s" + tree, tree=tree)._replace(feed=feed)))

    def feed(self, feed: bytes = FEED, after: int = 0, limit: int = 1000) -> list[int]:
        return [change.record.sequence for change in self.backend.changes(after, limit, feed)]

    def test_a_feed_has_its_records_in_the_order_of_commits(self) -> None:
        self.need_feeds()
        check_equal(self.feed(), [], "a feed that has no records is empty")
        for number, feed in ((5, FEED), (3, OTHER), (9, FEED), (1, None), (7, FEED)):
            self.put(number, feed, TREE if number % 2 else OTHER_TREE)
        self.put(2, FEED, OTHER_TREE)
        check_equal(self.feed(), [5, 9, 7, 2], "the records written with the feed, of all sessions and trees")
        check_equal(self.feed(OTHER), [3], "another feed has its own, whatever bytes its name has")
        check_equal(self.feed(b"draft"), [], "the beginning of a name is another name")
        everything = {change.record.id: change for change in self.backend.changes(0, 1000)}
        check_equal(len(everything), 6, "without a feed, changes gives all records")
        for change in self.backend.changes(0, 1000, FEED):
            check_equal(change, everything[change.record.id], "a feed gives the same positions and records")

    def test_reading_a_feed_from_a_position(self) -> None:
        self.need_feeds()
        for number in range(1, 21):
            self.put(number, FEED if number % 2 else OTHER)
        walked: list[int] = []
        after = 0
        while page := self.backend.changes(after, 3, FEED):
            check(len(page) <= 3, f"changes(limit=3) gave {len(page)}")
            walked += [change.record.sequence for change in page]
            after = page[-1].position
        check_equal(walked, list(range(1, 21, 2)), "paging by position meets every record of the feed once, in order")
        self.put(21)
        check_equal(self.feed(after=after), [21], "what is new is after the last position that was read")
        check_equal(self.feed(after=self.backend.last_change()), [], "after the last one there is none")

    def test_more_records_of_a_commit_may_have_feeds(self) -> None:
        self.need_feeds()
        more = [record(2)._replace(feed=FEED), record(3)._replace(feed=OTHER), record(4)._replace(feed=FEED)]
        self.commit(Commit(TREE, record(1), more_records=more, rows=[head(b"h", 0)]))
        check_equal((self.feed(), self.feed(OTHER)), ([2, 4], [3]), "each record of a commit has a feed of its own")

    def test_a_refused_commit_adds_nothing_to_a_feed(self) -> None:
        self.need_feeds()
        self.put(1)
        refused = Commit(TREE, record(2)._replace(feed=FEED), rows=[head(b"h", 7)])
        taken = Commit(TREE, record(1, b"other")._replace(feed=OTHER))
        done = Commit(TREE, record(3)._replace(feed=FEED))
        outcomes = self.backend.commit_all([refused, taken, done])
        check_equal(
            [type(outcome) for outcome in outcomes], [CommitConflict, CommitConflict, type(None)], "two are refused"
        )
        check_equal((self.feed(), self.feed(OTHER)), ([1, 3], []), "only records that were written are in a feed")

    def test_a_refused_commit_gives_no_feed_to_the_record_that_has_its_id(self) -> None:
        self.need_feeds()
        self.put(1, None)
        taken = Commit(TREE, record(1, b"other")._replace(feed=FEED))
        [outcome] = self.backend.commit_all([taken])
        check(isinstance(outcome, CommitConflict), f"the id is taken, and the outcome is {outcome!r}")
        check_equal(self.feed(), [], "the record was written without a feed")

    def test_a_replaced_record_keeps_its_feed(self) -> None:
        self.need_feeds()
        self.put(1)
        self.put(2)
        dead = record(1, b"dead", session=b"s" + TREE)._replace(replaces=b"record 1")
        self.commit(Commit(TREE, dead))
        found = self.backend.changes(0, 9, FEED)
        check_equal([change.record.data for change in found], [b"dead", b"record 2"], "with the bytes of now")

    def test_a_deleted_record_leaves_its_feed(self) -> None:
        self.need_feeds()
        for number in range(1, 6):
            self.put(number)
        self.commit(Commit(TREE, delete_records=[(record_id(n, TREE), b"record %d" % n) for n in (1, 3, 5)]))
        check_equal(self.feed(), [2, 4], "the others keep their places")
        check_equal(self.feed(limit=2), [2, 4], "what was deleted doesn't count for the limit")
        self.put(5, OTHER)
        check_equal((self.feed(), self.feed(OTHER)), ([2, 4], [5]), "an id that is used again is in its new feed only")

    def test_a_feed_after_opening_again(self) -> None:
        self.need_feeds()
        if not self.backend.capabilities.durable:
            skip("capabilities.durable is False")
        for number in range(1, 4):
            self.put(number)
        before = self.backend.changes(0, 9, FEED)
        self.backend.close()
        self.backend = self.open_again()
        check_equal(self.backend.changes(0, 9, FEED), before, "a feed survives, with its positions")

    def test_following_a_feed_of_many_writers(self) -> None:
        """Check that a reader of a feed meets every record once, while others are written without it."""
        self.need_feeds()
        received: list[Change] = []
        done = threading.Event()
        left = list(range(PUBLISHERS))
        backends: list[BlockingBackend] = [self.backend]
        if self.backend.capabilities.shared:
            backends.append(self.open_again())

        def write(number: int) -> None:
            try:
                backend = backends[number % len(backends)]
                for sequence in range(1, PER_PUBLISHER + 1):
                    plain = record(1000 * number + 2 * sequence, session=b"p%d" % number)._replace(sequence=sequence)
                    published = record(1000 * number + 2 * sequence + 1, session=b"s%d" % number)
                    published = published._replace(sequence=sequence, feed=FEED)
                    blobs = {hash_bytes(b"b"): b"b"} if sequence % 5 == 0 else {}
                    self.commit(Commit(TREE, plain, more_records=[published], blobs=blobs), backend)
            finally:
                left.pop()
                if not left:
                    done.set()

        def read() -> None:
            reader, after = backends[-1], 0
            while True:
                was_done = done.is_set()
                page = reader.changes(after, 7, FEED)
                received.extend(page)
                if page:
                    after = page[-1].position
                elif was_done or len(received) > PUBLISHERS * PER_PUBLISHER:
                    return

        run_in_threads(read, *(partial(write, number) for number in range(PUBLISHERS)))
        for number in range(PUBLISHERS):
            sequences = [change.record.sequence for change in received if change.record.session == b"s%d" % number]
            check_equal(sequences, list(range(1, PER_PUBLISHER + 1)), "a reader skips no record, and meets each once")
        check_equal(received, self.backend.changes(0, 1000, FEED), "in the one order that all readers see")
