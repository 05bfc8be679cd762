"""verify and doctor."""

import json
import os
import sqlite3

import pytest


def test_verify_of_a_store_and_of_a_session(run, made):
    assert run("verify").stdout == "checked 4 checkpoints, 0 problems\n"
    report = json.loads(run("verify", "main", "--json").stdout)
    assert report == {"ok": True, "checked": 3, "expired": 0, "ended_chains": 0, "problems": []}


def test_verify_of_a_session_that_is_not_there(run, made):
    assert run("verify", "nobody").exit_code == 3


def damage_a_record(path, id_: str) -> None:
    connection = sqlite3.connect(path)
    raw = bytes.fromhex(id_.replace("-", ""))
    [data] = connection.execute("SELECT data FROM record WHERE id = ?", (raw,)).fetchone()
    flipped = bytes((*data[:-9], data[-9] ^ 1, *data[-8:]))
    connection.execute("UPDATE record SET data = ? WHERE id = ?", (flipped, raw))
    connection.commit()
    connection.close()


def test_damage_is_found_and_exits_with_5(run_process, run, made):
    damage_a_record(made.path, made.second)
    result = run_process("verify")
    assert result.returncode == 5
    assert made.second in result.stdout
    assert "Traceback" not in result.stderr
    report = run("verify", "--json")
    assert report.exit_code == 5
    [problem] = json.loads(report.stdout)["problems"]
    assert (problem["checkpoint_id"], problem["affected"]) == (made.second, [made.second])
    [damage, affected] = result.stdout.splitlines()[:-1]
    assert damage.startswith("damaged: the record of ")
    assert affected.split()[0] == made.second
    assert result.stdout.splitlines()[-1].endswith("1 whose parent has expired or is damaged")
    assert run("show", made.second).exit_code == 5
    assert run("timeline", "main").exit_code == 5
    assert run("timeline", "what-if").exit_code == 0


def test_a_file_that_is_no_database_exits_with_5(run, tmp_path):
    (tmp_path / "text.db").write_text("this is not a database at all, and it is long enough to be read as a header" * 9)
    for command in ("sessions", "timeline", "verify"):
        result = run("--store", "text.db", command)
        assert result.exit_code == 5
        assert "damaged" in result.stderr
    assert run("--store", "text.db", "doctor").exit_code == 5


def checks_of(result) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in json.loads(result.stdout)["checks"]}


def test_doctor_finds_all_well(run, made):
    result = run("doctor", "--json")
    assert result.exit_code == 0
    checks = checks_of(result)
    assert {check["status"] for name, check in checks.items() if name != "free space"} == {"ok"}
    assert checks["store"]["found"] == str(made.path)
    assert checks["backend"]["found"] == "sqlite"
    assert checks["mode"]["found"] == "0600"
    assert checks["sqlite"]["found"] == sqlite3.sqlite_version
    assert checks["checkpoints"]["found"] == "4"
    assert "upward" in checks["found by"]["found"]


def test_doctor_warns_of_a_store_that_others_can_read(run, made):
    made.path.chmod(0o644)
    result = run("doctor")
    assert result.exit_code == 0
    assert "chmod 600" in result.stderr


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write to everything")
def test_doctor_says_when_the_store_can_not_be_written(run, made):
    made.path.chmod(0o400)
    result = run("doctor", "--json")
    assert result.exit_code == 1
    assert checks_of(result)["writable"]["status"] == "fail"


def test_doctor_of_files(run, tmp_path):
    from holdfast import SyncClient

    with SyncClient.files(tmp_path / "tree") as client:
        client.save(agent_id="a", session_id="s")
    result = run("--store", "tree", "doctor", "--json")
    assert result.exit_code == 0
    assert checks_of(result)["backend"]["found"] == "files"
    assert "wal" not in checks_of(result)


def test_doctor_without_a_store_still_reports_the_installation(run):
    result = run("doctor", "--json")
    assert result.exit_code == 3
    checks = checks_of(result)
    assert checks["python"]["status"] == "ok"
    assert checks["store"]["status"] == "fail"
    assert "holdfast demo" in checks["store"]["advice"]
