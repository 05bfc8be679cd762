"""A SQLite file from a stranger: refused or harmless; it never hangs, no foreign trigger runs."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import struct
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlite_attacks import change, make_store, share_pages

from holdfast import SyncClient
from holdfast.backends.sqlite import call_limits, schema, schema_objects
from holdfast.errors import CorruptError, HoldfastError, NewerVersionError, UsageError

FOREVER = "WITH RECURSIVE forever(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM forever)"
REDEFINED = "PRAGMA writable_schema=ON"


def redefine(name: str, old: str, new: str) -> list[str]:
    return [REDEFINED, f"UPDATE sqlite_master SET sql = replace(sql, '{old}', '{new}') WHERE name = '{name}'"]


ATTACKS = {
    "a view that never ends where a table belongs": (
        ["DROP VIEW checkpoint", "ALTER TABLE record RENAME TO hidden",
         (f"CREATE VIEW record AS {FOREVER} SELECT n, x'00' AS id, 1 AS session, n AS sequence, x'00' AS data "
         "FROM forever")],
        "'record'",
    ),
    "a view besides": ([f"CREATE VIEW more AS {FOREVER} SELECT n FROM forever"], "the view 'more'"),
    "a trigger that deletes": (
        ["CREATE TRIGGER eats AFTER INSERT ON record BEGIN DELETE FROM record WHERE n < new.n; END"],
        "the trigger 'eats' on 'record'",
    ),
    "a trigger that repeats": (
        ["CREATE TRIGGER twice AFTER INSERT ON run BEGIN INSERT INTO run VALUES (new.k + 1, 1, new.data); END"],
        "the trigger 'twice' on 'run'",
    ),
    "our own index, of something else": (
        ["DROP INDEX record_by_ending", "CREATE INDEX record_by_ending ON record (hex(zeroblob(100000)))"],
        "'record_by_ending' is defined differently",
    ),
    "a trigger that schema 4 had": (
        ["CREATE TRIGGER record_deleted AFTER DELETE ON record BEGIN DELETE FROM blob; END"],
        "the trigger 'record_deleted' on 'record'",
    ),
    "a column that is computed": (
        ["DROP TABLE deleted", "CREATE TABLE deleted (n INTEGER PRIMARY KEY, m AS (hex(zeroblob(n * 100000000))))"],
        "'deleted' is defined differently",
    ),
    "a check": (redefine("run", "length INTEGER NOT NULL", "length INTEGER NOT NULL CHECK (length < 2)"), "'run'"),
    "a default": (redefine("blob", "hash BLOB NOT NULL", "hash BLOB NOT NULL DEFAULT (1)"), "'blob'"),
    "another kind of table": (
        ["DROP TABLE deleted", "CREATE TABLE deleted (n INTEGER PRIMARY KEY) WITHOUT ROWID"], "'deleted'"
    ),
    "a virtual table": (["CREATE VIRTUAL TABLE words USING fts5(word)"], "the virtual table 'words'"),
    "an index of what is computed": (
        ["CREATE INDEX slow ON record (hex(zeroblob(10)))"], "the index 'slow' on 'record'",
    ),
    "an index of what is computed, on a table of theirs": (
        ["CREATE TABLE theirs (a)", "CREATE INDEX slow ON theirs (hex(zeroblob(10)))"], "the index 'slow' on 'theirs'",
    ),
    "an index that says it is on another table": (
        ["CREATE TABLE theirs (a)", "CREATE UNIQUE INDEX one ON record (id)", REDEFINED,
         "UPDATE sqlite_master SET tbl_name = 'theirs' WHERE name = 'one'"], "malformed database schema",
    ),
    "a trigger that says it is a table": (
        ["CREATE TRIGGER eats AFTER INSERT ON run BEGIN DELETE FROM run; END", REDEFINED,
         "UPDATE sqlite_master SET type = 'table', tbl_name = 'eats' WHERE name = 'eats'"], "eats",
    ),
    "a table that is missing": (["DROP TABLE blob"], "the table 'blob'"),
    "a thousand and one tables": ([f"CREATE TABLE t{number} (a)" for number in range(1001)], "more than 1000"),
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.mark.parametrize(("statements", "named"), ATTACKS.values(), ids=ATTACKS.keys())
def test_what_sqlite_would_run_is_refused_by_name_and_nothing_is_changed(path: Path, statements: list[str], named: str):
    make_store(path)
    try:
        change(path, statements)
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite can't make one: {error}")
    before = path.read_bytes()
    with pytest.raises(CorruptError) as refused:
        SyncClient.sqlite(path)
    assert named in str(refused.value)
    assert str(path) in str(refused.value)
    assert path.read_bytes() == before


def test_a_refused_file_stays_as_it_is_with_what_is_in_its_wal(path: Path, tmp_path: Path):
    make_store(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TRIGGER eats AFTER INSERT ON record BEGIN DELETE FROM record; END")
        left = tmp_path / "left"
        left.mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", left / f"store.db{suffix}")
    before = {file.name: file.read_bytes() for file in left.iterdir()}
    assert before["store.db-wal"]
    for _ in range(2):
        with pytest.raises(CorruptError, match="the trigger 'eats'"):
            SyncClient.sqlite(left / "store.db")
        assert {file.name: file.read_bytes() for file in left.iterdir() if file.name in before} == before


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_expected_objects_are_those_of_the_migrations(version: int):
    expected = schema_objects.expected_objects(version)
    assert schema_objects.digest_of(expected) == schema_objects.DIGESTS[version]
    assert {one.name for one in expected} >= {"record", "run", "blob", "row", "session", "checkpoint"}


def test_each_version_of_the_schema_has_a_digest():
    assert sorted(schema_objects.DIGESTS) == list(range(1, schema.SCHEMA + 1))


def test_our_numbers_without_our_tables_are_no_store(path: Path):
    marked = [f"PRAGMA application_id={schema.APPLICATION_ID}", f"PRAGMA user_version={schema.SCHEMA}"]
    change(path, marked)
    with pytest.raises(CorruptError, match=r"has none of its tables.*Restore a backup"):
        SyncClient.sqlite(path)
    change(path, [f"PRAGMA user_version={schema.SCHEMA + 1}"])
    with pytest.raises(NewerVersionError):
        SyncClient.sqlite(path)


@pytest.mark.parametrize("statements", [
    ["CREATE TABLE checkpoints (thread_id TEXT)", "CREATE TABLE writes (a)"],
    ["CREATE TABLE checkpoints (thread_id TEXT)", "PRAGMA user_version=3"],
    ["CREATE TABLE checkpoints (thread_id TEXT)", "PRAGMA application_id=7"],
])  # fmt: skip
def test_a_file_of_another_program_is_named_as_such(path: Path, statements: list[str]):
    change(path, statements)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"database of another program \(its tables: checkpoints.*file of its own"):
        SyncClient.sqlite(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("statement", ["PRAGMA user_version=3", "PRAGMA application_id=7"])
def test_an_empty_file_that_another_program_has_marked_is_not_taken(path: Path, statement: str):
    change(path, [statement])
    with pytest.raises(UsageError, match="marked as its own"):
        SyncClient.sqlite(path)


def test_ordinary_tables_of_others_and_statistics_are_left_alone(path: Path):
    make_store(path)
    change(path, ["CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER UNIQUE)", "ANALYZE",
                  "INSERT INTO _litestream_seq VALUES (1, 7)",
                      "CREATE INDEX theirs ON _litestream_seq (seq)"])  # fmt: skip
    with SyncClient.sqlite(path) as client:
        client.save("a", session_id="s", execution_state={"n": 1})
        assert client.verify().problems == ()
        client.gc()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM _litestream_seq").fetchall() == [(1, 7)]


def test_what_recover_makes_of_a_store_is_one(path: Path, tmp_path: Path):
    """The SQL of `.dump` and `.recover`, which restores the objects by their own text."""
    make_store(path)
    again = tmp_path / "again.db"
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(again)) as other:
        other.executescript("\n".join(connection.iterdump()))
        for pragma in ("application_id", "user_version"):
            other.execute(f"PRAGMA {pragma}={connection.execute(f'PRAGMA {pragma}').fetchone()[0]}")
        other.commit()
    with SyncClient.sqlite(again) as client:
        assert client.verify().checked == 5


@pytest.mark.slow
@pytest.mark.parametrize("table", ["run", "record"])
def test_a_table_whose_pages_share_their_children_ends_in_an_error(path: Path, table: str, monkeypatch):
    monkeypatch.setattr(call_limits, "SECONDS", 0.2)
    make_store(path)
    share_pages(path, table)
    with SyncClient.sqlite(path) as client, pytest.raises(CorruptError, match="more than the file can hold"):
        client.stats()


@pytest.mark.parametrize("table", ["record", "record_by_id", "record_by_place", "row"])
def test_saving_to_one_ends_too(path: Path, table: str, monkeypatch):
    """A save reads by keys, so it may also succeed."""
    monkeypatch.setattr(call_limits, "WRITING_SECONDS", 0.2)
    make_store(path)
    share_pages(path, table)
    began = time.monotonic()
    with SyncClient.sqlite(path) as client, suppress(CorruptError):
        client.save("a", session_id="new", execution_state={})
    assert time.monotonic() - began < 30


def test_a_page_that_comes_again_and_again_ends_a_listing(path: Path):
    """Reading the table page by page would never end."""
    make_store(path)
    share_pages(path, "record", levels=1)
    with SyncClient.sqlite(path) as client, pytest.raises(CorruptError):
        list(client.events(follow=False))


def test_a_page_of_an_index_that_comes_again_and_again_ends_a_listing(path: Path):
    make_store(path)
    share_pages(path, "record_by_place", levels=1)
    with SyncClient.sqlite(path) as client, pytest.raises(CorruptError):
        client.timeline(session_id="s")


@pytest.mark.parametrize("beside", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("is_there", [True, False])
def test_no_link_beside_the_store_is_followed(path: Path, tmp_path: Path, beside: str, is_there: bool):
    make_store(path)
    theirs = tmp_path / "elsewhere" / "authorized_keys"
    theirs.parent.mkdir()
    if is_there:
        theirs.write_bytes(b"ssh-ed25519 AAAA")
    path.with_name(f"{path.name}{beside}").symlink_to(theirs)
    with pytest.raises(CorruptError, match=f"{beside} is a link"):
        SyncClient.sqlite(path)
    assert (theirs.read_bytes() if is_there else theirs.exists()) == (b"ssh-ed25519 AAAA" if is_there else False)


def test_a_journal_that_names_a_file_to_delete_is_not_rolled_back(path: Path, tmp_path: Path):
    """SQLite deletes the super-journal that a journal names, once it is rolled back: whatever file that is."""
    make_store(path)
    theirs = tmp_path / "authorized_keys"
    theirs.write_bytes(b"ssh-ed25519 AAAA\n")
    change(path, ["PRAGMA journal_mode=DELETE"])
    name = os.fsencode(theirs)
    header = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", 0, 1, path.stat().st_size // 4096, 512, 4096)
    named = struct.pack(">I", (1 << 30) // 4096 + 1) + name + struct.pack(">II", len(name), sum(name))
    journal = header.ljust(512, b"\0") + named + bytes.fromhex("d9d505f920a163d7")
    path.with_name(f"{path.name}-journal").write_bytes(journal)
    with pytest.raises(CorruptError, match="names another journal"):
        SyncClient.sqlite(path)
    assert theirs.read_bytes() == b"ssh-ed25519 AAAA\n"


def leave_hot_journal(path: Path) -> None:
    """A store as a program leaves it that was killed while it wrote in journal mode DELETE."""
    change(path, ["PRAGMA journal_mode=DELETE"])
    files = [path, path.with_name(f"{path.name}-journal")]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size=1")  # so that changed pages are in the file before the commit
        connection.execute("BEGIN")
        connection.execute("DELETE FROM record")
        connection.execute(
            f"INSERT INTO blob {FOREVER} SELECT NULL, randomblob(32), 0, randomblob(900) FROM forever LIMIT 900"
        )
        left = [file.read_bytes() for file in files]
    for file, content in zip(files, left, strict=True):
        file.write_bytes(content)


def test_readers_roll_no_journal_back_and_the_next_writer_does(path: Path, tmp_path: Path):
    make_store(path)
    leave_hot_journal(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert path.with_name(f"{path.name}-journal").name in before
    with SyncClient.sqlite(path) as client:
        assert len(client.timeline(session_id="s")) == 5
        assert client.verify().ok
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    with SyncClient.sqlite(path) as client:
        client.save("a", session_id="s", execution_state={"n": 1})
        assert len(client.timeline(session_id="s")) == 6
        assert client.verify().ok
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert not path.with_name(f"{path.name}-journal").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_changed_bytes_end_in_an_error_of_ours_or_the_same_answers(path: Path, tmp_path: Path, seed: int):
    """A store with its WAL, as a crash leaves it. A save to a damaged store raises nothing else, either."""
    chosen = random.Random(seed)
    client = SyncClient.sqlite(path, durability="fast")
    for number in range(5):
        client.save("a", session_id="s", execution_state={"m": [f"{number}" * 900] * (10 + number)})
    whole = tmp_path / "whole"
    whole.mkdir()
    for name in (path.name, f"{path.name}-wal"):
        shutil.copy(tmp_path / name, whole / name)
    known = {entry.checkpoint_id: client.restore(entry.checkpoint_id) for entry in client.timeline(session_id="s")}
    client.close()
    for round_ in range(40):
        damaged = tmp_path / f"{round_}" / path.name
        damaged.parent.mkdir()
        for name in (path.name, f"{path.name}-wal"):
            shutil.copy(whole / name, damaged.with_name(name))
        file = chosen.choice((damaged, damaged.with_name(f"{path.name}-wal")))
        data = bytearray(file.read_bytes())
        for _ in range(chosen.choice((1, 3, 20))):
            data[chosen.randrange(min(len(data), chosen.choice((100, 4096, len(data)))))] = chosen.randrange(256)
        file.write_bytes(data)
        with suppress(HoldfastError), SyncClient.sqlite(damaged, durability="fast") as client:
            for checkpoint_id, checkpoint in known.items():
                with suppress(HoldfastError):
                    assert client.restore(checkpoint_id).execution_state == checkpoint.execution_state
            for ask in (client.stats, client.verify, client.session_ids):
                with suppress(HoldfastError):
                    ask()
            client.save("a", session_id="t", execution_state={"n": 1})
        shutil.rmtree(damaged.parent)
