"""`holdfast events`: what was saved and what is being saved, line by line."""

import json
import os
import signal
import subprocess
import sys

import pytest

from holdfast import SyncClient


def lines(result) -> list[dict]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_everything_that_is_there(run, made):
    found = lines(run("events", "--after", "start", "--no-follow", "--json"))
    assert [(event["kind"], event["checkpoint"]["checkpoint_id"]) for event in found] == [
        ("checkpoint", made.first),
        ("checkpoint", made.second),
        ("handoff", made.handed),
        ("checkpoint", made.fork.checkpoint_id),
    ]
    assert set(found[0]) == {"cursor", "kind", "topic", "checkpoint"}
    for number, event in enumerate(found):
        assert lines(run("events", "--after", event["cursor"], "--no-follow", "--json")) == found[number + 1 :]


def test_by_session_and_agent(run, made):
    assert len(lines(run("events", "--after=start", "--no-follow", "--json", "--session", "what-if"))) == 1
    [handed] = lines(run("events", "--after=start", "--no-follow", "--json", "--agent", "approver"))
    assert handed["kind"] == "handoff"


def test_for_people(run, made):
    result = run("events", "--after", "start", "--no-follow")
    first, _, third, _ = result.stdout.splitlines()
    assert first.split()[3:] == [made.first[-8:], "main", "worker", "step", "0", "read"]
    assert third.endswith("for approver")


def test_a_name_can_not_make_a_line_of_its_own(run, tmp_path):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        client.save(agent_id="a\nb\x1b[31m", session_id="s\n9-00000000  fake")
    result = run("events", "--after", "start", "--no-follow")
    assert len(result.stdout.splitlines()) == 1
    assert "\x1b" not in result.stdout


def test_from_now_on_there_is_nothing_yet(run, made):
    assert lines(run("events", "--no-follow", "--json")) == []


@pytest.mark.parametrize("cursor", ["rubbish", "999-00000000", "1-00000000"])
def test_a_cursor_that_is_none_of_this_store(run, made, cursor):
    result = run("events", "--after", cursor, "--no-follow")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "cursor" in result.stderr


@pytest.mark.usefixtures("interruptible")
def test_following_until_interrupted(made):
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "events", "--after", "start", "--json", "--session", "main"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        there = [json.loads(follower.stdout.readline())["checkpoint"]["checkpoint_id"] for _ in range(3)]
        assert there == [made.first, made.second, made.handed]
        with SyncClient.sqlite(made.path) as client:
            for number in range(3):
                saved = client.save(agent_id="worker", session_id="main", step_name=f"later {number}")
                assert json.loads(follower.stdout.readline())["checkpoint"]["checkpoint_id"] == saved
        follower.send_signal(signal.SIGINT)
        assert follower.wait(240) == 130
        assert json.loads(follower.stderr.read())["error"]["kind"] == "interrupted"


def test_a_reader_that_goes_away_ends_it(made):
    follower = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "events", "--after", "start"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    assert follower.stdout is not None
    follower.stdout.readline()
    follower.stdout.close()
    with SyncClient.sqlite(made.path) as client:
        client.save(agent_id="worker", session_id="main")
    assert follower.wait(240) == 141
    assert follower.stderr is not None
    assert follower.stderr.read() == ""
    follower.stderr.close()
