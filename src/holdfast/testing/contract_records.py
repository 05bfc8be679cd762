"""The contract: records."""

from __future__ import annotations

from holdfast.backends.port import Commit, Labels, Record, RecordWrite
from holdfast.testing.harness import OTHER_TREE, TREE, Harness, check, check_equal, head, record, record_id
from holdfast.testing.hostile_ids import HOSTILE

LABELS = Labels("agent\ud800\x00é", "custom", 7, None, record_id(0, TREE), 1_700_000_000_000_000, "next'agent")


def as_read(write: RecordWrite) -> Record:
    return Record(write.id, write.session, write.sequence, write.data)


class RecordContract(Harness):
    def write_records(self, *numbers: int) -> list[Record]:
        for number in numbers:
            self.write(record=record(number))
        return [as_read(record(number)) for number in numbers]

    def test_a_record_is_found_by_id(self) -> None:
        item, two = self.write_records(1, 2)
        missing = record_id(3, TREE)
        check_equal(
            self.backend.records([two.id, missing, item.id, two.id]),
            [two, None, item, two],
            "records: one answer for each id, in order, None where there is none",
        )
        check_equal(self.backend.records([]), [], "records of no ids")

    def test_many_records_are_found_at_once(self) -> None:
        commits = [Commit(TREE, record(number)) for number in range(40)]
        check_equal(self.backend.commit_all(commits), [None] * 40, "40 records are written")
        asked = [record_id(number % 40, TREE) for number in range(1500)]
        found = [got.sequence if got else None for got in self.backend.records(asked)]
        check_equal(found, [number % 40 for number in range(1500)], "records answers for 1,500 ids at once")

    def test_labels_and_expiry_do_not_change_what_is_read(self) -> None:
        labelled = record(1)._replace(labels=LABELS, expires_at_us=4_000_000_000_000_000)
        self.write(record=labelled)
        check_equal(
            self.backend.records([labelled.id]), [as_read(labelled)], "labels are for people, whatever they hold"
        )

    def test_empty_and_large_records(self) -> None:
        large = bytes(range(256)) * 8192
        self.write(record=record(1, b""))
        self.write(record=record(2, large))
        data = [got.data if got else None for got in self.backend.records([record_id(1, TREE), record_id(2, TREE)])]
        check_equal(data, [b"", large], "an empty record and one of 2 MB are given back byte for byte")

    def test_a_taken_id_is_refused(self) -> None:
        self.write_records(1)
        rule = "a new record's id must not be taken"
        self.assert_refused(Commit(TREE, record(1)), "record", rule + ", not even by the same content")
        self.assert_refused(Commit(TREE, record(1)._replace(sequence=9)), "record", rule)
        self.assert_refused(Commit(TREE, record(1)._replace(session=b"other")), "record", rule)

    def test_a_taken_sequence_number_is_refused(self) -> None:
        self.write_records(1)
        rule = "a new record's sequence number must not be taken in its session"
        self.assert_refused(Commit(TREE, record(2)._replace(sequence=1)), "record", rule)
        self.write(record=record(2, session=b"other")._replace(sequence=1))
        check_equal(
            [[got.id for got in self.backend.session_records(session)] for session in (b"run-001", b"other")],
            [[record_id(1, TREE)], [record_id(2, TREE)]],
            "the same sequence number in another session is free",
        )

    def test_replacing(self) -> None:
        self.write_records(1, 2)
        tombstone = record(1, b"tombstone")._replace(replaces=b"record 1")
        self.write(record=tombstone)
        check_equal(self.backend.records([tombstone.id]), [as_read(tombstone)], "replaces puts other bytes in place")
        check_equal(
            [got.data for got in self.backend.session_records(b"run-001")],
            [b"record 2", b"tombstone"],
            "a replaced record keeps its place in the session",
        )
        check_equal(len(self.dump().records), 2, "replacing adds no record")
        self.write(record=record(1)._replace(replaces=b"tombstone"))
        check_equal(self.backend.records([tombstone.id]), [as_read(record(1))], "a record may be replaced back")

    def test_replacing_other_bytes_is_refused(self) -> None:
        self.write_records(1)
        for known in (b"", b"record", b"record 1 ", b"something else"):
            self.assert_refused(
                Commit(TREE, record(1, b"new")._replace(replaces=known)), "replace", f"the data is not {known!r}"
            )
        self.assert_refused(Commit(TREE, record(2)._replace(replaces=b"")), "replace", "there is no record of that id")

    def test_replacing_an_empty_record(self) -> None:
        self.write(record=record(1, b""))
        self.write(record=record(1, b"full")._replace(replaces=b""))
        check_equal(
            self.backend.records([record_id(1, TREE)]), [as_read(record(1, b"full"))], "replaces=b'' is not None"
        )

    def test_replacing_several_at_once(self) -> None:
        self.write_records(1, 2, 3)
        ended = [record(n, b"tombstone %d" % n)._replace(replaces=b"record %d" % n) for n in (1, 3)]
        self.commit(Commit(TREE, record(4), more_records=ended))
        found = [got.data for got in self.backend.session_records(b"run-001")]
        check_equal(
            found, [b"record 4", b"tombstone 3", b"record 2", b"tombstone 1"], "all are replaced, beside a new one"
        )

    def test_replacing_several_is_all_or_nothing(self) -> None:
        self.write_records(1, 2, 3)
        good, bad = (record(n, b"new")._replace(replaces=b"record 1") for n in (1, 2))
        missing = record(9, b"new")._replace(replaces=b"record 9")
        for wrong in (bad, missing):
            self.assert_refused(
                Commit(TREE, more_records=[good, wrong]), "replace", "one of them has other bytes, or none"
            )
        another = record(3, b"new")._replace(replaces=b"other")
        self.assert_refused(
            Commit(TREE, record(4), more_records=[good, another]), "replace", "nor is the new record written"
        )

    def test_several_records_in_one_commit(self) -> None:
        self.write_records(1)
        several = [record(2), record(3, b"three", session=b"other"), record(1, b"new")._replace(replaces=b"record 1")]
        self.commit(Commit(TREE, record(4), more_records=several))
        found = [(got.sequence, got.data) for got in self.backend.session_records(b"run-001")]
        check_equal(found, [(4, b"record 4"), (2, b"record 2"), (1, b"new")], "new and replaced ones, beside the first")
        check_equal([got.data for got in self.backend.session_records(b"other")], [b"three"], "of any session")
        self.commit(Commit(TREE, more_records=[record(5)]))
        check_equal(len(self.backend.session_records(b"run-001")), 4, "without a first one, too")

    def test_several_records_are_written_all_or_none(self) -> None:
        self.write_records(1, 2)
        taken, number = record(1), record(9)._replace(sequence=2)
        for wrong in (taken, number):
            self.assert_refused(
                Commit(TREE, record(3), more_records=[record(4), wrong]), "record", "an id or number is taken"
            )
        for wrong in (record(2, b"new")._replace(replaces=b"other"), record(9)._replace(replaces=b"record 9")):
            self.assert_refused(
                Commit(TREE, more_records=[record(4), wrong]), "replace", "one of them has other bytes, or none"
            )

    def test_require(self) -> None:
        self.write_records(1)
        id_ = record_id(1, TREE)
        for prefix in (b"", b"rec", b"record 1"):
            self.commit(Commit(TREE, rows=[head(prefix, -1)], require=[(id_, prefix)]))
        for prefix in (b"x", b"record 2", b"record 1 and more"):
            self.assert_refused(
                Commit(TREE, record(2), rows=[head(b"x", -1)], require=[(id_, b""), (id_, prefix)]),
                "require",
                f"the record's data does not begin with {prefix!r}",
            )
        self.assert_refused(
            Commit(TREE, record(2), require=[(record_id(9, TREE), b"")]), "require", "no record of that id"
        )

    def test_requiring_an_empty_record(self) -> None:
        self.write(record=record(1, b""))
        self.commit(Commit(TREE, rows=[head(b"x", -1)], require=[(record_id(1, TREE), b"")]))
        self.assert_refused(Commit(TREE, require=[(record_id(1, TREE), b"x")]), "require", "the record is empty")

    def test_deleting_a_record(self) -> None:
        item, two, three = self.write_records(1, 2, 3)
        self.commit(Commit(TREE, delete_records=[(two.id, two.data), (item.id, item.data)]))
        check_equal(self.backend.records([item.id, two.id, three.id]), [None, None, three], "a deleted record is gone")
        check_equal(self.backend.session_records(b"run-001"), [three], "a deleted record is gone from its session")
        check_equal(self.backend.page_records(None, 10), [three], "a deleted record is not walked over")
        check_equal(self.backend.find_ids(two.id.hex()), [], "a deleted record is not found by its digits")

    def test_deleting_what_is_no_longer_so_leaves_it_alone(self) -> None:
        item, two = self.write_records(1, 2)
        before = self.dump()
        self.commit(
            Commit(
                TREE,
                delete_records=[(item.id, b"other"), (item.id, b""), (two.id, b"record"), (record_id(9, TREE), b"")],
            )
        )
        changed = before.differences(self.dump())
        check(not changed, f"deletions of records with other data, or of none, do nothing: {changed}")

    def test_what_was_deleted_is_free_again(self) -> None:
        (item,) = self.write_records(1)
        self.commit(Commit(TREE, delete_records=[(item.id, item.data)]))
        self.write(record=record(1, b"again"))
        check_equal(
            self.backend.session_records(b"run-001"), [as_read(record(1, b"again"))], "its id and number are free"
        )

    def test_a_session_is_listed_newest_first(self) -> None:
        for number in (10, 2, 1, 100, 9):
            self.write(record=record(number))
        self.write(record=record(5, session=b"run-0011"))
        self.write(record=record(6, session=b"run-00"))

        def numbers(**arguments: int) -> list[int]:
            return [got.sequence for got in self.backend.session_records(b"run-001", **arguments)]

        check_equal(
            numbers(), [100, 10, 9, 2, 1], "session_records: highest sequence first, by number, of this session only"
        )
        check_equal(numbers(before=10), [9, 2, 1], "before= is exclusive")
        check_equal(numbers(before=11, limit=2), [10, 9], "before= and limit= together")
        check_equal(numbers(limit=1), [100], "limit= keeps the highest")
        check_equal(numbers(limit=99), [100, 10, 9, 2, 1], "limit= beyond the end")
        check_equal(numbers(before=1), [], "before= the first")
        check_equal(self.backend.session_records(b"unknown"), [], "an unknown session has no records")

    def test_sequence_numbers_beyond_32_bits(self) -> None:
        numbers = [0, 2**31, 2**40, 10**10]
        for at, number in enumerate(numbers):
            self.write(record=record(at)._replace(sequence=number))
        found = [got.sequence for got in self.backend.session_records(b"run-001")]
        check_equal(found, sorted(numbers, reverse=True), "sequence numbers beyond 32 bits keep their order")

    def test_a_session_may_be_in_several_trees(self) -> None:
        self.write(record=record(1))
        self.write(record=record(2, tree=OTHER_TREE), tree=OTHER_TREE)
        check_equal(
            [got.id for got in self.backend.session_records(b"run-001")],
            [record_id(2, OTHER_TREE), record_id(1, TREE)],
            "a session is known by its name alone",
        )

    def test_an_id_of_any_form(self) -> None:
        ids = [bytes(16), b"\xff" * 16, bytes(range(16))]
        for sequence, id_ in enumerate(ids):
            self.write(record=RecordWrite(id_, b"s", sequence, id_))
        check_equal(
            [got and got.data for got in self.backend.records(ids)], ids, "ids that users made need no tag of a tree"
        )
        check_equal(
            [got.id for got in self.backend.page_records(None, 9)], sorted(ids), "they are walked over in order"
        )
        self.assert_refused(Commit(TREE, RecordWrite(ids[1], b"t", 0, b"")), "record", "such an id is taken once")

    def test_find_ids_by_their_last_digits(self) -> None:
        self.write_records(0x1A, 0x2A, 0x3B)
        item, two, three = (record_id(number, TREE) for number in (0x1A, 0x2A, 0x3B))
        check_equal(sorted(self.backend.find_ids("a")), [item, two], "ids whose hex digits end in a")
        check_equal(self.backend.find_ids("3b"), [three], "ids whose hex digits end in 3b")
        check_equal(self.backend.find_ids("0000002a"), [two], "the eight digits of a short id")
        check_equal(self.backend.find_ids(three.hex()), [three], "the whole id")
        check_equal(self.backend.find_ids("4"), [], "no such id")
        check_equal(len(self.backend.find_ids("", limit=2)), 2, "every id ends in nothing; at most `limit`")
        check_equal(len(self.backend.find_ids("a", limit=1)), 1, "at most `limit`")
        for digits in ("%", "_", "*", "?", ".", "0" * 33 + item.hex(), "../", "'", "x", "é"):
            check_equal(self.backend.find_ids(digits), [], f"{digits!r} is no hex digit, and matches none")

    def test_walking_over_all_records(self) -> None:
        numbers = (5, 3, 9, 1, 7, 2, 8)
        for number in numbers:
            tree = TREE if number % 2 else OTHER_TREE
            self.write(record=record(number, session=b"s%d" % (number % 3), tree=tree), tree=tree)
        expected = sorted(record_id(number, TREE if number % 2 else OTHER_TREE) for number in numbers)
        walked: list[bytes] = []
        while page := self.backend.page_records(walked[-1] if walked else None, 3):
            check(len(page) <= 3, f"page_records(limit=3) gave {len(page)}")
            walked += [got.id for got in page]
        check_equal(
            walked, expected, "page_records meets every record once, in the order of ids, of whatever tree and session"
        )

    def test_any_bytes_are_a_session(self) -> None:
        for number, session in enumerate(HOSTILE):
            self.write(record=record(number, session=session)._replace(sequence=1))
            self.write(record=record(number + 1000, session=session)._replace(sequence=2))
        for number, session in enumerate(HOSTILE):
            check_equal(
                [(got.id, got.session, got.sequence) for got in self.backend.session_records(session)],
                [(record_id(number + 1000, TREE), session, 2), (record_id(number, TREE), session, 1)],
                f"the session {session!r:.80} has its own records, and no others",
            )
        check_equal(len(self.dump().records), 2 * len(HOSTILE), "no session has taken another's place")
