"""`holdfast migrate --check`: lists what would not resume with the user's code."""

import json
import subprocess
import sys

import pytest

from holdfast import SyncClient, migration
from holdfast.model.state_migration import default_migrations

MODULE = """
from dataclasses import dataclass

import holdfast

print("imported, and says so")


@holdfast.register(name="{name}-invoice")
@dataclass
class Invoice:
    total: int


@holdfast.migration("{name}", 1, 2)
def rename(state):
    print("migrating")
    return {{"total": state["sum"]}}
"""


@pytest.fixture
def agent(tmp_path):
    """A module of the user's, in the directory where the command is called, and what its agent has saved."""
    name = "billing"
    (tmp_path / "billing_agent.py").write_text(MODULE.format(name=name))
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        client.save(name, execution_state={"sum": 1}, session_id="old")
        client.save(name, execution_state={"total": 1}, session_id="new", state_version=2)
    return client


def save(tmp_path, session, state, **more):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        return client.save("billing", execution_state=state, session_id=session, **more)


def test_all_would_resume(run_process, agent):
    done = run_process("migrate", "--check", "--import", "billing_agent")
    assert (done.returncode, done.stdout) == (
        0,
        "checked 2 sessions: 2 would resume (1 of them migrated), 0 would not\n",
    )
    assert "imported, and says so" in done.stderr
    assert "migrating" in done.stderr
    assert "checking" not in done.stderr


def test_a_bar_is_shown_on_a_terminal_only(agent, tmp_path):
    import contextlib
    import os
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    command = [sys.executable, "-m", "holdfast", "migrate", "--check", "--import", "billing_agent"]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, env=environment, check=True)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # a terminal gives a few kilobytes at a time, and an error after the last
        while part := os.read(ours, 1 << 16):
            seen += part
    os.close(ours)
    assert b"checking" in seen
    assert b"2/2" in seen
    assert done.stdout == b"checked 2 sessions: 2 would resume (1 of them migrated), 0 would not\n"


@pytest.mark.slow
def test_some_would_not(run_process, agent, tmp_path):
    broken = save(tmp_path, "broken\x1b[31m", {"nothing": 1})
    newer = save(tmp_path, "newer", {}, state_version=3)
    done = run_process("migrate", "--check", "--import", "billing_agent")
    assert done.returncode == 1
    *problems, summary = done.stdout.splitlines()
    assert summary == "checked 4 sessions: 2 would resume (1 of them migrated), 2 would not"
    assert problems[0].startswith(
        f"broken\\x1b[31m  {broken.replace('-', '')[-8:]}  migration_failed: the migration rename"
    )
    assert problems[1].startswith(
        f"newer  {newer.replace('-', '')[-8:]}  newer_state: checkpoint {newer} has state version 3"
    )

    done = run_process("migrate", "--check", "--import", "billing_agent", "--json", "--session", "newer")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["ok"], report["checked"], report["migrating"]) == (False, 1, 0)
    [problem] = report["problems"]
    assert problem.pop("message")
    assert problem == {
        "session_id": "newer",
        "checkpoint_id": newer,
        "agent_id": "billing",
        "state_version": 3,
        "reason": "newer_state",
    }


@pytest.mark.slow
def test_without_the_users_code_types_are_unknown_and_it_says_so(run_process, agent, tmp_path):
    code = """if True:
        import billing_agent, holdfast
        with holdfast.SyncClient.sqlite() as client:
            client.save("billing", execution_state={"sum": 1, "x": billing_agent.Invoice(1)}, session_id="typed")
    """
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    without = run_process("migrate", "--check")
    assert without.returncode == 1
    assert "typed" in without.stdout
    assert "unknown_type" in without.stdout
    assert "--import MODULE" in without.stderr
    assert run_process("migrate", "--check", "--import", "billing_agent").returncode == 0


def test_every_checkpoint_or_one_agents(run, agent, tmp_path):
    save(tmp_path, "new", {"total": 2}, state_version=2)
    assert run("migrate", "--check", "--all").stdout == "checked 3 checkpoints: 3 would resume, 0 would not\n"
    assert run("migrate", "--check", "--agent", "nobody").stdout == "checked 0 sessions: 0 would resume, 0 would not\n"
    assert run("migrate", "--check", "--session", "nobody").exit_code == 3


def test_migrations_of_this_process_count(run, agent):
    try:
        migration("billing", 2, 3)(lambda state: state)
        result = run("migrate", "--check")
        assert result.exit_code == 1
        assert "missing_migration" in result.stdout
        assert "--import" not in result.stderr
    finally:
        default_migrations._steps.pop("billing")
        default_migrations._newest.pop("billing")


def test_looking_shows_what_is_stored_whatever_is_registered(run, agent):
    try:
        migration("billing", 1, 9)(lambda state: 1 / 0)
        shown = json.loads(run("show", "new", "--json").stdout)
        assert (shown["execution_state"], shown["state_version"]) == ({"total": 1}, 2)
        assert "version     2 (of the state)" in run("show", "new").stdout
        assert "version" not in run("show", "old").stdout
    finally:
        default_migrations._steps.pop("billing")
        default_migrations._newest.pop("billing")


def test_without_check_it_explains(run, agent):
    result = run("migrate")
    assert result.exit_code == 2
    assert "--check" in result.stderr
    assert "never rewritten" in result.stderr.replace("\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["no_such_module", "billing_agent.nothing", "billing_agent.py", "./billing_agent.py", "", ".."]
)
def test_a_module_that_is_not_there_is_wrong_usage(run_process, agent, module):
    done = run_process("migrate", "--check", "--import", module)
    assert done.returncode == 2
    assert "there is no module" in done.stderr
    assert ("without .py" in done.stderr) == module.endswith(".py")
    assert done.stdout == ""


@pytest.mark.parametrize("line", ["1 / 0", "import no_such_module_inside", "raise SystemExit(0)"])
def test_a_module_that_raises_is_an_error(run_process, agent, tmp_path, line):
    (tmp_path / "raising.py").write_text(line)
    done = run_process("migrate", "--check", "--import", "raising")
    assert done.returncode == 1
    assert "the module raising raised" in done.stderr
    assert "Traceback" not in done.stderr
