"""The contract: rows."""

from __future__ import annotations

from holdfast.backends.port import ABSENT, ANY_VERSION, STORE, Commit, CommitConflict, Row, RowKey, RowWrite
from holdfast.testing.harness import OTHER_TREE, TREE, Harness, check, check_equal, head, record
from holdfast.testing.hostile_ids import HOSTILE

KEY = RowKey("head", b"run-001", TREE)


class RowContract(Harness):
    def row(self, key: RowKey = KEY) -> Row | None:
        return self.backend.rows([key])[0]

    def test_a_row_that_was_never_written_is_none(self) -> None:
        check_equal(
            self.backend.rows([KEY, RowKey("head", b"run-001")]), [None, None], "rows: None where there is none"
        )
        check_equal(self.backend.rows([]), [], "rows of no keys")

    def test_versions_count_from_one(self) -> None:
        self.write(rows=(head(b"a", ABSENT),))
        check_equal(self.row(), Row(b"a", 1), "the first value of a row has version 1")
        self.write(rows=(head(b"b", 1),))
        self.write(rows=(head(b"b", ANY_VERSION),))
        check_equal(
            self.row(), Row(b"b", 3), "each value has the version of the last plus one, even if the bytes are the same"
        )

    def test_any_version_creates_and_overwrites(self) -> None:
        self.write(rows=(head(b"a", ANY_VERSION),))
        self.write(rows=(head(b"b", ANY_VERSION),))
        check_equal(self.row(), Row(b"b", 2), "ANY_VERSION writes whatever is there")

    def test_absent_is_refused_if_the_row_is_there(self) -> None:
        self.write(rows=(head(b"a", ABSENT),))
        self.assert_refused(Commit(TREE, rows=[head(b"b", ABSENT)]), "row", "expect=ABSENT on a row that is there")

    def test_a_version_is_refused_if_it_is_another(self) -> None:
        self.assert_refused(Commit(TREE, rows=[head(b"b", 1)]), "row", "expect=1 on a row that is not there")
        self.write(rows=(head(b"a", ABSENT),))
        self.write(rows=(head(b"b", 1),))
        self.assert_refused(Commit(TREE, rows=[head(b"c", 1)]), "row", "expect=1 on a row of version 2")
        self.assert_refused(Commit(TREE, rows=[head(b"c", 3)]), "row", "expect=3 on a row of version 2")

    def test_a_value_is_refused_if_it_was_another(self) -> None:
        self.assert_refused(
            Commit(TREE, rows=[RowWrite(KEY, b"b", ANY_VERSION, b"a")]), "row", "was=a on a row that is not there"
        )
        self.write(rows=(head(b"a", ABSENT),))
        self.assert_refused(
            Commit(TREE, rows=[RowWrite(KEY, b"c", 1, b"b")]), "row", "was=b on a row of version 1 that is a"
        )
        self.assert_refused(Commit(TREE, rows=[RowWrite(KEY, b"c", 1, b"")]), "row", "was=nothing on a row that is a")
        self.write(rows=(RowWrite(KEY, b"b", 1, b"a"),))
        check_equal(self.row(), Row(b"b", 2), "a row that is as expected is written")
        self.write(rows=(RowWrite(KEY, b"c", 2, b"b"), RowWrite(RowKey("head", b"other", TREE), b"x", ABSENT)))
        check_equal(self.row(), Row(b"c", 3), "of several rows each is compared with its own value")

    def test_a_row_can_be_required_without_being_written(self) -> None:
        other = RowKey("head", b"other", TREE)
        self.commit(Commit(TREE, rows=[head(b"a", ABSENT)], require_rows=[(other, ABSENT)]))
        check_equal(self.row(), Row(b"a", 1), "a row that was required to be absent is absent")
        check_equal(self.row(other), None, "a required row is not written")
        self.assert_refused(
            Commit(TREE, record(1), require_rows=[(KEY, ABSENT)]), "row", "a row that must be absent is there"
        )
        self.assert_refused(
            Commit(TREE, record(1), require_rows=[(KEY, 2)]), "row", "a required row has another version"
        )
        self.assert_refused(Commit(TREE, record(1), require_rows=[(other, 1)]), "row", "a required row is not there")
        self.assert_refused(
            Commit(TREE, record(1), rows=[head(b"b", 1)], require_rows=[(KEY, 1), (other, 1)]),
            "row",
            "one of several required rows is not as required",
        )
        self.commit(Commit(TREE, record(1), rows=[head(b"b", 1)], require_rows=[(KEY, 1), (other, ABSENT)]))
        check_equal(self.row(), Row(b"b", 2), "a row may be required and written at once: what counts is what it was")

    def test_required_rows_are_compared_with_what_earlier_commits_of_the_same_call_left(self) -> None:
        other = RowWrite(RowKey("pin", b"x", TREE), b"x", ABSENT)
        gone = other._replace(value=None, expect=1)
        kinds = [
            Commit(TREE, record(1), rows=[head(b"1", ABSENT)]),
            Commit(TREE, record(2), rows=[head(b"2", 1), other]),
            Commit(TREE, record(3), rows=[head(b"3", 2)], require_rows=[(other.key, ABSENT)]),
            Commit(TREE, record(3), rows=[head(b"3", 2)], require_rows=[(other.key, 1)]),
            Commit(TREE, rows=[gone]),
            Commit(TREE, record(4), rows=[head(b"4", 3)], require_rows=[(other.key, 1)]),
            Commit(TREE, record(4), rows=[head(b"4", 3)], require_rows=[(other.key, ABSENT), (KEY, 3)]),
        ]
        check_equal(
            [type(outcome) for outcome in self.backend.commit_all(kinds)],
            [type(None), type(None), CommitConflict, type(None), type(None), CommitConflict, type(None)],
            "required rows are compared with the effects of earlier commits",
        )
        check_equal(self.row(), Row(b"4", 4), "the head")

    def test_deleting_a_row(self) -> None:
        self.write(rows=(head(b"a", ABSENT),))
        self.assert_refused(Commit(TREE, rows=[head(None, 2)]), "row", "deleting version 2 of a row of version 1")
        self.assert_refused(
            Commit(TREE, rows=[head(None, ABSENT)]), "row", "deleting with expect=ABSENT a row that is there"
        )
        self.write(rows=(head(None, 1),))
        check_equal(self.row(), None, "a deleted row is None")
        check_equal(self.backend.scan("head"), [], "a deleted row is not scanned")
        self.assert_refused(Commit(TREE, rows=[head(None, 1)]), "row", "deleting version 1 of a row that was deleted")

    def test_deleting_what_is_not_there_with_any_version_is_no_conflict(self) -> None:
        self.write(rows=(head(None, ANY_VERSION),))
        self.write(rows=(head(None, ABSENT),))
        check_equal(self.row(), None, "a row that never was stays None when it is deleted")

    def test_a_deleted_row_can_be_written_again(self) -> None:
        self.write(rows=(head(b"a", ABSENT),))
        self.write(rows=(head(None, 1),))
        self.assert_refused(
            Commit(TREE, rows=[head(b"b", 1)]), "row", "a version of before the deletion matches nothing"
        )
        self.write(rows=(head(b"b", ABSENT),))
        row = self.row()
        check(row is not None and row.value == b"b" and row.version >= 1, f"a row written again is there, not {row!r}")

    def test_an_empty_value_is_a_value(self) -> None:
        self.write(rows=(head(b"", ABSENT),))
        check_equal(self.row(), Row(b"", 1), "an empty value is not an absent row")

    def test_trees_spaces_and_keys_are_apart(self) -> None:
        keys = [
            RowKey(space, key, tree)
            for space in ("head", "lease")
            for key in (b"", b"a", b"ab")
            for tree in (STORE, TREE, OTHER_TREE)
        ]
        for number, key in enumerate(keys):
            self.write(rows=(RowWrite(key, b"%d" % number, ABSENT),), tree=key.tree or TREE)
        check_equal(
            self.backend.rows(keys),
            [Row(b"%d" % number, 1) for number in range(len(keys))],
            "each (tree, space, key) is a row of its own",
        )

    def test_rows_answers_in_the_order_of_the_keys(self) -> None:
        keys = [RowKey("head", b"%d" % number, TREE) for number in range(40)]
        self.commit(Commit(TREE, rows=[RowWrite(key, key.key) for key in keys]))
        asked = [keys[-number % 40] for number in range(1500)] + [RowKey("head", b"missing", TREE), keys[0]]
        values = [row.value if row else None for row in self.backend.rows(asked)]
        check_equal(
            values,
            [*(b"%d" % (-number % 40) for number in range(1500)), None, b"0"],
            "rows: one answer for each key asked, in order, however many, twice if asked twice",
        )

    def test_scan_is_ordered_by_key_then_tree(self) -> None:
        low, high = sorted((TREE, OTHER_TREE))
        expected = [(key, tree) for key in (b"", b"\x00", b"a", b"a\x00", b"b", b"\xff") for tree in (STORE, low, high)]
        for key, tree in reversed(expected):
            self.write(rows=(RowWrite(RowKey("head", key, tree), b"v", ABSENT),), tree=tree or TREE)
        self.write(rows=(RowWrite(RowKey("lease", b"a", TREE), b"v", ABSENT),))
        found = self.backend.scan("head")
        check_equal(
            [(key.key, key.tree) for key, _ in found], expected, "scan of all trees: in the order of (key, tree)"
        )
        check_equal({key.space for key, _ in found}, {"head"}, "scan gives rows of its space only")
        check_equal({row for _, row in found}, {Row(b"v", 1)}, "scan gives values and versions")
        for tree in (STORE, low, high):
            check_equal(
                [(key.key, key.tree) for key, _ in self.backend.scan("head", tree=tree)],
                [(key, of) for key, of in expected if of == tree],
                "scan of one tree gives rows of that tree only; tree=STORE is not tree=None",
            )
        check_equal(self.backend.scan("nothing"), [], "scan of a space without rows")

    def test_scan_by_prefix(self) -> None:
        keys = sorted((b"", b"a", b"a%", b"a/1", b"a/2", b"aa", b"a_", b"b", b"\xff", b"\xff\xff", b"\xff\xff\x01"))
        self.commit(Commit(TREE, rows=[RowWrite(RowKey("head", key, TREE), b"v") for key in keys]))
        for prefix in (b"", b"a", b"a/", b"a%", b"a_", b"\xff", b"\xff\xff", b"c"):
            for tree in (None, TREE):
                check_equal(
                    [key.key for key, _ in self.backend.scan("head", tree=tree, prefix=prefix)],
                    [key for key in keys if key.startswith(prefix)],
                    f"scan(prefix={prefix!r}) gives the keys that begin with it, byte for byte",
                )

    def test_scan_after_and_limit(self) -> None:
        keys = [b"a/%02d" % number for number in range(10)] + [b"b"]
        self.commit(Commit(TREE, rows=[RowWrite(RowKey("head", key, TREE), b"v") for key in keys]))
        paged: list[bytes] = []
        after: bytes | None = None
        while page := self.backend.scan("head", tree=TREE, prefix=b"a/", after=after, limit=3):
            check(len(page) <= 3, f"scan(limit=3) gave {len(page)} rows")
            paged += [key.key for key, _ in page]
            after = paged[-1]
        check_equal(paged, keys[:10], "paging by after= and limit= meets every key once, in order")
        for after in (b"", b"a/03", b"a/03\x00", b"a/99", b"z"):
            check_equal(
                [key.key for key, _ in self.backend.scan("head", prefix=b"a/", after=after)],
                [key for key in keys[:10] if key > after],
                f"scan(after={after!r}) gives the keys that are greater",
            )

    def test_any_bytes_are_a_key(self) -> None:
        for tree in (TREE, STORE):
            writes = [RowWrite(RowKey("head", key, tree), b"%d" % at, ABSENT) for at, key in enumerate(HOSTILE)]
            self.commit(Commit(TREE, rows=writes))
            for write, row in zip(writes, self.backend.rows([write.key for write in writes]), strict=True):
                check_equal(row, Row(write.value or b"", 1), f"the key {write.key.key!r:.80} is a row of its own")
            check_equal(
                [key.key for key, _ in self.backend.scan("head", tree=tree)],
                sorted(HOSTILE),
                "scan gives keys back exactly, in the order of their bytes",
            )
        for key in HOSTILE:
            self.write(rows=(RowWrite(RowKey("head", key, TREE), None, 1),))
            check_equal(self.row(RowKey("head", key, TREE)), None, f"the key {key!r:.80} can be deleted")
        check_equal(self.backend.scan("head", tree=TREE), [], "each key was deleted, and only it")
        check_equal(len(self.backend.scan("head", tree=STORE)), len(HOSTILE), "the rows of other trees are untouched")

    def test_a_large_row(self) -> None:
        value = bytes(range(256)) * 4096
        self.write(rows=(head(value, ABSENT),))
        check_equal(self.row(), Row(value, 1), "a row of 1 MB is given back")
