"""Records that SQLite finds before and after they are put into the tables that lead to them; by everybody, whatever comes next."""

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends import sqlite_index, sqlite_schema
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.port import Commit, CommitConflict
from holdfast.backends.sqlite import SqliteBackend
from holdfast.errors import CorruptError
from holdfast.testing.harness import SPACES, TREE, record, record_id, sha256
from holdfast.testing.snapshot import dump


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


def test_they_are_put_into_the_tables_many_at_a_time(backend: SqliteBackend, path: Path):
    counts = set()
    for number in range(1, 3 * sqlite_index.AT_ONCE):
        save(backend, number)
        counts |= set(asked(path, "SELECT count(*), (SELECT count(*) FROM record_by_place) FROM record_by_id"))
    assert counts == {(n * sqlite_index.AT_ONCE, n * sqlite_index.AT_ONCE) for n in range(3)}


def test_so_are_those_of_commits_of_every_kind(backend: SqliteBackend, path: Path):
    for number in range(1, 3 * sqlite_index.AT_ONCE):
        backend.commit_all([Commit(TREE, record(number), blobs={sha256(b"b"): b"b"})])
    [(above,)] = asked(path, "SELECT count(*) FROM record WHERE n > (SELECT n FROM indexed)")
    assert above < sqlite_index.AT_ONCE


def test_they_are_found_before_and_after(backend: SqliteBackend, path: Path):
    twin = MemoryBackend()
    last = sqlite_index.AT_ONCE + 10
    for store in (backend, twin):
        save(store, *range(1, last + 1))
    other = SqliteBackend(path)
    for store in (backend, other):
        assert dump(store, SPACES).differences(dump(twin, SPACES)) == []
        for number in (1, sqlite_index.AT_ONCE, sqlite_index.AT_ONCE + 1, last):
            assert store.records([record_id(number, TREE)]) == twin.records([record_id(number, TREE)])
            assert store.find_ids(f"{number:08x}") == [record_id(number, TREE)]
            assert store.session_records(b"run-001", before=number + 1, limit=3) == twin.session_records(
                b"run-001", before=number + 1, limit=3
            )
        assert store.records([record_id(last + 1, TREE)]) == [None]
        assert store.page_records(record_id(last - 12, TREE), 5) == twin.page_records(record_id(last - 12, TREE), 5)
    other.close()


@pytest.mark.parametrize("number", [3, sqlite_index.AT_ONCE + 3])
def test_an_id_or_a_place_that_is_taken_is_refused(backend: SqliteBackend, path: Path, number: int):
    """Whether the record is in the tables or above them; known, or made by another process."""
    save(backend, *range(1, sqlite_index.AT_ONCE + 10))
    other = SqliteBackend(path)
    same_id = Commit(TREE, record(1000)._replace(id=record_id(number, TREE)))
    same_place = Commit(TREE, record(number)._replace(id=record_id(1000, TREE)))
    for store in (backend, other):
        before = dump(store, SPACES)
        assert is_refused(store, same_id, same_place)
        assert is_refused(store, Commit(TREE, same_id.record, blobs={sha256(b"b"): b"b"}))
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


@pytest.mark.parametrize("number", [3, sqlite_index.AT_ONCE + 3])
def test_what_is_deleted_is_gone_from_the_tables_and_its_id_free(backend: SqliteBackend, path: Path, number: int):
    save(backend, *range(1, sqlite_index.AT_ONCE + 10))
    gone = Commit(TREE, delete_records=[(record_id(number, TREE), b"record %d" % number)])
    assert backend.commit_all([gone]) == [None]
    assert asked(path, "SELECT n FROM record_by_id WHERE id = ?", record_id(number, TREE)) == []
    assert asked(path, "SELECT n FROM record_by_place WHERE sequence = ?", number) == []
    save(backend, number)
    save(backend, *range(1000, 1000 + sqlite_index.AT_ONCE))
    assert backend.records([record_id(number, TREE)])[0] == record(number)[:4]


def test_another_process_that_writes_is_seen(path: Path):
    one, two = SqliteBackend(path), SqliteBackend(path)
    for number in range(1, 3 * sqlite_index.AT_ONCE, 2):
        save(one, number)
        assert is_refused(two, Commit(TREE, record(number)))
        save(two, number + 1)
        assert is_refused(one, Commit(TREE, record(number + 1)))
    assert dump(one, SPACES) == dump(two, SPACES)
    [(above,)] = asked(path, "SELECT count(*) FROM record WHERE n > (SELECT n FROM indexed)")
    assert above < sqlite_index.AT_ONCE
    one.close()
    two.close()


def test_a_store_of_schema_2_is_migrated_when_it_is_opened(path: Path):
    old = sqlite3.connect(path, isolation_level=None)
    old.execute("PRAGMA journal_mode=WAL")
    for number in (1, 2):
        sqlite_schema._migrate(old, number)
    old.execute("INSERT INTO session (id) VALUES (?)", (b"run-001",))
    for n, number in ((4, 1), (7, 2), (9, 3)):
        put = "INSERT INTO record (n, id, session, sequence, data, step_name) VALUES (?, ?, 1, ?, ?, 'x')"
        old.execute(put, (n, record_id(number, TREE), number, b"record %d" % number))
    old.close()
    backend = SqliteBackend(path)
    assert [(change.position, change.record) for change in backend.changes(0, 9)] == [
        (n, record(number)[:4]) for n, number in ((4, 1), (7, 2), (9, 3))
    ]
    assert is_refused(backend, Commit(TREE, record(2)))
    save(backend, 4)
    assert [found.sequence for found in backend.session_records(b"run-001")] == [4, 3, 2, 1]
    assert asked(
        path, "SELECT sequence, step_name FROM checkpoint WHERE session_id = 'run-001' AND step_name = 'x'"
    ) == [(number, "x") for number in (1, 2, 3)]
    assert asked(path, "SELECT name FROM sqlite_master WHERE name LIKE '%before%'") == []
    backend.close()


@pytest.mark.parametrize("change", ["UPDATE record_by_id SET n = n + 1", "UPDATE record_by_place SET n = n + 1"])
def test_an_entry_that_leads_elsewhere_is_never_taken_for_the_record(backend: SqliteBackend, path: Path, change: str):
    save(backend, *range(1, sqlite_index.AT_ONCE + 1))
    asked(path, change)
    found = backend.records([record_id(3, TREE)])[0]
    assert found in (None, record(3)[:4])
    with pytest.raises(CorruptError):
        dump(backend, SPACES)


ONE = st.tuples(st.sampled_from(["save", "two", "blob", "delete", "again", "other"]), st.integers(1, 12))


@given(st.lists(ONE, max_size=40), st.integers(1, 5))
def test_any_order_of_commits_leaves_what_it_leaves_in_memory(commits: list[tuple[str, int]], at_once: int):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_index, "AT_ONCE", at_once)
        twin = MemoryBackend()
        stores = [SqliteBackend(Path(folder) / "store.db", durability="fast") for _ in range(2)]
        for kind, number in commits:
            batch = [Commit(TREE, record(number))]
            if kind == "two":
                batch.append(Commit(TREE, record(number + 1, session=b"other")))
            elif kind == "blob":
                batch = [Commit(TREE, record(number), blobs={sha256(b"b"): b"b"})]
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
