"""runs and status: active, waiting and stopped runs."""

import json
import subprocess
import sys

import pytest

from holdfast import ApprovalPendingError, SyncClient
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit, RowWrite
from holdfast.format.rows.head import session_key
from holdfast.format.rows.run import run_key
from holdfast.operations.lookup import find_tree


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
            ["alive", "running"],
            ["asks", "waiting"],
            ["done", "completed"],
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
        "completed",
    ]


def test_sessions_that_no_run_was_at_are_none(run, made):
    result = run("runs")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no runs here yet" in result.stderr


def test_a_run_before_its_first_save(run, client):
    with client.run("new"):
        [found] = json.loads(run("runs", "--json").stdout)["runs"]
    assert (found["status"], found["head"], found["saves"]) == ("running", None, 0)


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


@pytest.fixture
def several(client):
    with client.run("done") as finished:
        finished.progress(2, 2, "pages")
        finished.result = {"paid": 5}
    with pytest.raises(ApprovalPendingError), client.run("asks", agent_id="a") as asking:
        asking.effect("pay", lambda amount: amount, amount=5, approve="finance", key="k")
    with pytest.raises(ValueError), client.run("failed", agent_id="a") as failing:
        failing.step("parse", int, "seven")


def test_runs_by_status_and_exit_codes_for_scripts(run, several):
    def listed(*options):
        result = run("runs", *options, "--json")
        return result.exit_code, [one["session_id"] for one in json.loads(result.stdout)["runs"]]

    assert listed("--failed") == (0, ["failed"])
    assert listed("--waiting") == (0, ["asks"])
    assert listed("--unfinished") == (0, ["asks"])
    assert listed("--failed", "--waiting") == (0, ["asks", "failed"])
    assert listed("--exit-code") == (1, ["asks", "failed", "done"])
    assert listed("--waiting", "--exit-code") == (6, ["asks"])
    assert listed("done", "--exit-code") == (0, ["done"])
    assert listed("--alive", "--exit-code") == (0, [])
    assert run("runs", "nothing").exit_code == 3


def test_a_failure_and_a_result_are_shown(run, several):
    lines = run("runs").stdout.splitlines()
    assert "waiting for approval" in lines[1]
    assert "failed at parse: ValueError: invalid literal" in lines[2]
    assert "########## 2/2 pages" in lines[3]
    [failed, done] = (json.loads(run("runs", one, "--json").stdout)["runs"][0] for one in ("failed", "done"))
    assert (failed["failure"]["error_type"], failed["failure"]["step"], failed["attempts"]) == (
        "builtins.ValueError",
        "parse",
        1,
    )
    assert (done["result"], done["progress"]["total"], done["failure"]) == ({"paid": 5}, 2, None)
    assert "result      {'paid': 5}" in run("show", "done").stdout
    shown = run("show", "failed").stdout
    assert "status      failed at parse: ValueError" in shown
    assert "ValueError: invalid literal for int() with base 10: 'seven'" in shown
    assert json.loads(run("show", "failed", "--json").stdout)["run"]["status"] == "failed"
    assert json.loads(run("show", "main", "--json").stdout)["run"] is None


def test_status_counts_the_runs_that_need_attention(run, several):
    assert "runs       1 failed: `holdfast runs`" in run("status").stderr
    assert json.loads(run("status", "--json").stdout)["runs"] == {"failed": 1, "in_doubt": 0, "interrupted": 0}


def test_control_characters_of_a_failure_do_not_reach_the_terminal(run, client):
    with pytest.raises(ValueError), client.run("bad") as failing:
        failing.progress(1, 2, "note\x1b[31m")
        raise ValueError("red \x1b[31m text")
    assert "\x1b" not in run("runs").stdout
    assert "\x1b" not in run("runs", "bad").stdout


WORKED = r"""
import holdfast


@holdfast.runnable("orders.fulfil")
def fulfil(run, order):
    print("at work\n", end="")  # at once: another run's line may come between the text and its end
    run.progress(1, 2, "paying")
    return run.step("pay", lambda: f"paid {order}")


@holdfast.runnable("orders.awaited")
async def awaited(run):
    return await run.step("one", len, "x")


@holdfast.runnable("orders.fails", retry=1)
def fails(run):
    raise ValueError("no account")
"""


def test_work_carries_out_what_was_started_and_retry_makes_it_due_again(run, client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "worked_program.py").write_text(WORKED)
    client.start("orders.fulfil", "order-1", session_id="order-1")
    client.start("orders.awaited", session_id="awaited")
    client.start("orders.fails", session_id="fails")
    where = str(client._ctx.backend.capabilities.location)

    def work(*options: str) -> subprocess.CompletedProcess[str]:  # a process of its own, as in use
        command = [sys.executable, "-m", "holdfast", "work", "worked_program", "--drain", "--store", where, *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)

    worked = work()
    assert (worked.returncode, worked.stdout) == (0, "")
    for line in (
        "order-1  #####..... 1/2 paying",
        "order-1  orders.fulfil  taken",
        "order-1  orders.fulfil  completed",
        "fails  orders.fails  failed",
    ):
        assert line in worked.stderr.splitlines()
    assert "carried out 3 lives of runs" in worked.stderr
    assert client.run_status("order-1").result == "paid order-1"
    assert client.run_status("awaited").result == 1
    assert "fails is due" in run("retry", "fails", "--store", where).stdout
    assert json.loads(work("--json").stdout) == {"carried_out": 1}
    assert client.run_status("fails").status == "failed"
    assert run("retry", "order-1", "--store", where).exit_code == 4
    assert run("work", "no_such_module", "--store", where).exit_code == 2


def test_a_run_without_a_checkpoint_is_shown(run, client):
    client.start("orders.fulfil", "order-1", session_id="order-1")
    lines = run("show", "order-1").stdout.splitlines()
    assert lines[0].split() == ["session", "order-1,", "without", "a", "checkpoint"]
    assert lines[1].split() == ["status", "waiting", "for", "worker"]
    assert json.loads(run("show", "order-1", "--json").stdout)["run"]["function"] == "orders.fulfil"
    client.cancel("order-1", by="ann")
    lines = run("show", "order-1").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["status", "cancelled"],
        ["function", "orders.fulfil"],
        ["by", "ann"],
    ]
    assert run("show", "no-such-run").exit_code == 3


def test_a_worker_says_why_a_run_is_not_taken(run, client, tmp_path):
    (tmp_path / "worked_program.py").write_text(WORKED)
    client.start("orders.fulfil", "order-1", session_id="order\x1b[31m")
    ctx, session = client._ctx, session_key("order\x1b[31m")
    tree = run_inline(find_tree(ctx, session))
    run_inline(ctx.backend.commit(Commit(tree=tree, rows=[RowWrite(run_key(session, tree), b"torn")])))
    where = str(ctx.backend.capabilities.location)
    command = [sys.executable, "-m", "holdfast", "work", "worked_program", "--drain", "--store", where]
    worked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    [line] = [line for line in worked.stderr.splitlines() if line.startswith("run not taken")]
    assert line.startswith(r"run not taken: order\x1b[31m: ")


def test_a_worker_names_its_argument_in_the_error_about_a_module(run):
    result = run("work", "no_such_module")
    assert result.exit_code == 2
    assert "Invalid value for MODULE" in result.stderr
