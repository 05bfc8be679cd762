"""restore and undo of files: the plan, the restore, and the command that undoes it."""

import contextlib
import json
import os
import subprocess
import sys

import pytest

from holdfast import SyncClient
from holdfast.workspace.restore import apply


@pytest.fixture
def project(tmp_path):
    """A directory with a store in it, and three checkpoints of session `s`, each with other files."""
    (tmp_path / "src").mkdir()
    points = []
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        workspace = client.workspace(tmp_path)
        for step in range(3):
            (tmp_path / "src" / "code.py").write_text(f"step {step}\n")
            (tmp_path / f"made-{step}").write_text("x")
            points.append(client.save("a", execution_state={"step": step}, session_id="s", workspace=workspace))
    return points


def files(tmp_path):
    found = [one for one in tmp_path.rglob("*") if one.is_file() and ".holdfast" not in one.parts]
    return {str(one.relative_to(tmp_path)): one.read_text() for one in found}


AT = [
    {"src/code.py": "step 0\n", "made-0": "x"},
    {"src/code.py": "step 1\n", "made-0": "x", "made-1": "x"},
    {"src/code.py": "step 2\n", "made-0": "x", "made-1": "x", "made-2": "x"},
]


class TestRestore:
    def test_says_what_it_will_do_does_it_and_says_how_to_undo_it(self, run, project, tmp_path):
        result = run("restore", project[0][-8:], "--yes")
        assert result.exit_code == 0, result.stderr
        assert result.stdout == "2 deleted, 1 replaced\n"
        assert "-  made-1" in result.stderr
        assert "~  src/code.py" in result.stderr
        assert "undo: holdfast undo" in result.stderr
        assert files(tmp_path) == AT[0]

    def test_and_undo_takes_it_back_and_does_it_again(self, run, project, tmp_path):
        run("restore", project[0], "--yes")
        result = run("undo", "--yes")
        assert result.exit_code == 0
        assert result.stdout == f"undid restore: files of {tmp_path}: back to before: 2 made, 1 replaced\n"
        assert "undo this, too: holdfast undo" in result.stderr
        assert files(tmp_path) == AT[2]
        assert run("undo", "--yes").exit_code == 3  # nothing is left to undo, and nothing is done again
        assert files(tmp_path) == AT[2]
        assert run("redo", "--yes").exit_code == 0
        assert files(tmp_path) == AT[0]

    def test_in_a_script_it_needs_yes(self, run, project, tmp_path):
        result = run("restore", project[0])
        assert (result.exit_code, result.stdout) == (2, "")
        assert "--yes" in result.stderr
        assert files(tmp_path) == AT[2]
        run("restore", project[0], "--yes")
        assert run("undo").exit_code == 2
        assert files(tmp_path) == AT[0]

    def test_a_dry_run_does_nothing(self, run, project, tmp_path):
        dry = run("restore", project[0], "--dry-run")
        assert "nothing was changed: leave out --dry-run" in dry.stderr
        said = json.loads(run("restore", project[0], "--dry-run", "--json").stdout)
        assert said["dry_run"] is True
        assert [one["path"] for one in said["actions"]] == ["made-2", "made-1", "src/code.py"]
        assert files(tmp_path) == AT[2]
        assert run("undo", "--dry-run").exit_code == 3

    def test_paths_are_named_from_where_one_stands(self, run, project, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path / "src")
        assert run("restore", project[0], "code.py", "--yes").exit_code == 0
        assert files(tmp_path) == AT[2] | {"src/code.py": "step 0\n"}

    def test_a_path_may_lead_there_by_a_link(self, run, project, tmp_path):
        link = tmp_path.parent / f"{tmp_path.name}-link"
        link.symlink_to(tmp_path)
        result = run("restore", project[0], str(link / "src" / "code.py"), "-C", str(link), "--yes")
        assert result.exit_code == 0, result.stderr
        assert files(tmp_path) == AT[2] | {"src/code.py": "step 0\n"}

    def test_state_files_or_both(self, run, project, tmp_path):
        result = run("restore", project[1], "--state", "--yes")
        assert result.exit_code == 0
        printed = result.stderr.split("undo: holdfast ")[1].split()
        assert run(*printed).stdout.startswith("undid rollback: session s: step ")
        assert json.loads(run("show", "s", "--json").stdout)["checkpoint_id"] == project[2]
        assert run("redo").exit_code == 0
        assert files(tmp_path) == AT[2]
        assert json.loads(run("show", "s", "--json").stdout)["checkpoint_id"] == project[1]
        planned = json.loads(run("restore", project[0], "--files", "--state", "--dry-run", "--json").stdout)
        assert planned["scope"] == "both"
        said = json.loads(run("restore", project[0], "--all", "--yes", "--json").stdout)
        assert said["state"] == {"session_id": "s", "from_id": project[1], "to_id": project[0]}
        assert files(tmp_path) == AT[0]
        run("undo", "--yes")
        assert json.loads(run("show", "s", "--json").stdout)["checkpoint_id"] == project[1]
        assert files(tmp_path) == AT[2]

    def test_what_changed_since_is_refused_with_a_list(self, run, project, tmp_path):
        (tmp_path / "src" / "code.py").write_text("by hand\n")
        result = run("restore", project[0], "--yes")
        assert (result.exit_code, result.stdout) == (4, "")
        assert "changed since the last snapshot: src/code.py" in result.stderr
        assert "--keep-user" in result.stderr
        assert files(tmp_path) == AT[2] | {"src/code.py": "by hand\n"}
        assert run("restore", project[0], "--yes", "--keep-user").exit_code == 0
        assert files(tmp_path) == AT[0] | {"src/code.py": "by hand\n"}
        assert run("restore", project[0], "--yes", "--force").exit_code == 0
        assert files(tmp_path) == AT[0]

    def test_nothing_to_do(self, run, project):
        result = run("restore", project[2], "--yes")
        assert result.exit_code == 0
        assert "nothing to do" in result.stdout
        assert "undo" not in result.stderr

    def test_of_another_directory(self, run, project, tmp_path):
        (tmp_path / "empty").mkdir()
        assert run("restore", project[1], "--yes", "--dir", "empty").exit_code == 0
        assert files(tmp_path / "empty") == AT[1]

    def test_a_checkpoint_without_files(self, run, project):
        with SyncClient.sqlite(".holdfast/store.db") as client:
            without = client.save("a", session_id="other")
        result = run("restore", without, "--yes")
        assert result.exit_code == 3
        assert "no snapshot of files" in result.stderr


class TestCutOff:
    @pytest.fixture
    def cut_off(self, run, project, tmp_path, monkeypatch):
        """A restore that ended in the middle."""

        class Ended(BaseException):
            pass

        def ended(*_given):
            raise Ended

        with monkeypatch.context() as patched:
            patched.setattr(apply.Applier, "put_file", ended)
            with pytest.raises(Ended):
                run("restore", project[0], "--yes")
        assert files(tmp_path) == {"made-0": "x", "src/code.py": "step 2\n"}
        return project

    def test_is_finished(self, run, cut_off, tmp_path):
        refused = run("restore", cut_off[1], "--yes")
        assert refused.exit_code == 4
        assert "--resume" in refused.stderr
        assert refused.stderr.count("\n") == 1  # and no plan, which would be one upon what is half done
        result = run("restore", "--resume")
        assert (result.exit_code, result.stdout) == (0, "1 replaced\n")
        assert files(tmp_path) == AT[0]
        run("undo", "--yes")
        assert files(tmp_path) == AT[2]

    def test_or_rolled_back(self, run, cut_off, tmp_path):
        result = run("restore", "--rollback")
        assert (result.exit_code, result.stdout) == (0, "2 made\n")
        assert files(tmp_path) == AT[2]
        assert run("restore", "--rollback").exit_code == 3

    @pytest.mark.parametrize("args", [["--resume", "--rollback"], ["--resume", "REF"], []])
    def test_wrong_usage(self, run, project, args):
        assert run("restore", *args).exit_code == 2


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo terminal")
def test_on_a_terminal_a_restore_shows_how_far_it_is(project, tmp_path):
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "holdfast", "restore", project[0], "--yes"]
    environment = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, cwd=tmp_path, env=environment) as process:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while piece := os.read(ours, 65536):
                said += piece
        assert process.wait() == 0
    os.close(ours)
    assert b"restoring" in said
    assert b"3/3" in said
    assert files(tmp_path) == AT[0]
