"""`holdfast copy`."""

import json
from pathlib import Path

from holdfast import SyncClient


def test_a_store_into_one_of_another_kind(run, made):
    result = run("copy", ".holdfast/store.db", f"file://{Path.cwd()}/copied")
    assert result.exit_code == 0
    assert result.stdout.startswith("copied 4 checkpoints of 4 in 2 sessions; ")
    assert run("verify", "--store", "copied").exit_code == 0
    assert run("timeline", "main", "--store", "copied").stdout == run("timeline", "main").stdout
    again = run("copy", ".holdfast/store.db", "copied")
    assert again.stdout.startswith("copied 0 checkpoints of 4 in 2 sessions, 4 were there already; ")


def test_json(run, made):
    result = run("copy", ".holdfast/store.db", "other.db", "--json")
    said = json.loads(result.stdout)
    assert (said["source"], said["target"]) == (".holdfast/store.db", "other.db")
    assert (said["copied"], said["already_there"], said["skipped"]) == (4, 0, [])


def test_what_differs(run, made):
    with SyncClient.sqlite("other.db") as other:
        other.save("somebody", execution_state={}, session_id="main")
    result = run("copy", ".holdfast/store.db", "other.db")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "main" in result.stderr
    result = run("copy", ".holdfast/store.db", "other.db", "--skip-conflicts")
    assert result.exit_code == 4
    assert result.stdout.startswith("copied 0 checkpoints")
    assert result.stderr.startswith("left out: ")


def test_a_source_that_is_not_there(run, made):
    result = run("copy", "nowhere.db", "other.db")
    assert result.exit_code == 3
    assert not Path("other.db").exists()
