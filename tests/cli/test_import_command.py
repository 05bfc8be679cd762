"""`holdfast import`."""

import asyncio
import json
import sqlite3
from datetime import datetime

import checkpnt
import pytest

from holdfast import SyncFileCheckpoints


def test_an_unknown_first_word_names_what_there_is(run):
    result = run("import", "nonsense")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "holdfast import checkpnt" in result.stderr


@pytest.fixture
def theirs(tmp_path) -> str:
    """A checkpnt database of three rows, of which one holds a datetime and one can't be read."""

    async def fill() -> None:
        async with checkpnt.Client.sqlite("theirs.db") as client:
            for n in range(3):
                state = {"n": n, "due": datetime(2026, 1, 1)} if n == 1 else {"n": n}
                await client.save("worker", checkpnt.Framework.CUSTOM, state, session_id="run", step_index=n)

    asyncio.run(fill())
    connection = sqlite3.connect("theirs.db")
    connection.execute("UPDATE checkpoints SET payload = x'c1' WHERE step_index = 2")
    connection.commit()
    connection.close()
    return "theirs.db"


def test_import_makes_a_store_says_what_it_could_not_read_and_exits_with_1(run, theirs, tmp_path):
    result = run("import", "checkpnt", theirs)
    assert result.exit_code == 1
    warning, skipped, summary = result.stdout.splitlines()
    assert warning.startswith("warning  row 2: datetimes")
    assert skipped.startswith("skipped  row 3 (")
    assert "MessagePack" in skipped
    assert summary == (
        "imported 2 checkpoints of 1 sessions, 1 of them could no longer be restored there, 1 warnings, 1 skipped"
    )
    assert (tmp_path / ".holdfast" / "store.db").exists()
    assert len(json.loads(run("timeline", "run", "--json").stdout)["checkpoints"]) == 2
    assert "2 were here already" in run("import", "checkpnt", theirs).stdout


def test_import_as_json(run, theirs):
    result = run("import", "checkpnt", theirs, "--json", "--store", "new.db")
    report = json.loads(result.stdout)
    assert [report[name] for name in ("ok", "imported", "already", "recovered", "expired")] == [False, 2, 0, 1, 0]
    assert (report["source"], report["dry_run"], report["sessions"]) == (theirs, False, ["run"])
    [skipped], [warning] = report["skipped"], report["warnings"]
    assert (skipped["where"], warning["where"]) == ("row 3", "row 2")
    assert skipped.keys() == {"where", "checkpoint_id", "message"}


def test_a_dry_run_makes_no_store(run, theirs, tmp_path):
    result = run("import", "checkpnt", theirs, "--dry-run")
    assert "would import 2 checkpoints" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == [theirs]


def test_import_of_a_directory(run, tmp_path):
    SyncFileCheckpoints(".checkpoints").save("s", {"step": 1})
    result = run("import", "providerprotocol", ".checkpoints")
    assert (result.exit_code, result.stdout) == (0, "imported 1 checkpoints of 1 sessions\n")


def test_sources_that_are_not_there(run, tmp_path):
    for program in ("checkpnt", "providerprotocol"):
        result = run("import", program, "nothing")
        assert (result.exit_code, result.stdout) == (3, "")


def test_names_from_the_source_can_not_speak_to_the_terminal(run, theirs):
    connection = sqlite3.connect(theirs)
    connection.execute("UPDATE checkpoints SET checkpoint_id = '\x1b[31mred' WHERE step_index = 2")
    connection.commit()
    connection.close()
    result = run("import", "checkpnt", theirs)
    assert "\x1b" not in result.stdout
    assert "\\x1b[31mred" in result.stdout
