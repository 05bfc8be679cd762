"""Did you mean: commands, sessions and tags that are like one that is not there."""

import json

import pytest

from holdfast import SyncClient
from holdfast.cli.suggestions import SCANNED, find_close_names


@pytest.fixture
def runs(tmp_path):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        first = client.save("a", session_id="run-001", execution_state={"n": 1})
        for name in ("run-002", "run-003", "run-004", "Review of PR 17", "unlike"):
            client.save("a", session_id=name)
        client.tag("release", first)
    return tmp_path


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["sesions"], "sessions"),
        (["tmeline"], "timeline"),
        (["op", "lgo"], "log"),
        (["langgraph", "thread"], "threads"),
    ],
)
def test_a_command_that_is_not_there(run, args, meant):
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Did you mean {meant}?" in result.stderr
    assert json.loads(run(*args, "--json").stderr)["error"]["did_you_mean"][0] == meant


def test_a_command_that_is_like_none(run):
    result = run("xyzzy")
    assert result.exit_code == 2
    assert "Did you mean" not in result.stderr


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("timeline run-01", "run-001"),
        ("timeline run-001 --agent a", None),
        ("show run-01", "run-001"),
        ("show run-01@~2", "run-001"),
        ("show relaese", "release"),
        ("diff run-001 relase", "release"),
        ("compare run-001 unlke", "unlike"),
        ("verify RUN-002", "run-002"),
        ("du unlik", "unlike"),
        ("rollback runn-001 release --yes", "run-001"),
        ("fork unliek", "unlike"),
        ("tag --delete relase", "release"),
        ("export unlikee -o x", "unlike"),
        ("effects unlke", "unlike"),
    ],
)
def test_a_session_or_tag_that_is_not_there(run, runs, command, meant):
    result = run(*command.split())
    if meant is None:
        assert result.exit_code == 0
        return
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.splitlines()[-1].startswith("Did you mean ")
    assert meant in result.stderr.splitlines()[-1]
    assert meant in json.loads(run(*command.split(), "--json").stderr)["error"]["did_you_mean"]


@pytest.mark.parametrize("command", ["timeline", "effects", "show", "verify"])
def test_a_long_name_that_is_not_there_is_named_whole(run, runs, command):
    name = "tenant-4711/conversation-" + "long-" * 20 + "end"
    assert f"'{name}'" in run(command, name).stderr


def test_at_most_three_are_named(run, runs):
    like = json.loads(run("timeline", "run-00", "--json").stderr)["error"]["did_you_mean"]
    assert len(like) == 3


def test_a_name_can_be_pasted(run, runs):
    assert run("timeline", "Review of PR 71").stderr.endswith("Did you mean 'Review of PR 17'?\n")


def test_what_is_like_nothing_gets_no_question(run, runs):
    for name in ("q", "zzzzzzzzzzzz", "x" * 10_000, "\x1b[31m", ""):
        result = run("timeline", name)
        assert result.exit_code == 3
        assert "Did you mean" not in result.stderr


def test_a_hostile_name_is_not_offered(run, tmp_path):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        client.save("a", session_id="run-\x1b[2J-1")
    result = run("timeline", "run-[2J-1")
    assert "\x1b" not in result.stderr
    assert "Did you mean" not in result.stderr


@pytest.mark.slow
def test_few_of_many_sessions_are_read(run, tmp_path, monkeypatch):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db", durability="fast") as client:
        for number in range(3000):
            client.save("a", session_id=f"run-{number:05}")
    read: list[int] = []
    found = SyncClient.session_ids

    def counted(self, prefix="", limit=None):
        names = found(self, prefix, limit)
        read.append(len(names))
        return names

    monkeypatch.setattr(SyncClient, "session_ids", counted)
    result = run("timeline", "run-0150")
    assert "Did you mean run-0150" in result.stderr
    assert sum(read) <= 5 * SCANNED


def test_names_that_are_close():
    assert find_close_names("sesions", ["sessions", "show", "save"]) == ["sessions"]
    assert find_close_names("MAIN", ["main"]) == ["main"]
    assert find_close_names("x" * 300, ["x" * 299]) == []
