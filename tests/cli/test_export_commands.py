"""`holdfast export` and `holdfast import FILE`."""

import json
import subprocess
import sys
from pathlib import Path

from holdfast import SyncClient


def test_there_and_back(run, made, tmp_path):
    result = run("export", "-o", "all.holdfast")
    assert result.exit_code == 0
    assert result.stdout.startswith("exported 4 checkpoints of 2 sessions, ")
    assert "holdfast import all.holdfast" in result.stderr
    result = run("import", "all.holdfast", "--store", "other.db")
    assert (result.exit_code, result.stdout) == (0, "imported 4 checkpoints of 2 sessions\n")
    result = run("import", "all.holdfast", "--store", "other.db")
    assert result.stdout == "imported 0 checkpoints of 0 sessions, 4 were here already\n"
    run("--store", "other.db", "export", "-o", "again.holdfast")
    assert Path("again.holdfast").read_bytes() == Path("all.holdfast").read_bytes()
    assert run("verify", "--store", "other.db").exit_code == 0


def test_sessions_and_their_trees(run, made):
    for args, sessions in ((["main"], 1), (["what-if"], 2), (["main", "--tree"], 2), (["main", "what-if"], 2)):
        result = run("export", *args, "-o", "x", "--force", "--json")
        assert json.loads(result.stdout)["sessions"] == sessions
    result = run("export", "nobody", "-o", "y")
    assert (result.exit_code, result.stdout) == (3, "")
    assert not Path("y").exists()


def test_a_file_that_is_there_is_not_replaced_unasked(run, made):
    Path("x").write_text("mine")
    result = run("export", "-o", "x")
    assert result.exit_code == 2
    assert "--force" in result.stderr
    assert Path("x").read_text() == "mine"
    assert run("export", "-o", "x", "--force").exit_code == 0


def test_json(run, made):
    exported = json.loads(run("export", "-o", "x", "--json").stdout)
    assert (exported["file"], exported["checkpoints"], exported["trees"]) == ("x", 4, 1)
    imported = json.loads(run("import", "x", "--json", "--store", "other.db").stdout)
    assert imported["digest"] == exported["digest"]
    assert (imported["imported"], imported["already_there"], imported["skipped"]) == (4, 0, [])


def test_checking_needs_no_store(run, made, tmp_path, monkeypatch):
    run("export", "-o", "x.holdfast")
    (tmp_path / "elsewhere").mkdir()
    Path("x.holdfast").rename("elsewhere/x.holdfast")
    made.path.unlink()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = run("import", "--check", "x.holdfast")
    assert result.exit_code == 0
    assert result.stdout.startswith("ok: 4 checkpoints of 2 sessions in 1 trees, ")
    assert [path.name for path in Path().iterdir()] == ["x.holdfast"]
    data = bytearray(Path("x.holdfast").read_bytes())
    data[len(data) // 2] ^= 1
    Path("x.holdfast").write_bytes(data)
    result = run("import", "--check", "x.holdfast")
    assert (result.exit_code, result.stdout) == (5, "")
    assert "damaged" in result.stderr
    assert run("import", "x.holdfast").exit_code == 5


def test_a_dry_run_makes_no_store(run, made, tmp_path):
    run("export", "-o", "x.holdfast")
    result = run("import", "x.holdfast", "--dry-run", "--store", "new.db")
    assert (result.exit_code, result.stdout) == (0, "would import 4 checkpoints of 2 sessions\n")
    assert not Path("new.db").exists()


def test_conflicts(run, made):
    run("export", "-o", "x.holdfast")
    with SyncClient.sqlite("other.db") as client:
        client.save("a", execution_state={}, session_id="main")
    result = run("import", "x.holdfast", "--store", "other.db")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "'main' is there already, in another tree" in result.stderr
    result = run("import", "x.holdfast", "--store", "other.db", "--skip-conflicts")
    assert result.exit_code == 4
    assert "imported 0 checkpoints of 0 sessions, 1 trees skipped" in result.stdout


def test_no_such_file(run, made):
    result = run("import", "missing.holdfast", "--store", "new.db")
    assert result.exit_code == 3
    assert "missing.holdfast could not be read: there is no such file" in result.stderr
    assert not Path("new.db").exists()


def test_pipes(made, tmp_path):
    out = subprocess.run(
        [sys.executable, "-m", "holdfast", "export", "-o", "-"], capture_output=True, cwd=tmp_path, check=True
    )
    assert b"exported 4 checkpoints" in out.stderr
    back = subprocess.run(
        [sys.executable, "-m", "holdfast", "--store", "other.db", "import", "-"],
        input=out.stdout,
        capture_output=True,
        cwd=tmp_path,
        check=True,
    )
    assert back.stdout == b"imported 4 checkpoints of 2 sessions\n"


def test_stdout_is_for_one_thing(run, made):
    result = run("export", "-o", "-", "--json")
    assert (result.exit_code, result.stdout) == (2, "")


def test_what_has_outlived_its_time_to_live_is_left_out_and_said(run, made, tmp_path):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        client.save("a", session_id="short", execution_state={"n": 1}, ttl_seconds=0.001)
        client.save("a", session_id="short", execution_state={"n": 2})
    result = run("export", "short", "-o", "short.holdfast")
    assert result.exit_code == 0
    assert "left out 1 checkpoint: the time to live is over" in result.stderr
    assert json.loads(run("export", "short", "-o", "again.holdfast", "--json").stdout)["expired_by_ttl"] == 1
