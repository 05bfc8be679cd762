"""init, save: a store from nothing, and states from files and pipes."""

import json
import sys

import pytest
from click.testing import CliRunner

from holdfast import SyncClient
from holdfast.cli.main import cli


def piped(text: str, *args: str):
    return CliRunner().invoke(cli, list(args), input=text, catch_exceptions=False, prog_name="holdfast")


class TestInit:
    def test_makes_a_store_that_commands_find_and_whose_lines_run(self, run, run_process, tmp_path):
        result = run("init")
        assert result.exit_code == 0
        assert (tmp_path / ".holdfast" / "store.db").is_file()
        assert len(result.stdout.splitlines()) == 3
        (tmp_path / "pasted.py").write_text(result.stdout)
        import subprocess

        subprocess.run([sys.executable, "pasted.py"], cwd=tmp_path, check=True, timeout=240)
        assert "my-run" in run("sessions").stdout

    def test_again_it_leaves_what_is_there(self, run, made):
        result = run("init")
        assert result.exit_code == 0
        assert "already" in result.stderr
        assert json.loads(run("init", "--json").stdout)["made"] is False
        assert "main" in run("sessions").stdout

    def test_below_a_store_it_makes_another_one(self, run, made, tmp_path, monkeypatch):
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path / "below")
        assert json.loads(run("init", "--json").stdout)["made"] is True
        assert json.loads(run("sessions", "--json").stdout) == {"sessions": []}

    @pytest.mark.parametrize(
        ("named", "kind"), [("runs.db", "sqlite"), ("sqlite:///runs.db", "sqlite"), ("file://{}/runs", "files")]
    )
    def test_elsewhere(self, run, tmp_path, named, kind):
        named = named.format(tmp_path)
        made = json.loads(run("init", named, "--json").stdout)
        assert (made["kind"], made["made"]) == (kind, True)
        namespace: dict[str, object] = {}
        exec(made["snippet"], namespace)
        assert "my-run" in run("sessions", "--store", named).stdout

    def test_never_where_something_else_is(self, run, tmp_path):
        (tmp_path / "photos").mkdir()
        assert run("init", "photos").exit_code == 3
        (tmp_path / "notes.txt").write_text("not a database " * 100)
        assert run("init", "notes.txt").exit_code == 5
        assert (tmp_path / "notes.txt").read_text() == "not a database " * 100

    def test_a_store_of_memory_is_refused(self, run):
        assert run("init", "memory://").exit_code == 2


class TestSave:
    def test_from_a_pipe_into_a_new_store(self, run, tmp_path):
        result = piped('{"plan": ["a", "b"]}', "save", "run-1", "-m", "plan it")
        assert result.exit_code == 0
        id_ = result.stdout.strip()
        assert json.loads(run("show", id_, "--state").stdout) == {"plan": ["a", "b"]}
        assert "plan it" in run("timeline", "run-1").stdout

    def test_goes_on_from_the_head_and_keeps_what_it_does_not_name(self, run, made, tmp_path):
        (tmp_path / "state.json").write_text('{"messages": []}')
        saved = json.loads(run("save", "main", "state.json", "--json").stdout)
        assert (saved["parent_id"], saved["agent_id"], saved["step_index"]) == (made.handed, "worker", 3)
        assert json.loads(run("show", "main", "--context").stdout) == {"invoice": "INV-1"}

    def test_with_files(self, run, tmp_path):
        (tmp_path / "project").mkdir()
        (tmp_path / "project" / "a.txt").write_text("one")
        saved = json.loads(piped("{}", "save", "s", "--files", "project", "--json").stdout)
        with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
            entries = client.workspace(tmp_path / "project").entries(saved["checkpoint_id"])
        assert [entry.path for entry in entries] == [b"a.txt"]

    @pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\x00", "{'a': 1}"])
    def test_what_is_no_json_is_refused_and_nothing_is_saved(self, run, made, text):
        result = piped(text, "save", "main")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "is no JSON" in result.stderr
        assert json.loads(run("sessions", "--json").stdout)["sessions"][1]["saves"] == 3

    def test_what_show_prints_for_other_types_is_not_taken_for_them(self, run, made):
        state = run("show", made.second, "--state").stdout
        result = piped(state, "save", "main")
        assert result.exit_code == 2
        assert "the state is {'$type': 'dict'" in result.stderr
        result = piped('{"due": [{"$type": "datetime", "value": "2026-01-01"}]}', "save", "main")
        assert "due.0 is" in result.stderr

    def test_a_file_that_is_not_there(self, run, made):
        assert run("save", "main", "nothing.json").exit_code == 2

    def test_with_a_name_and_a_pin(self, run, made):
        saved = piped("{}", "save", "main", "--tag", "good", "--pin").stdout.strip()
        assert json.loads(run("show", "good", "--json").stdout)["checkpoint_id"] == saved
        assert saved in run("pin", "--json").stdout
        refused = piped("{}", "save", "main", "--tag", "good")
        assert (refused.exit_code, refused.stdout) == (4, "")
        assert "`holdfast save --move-tag`" in refused.stderr
        moved = piped("{}", "save", "main", "--tag", "good", "--move-tag").stdout.strip()
        assert json.loads(run("show", "good", "--json").stdout)["checkpoint_id"] == moved != saved

    def test_only_if_the_session_stands_there(self, run, made):
        assert piped("{}", "save", "main", "--expect-head", made.second).exit_code == 4
        assert piped("{}", "save", "main", "--expect-head", "main").exit_code == 0


def test_json_text_as_a_file_name_is_refused_with_the_pipe_that_saves_it(run, made):
    result = run("save", "s", '{"a": 1}')
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Nothing was saved. To save JSON text, pipe it" in result.stderr
    assert "pipe it" not in run("save", "s", "missing.json").stderr
