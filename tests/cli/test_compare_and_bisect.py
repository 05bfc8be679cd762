"""compare and bisect: where two sessions parted, and where one went wrong."""

import json
import sys
from datetime import UTC, datetime
from decimal import Decimal

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
    assert f"diverged after {start[-8:]}" in result.stderr
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


class TestBisectWithFiles:
    @pytest.fixture
    def history(self, store_path, tmp_path) -> None:
        """Ten steps with a file each; at the seventh the file goes bad, the state stays as it is."""
        project = tmp_path / "project"
        project.mkdir()
        with SyncClient.sqlite(store_path) as client:
            for step in range(10):
                (project / "main.py").write_text("print('ok')\n" if step < 7 else "print('broken'\n")
                client.save("a", session_id="s", execution_state={"n": step}, workspace=project)

    def test_the_files_of_each_checkpoint_are_there(self, run, history, tmp_path):
        result = run("bisect", "s", "--", sys.executable, "-m", "py_compile", "main.py")
        assert result.exit_code == 0
        assert "s: went bad at step 7 (" in result.stdout
        assert [path.name for path in (tmp_path / "project").iterdir()] == ["main.py"]

    def test_the_state_is_in_the_named_file(self, run, history):
        program = (
            "import json, os, sys; state = json.load(open(os.environ['HOLDFAST_STATE'])); "
            "assert os.listdir() == ['main.py']; sys.exit(state['n'] >= 4)"
        )
        found = json.loads(run("bisect", "s", "--json", "--", sys.executable, "-c", program).stdout)
        assert found["first_bad"]["step_index"] == 4


class TestFork:
    def test_with_an_edit(self, run, twenty, store_path):
        result = run(
            "fork", "s@{7}", "--name", "other", "--set", "n=70", "--set", '+note={"of": [1, "two"]}', "--set", "+t=walk"
        )
        assert (result.exit_code, result.stdout.startswith("session other at ")) == (0, True)
        assert "holdfast diff " in result.stderr
        with SyncClient.sqlite(store_path) as client:
            made = client.latest(session_id="other")
            assert made.execution_state == {"n": 70, "note": {"of": [1, "two"]}, "t": "walk"}
            assert made.parent_id == client.resolve("s@{7}")

    def test_as_json(self, run, twenty):
        made = json.loads(run("fork", "s", "--json").stdout)
        assert made["directory"] is None
        assert json.loads(run("show", made["session_id"], "--json").stdout)["checkpoint_id"] == made["checkpoint_id"]

    @pytest.mark.parametrize(
        ("given", "code"), [("m=1", 2), ("n", 2), ('n={"a"', 2), ('n={"$type": "Engine", "value": 1}', 2), ("=1", 2)]
    )
    def test_with_a_wrong_edit(self, run, twenty, given, code):
        result = run("fork", "s", "--name", "never", "--set", given)
        assert (result.exit_code, result.stdout) == (code, "")
        assert run("show", "never").exit_code == 3

    def test_types_as_show_prints_them(self, run, made):
        shown = json.dumps(json.loads(run("show", "main@-", "--path", "due").stdout))
        assert run("fork", "main@-", "--name", "f", "--set", f"total={shown}").exit_code == 0
        assert json.loads(run("show", "f", "--path", "total").stdout) == json.loads(shown)
        assert json.loads(run("show", "f", "--path", "pair").stdout)["$type"] == "tuple"

    def test_objects_of_types_that_are_unknown_here_stay_as_they_are(self, run, store_path):
        from dataclasses import dataclass

        from holdfast.codec.registry import TypeRegistry

        @dataclass
        class Order:
            number: int
            lines: list[str]

        types = TypeRegistry()
        types.register(Order, "Order")
        with SyncClient.sqlite(store_path, types=types) as client:
            client.save("a", session_id="s", execution_state={"order": Order(7, ["x"]), "n": 1})
        assert run("fork", "s", "--name", "f", "--set", "n=2", "--set", "order.lines.0=y").exit_code == 0
        with SyncClient.sqlite(store_path, types=types) as client:
            assert client.latest(session_id="f").execution_state == {"order": Order(7, ["y"]), "n": 2}
            assert client.latest(session_id="s").execution_state == {"order": Order(7, ["x"]), "n": 1}

    def test_a_typed_value_stays_of_its_type_or_is_refused(self, run, store_path):
        from enum import Enum

        from holdfast.codec.registry import TypeRegistry

        class Status(Enum):
            OPEN = "open"
            DONE = "done"

        types = TypeRegistry()
        types.register(Status, "Status")
        state = {"status": Status.OPEN, "total": Decimal(1), "due": datetime(2026, 3, 1, tzinfo=UTC), "pair": (1, 2)}
        with SyncClient.sqlite(store_path, types=types) as client:
            client.save("a", session_id="s", execution_state=state)
        for given in ("status=DONE", "total=much", "due=tomorrow", 'status={"$type": "Other", "value": "DONE"}'):
            result = run("fork", "s", "--name", "never", "--set", given)
            assert (result.exit_code, result.stdout) == (2, "")
            assert given.partition("=")[0] in result.stderr
        assert '{"$type": "Status", "value": …}' in run("fork", "s", "--set", "status=DONE").stderr
        edits = (
            'status={"$type": "Status", "value": "DONE"}', "total=2.50", "due=2027-01-01T00:00:00+00:00", "pair=[3, 4]",
        )  # fmt: skip
        result = run("fork", "s", "--name", "f", *(word for edit in edits for word in ("--set", edit)))
        assert (result.exit_code, result.stderr.count("error")) == (0, 0)
        with SyncClient.sqlite(store_path, types=types) as client:
            made = client.latest("f").execution_state
            assert made == {
                **state,
                "status": Status.DONE,
                "total": Decimal("2.50"),
                "due": datetime(2027, 1, 1, tzinfo=UTC),
                "pair": (3, 4),
            }
            assert str(made["total"]) == "2.50"
        assert run("fork", "f", "--name", "g", "--set", 'due={"$type": "str", "value": "soon"}').exit_code == 0
        assert json.loads(run("show", "g", "--path", "due").stdout) == "soon"

    def test_with_a_directory(self, run, tmp_path):
        (tmp_path / "file").write_text("one\n")
        assert run("snap").exit_code == 0
        result = run("fork", "@", str(tmp_path.parent / f"{tmp_path.name}-fork"), "--set", "+plan=[]")
        assert result.exit_code == 0
        assert (tmp_path.parent / f"{tmp_path.name}-fork" / "file").read_text() == "one\n"


class TestReplay:
    @pytest.fixture
    def program(self, store_path, tmp_path, monkeypatch) -> None:
        """A module with two programs, one of which awaits, and a session of each."""
        (tmp_path / "replayed_agent.py").write_text(
            "asked = 0\n"
            "def ask(prompt):\n"
            "    return prompt.upper()\n"
            "def main(run):\n"
            "    return run.step('ask', ask, run.state['prompt']) + run.step('again', ask, 'x')\n"
            "async def awaited(run):\n"
            "    return await run.step('ask', ask, run.state['prompt'])\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        import replayed_agent

        with (
            SyncClient.sqlite(store_path) as client,
            client.run("s", agent_id="a", state={"prompt": "why"}) as run,
        ):
            replayed_agent.main(run)
        yield
        del sys.modules["replayed_agent"]

    def test_serves_and_calls(self, run, program):
        result = run("replay", "s", "replayed_agent:main", "--name", "again")
        assert result.exit_code == 0
        assert "recorded step ask\n" in result.stdout
        assert "2 recorded; ended\n" in result.stdout
        assert "holdfast compare s again" in result.stderr
        live = run("replay", "s", "replayed_agent:main", "--live", "ask", "--set", "prompt=how", "--json")
        found = json.loads(live.stdout)
        assert (found["result"], found["counts"]) == ("HOWX", {"recorded": 1, "live": 1, "blocked": 0})
        assert found["steps"][0]["same"] is False
        assert found["steps"][0]["edits"] == [{"kind": "change", "path": ["result"], "old": "WHY", "new": "HOW"}]

    def test_of_a_program_that_awaits(self, run, program):
        result = run("replay", "s", "replayed_agent:awaited", "--mode", "mixed", "--json")
        assert json.loads(result.stdout)["result"] == "WHY"

    @pytest.mark.parametrize(
        ("args", "code"),
        [
            (["s", "replayed_agent"], 2),
            (["s", "no_such_module:main"], 2),
            (["s", "replayed_agent:nothing"], 2),
            (["nothing", "replayed_agent:main"], 3),
            (["s", "replayed_agent:main", "--from", "nothing"], 3),
        ],
    )
    def test_told_wrongly(self, run, program, args, code):
        result = run("replay", *args)
        assert (result.exit_code, result.stdout) == (code, "")

    def test_that_stops(self, run, program, tmp_path):
        (tmp_path / "longer_agent.py").write_text("def main(run):\n    return run.step('new', print)\n")
        result = run("replay", "s", "longer_agent:main")
        assert result.exit_code == 1
        assert "blocked  step new: nothing was recorded" in result.stdout


def test_diff_of_one_checkpoint_without_files_is_what_it_changed_of_the_state(run, made):
    shown, asked = run("diff", made.second), run("diff", made.second, "--state")
    assert (shown.exit_code, shown.stdout) == (0, asked.stdout)
    assert "INV-1" in shown.stdout
    assert "no snapshot of files" in shown.stderr
    assert json.loads(run("diff", made.second, "--json").stdout) == json.loads(
        run("diff", made.second, "--state", "--json").stdout
    )


def test_diff_of_one_checkpoint_that_asks_for_files_needs_a_snapshot(run, made, tmp_path):
    for option in (["--files"], ["--stat"], ["--name-only"], ["--dir", str(tmp_path)]):
        assert run("diff", made.second, *option).exit_code == 3


def test_diff_of_the_first_checkpoint_without_files_names_the_next_command(run, made):
    result = run("diff", made.first)
    assert result.exit_code == 2
    assert f"holdfast show {made.first}" in result.stderr


def test_diff_of_one_checkpoint_after_a_snapshot_is_still_about_files(run, made, tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    with SyncClient.sqlite(made.path) as client:
        client.workspace(tmp_path).snapshot("before", session_id="files")
        later = client.save("a", session_id="files", execution_state={"n": 1})
    (tmp_path / "a.txt").write_text("two\n")
    result = run("diff", later, "--dir", str(tmp_path))
    assert "-one" in result.stdout
    result = run("diff", later)
    assert "-one" in result.stdout
