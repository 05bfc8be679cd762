"""Changes of other programs to a SQLite store: the next writer repairs them, readers change nothing."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from sqlite_attacks import change, make_store

from holdfast import SyncClient
from holdfast.backends.sqlite import schema
from holdfast.backends.sqlite.backend import SqliteBackend

SAVE = """
import sys
from holdfast import SyncClient
with SyncClient.sqlite(sys.argv[1]) as client:
    sys.stdin.readline()
    for number in range(10):
        client.save("a", session_id=sys.argv[2], execution_state={"n": number})
"""
# A writer that is killed: the WAL is left as it is.
KILLED = """
import os, signal, sys
from holdfast import SyncClient
client = SyncClient.sqlite(sys.argv[1])
for number in range(3):
    client.save("a", session_id="killed", execution_state={"n": number})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def journal_mode(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def hashes(directory: Path) -> dict[str, str]:
    """Of all files but SQLite's own."""
    return {
        str(file.relative_to(directory)): sha256(file.read_bytes()).hexdigest()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and not file.name.endswith(("-shm", "-wal"))
    }


def make_full_commit(client: SyncClient) -> list[object]:
    entries = client.timeline(session_id="s")
    return [
        client.session_ids(),
        [client.restore(entry.checkpoint_id).execution_state for entry in entries],
        client.latest(session_id="s").execution_state,
        client.stats().checkpoints,
        client.verify().problems,
    ]


@pytest.fixture
def copied(path: Path, tmp_path: Path) -> Path:
    """A copy by VACUUM INTO, as the documentation has it: in journal mode `delete`."""
    make_store(path)
    copy = tmp_path / "copy.db"
    change(path, [f"VACUUM INTO '{copy}'"])
    assert journal_mode(copy) == "delete"
    return copy


def test_the_first_writer_puts_a_copy_into_wal_mode(copied: Path):
    with SyncClient.sqlite(copied) as client:
        assert len(make_full_commit(client)) == 5
        assert journal_mode(copied) == "delete"
        client.save("a", session_id="s", execution_state={"n": 1})
        assert journal_mode(copied) == "wal"
        assert client.verify().problems == ()


def test_writers_of_a_copy_go_on_beside_a_reader(copied: Path):
    with SyncClient.sqlite(copied, timeout=0.5) as writer:
        writer.save("a", session_id="s", execution_state={"n": 0})
        with closing(sqlite3.connect(copied, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM record").fetchone() == (6,)
            for number in range(3):
                writer.save("a", session_id="s", execution_state={"n": number})
            assert reader.execute("SELECT count(*) FROM record").fetchone() == (6,)


def test_a_reader_that_was_there_before_the_writer_reads_on(copied: Path):
    with SyncClient.sqlite(copied) as reader, SyncClient.sqlite(copied) as writer:
        before = make_full_commit(reader)
        saved = writer.save("a", session_id="t", execution_state={"n": 1})
        assert reader.restore(saved).execution_state == {"n": 1}
        assert make_full_commit(reader)[1:3] == before[1:3]
        reader.save("a", session_id="t", execution_state={"n": 2})
        assert len(writer.timeline(session_id="t")) == 2


@pytest.mark.slow
def test_several_processes_that_save_to_a_copy_at_once(copied: Path):
    processes = [
        subprocess.Popen([sys.executable, "-c", SAVE, str(copied), f"p{n}"], stdin=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda process: process.communicate("go\n"), processes))
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    with SyncClient.sqlite(copied) as client:
        assert [len(client.timeline(session_id=f"p{n}")) for n in range(4)] == [10] * 4
        assert client.verify().problems == ()


@pytest.mark.parametrize("statements", [
    ["PRAGMA journal_mode=DELETE"],
    ["PRAGMA journal_mode=TRUNCATE"],
    ["PRAGMA journal_mode=DELETE", "PRAGMA page_size=1024", "VACUUM"],
    ["PRAGMA journal_mode=DELETE", "PRAGMA auto_vacuum=INCREMENTAL", "VACUUM"],
    ["VACUUM"],
    ["REINDEX", "ANALYZE"],
])  # fmt: skip
def test_what_another_program_did_is_put_right_by_the_next_writer(path: Path, statements: list[str]):
    make_store(path)
    change(path, statements)
    with SyncClient.sqlite(path) as client:
        saved = client.save("a", session_id="s", execution_state={"n": 1})
        assert client.restore(saved).execution_state == {"n": 1}
    assert journal_mode(path) == "wal"
    with SyncClient.sqlite(path) as client:
        assert next(entry.sequence for entry in client.timeline(session_id="s")) == 6
        assert client.latest(session_id="s").execution_state == {"n": 1}


@pytest.mark.parametrize("statements", [
    [],
    ["PRAGMA journal_mode=DELETE"],
    ["PRAGMA journal_mode=DELETE", "VACUUM"],
], ids=["as it is", "another journal mode", "vacuumed"])  # fmt: skip
def test_reading_changes_no_file(path: Path, tmp_path: Path, statements: list[str]):
    make_store(path)
    change(path, statements)
    before = hashes(tmp_path)
    with SyncClient.sqlite(path) as client:
        assert len(make_full_commit(client)) == 5
    assert hashes(tmp_path) == before


def test_reading_what_a_killed_writer_left_brings_nothing_home(path: Path, tmp_path: Path):
    make_store(path)
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    wal = path.with_name("store.db-wal")
    before, in_wal = hashes(tmp_path), wal.read_bytes()
    assert in_wal
    for _ in range(2):
        with SyncClient.sqlite(path) as client, ThreadPoolExecutor(1) as pool:
            assert pool.submit(client.session_ids).result() == ["killed", "s"]
            assert len(client.timeline(session_id="killed")) == 3
        assert hashes(tmp_path) == before
        assert wal.read_bytes() == in_wal
    with SyncClient.sqlite(path) as client:
        client.save("a", session_id="killed", execution_state={"n": 3})
    assert not wal.exists()
    assert hashes(tmp_path) != before


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_older_schema_is_read_as_it_is_and_upgraded_by_the_first_save(path: Path, tmp_path: Path, version: int):
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.execute("PRAGMA journal_mode=WAL")
        for number in range(version):
            schema.migrate(old, number + 1)
        old.execute("VACUUM")
    before = hashes(tmp_path)
    with SyncClient.sqlite(path) as client:
        assert client.session_ids() == []
        assert client.verify().checked == 0
    assert hashes(tmp_path) == before
    with SyncClient.sqlite(path) as reader, SyncClient.sqlite(path) as writer:
        assert reader.session_ids() == []
        writer.save("a", session_id="s", execution_state={"n": 1})
        assert reader.latest(session_id="s").execution_state == {"n": 1}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA,)


def test_getting_ready_changes_nothing_either(copied: Path, tmp_path: Path):
    before = hashes(tmp_path)
    backend = SqliteBackend(copied)
    backend.get_ready()
    backend.close()
    assert hashes(tmp_path) == before
