"""Indexes of records in SQLite: unique ids and places, stores of earlier schemas, damaged entries."""

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.memory import MemoryBackend
from holdfast.backends.port import Commit, CommitConflict
from holdfast.backends.sqlite import schema
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.errors import CorruptError
from holdfast.testing.harness import SPACES, TREE, hash_bytes, record, record_id
from holdfast.testing.store_dump import dump


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def backend(path: Path) -> Iterator[SqliteBackend]:
    opened = SqliteBackend(path, durability="fast")
    yield opened
    opened.close()


def asked(path: Path, query: str, *values: object) -> list[tuple[object, ...]]:
    """As another program sees it."""
    connection = sqlite3.connect(path, isolation_level=None)
    found = connection.execute(query, values).fetchall()
    connection.close()
    return found


def save(backend: SqliteBackend | MemoryBackend, *numbers: int) -> None:
    for number in numbers:
        assert backend.commit_all([Commit(TREE, record(number))]) == [None]


def is_refused(backend: SqliteBackend, *commits: Commit) -> bool:
    return all(isinstance(outcome, CommitConflict) for outcome in backend.commit_all(commits))


def test_they_are_found_as_in_memory(backend: SqliteBackend, path: Path):
    twin = MemoryBackend()
    last = 42
    for store in (backend, twin):
        save(store, *range(1, last + 1))
    other = SqliteBackend(path)
    for store in (backend, other):
        assert dump(store, SPACES).differences(dump(twin, SPACES)) == []
        for number in (1, 20, last):
            assert store.records([record_id(number, TREE)]) == twin.records([record_id(number, TREE)])
            assert store.find_ids(f"{number:08x}") == [record_id(number, TREE)]
            assert store.session_records(b"run-001", before=number + 1, limit=3) == twin.session_records(
                b"run-001", before=number + 1, limit=3
            )
        assert store.records([record_id(last + 1, TREE)]) == [None]
        assert store.page_records(record_id(last - 12, TREE), 5) == twin.page_records(record_id(last - 12, TREE), 5)
    other.close()


def test_an_id_or_a_place_that_is_taken_is_refused(backend: SqliteBackend, path: Path):
    number = 3
    save(backend, *range(1, 10))
    other = SqliteBackend(path)
    same_id = Commit(TREE, record(1000)._replace(id=record_id(number, TREE)))
    same_place = Commit(TREE, record(number)._replace(id=record_id(1000, TREE)))
    for store in (backend, other):
        before = dump(store, SPACES)
        assert is_refused(store, same_id, same_place)
        assert is_refused(store, Commit(TREE, same_id.record, blobs={hash_bytes(b"b"): b"b"}))
        assert dump(store, SPACES).differences(before) == []
    other.close()


def test_of_two_with_one_id_in_one_batch_the_second_is_refused(backend: SqliteBackend):
    twice = [Commit(TREE, record(1)), Commit(TREE, record(2)._replace(id=record_id(1, TREE))), Commit(TREE, record(1))]
    assert [outcome is None for outcome in backend.commit_all(twice)] == [True, False, False]
    assert [change.record.sequence for change in backend.changes(0, 10)] == [1]


def test_an_id_and_a_place_below_the_highest_that_are_free_are_taken(backend: SqliteBackend):
    save(backend, *range(10, 20))
    assert backend.commit_all([Commit(TREE, record(5)._replace(id=bytes(16)))]) == [None]
    assert backend.page_records(None, 1)[0].sequence == 5
    assert backend.session_records(b"run-001")[-1].id == bytes(16)


def test_an_id_below_the_highest_does_not_make_a_place_look_free(path: Path):
    one, two = SqliteBackend(path), SqliteBackend(path)
    save(one, *range(10, 20))
    assert two.commit_all([Commit(TREE, record(5)._replace(id=bytes(16)))]) == [None]
    assert is_refused(two, Commit(TREE, record(15)._replace(id=record_id(1000, TREE))))
    one.close()
    two.close()


def test_of_two_at_one_place_of_a_new_session_the_second_is_refused(backend: SqliteBackend):
    twice = [Commit(TREE, record(1)), Commit(TREE, record(1)._replace(id=record_id(2, TREE)))]
    assert [outcome is None for outcome in backend.commit_all(twice)] == [True, False]


def test_the_id_and_the_place_of_a_deleted_record_are_free(backend: SqliteBackend):
    number = 3
    save(backend, *range(1, 10))
    gone = Commit(TREE, delete_records=[(record_id(number, TREE), b"record %d" % number)])
    assert backend.commit_all([gone]) == [None]
    assert backend.records([record_id(number, TREE)]) == [None]
    save(backend, number)
    assert backend.records([record_id(number, TREE)])[0] == record(number)[:4]


def test_another_process_that_writes_is_seen(path: Path):
    one, two = SqliteBackend(path), SqliteBackend(path)
    for number in range(1, 50, 2):
        save(one, number)
        assert is_refused(two, Commit(TREE, record(number)))
        save(two, number + 1)
        assert is_refused(one, Commit(TREE, record(number + 1)))
    assert dump(one, SPACES) == dump(two, SPACES)
    one.close()
    two.close()


def make_old(path: Path, version: int) -> None:
    """Make a store of an earlier schema with three records. Of schema 3 and 4, the last two are not in its tables."""
    old = sqlite3.connect(path, isolation_level=None)
    old.execute("PRAGMA journal_mode=WAL")
    for number in range(1, version + 1):
        schema.migrate(old, number)
    old.execute("INSERT INTO session (id) VALUES (?)", (b"run-001",))
    for n, number in ((4, 1), (7, 2), (9, 3)):
        put = "INSERT INTO record (n, id, session, sequence, data, step_name) VALUES (?, ?, 1, ?, ?, 'x')"
        old.execute(put, (n, record_id(number, TREE), number, b"record %d" % number))
    if version in (3, 4):
        old.execute("INSERT INTO record_by_id SELECT id, n FROM record WHERE n = 4")
        old.execute("INSERT INTO record_by_place SELECT session, sequence, n FROM record WHERE n = 4")
        old.execute("UPDATE indexed SET n = 4")
    old.close()


@pytest.mark.parametrize("version", range(1, schema.SCHEMA))
def test_a_store_of_an_earlier_schema_is_read_as_it_is_and_migrated_by_a_writer(path: Path, version: int):
    make_old(path, version)
    before = path.read_bytes()
    backend = SqliteBackend(path)
    assert [(change.position, change.record) for change in backend.changes(0, 9)] == [
        (n, record(number)[:4]) for n, number in ((4, 1), (7, 2), (9, 3))
    ]
    for number in (1, 2, 3):
        assert backend.records([record_id(number, TREE)]) == [record(number)[:4]]
        assert backend.find_ids(f"{number:08x}") == [record_id(number, TREE)]
    backend.close()
    assert path.read_bytes() == before
    backend = SqliteBackend(path)
    assert is_refused(backend, Commit(TREE, record(2)))
    assert asked(path, "PRAGMA user_version") == [(schema.SCHEMA,)]
    save(backend, 4)
    assert [found.sequence for found in backend.session_records(b"run-001")] == [4, 3, 2, 1]
    assert asked(
        path, "SELECT sequence, step_name FROM checkpoint WHERE session_id = 'run-001' AND step_name = 'x'"
    ) == [(number, "x") for number in (1, 2, 3)]
    assert asked(path, "SELECT name FROM sqlite_master WHERE name LIKE '%before%'") == []
    backend.close()


def change_behind_index(path: Path, index: str, change: str) -> None:
    """Change records while SQLite does not know of the index, which then leads to others."""
    for statements in (
        [f"CREATE TABLE hidden AS SELECT * FROM sqlite_master WHERE name = '{index}'", "PRAGMA writable_schema=ON",
         f"DELETE FROM sqlite_master WHERE name = '{index}'"],
        [change, "PRAGMA writable_schema=ON", "INSERT INTO sqlite_master SELECT * FROM hidden"],
        ["DROP TABLE hidden"],
    ):  # fmt: skip
        connection = sqlite3.connect(path, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()


@pytest.mark.parametrize(
    ("index", "change"),
    [
        ("record_by_id", "UPDATE record SET id = zeroblob(15) || CAST(char(n) AS BLOB)"),
        ("record_by_place", "UPDATE record SET sequence = sequence + 100"),
    ],
)
def test_an_entry_that_leads_elsewhere_is_never_taken_for_the_record(path: Path, index: str, change: str):
    backend = SqliteBackend(path)
    save(backend, *range(1, 10))
    backend.close()
    change_behind_index(path, index, change)
    backend = SqliteBackend(path)
    assert (backend.records([record_id(3, TREE)])[0] is None) == (index == "record_by_id")
    with pytest.raises(CorruptError):
        dump(backend, SPACES)
    backend.close()


ONE = st.tuples(st.sampled_from(["save", "two", "blob", "delete", "again", "other"]), st.integers(1, 12))


@given(st.lists(ONE, max_size=40))
def test_any_order_of_commits_leaves_what_it_leaves_in_memory(commits: list[tuple[str, int]]):
    with tempfile.TemporaryDirectory() as folder:
        twin = MemoryBackend()
        stores = [SqliteBackend(Path(folder) / "store.db", durability="fast") for _ in range(2)]
        for kind, number in commits:
            batch = [Commit(TREE, record(number))]
            if kind == "two":
                batch.append(Commit(TREE, record(number + 1, session=b"other")))
            elif kind == "blob":
                batch = [Commit(TREE, record(number), blobs={hash_bytes(b"b"): b"b"})]
            elif kind == "delete":
                batch = [Commit(TREE, delete_records=[(record_id(number, TREE), b"record %d" % number)])]
            elif kind == "again":
                batch = [Commit(TREE, record(number)), Commit(TREE, record(number)), Commit(TREE, record(number + 1))]
            outcomes = stores[kind == "other"].commit_all(batch)
            expected = twin.commit_all(batch)
            assert [type(outcome) for outcome in outcomes] == [type(outcome) for outcome in expected]
        for store in stores:
            found = dump(store, SPACES)
            assert (found.records, found.sessions) == ((twin_found := dump(twin, SPACES)).records, twin_found.sessions)
            store.close()
