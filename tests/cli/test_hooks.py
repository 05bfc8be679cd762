"""hook, rewind, fork: a coding agent's tool calls as points of return."""

import errno
import io
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from holdfast import SyncClient
from holdfast.cli.hooks import claude_code
from holdfast.cli.hooks.port import list_agents, load_hooks
from holdfast.cli.main import cli

SESSION = "0f5c-session"


@pytest.fixture
def settings(tmp_path):
    return tmp_path / ".claude" / "settings.json"


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """Claude Code, as far as its hooks go: sends events to the command that its settings name."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(project))

    def send(event, **fields):
        payload = {
            "session_id": SESSION,
            "transcript_path": "/t",
            "cwd": str(project),
            "hook_event_name": event,
        } | fields
        return CliRunner().invoke(cli, ["hook", "claude-code", "--serve"], input=json.dumps(payload),
                                  catch_exceptions=False)  # fmt: skip

    def tool(name, **given):
        result = send(
            "PostToolUse", tool_name=name, tool_input=given, tool_response={"ok": True}, tool_use_id="toolu_1"
        )
        assert (result.exit_code, result.stdout) == (0, "")

    def shell(command):
        subprocess.run(["sh", "-c", command], cwd=project, check=True)
        tool("Bash", command=command)

    def prompt(text):
        result = send("UserPromptSubmit", prompt=text)
        assert (result.exit_code, result.stdout) == (0, "")

    return SimpleNamespace(project=project, send=send, tool=tool, shell=shell, prompt=prompt)


def points(run, *args):
    return json.loads(run("rewind", "--json", *args).stdout)["points"]


class TestInstalling:
    def test_shows_the_change_and_how_to_undo_it(self, run, settings):
        result = run("hook", "claude-code", "--yes")
        assert result.exit_code == 0
        assert '+    "PostToolUse"' in result.stderr
        assert "undo: holdfast hook claude-code --remove" in result.stderr
        hooks = json.loads(settings.read_text())["hooks"]
        assert set(hooks) == {"PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SessionStart"}
        assert hooks["PostToolUse"][0]["matcher"] == "*"
        [ours] = hooks["PostToolUse"][0]["hooks"]
        assert ours["type"] == "command"
        assert ours["command"].endswith("hook claude-code --serve")

    def test_what_it_installs_is_a_command_that_runs(self, run, settings, tmp_path):
        run("hook", "claude-code", "--yes")
        command = json.loads(settings.read_text())["hooks"]["PostToolUse"][0]["hooks"][0]["command"]
        event = {"session_id": "s", "cwd": str(tmp_path), "hook_event_name": "PostToolUse", "tool_name": "Bash",
                 "tool_input": {"command": "ls"}}  # fmt: skip
        path = f"{sys.exec_prefix}/bin:/usr/bin:/bin"
        done = subprocess.run(
            ["sh", "-c", command], input=json.dumps(event), capture_output=True, text=True, cwd="/", env={"PATH": path},
            check=False
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
            assert client.latest(session_id="claude-code s").metadata["tool"] == "Bash"

    def test_in_a_script_it_needs_yes(self, run, settings):
        result = run("hook", "claude-code")
        assert result.exit_code == 2
        assert not settings.exists()

    def test_other_settings_and_hooks_stay_and_twice_is_once(self, run, settings):
        others = {
            "model": "opus",
            "hooks": {
                "PostToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command": "fmt"}]}],
                "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
            },
            "permissions": {"allow": ["Bash(ls)"]},
        }
        settings.parent.mkdir()
        settings.write_text(json.dumps(others))
        settings.chmod(0o600)
        run("hook", "claude-code", "--yes")
        once = json.loads(settings.read_text())
        assert once["hooks"]["PostToolUse"][0] == others["hooks"]["PostToolUse"][0]
        assert len(once["hooks"]["PostToolUse"]) == 2
        assert (once["model"], once["permissions"]) == ("opus", others["permissions"])
        result = run("hook", "claude-code", "--yes")
        assert "there already" in result.stdout
        assert json.loads(settings.read_text()) == once
        assert settings.stat().st_mode & 0o777 == 0o600
        run("hook", "claude-code", "--remove", "--yes")
        assert json.loads(settings.read_text()) == others

    def test_removing_shows_the_settings_that_stay(self, run, settings):
        run("hook", "claude-code", "--yes")
        result = run("hook", "claude-code", "--remove", "--yes")
        assert "+{}" in result.stderr.splitlines()
        assert settings.read_text() == "{}\n"

    @pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}'])
    def test_settings_that_it_does_not_understand_are_left_alone(self, run, settings, text):
        settings.parent.mkdir()
        settings.write_text(text)
        result = run("hook", "claude-code", "--yes")
        assert result.exit_code == 2
        assert "nothing was changed" in result.stderr
        assert settings.read_text() == text

    def test_settings_that_can_not_be_read_or_written_are_said(self, run, settings, monkeypatch):
        def said(words, *flags):
            result = run("hook", "claude-code", "--yes", *flags)
            assert (result.exit_code, result.stdout) == (1, "")
            assert words in result.stderr
            assert "nothing was changed" in result.stderr
            assert "Traceback" not in result.stderr

        def no_room(descriptor):  # after a part was written
            raise OSError(errno.ENOSPC, "No space left on device")

        settings.parent.write_text("no directory")
        said("can't be read (Not a directory)")
        settings.parent.unlink()
        settings.mkdir(parents=True)
        said("can't be read (Is a directory)")
        settings.rmdir()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", no_room)
            said("can't be written (No space left on device)")
        assert list(settings.parent.iterdir()) == []
        settings.parent.rmdir()
        monkeypatch.setenv("HOME", str(settings.parent.parent))
        settings.parent.symlink_to("/proc/self/fdinfo")  # where not even root may write
        said("can't be written (", "--user")

    @pytest.mark.parametrize("linked", ["settings.json", "."])
    def test_settings_that_lead_out_of_the_project_are_left_alone(self, run, settings, tmp_path_factory, linked):
        outside = tmp_path_factory.mktemp("outside")
        (outside / "settings.json").write_text("{}")
        if linked == ".":
            settings.parent.symlink_to(outside)
        else:
            settings.parent.mkdir()
            settings.symlink_to(outside / "settings.json")
        result = run("hook", "claude-code", "--yes")
        assert (result.exit_code, "leads out of the project" in result.stderr) == (2, True)
        assert (outside / "settings.json").read_text() == "{}"

    def test_settings_that_are_a_fifo_make_nobody_wait(self, run, settings):
        settings.parent.mkdir()
        os.mkfifo(settings)
        result = run("hook", "claude-code", "--yes")
        assert (result.exit_code, "is no regular file" in result.stderr) == (2, True)

    def test_for_oneself_or_for_all_projects(self, run, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        run("hook", "claude-code", "--local", "--yes")
        assert (tmp_path / ".claude" / "settings.local.json").exists()
        said = json.loads(run("hook", "claude-code", "--user", "--yes", "--json").stdout)
        assert said == {"settings": str(tmp_path / "home" / ".claude" / "settings.json"), "changed": True}

    def test_an_agent_is_a_file(self):
        assert list_agents() == ["claude-code"]
        assert load_hooks("claude-code") is claude_code


class TestServing:
    def test_every_call_is_a_point_with_its_tool_and_arguments(self, run, agent):
        agent.send("SessionStart", source="startup")
        agent.prompt("make it faster")
        agent.shell("echo fast > speed")
        agent.tool("Read", file_path="/x")
        found = points(run, "--all")
        assert [one["step"] for one in found] == ["start", "prompt", "Bash", "Read"]
        assert [one["changed"] for one in found] == [True, False, True, False]
        assert found[1]["prompt"] == "make it faster"
        assert found[2]["arguments"] == {"command": "echo fast > speed"}
        assert [one["step"] for one in points(run)] == ["start", "prompt", "Bash"]

    def test_claude_code_94657_what_the_shell_did_can_be_taken_back(self, run, agent):
        """Edits through Bash were not tracked: 96 calls, none of them restorable."""
        (agent.project / "code").write_text("one")
        agent.prompt("rewrite it")
        for n in range(3):
            agent.shell(f"echo {n} > code; echo {n} > made-{n}")
        agent.shell("rm -r code made-*")
        prompted = points(run)[0]["checkpoint_id"]
        assert run("rewind", prompted[-8:], "--yes").exit_code == 0
        assert (agent.project / "code").read_text() == "one"
        assert not (agent.project / "made-0").exists()
        run("undo", "--yes")
        assert not (agent.project / "code").exists()

    def test_a_call_that_failed_may_have_changed_files_too(self, run, agent):
        (agent.project / "half").write_text("done")
        result = agent.send("PostToolUseFailure", tool_name="Bash", tool_input={"command": "false"}, error="exit 1")
        assert result.exit_code == 0
        [point] = points(run)
        assert (point["failed"], point["tool"]) == (True, "Bash")

    def test_the_projects_directory_counts_and_not_where_the_shell_is(self, run, agent):
        (agent.project / "sub").mkdir()
        agent.send("PostToolUse", tool_name="Bash", tool_input={"command": "cd sub"}, cwd=str(agent.project / "sub"))
        assert (agent.project / ".holdfast" / "store.db").exists()
        assert not (agent.project / "sub" / ".holdfast").exists()

    def test_git_does_not_see_the_store(self, agent):
        agent.tool("Read", file_path="x")
        assert (agent.project / ".holdfast" / ".gitignore").read_text() == "*\n"

    @pytest.mark.parametrize("sent", ["", "{", "[]", "{}", '{"session_id": 1}'])
    def test_what_goes_wrong_never_blocks_the_agent(self, sent, agent):
        result = CliRunner().invoke(cli, ["hook", "claude-code", "--serve"], input=sent, catch_exceptions=False)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "no snapshot was taken" in result.stderr

    def test_events_that_need_no_snapshot_are_passed_over(self, agent):
        assert agent.send("Stop").exit_code == 0
        assert not (agent.project / ".holdfast").exists()

    def test_a_very_long_argument_is_shortened(self, run, agent):
        agent.tool("Write", file_path="f", content="x" * 100_000)
        [point] = points(run)
        assert len(point["arguments"]["content"]) < 5000


class TestRewind:
    def test_lists_by_prompt_and_tool_call(self, run, agent):
        agent.prompt("first\nline two")
        agent.shell("echo 1 > f")
        result = run("rewind")
        prompt, bash = result.stdout.splitlines()
        assert prompt.endswith("* > first")
        assert bash.endswith("*   Bash echo 1 > f")
        assert "holdfast rewind ID" in result.stderr

    def test_to_before_a_call(self, run, agent):
        agent.shell("echo 1 > f")
        agent.shell("echo 2 > f")
        last = points(run)[-1]["checkpoint_id"]
        result = run("rewind", last, "--before", "--yes")
        assert result.exit_code == 0
        assert (agent.project / "f").read_text() == "1\n"
        first = points(run)[0]["checkpoint_id"]
        assert run("rewind", first, "--before", "--yes").exit_code == 3

    def test_what_was_done_by_hand_since_is_not_overwritten(self, run, agent):
        agent.shell("echo 1 > f")
        agent.shell("echo 2 > f")
        (agent.project / "f").write_text("by hand")
        first = points(run)[0]["checkpoint_id"]
        assert run("rewind", first, "--yes").exit_code == 4
        assert (agent.project / "f").read_text() == "by hand"

    def test_another_directory_of_the_same_store_is_not_rewound(self, run, agent, tmp_path, monkeypatch):
        monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path / 'shared.db'}")
        agent.shell("echo 1 > f")
        [point] = points(run)
        other = tmp_path / "other"
        other.mkdir()
        (other / "theirs").write_text("x")
        assert run("snap", "-C", str(other)).exit_code == 0
        monkeypatch.chdir(other)
        result = run("rewind")
        assert (result.exit_code, result.stdout) == (3, "")
        assert f"the hooks of an agent have taken no snapshot in '{other}'" in result.stderr
        for command in (["rewind", point["checkpoint_id"], "--yes"], ["restore", point["checkpoint_id"], "--yes"]):
            result = run(*command)
            assert result.exit_code == 2
            assert f"these are the files of '{agent.project}'" in result.stderr
        assert sorted(one.name for one in other.iterdir()) == ["theirs"]
        assert [one["checkpoint_id"] for one in points(run, "-C", str(agent.project))] == [point["checkpoint_id"]]
        assert run("restore", point["checkpoint_id"], "--any-directory", "--yes").exit_code == 0
        assert sorted(one.name for one in other.iterdir()) == ["f"]

    def test_a_session_of_a_directory_that_is_gone_comes_after_those_of_this_one(
        self, run, agent, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path / 'shared.db'}")
        agent.shell("echo 1 > f")
        worktree = tmp_path / "worktree"
        worktree.mkdir()
        monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(worktree))
        agent.send("UserPromptSubmit", prompt="elsewhere", session_id="later")
        worktree.rmdir()
        monkeypatch.chdir(agent.project)
        assert [one["step"] for one in points(run)] == ["Bash"]

    def test_without_hooks_there_is_nothing(self, run, made):
        result = run("rewind")
        assert result.exit_code == 3
        assert "holdfast hook claude-code" in result.stderr


class TestFork:
    def test_makes_a_second_directory_and_a_session(self, run, agent, tmp_path):
        agent.shell("echo 1 > f")
        point = points(run)[0]["checkpoint_id"]
        agent.shell("echo 2 > f")
        said = json.loads(run("fork", point[-8:], str(tmp_path / "second"), "--session", "what-if", "--json").stdout)
        assert (tmp_path / "second" / "f").read_text() == "1\n"
        assert (said["session_id"], said["paths"]) == ("what-if", 1)
        assert run("fork", point, str(tmp_path / "second")).exit_code == 2


def test_stdin_of_a_terminal_is_not_needed_to_install(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run("hook", "claude-code", "--yes").exit_code == 0
