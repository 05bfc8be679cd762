"""The contract: commits are atomic, even if a condition fails, and commit_all keeps them apart."""

from __future__ import annotations

from dataclasses import replace

from holdfast.backends.port import ABSENT, STORE, Commit, CommitConflict, RowKey, RowWrite, SegmentDelete, SegmentWrite
from holdfast.testing.harness import TREE, Harness, append, check, check_equal, hash_bytes, head, record, record_id


def make_full_commit(number: int) -> Commit:
    """Return the `number`th save of a session, from 1 on, with every kind of change at once.

    Each change depends on the one before.
    """
    blob = b"blob %d" % number
    lease = RowWrite(RowKey("lease", b"%d" % number, TREE), b"x", ABSENT)
    return Commit(
        TREE,
        record=record(number),
        segments=[append(1, number - 1, b"element"), append(1000 + number, 0, b"other")],
        blobs={hash_bytes(blob): blob},
        rows=[head(b"%d" % number, number - 1), lease],
        require=[(record_id(number - 1, TREE), b"record")] if number > 1 else [],
        delete_segments=[SegmentDelete(1000 + number - 1, 0, 1)],
        delete_blobs={hash_bytes(b"blob %d" % (number - 1)): 2**62},
    )


class CommitContract(Harness):
    def test_everything_at_once(self) -> None:
        for number in (1, 2, 3):
            self.commit(make_full_commit(number))
        found = self.dump()
        check_equal(sorted(got.sequence for got in found.records.values()), [1, 2, 3], "records")
        check_equal(sorted(found.segments), [1, 1003], "segments written and segments deleted")
        check_equal(self.segments_of(1), [(0, 1), (1, 1), (2, 1)], "the log was appended to")
        check_equal(list(found.blobs.values()), [b"blob 3"], "blobs written and blobs deleted")
        check_equal(found.rows[RowKey("head", b"run-001", TREE)], (b"3", 3), "the head")
        check_equal(len(found.rows), 4, "the other rows")

    def test_each_condition_that_fails_refuses_all(self) -> None:
        self.commit(make_full_commit(1))
        good = make_full_commit(2)
        wrong_row = replace(good, rows=[*good.rows, RowWrite(RowKey("lease", b"1", TREE), b"y", ABSENT)])
        self.assert_refused(wrong_row, "row", "one row of several has another version")
        self.assert_refused(replace(good, rows=[head(b"2", 7), *good.rows[1:]]), "row", "the head has another version")
        self.assert_refused(
            replace(good, segments=[*good.segments, append(1001, 0, b"x")]),
            "segment",
            "one log of several has another tail",
        )
        self.assert_refused(
            replace(good, segments=[*good.segments[1:], SegmentWrite(1, 0, 1, b"x", tail=2)]),
            "segment",
            "sealing with another tail",
        )
        self.assert_refused(replace(good, record=record(1)), "record", "the id is taken")
        self.assert_refused(
            replace(good, record=record(2)._replace(sequence=1)), "record", "the sequence number is taken"
        )
        self.assert_refused(
            replace(good, record=record(1, b"new")._replace(replaces=b"old")), "replace", "the record has other bytes"
        )
        self.assert_refused(
            replace(good, require=[*good.require, (record_id(1, TREE), b"tombstone")]), "require", "another prefix"
        )
        self.assert_refused(
            replace(good, require=[(record_id(9, TREE), b"")]), "require", "a required record is missing"
        )
        self.commit(good)
        check_equal(len(self.dump().records), 2, "the same commit with its conditions met is done")

    def test_store_rows_are_part_of_a_commit(self) -> None:
        store_row = RowKey("head", b"sessions", STORE)
        self.commit(Commit(TREE, record(1), rows=[head(b"1", ABSENT), RowWrite(store_row, b"1", ABSENT)]))
        check_equal(
            self.backend.rows([store_row, RowKey("head", b"run-001", TREE)]), [(b"1", 1), (b"1", 1)], "both rows"
        )
        self.assert_refused(
            Commit(TREE, record(2), rows=[head(b"2", 1), RowWrite(store_row, b"2", ABSENT)]),
            "row",
            "a STORE row whose condition fails refuses the rest",
        )
        self.assert_refused(
            Commit(TREE, rows=[RowWrite(store_row, b"2", 1), RowWrite(RowKey("head", b"x"), None, 4)]),
            "row",
            "STORE rows are written together or not at all",
        )

    def test_a_commit_of_nothing(self) -> None:
        self.commit(make_full_commit(1))
        before = self.dump()
        self.commit(Commit(TREE))
        self.commit(Commit(TREE, require=[(record_id(1, TREE), b"record")]))
        check(not before.differences(self.dump()), "a commit without changes changes nothing")
        check_equal(self.backend.commit_all([]), [], "no commits, no outcomes")

    def test_one_of_several_commits_is_refused_and_the_others_are_done(self) -> None:
        commits = [
            make_full_commit(1),
            make_full_commit(2),
            make_full_commit(2),
            make_full_commit(3),
            make_full_commit(5),
            Commit(TREE),
            make_full_commit(4),
        ]
        outcomes = self.backend.commit_all(commits)
        check_equal(
            [type(outcome) for outcome in outcomes],
            [type(None), type(None), CommitConflict, type(None), CommitConflict, type(None), type(None)],
            "commit_all: one outcome each, in order; later commits see the effects of earlier ones",
        )
        together = self.dump()
        check_equal(sorted(got.sequence for got in together.records.values()), [1, 2, 3, 4], "the others are done")
        check_equal(sorted(together.segments), [1, 1004], "what one commit wrote the next one deleted")
        check_equal(list(together.blobs.values()), [b"blob 4"], "what one commit wrote the next one deleted")

    def test_later_commits_see_the_effects_of_earlier_ones(self) -> None:
        blob = {hash_bytes(b"b"): b"b"}
        outcomes = self.backend.commit_all(
            [
                Commit(TREE, record(1), segments=[append(1, 0, b"a", b"b")], rows=[head(b"1", ABSENT)], blobs=blob),
                Commit(TREE, record(1, b"dead")._replace(replaces=b"record 1"), segments=[append(1, 2, b"c")]),
                Commit(TREE, require=[(record_id(1, TREE), b"dead")], rows=[head(None, 1)]),
                Commit(TREE, segments=[SegmentWrite(1, 0, 3, b"sealed", tail=3)], rows=[head(b"2", ABSENT)]),
                Commit(TREE, delete_records=[(record_id(1, TREE), b"dead")], delete_blobs={hash_bytes(b"b"): 2**62}),
                Commit(TREE, record(1, b"again"), delete_segments=[SegmentDelete(1, 0, 3, ((1, 1, b"b"),))]),
                Commit(TREE, segments=[append(1, 2, b"d")], blobs=blob),
            ]
        )
        check_equal(outcomes, [None] * 7, "later commits see the effects of earlier ones")
        found = self.dump()
        check_equal([got.data for got in found.records.values()], [b"again"], "the record")
        check_equal([segment.data for segment in found.segments[1]], [b"b", b"d"], "the segments")
        check_equal(list(found.blobs), [hash_bytes(b"b")], "the blob")
        check_equal([row.value for row in found.rows.values()], [b"2"], "the row")

    def test_what_one_commit_frees_the_next_one_may_take(self) -> None:
        self.commit(Commit(TREE, record(1), segments=[append(1, 0, b"a")], rows=[head(b"1", ABSENT)]))
        outcomes = self.backend.commit_all(
            [
                Commit(
                    TREE, delete_records=[(record_id(1, TREE), b"record 1")], delete_segments=[SegmentDelete(1, 0, 1)]
                ),
                Commit(TREE, record(2)._replace(sequence=1), segments=[append(1, 0, b"b")], rows=[head(None, 1)]),
                Commit(TREE, record(1)._replace(sequence=2), segments=[append(1, 1, b"c")], rows=[head(b"2", ABSENT)]),
            ]
        )
        check_equal(outcomes, [None] * 3, "a number, an id, a log's place and a row that were freed are free")
        found = self.dump()
        check_equal(
            found.sessions, {b"run-001": [(2, record_id(1, TREE)), (1, record_id(2, TREE))]}, "the records, by number"
        )
        check_equal([segment.data for segment in found.segments[1]], [b"b", b"c"], "the segments")
        check_equal([row.value for row in found.rows.values()], [b"2"], "the row")

    def test_many_commits_at_once(self) -> None:
        commits = [make_full_commit(number) for number in range(1, 61)]
        check_equal(self.backend.commit_all(commits), [None] * 60, "60 commits that build on each other")
        check_equal(self.backend.rows([RowKey("head", b"run-001", TREE)]), [(b"60", 60)], "the last one is the head")
        check_equal(len(self.backend.session_records(b"run-001")), 60, "all records are there")
