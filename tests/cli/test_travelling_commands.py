"""compare and bisect: where two sessions parted, and where one went wrong."""

import json
import sys

import pytest

from holdfast import SyncClient

GOOD_BELOW = "import json, sys; sys.exit(json.load(sys.stdin)['n'] >= {}); "


@pytest.fixture
def store_path(tmp_path):
    return tmp_path / ".holdfast" / "store.db"


@pytest.fixture
def twenty(store_path) -> None:
    with SyncClient.sqlite(store_path) as client:
        for step in range(20):
            client.save("a", session_id="s", execution_state={"n": step})


def test_bisect_finds_the_step(run, twenty):
    result = run("bisect", "s", "--", sys.executable, "-c", GOOD_BELOW.format(13))
    assert result.exit_code == 0
    assert "s: went bad at step 13 (" in result.stdout
    assert "after step 12 (" in result.stdout
    assert "holdfast diff " in result.stderr
    assert result.stderr.count(": bad") + result.stderr.count(": good") <= 6


def test_bisect_as_json(run, twenty):
    result = run("bisect", "s", "--json", "--", sys.executable, "-c", GOOD_BELOW.format(13))
    found = json.loads(result.stdout)
    assert found["first_bad"]["step_index"] == 13
    assert found["last_good"]["step_index"] == 12
    assert found["of_all"] == 20
    assert {look["is_good"] for look in found["looks"]} == {True, False}


def test_bisect_where_all_is_good(run, twenty):
    result = run("bisect", "s", "--", sys.executable, "-c", GOOD_BELOW.format(99))
    assert (result.exit_code, "all is good" in result.stdout) == (0, True)


def test_bisect_gives_the_state_in_a_file_and_the_id(run, twenty):
    program = (
        "import json, os; assert json.load(open('state.json'))['n'] == 19; assert os.environ['HOLDFAST_CHECKPOINT']"
    )
    assert run("bisect", "s", "--", sys.executable, "-c", program).exit_code == 0


@pytest.mark.parametrize("command", [[sys.executable, "-c", "raise SystemExit(125)"], ["no-such-command-anywhere"]])
def test_bisect_with_a_command_that_can_not_tell(run, twenty, command):
    result = run("bisect", "s", "--", *command)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_bisect_of_no_session(run, twenty):
    assert run("bisect", "nothing", "--", "true").exit_code == 3


def test_compare(run, store_path):
    with SyncClient.sqlite(store_path) as client:
        start = client.save("a", session_id="one", execution_state={"plan": "?"})
        client.fork(start, session_id="two")
        client.save("a", session_id="one", execution_state={"plan": "walk"}, cost=1)
        client.save("a", session_id="two", execution_state={"plan": "fly"}, cost=20, outcome="there")
    result = run("compare", "one", "two")
    assert result.exit_code == 0
    assert "~ execution_state.plan: 'walk' → 'fly'" in result.stdout
    assert "outcome" in result.stdout
    assert f"parted after {start[-8:]}" in result.stderr
    found = json.loads(run("compare", "one", "two", "--json").stdout)
    assert found["ancestor"]["checkpoint_id"] == start
    assert (found["a"]["usage"], found["b"]["outcome"]) == ({"cost": 1}, "there")
    assert found["edits"][0] == {"kind": "change", "path": ["execution_state", "plan"], "old": "walk", "new": "fly"}
    assert found["edits"][1:] == [
        {"kind": "change", "path": ["metadata", "cost"], "old": 1, "new": 20},
        {"kind": "add", "path": ["metadata", "outcome"], "new": "there"},
    ]


def test_places_are_references(run, twenty):
    shown = json.loads(run("show", "s@~3", "--json").stdout)
    assert shown["execution_state"] == {"n": 16}
    assert json.loads(run("show", "s@{4}", "--json").stdout)["execution_state"] == {"n": 4}
    assert run("show", "s@{99}").exit_code == 3


def test_diff_of_states(run, twenty):
    result = run("diff", "s@~2", "s")
    assert (result.exit_code, result.stdout) == (0, "~ execution_state.n: 17 → 19\n")
    assert run("diff", "s@{5}", "--state").stdout == "~ execution_state.n: 4 → 5\n"
    found = json.loads(run("diff", "s@-", "s", "--json").stdout)
    assert found == {"edits": [{"kind": "change", "path": ["execution_state", "n"], "old": 18, "new": 19}]}
    assert run("diff", "s@{0}", "--state").exit_code == 2
    assert run("diff", "--state").exit_code == 2


def test_diff_of_states_and_files(run, tmp_path):
    (tmp_path / "file").write_text("one\n")
    assert run("snap", "-m", "first").exit_code == 0
    (tmp_path / "file").write_text("two\n")
    assert run("snap", "-m", "second").exit_code == 0
    both = run("diff", "@-", "@")
    assert both.exit_code == 0
    assert "-one\n+two\n" in both.stdout
    assert json.loads(run("diff", "@-", "@", "--json").stdout)["changes"][0]["path"] == "file"
    assert run("diff", "@-", "@", "--name-only").stdout == "file\n"
