"""The command line on SQLite files of other programs: refuses them at once, and changes nothing."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import SyncClient

ENDLESS_VIEW = [
    "PRAGMA legacy_alter_table=ON", "DROP VIEW checkpoint", "ALTER TABLE session RENAME TO hidden",
    ("CREATE VIEW session AS WITH RECURSIVE forever(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM forever) "
    "SELECT n, x'00' AS id FROM forever"),
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / ".holdfast" / "store.db"
    with SyncClient.sqlite(path) as client:
        client.save("a", session_id="s", execution_state={"n": 1})
    return path


def change(path: Path, *statements: str) -> bytes:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path.read_bytes()


@pytest.mark.slow
def test_a_view_that_never_ends_is_refused_at_once(run_process, store: Path):
    before = change(store, *ENDLESS_VIEW)
    for command in (("sessions",), ("verify",), ("timeline", "s")):
        done = run_process(*command)
        assert (done.returncode, done.stdout) == (5, "")
        assert "'session' is a view" in done.stderr
        assert "Traceback" not in done.stderr
    assert store.read_bytes() == before


def test_a_trigger_is_named_with_what_to_do(run, store: Path):
    before = change(store, "CREATE TRIGGER eats AFTER INSERT ON record BEGIN DELETE FROM record; END")
    for command in (("sessions",), ("gc",)):
        result = run(*command)
        assert result.exit_code == 5
        assert "the trigger 'eats' on 'record'" in result.output
        assert "DROP TRIGGER" in result.output
    assert store.read_bytes() == before


def test_a_database_of_another_program_is_named(run, tmp_path: Path):
    other = tmp_path / "other.db"
    before = change(other, "CREATE TABLE checkpoints (thread_id TEXT)")
    result = run("sessions", "--store", str(other))
    assert result.exit_code == 2
    assert "another program (its tables: checkpoints)" in result.output
    assert other.read_bytes() == before


@pytest.mark.parametrize("command", ["sessions", "verify", "du", "doctor"])
def test_no_reading_command_makes_a_store_of_an_empty_file(run, tmp_path: Path, command: str):
    empty = tmp_path / ".holdfast" / "store.db"
    empty.parent.mkdir()
    empty.touch()
    result = run(command)
    assert result.exit_code == 3
    assert "there is no store" in result.output
    assert empty.read_bytes() == b""
