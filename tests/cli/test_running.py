"""runs, status: who is at work, what waits, what has stopped."""

import json

import pytest

from holdfast import SyncClient


@pytest.fixture
def client(made):
    with SyncClient.sqlite(made.path) as client:
        yield client


def test_runs_says_which_are_alive_which_wait_and_which_have_stopped(run, client):
    with client.run("done", agent_id="a") as finished:
        finished.step("one", lambda: 1)
        for task in finished.tasks("files", ["x", "y"]):
            finished.step(f"edit {task.id}", lambda: 1)
    with client.run("asks", agent_id="a") as asking:
        asking.step("one", lambda: 1)
    client.request_approval("asks", "pay", {"amount": 5})
    with client.run("alive", agent_id="a", holder="worker 7") as running:
        running.step("one", lambda: 1)
        lines = run("runs").stdout.splitlines()
        assert [line.split()[:2] for line in lines[1:]] == [
            ["alive", "alive"],
            ["asks", "waiting,"],
            ["done", "stopped"],
        ]
        assert lines[1].endswith("worker 7")
        assert "2/2" in lines[3]
        [alive] = json.loads(run("runs", "--alive", "--json").stdout)["runs"]
        assert (alive["session_id"], alive["holder"], alive["approvals"]) == ("alive", "worker 7", 0)
        assert alive["expires_at"] > alive["head"]["created_at"]
        status = json.loads(run("status", "--json").stdout)
        assert [one["session_id"] for one in status["alive"]] == ["alive"]
        assert status["approvals"] == 1
    assert run("runs", "--alive").stdout == ""
    assert [one["status"] for one in json.loads(run("runs", "-n", "2", "--json").stdout)["runs"]] == [
        "waiting",
        "stopped",
    ]


def test_sessions_that_no_run_was_at_are_none(run, made):
    result = run("runs")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no runs here yet" in result.stderr


def test_a_run_before_its_first_save(run, client):
    with client.run("new"):
        [found] = json.loads(run("runs", "--json").stdout)["runs"]
    assert (found["status"], found["head"], found["saves"]) == ("alive", None, 0)


def test_a_damaged_session_does_not_hide_the_others(run, client, made):
    import sqlite3

    with client.run("a") as one:
        one.step("x", lambda: 1)
    with client.run("b") as one:
        one.step("x", lambda: 1)
    connection = sqlite3.connect(made.path)
    connection.execute("UPDATE row SET value = x'00' WHERE space = 'head' AND key = CAST('a' AS BLOB)")
    connection.commit()
    connection.close()
    assert [one["session_id"] for one in json.loads(run("runs", "--json").stdout)["runs"]] == ["b"]


def test_status_counts_one_session_in_the_singular(run, tmp_path):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        client.save("a", session_id="s", execution_state={})
    assert "1 save to 1 session\n" in run("status").stderr


def test_status_says_which_store_it_is_and_what_it_holds(run, made):
    result = run("status")
    assert (result.exit_code, result.stdout) == (0, "")
    assert str(made.path) in result.stderr
    assert "4 saves to 2 sessions" in result.stderr
    assert "no run" in result.stderr
    assert "`holdfast snap` takes one" in result.stderr
    fields = json.loads(run("status", "--json").stdout)
    assert (fields["sessions"], fields["saves"], fields["has_snapshot"]) == (2, 4, False)
    assert fields["stored_bytes"] >= made.path.stat().st_size


def test_status_of_a_store_elsewhere_does_not_look_at_this_directory(run, made, monkeypatch):
    monkeypatch.chdir("/")
    result = run("status", "--store", str(made.path))
    assert result.exit_code == 0
    assert "4 saves" in result.stderr


RESUMED = """
def pay(amount):
    return f"paid {amount}"


def main(run):
    print("at work")
    run.step("one", len, "x")
    return run.effect("pay", pay, amount=5, approve="finance")


async def awaited(run):
    return await run.step("one", len, "x")


def breaks(run):
    raise RuntimeError("in the user's own code")
"""


def test_resume_goes_on_where_the_run_stopped_and_exits_with_6_while_it_waits(run, client, tmp_path):
    (tmp_path / "resumed_program.py").write_text(RESUMED)
    with client.run("order", agent_id="buyer") as begun:
        begun.step("one", len, "x")
    waiting = run("resume", "order", "resumed_program:main")
    assert (waiting.exit_code, waiting.stdout) == (6, "")
    assert "at work" in waiting.stderr
    [asked] = client.approvals("order")
    client.decide(asked.approval_id, "approve", by="ann")
    done = json.loads(run("resume", "order", "resumed_program:main", "--json").stdout)
    assert done["result"] == "paid 5"
    assert done["checkpoint_id"] == client.session("order").head.checkpoint_id != done["resumed_from"]
    assert json.loads(run("resume", "order", "resumed_program:main", "--json").stdout)["result"] == "paid 5"
    assert json.loads(run("resume", "order", "resumed_program:awaited", "--json").stdout)["result"] == 1
    with client.run("order", agent_id="buyer"):
        assert run("resume", "order", "resumed_program:main").exit_code == 4
    with pytest.raises(RuntimeError, match="own code"):
        run("resume", "order", "resumed_program:breaks")


def test_show_tells_what_a_run_recorded_and_what_became_of_its_sub_agents(run, client):
    with client.run("s", context={"invoice": "INV-1"}) as life:
        life.step("plan", lambda: 1)
        with pytest.raises(ValueError), life.subagent("reader", prompt="read it") as reader:
            reader.effect("fetch", lambda: 1, kind="idempotent")
            reader.add_usage({"tokens": 12})
            raise ValueError("torn page")
        life.save("end")
    shown = run("show", "s").stdout
    for line in (
        "context     dict of 1",
        "run         1 step, 1 effect recorded",
        "sub-agents  1",
        "  reader               failed: builtins.ValueError: torn page, 1 call, 12 tokens",
    ):
        assert line in shown.splitlines()
    [trace] = json.loads(run("show", "s", "--json").stdout)["traces"]
    assert (trace["prompt"], trace["success"], trace["usage"]) == ("read it", False, {"tokens": 12})
    assert [one["name"] for one in trace["tool_calls"]] == ["fetch"]
    assert json.loads(run("show", "main", "--json").stdout)["traces"] is None
