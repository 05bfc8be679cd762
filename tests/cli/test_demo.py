"""The demo is the first thing that people see. It really kills, and the lines it ends with really run."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from holdfast import SyncClient
from holdfast.cli.demo import agent, processes, story
from holdfast.cli.demo.processes import AgentProcess, run_agent


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The demo, run once as people run it."""
    directory = tmp_path_factory.mktemp("demo")
    result = subprocess.run(
        [sys.executable, "-m", "holdfast", "demo", "--keep", "kept"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=directory,
        timeout=240,
        check=False,
    )
    return result, directory / "kept"


@pytest.mark.slow
def test_everything_holds(told):
    result, _ = told
    assert result.returncode == 0, result.stdout + result.stderr
    assert "FAIL" not in result.stdout
    assert result.stdout.count("  ok   ") == 6
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


@pytest.mark.slow
def test_it_says_how_long_it_took(told):
    [seconds] = re.findall(r"All held, in ([\d.]+) s", told[0].stdout)
    assert float(seconds) > 0


@pytest.mark.slow
def test_the_store_that_it_keeps_holds_what_it_told(told):
    with SyncClient.sqlite(told[1] / ".holdfast" / "store.db") as client:
        names = [entry.step_name for entry in reversed(client.timeline(session_id=story.SESSION))]
        assert tuple(dict.fromkeys(names)) == agent.NAMES
        outcome = client.latest(session_id=story.FORK)
        assert outcome is not None
        assert outcome.execution_state["supplier"] == "Cascade"
        assert str(outcome.execution_state["total"]) in told[0].stdout


@pytest.mark.slow
def test_it_ends_by_offering_the_page_of_its_store(told):
    assert "cd kept && holdfast ui" in told[0].stdout


@pytest.mark.slow
def test_the_five_lines_run_as_they_are_and_the_next_command_works(told, tmp_path):
    block = [line[4:] for line in told[0].stdout.split("these five lines")[1].splitlines() if line.startswith("    ")]
    assert len(block) == 5
    (tmp_path / "mine.py").write_text("\n".join(block))
    for _ in range(2):
        subprocess.run([sys.executable, "-W", "error", "mine.py"], cwd=tmp_path, check=True, timeout=240)
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        assert len(client.timeline(session_id="my-run")) == 2


@pytest.mark.slow
def test_a_kept_store_is_not_written_over(told, run):
    result = run("demo", "--keep", str(told[1]))
    assert result.exit_code == 2
    assert "already" in result.stderr


@pytest.mark.slow
def test_as_json(run):
    result = run("demo", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["ok"]
    assert [crash["was_killed"] for crash in report["crashes"]] == [True, True]
    assert [crash["lost"] for crash in report["crashes"]] == [[], []]
    assert report["ending"]["is_exact"]
    assert report["ending"]["outcome"]["supplier"] == "Aalto Pumps"
    assert report["fork"]["outcome"]["supplier"] == "Cascade"
    assert report["store"] is None


def test_a_life_that_is_killed_ends_there(tmp_path):
    life = run_agent(tmp_path / "store.db", "s", "cheapest", kill_when="begins read_norms")
    assert life.was_killed
    assert list(life.saved)[:2] == ["read_request", "search_suppliers"]
    assert "write_summary" not in life.saved


def test_a_loss_would_be_told(tmp_path, monkeypatch):
    """The checks of the demo can fail: a save that was acknowledged and is not there is reported."""
    killed = AgentProcess(saved={"read_request": "x"}, killed_when="begins search_suppliers", exit_code=-9)
    monkeypatch.setattr(story, "run_agent", lambda *_args, **_named: killed)
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        crash = story.crash(client, tmp_path / "store.db", story.KILLED_AT_WORK, [])
        assert crash.lost == ("read_request",)
        assert not crash.holds
        client.save(agent_id="a", session_id="s", execution_state=agent.make_state())
        ending = story.finish(client, "s", "cheapest", [killed, AgentProcess(began=["read_request"])])
    assert ending.repeated == ("read_request",)
    assert not ending.is_exact


@pytest.mark.slow
def test_what_does_not_hold_is_told_and_exits_with_1(run, monkeypatch):
    monkeypatch.setattr(agent, "run_uninterrupted", lambda _policy: {"another": "ending"})
    result = run("demo")
    assert result.exit_code == 1
    assert "FAIL the final state is not that of an uninterrupted run" in result.stdout
    assert "NOT everything held" in result.stdout


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_a_process_is_being_started_leaves_none(monkeypatch, tmp_path):
    started = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(processes.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        processes.run_agent(tmp_path / "store.db", "s", "cheapest")
    [process] = started
    assert process.returncode is not None
    with pytest.raises(KeyboardInterrupt):  # and from now on it comes at once
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_demo_that_is_ended_leaves_no_directory_behind(sent, tmp_path):
    demo = subprocess.Popen(
        [sys.executable, "-u", "-m", "holdfast", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        assert any(line.strip().startswith("store ") for line in demo.stdout)
        [directory] = tmp_path.iterdir()
        assert directory.name.startswith("holdfast-demo-")
        demo.send_signal(sent)
        _, words = demo.communicate(timeout=240)
    finally:
        demo.kill()
        demo.wait()
    assert (demo.returncode, words) == (130, "holdfast: interrupted\n")
    assert list(tmp_path.iterdir()) == []
