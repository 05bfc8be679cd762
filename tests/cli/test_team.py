"""`holdfast team` and `holdfast cancel`: who waits for whom, and the end of it."""

from __future__ import annotations

import json
import threading
import time

import pytest

from holdfast import RunCancelledError, SyncClient


@pytest.fixture
def client(tmp_path):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db", durability="fast") as client:
        yield client


def delegate(client):
    with client.run("boss", "boss") as run:
        return run.delegate("worker", [1, 2])


def test_a_team_is_shown_as_a_tree(run, client):
    first, second = delegate(client)
    with client.claim(first.handoff_id, "worker", holder="worker 7") as claim:
        result = run("team", "boss")
        assert result.exit_code == 0, result.stderr
        assert result.stdout.splitlines() == [
            "boss  idle  (boss)",
            f"  {first.session_id}  running by worker 7  (worker)",
            f"  {second.session_id}  offered  (worker)",
        ]
        claim.fail("no")
    found = json.loads(run("team", first.session_id, "--json").stdout)
    assert found["origins"] == ["boss"]
    assert found["members"][0]["status"] == "idle"


def test_groups_of_the_teams_topics_are_shown(run, client):
    with client.run("boss", "boss") as boss:
        boss.publish("drafts", 1)
        boss.publish("drafts", 2)
    next(client.subscribe("drafts", "reviewers", timeout=0)).ack()
    result = run("team", "boss")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[1].startswith("topic drafts: group reviewers  1 waiting  the oldest of 20")
    [found] = json.loads(run("team", "boss", "--json").stdout)["groups"]
    assert (found["topic"], found["group"], found["waiting"]) == ("drafts", "reviewers", 1)


@pytest.mark.slow
def test_check_exits_with_1_if_no_worker_has_what_is_waited_for(run, client):
    asked = delegate(client)
    assert run("team", "boss", "--check").exit_code == 0
    with client.run("boss", "boss") as boss:
        thread = threading.Thread(target=lambda: boss.join(asked, timeout=120))
        thread.start()
        while not client.team("boss").waits:
            time.sleep(0.05)
        result = run("team", "boss", "--check")
        assert result.exit_code == 1
        assert "no worker has what boss waits for" in result.stderr
        claims = [client.claim(one.handoff_id, "worker") for one in asked]
        assert run("team", "boss", "--check").exit_code == 0
        for claim in claims:
            claim.complete(1)
        thread.join()


def test_a_dry_run_of_cancel_changes_nothing(run, client):
    asked = delegate(client)
    result = run("cancel", "boss", "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "boss  idle  (boss)",
        *(f"  {one.session_id}  unclaimed  (worker)" for one in asked),
    ]
    assert "nothing was cancelled" in result.stderr
    assert len(client.inbox("worker")) == 2


def test_cancel_asks_first_and_says_what_stays_done(run, client):
    with client.run("boss", "boss") as boss:
        boss.effect("mail", lambda: "sent", kind="reversible", undo=lambda _: None)
    assert run("cancel", "boss").exit_code == 2  # no terminal to ask on
    result = run("cancel", "boss", "--yes", "--reason", "enough", "--by", "ana")
    assert result.exit_code == 0
    assert "stays done: mail" in result.stderr
    assert "which has an undo" in result.stderr
    with pytest.raises(RunCancelledError, match="enough"):
        client.run("boss", "boss")
    again = json.loads(run("cancel", "boss", "--yes", "--json").stdout)
    assert [one["status"] for one in again["sessions"]] == ["cancelled"]
    assert run("runs", "--json").stdout.count('"cancelled"') == 1


def test_names_from_the_store_can_not_act_on_the_terminal(run, client):
    client.save("a\x1b[2J", session_id="s\x1b[31m", execution_state={})
    for words in (("team", "s\x1b[31m"), ("cancel", "s\x1b[31m", "--dry-run")):
        result = run(*words)
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout + result.stderr
