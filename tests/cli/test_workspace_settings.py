"""What a project says about snapshots of it, and what commands say about those that were not taken."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli


@pytest.fixture
def project(tmp_path):
    (tmp_path / "code.py").write_text("print()\n")
    (tmp_path / ".env").write_text("KEY=1\n")
    return tmp_path


def settings(project: Path, text: str) -> None:
    (project / "holdfast.toml").write_text(text)


class TestSettings:
    @pytest.mark.parametrize(
        ("file", "text"),
        [
            ("holdfast.toml", '[workspace]\nsecrets = "skip"\n'),
            ("pyproject.toml", '[project]\nname = "p"\n[tool.holdfast.workspace]\nsecrets = "skip"\n'),
        ],
    )
    def test_what_is_left_out(self, run, project, file, text):
        (project / file).write_text(text)
        fields = json.loads(run("snap", "--json").stdout)
        assert fields["skipped"] == [{"path": ".env", "reason": "a secret"}]
        assert fields["files"] == 2

    def test_what_is_taken_in(self, run, project):
        (project / ".git").mkdir()
        (project / ".git" / "HEAD").write_text("ref\n")
        (project / ".gitignore").write_text("*.log\n")
        (project / "x.log").write_text("noise\n")
        settings(project, "[workspace]\ninclude_git = true\ngitignore = false\n")
        assert run("trust", "--yes").exit_code == 0
        fields = json.loads(run("snap", "--json").stdout)
        assert [one["path"] for one in fields["excluded"]] == [".holdfast"]

    def test_going_back_by_hand_leaves_alone_what_a_program_was_not_to_keep(self, run, project):
        from holdfast import SyncClient

        with SyncClient.sqlite(project / ".holdfast" / "store.db") as client:
            first = client.save("a", session_id="s", workspace=client.workspace(project, secrets="skip"))
        (project / "code.py").write_text("print(1)\n")
        assert run("snap").exit_code == 0
        restored = run("restore", first, "--yes")
        assert restored.exit_code == 0
        assert "left: .env (excluded)" in restored.stderr
        assert (project / ".env").read_text() == "KEY=1\n"
        assert (project / "code.py").read_text() == "print()\n"

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('[workspace]\nsecret = "skip"\n', "a setting 'secret' that is not known: there is include_git, gitignore"),
            ('[workspace]\nsecrets = "hide"\n', "secrets"),
            ("[workspace]\nmax_files = 1.5\n", "max_files must be a whole number"),
            ("[workspace]\ninclude_git = 1\n", "include_git must be true or false"),
            ("workspace = 1\n", "workspace is a table"),
        ],
    )
    def test_what_is_wrong_is_said(self, run, project, text, said):
        settings(project, text)
        result = run("snap")
        assert result.exit_code == 2
        assert said in result.stderr


class TestNotTaken:
    @pytest.fixture(autouse=True)
    def limited(self, project):
        settings(project, "[workspace]\nmax_files = 1\n")

    def test_a_checkpoint_says_so_and_why(self, run, project):
        result = run("snap", "--json")
        assert result.exit_code == 1
        id_ = json.loads(result.stdout)["checkpoint_id"]
        assert "files       no snapshot was taken: there are more than 1 files (max_files)\n" in run("show", id_).stdout
        assert "max_files" in json.loads(run("show", id_, "--json").stdout)["files"]["not_taken"]

    def test_and_nothing_older_is_taken_for_it(self, run, project):
        (project / ".env").unlink()
        (project / "holdfast.toml").unlink()
        first = json.loads(run("snap", "--json").stdout)["checkpoint_id"]
        settings(project, "[workspace]\nmax_files = 1\n")
        later = json.loads(run("snap", "--json").stdout)["checkpoint_id"]
        (project / "holdfast.toml").unlink()
        for command in (("restore", later, "--yes"), ("diff", first, later), ("fork", later, ".holdfast/fork")):
            result = run(*command)
            assert result.exit_code != 0
            assert "no snapshot was taken" in result.stderr

    def test_an_agent_is_told_after_its_tool_call_and_goes_on(self, project, monkeypatch):
        monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(project))
        event = {"session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {}}
        result = CliRunner().invoke(cli, ["hook", "claude-code", "--serve"], input=json.dumps(event))
        assert (result.exit_code, result.stdout) == (1, "")  # not 2, by which it would be stopped
        assert "no snapshot was taken: there are more than 1 files (max_files)" in result.stderr

    def test_a_watch_says_it_too(self, run, project):
        result = run("watch", ".", "--count", "1")
        assert "no snapshot was taken" in result.stderr
        assert json.loads(run("watch", ".", "--count", "1", "--json").stdout)["not_taken"]


def test_what_a_checkpoint_has_of_files_is_shown(run, project):
    id_ = run("snap").stdout.strip()
    assert "files       2 files, 14 B, 1 left out by rules\n" in run("show", id_).stdout
    fields = json.loads(run("show", id_, "--json").stdout)["files"]
    assert (fields["files"], fields["bytes"], fields["not_taken"]) == (2, 14, None)


def test_the_home_of_who_calls_is_refused(run, project, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    result = run("snap")
    assert result.exit_code == 2
    assert "home directory" in result.stderr


@pytest.mark.parametrize("command", ["snap", "watch", "hook"])
def test_no_store_is_left_where_no_workspace_can_be(project, monkeypatch, command):
    """It would be found from every directory below."""
    monkeypatch.setenv("HOME", str(project))
    given = {"snap": ["snap"], "watch": ["watch", "."], "hook": ["hook", "claude-code", "--serve"]}[command]
    event = {"session_id": "s", "hook_event_name": "SessionStart", "cwd": str(project)}
    result = CliRunner().invoke(cli, given, input=json.dumps(event))
    assert result.exit_code == (1 if command == "hook" else 2)
    assert "home directory" in result.stderr
    assert not (project / ".holdfast").exists()


class TestPaths:
    def test_one_that_is_nowhere_is_a_mistake(self, run, project):
        id_ = run("snap").stdout.strip()
        result = run("restore", id_, "cod.py", "--yes")
        assert result.exit_code == 3
        assert "'cod.py' is neither among the files of that checkpoint nor in" in result.stderr

    def test_the_directory_itself_is_all_of_it(self, run, project):
        id_ = run("snap").stdout.strip()
        (project / "code.py").write_text("print(1)\n")
        (project / "new").write_text("new\n")
        run("snap")
        assert run("restore", id_, ".", "--yes").exit_code == 0
        assert (project / "code.py").read_text() == "print()\n"
        assert not (project / "new").exists()

    def test_one_that_was_not_there_then_is_deleted(self, run, project):
        id_ = run("snap").stdout.strip()
        (project / "code.py").write_text("print(1)\n")
        (project / "new").write_text("new\n")
        run("snap")
        assert run("restore", id_, "new", "--yes").exit_code == 0
        assert not (project / "new").exists()
        assert (project / "code.py").read_text() == "print(1)\n"


class TestForking:
    def test_says_how_to_work_there_and_how_to_bring_it_back(self, run, project, tmp_path_factory):
        id_ = run("snap").stdout.strip()
        place = tmp_path_factory.mktemp("beside") / "a fork"
        result = run("fork", id_, str(place), "--session", "second try")
        assert f"find its store, {project / '.holdfast' / 'store.db'}" in result.stderr
        assert f"holdfast adopt 'second try' '{place}'" in result.stderr
        (place / "code.py").write_text("print(2)\n")
        assert run("adopt", "second try", str(place), "--yes").exit_code == 0
        assert (project / "code.py").read_text() == "print(2)\n"

    def test_a_place_where_nothing_can_be_made_is_an_error_and_no_crash(self, run, project):
        id_ = run("snap").stdout.strip()
        result = run("fork", id_, "/proc/fork")
        assert result.exit_code == 1
        assert "the fork could not be made at '/proc/fork'" in result.stderr
