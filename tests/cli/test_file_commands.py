"""snap, status, diff: the files of a directory, on the command line."""

import json
import os

import pytest


@pytest.fixture
def project(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "b.py").write_text("print()\n")
    (tmp_path / "x.log").write_text("noise\n")
    (tmp_path / ".gitignore").write_text("*.log\n")
    return tmp_path


def snap(run, *args):
    result = run("snap", *args)
    assert result.exit_code == 0
    return result.stdout.strip()


class TestSnap:
    def test_makes_a_store_and_says_what_it_kept_and_left_out(self, run, project):
        os.mkfifo(project / "pipe")
        result = run("snap", "-m", "the beginning")
        assert result.exit_code == 0
        assert len(result.stdout.strip()) == 36
        assert "3 files, 22 B; 4 changed" in result.stderr
        assert "left out by rules: 2 (.holdfast, x.log)" in result.stderr
        assert "skipped: pipe: a FIFO" in result.stderr
        assert "the beginning" in run("timeline").stdout
        assert (project / ".holdfast" / "store.db").is_file()

    def test_as_json(self, run, project):
        fields = json.loads(run("snap", "--json").stdout)
        assert fields["files"] == 3
        assert fields["excluded"] == [
            {"path": ".holdfast", "rule": "the store itself"},
            {"path": "x.log", "rule": ".gitignore: *.log"},
        ]
        assert json.loads(run("show", fields["checkpoint_id"], "--json").stdout)["workspace"] == fields["workspace"]

    def test_from_below_it_is_of_the_directory_that_has_the_store(self, run, project, monkeypatch):
        snap(run)
        monkeypatch.chdir(project / "d")
        assert json.loads(run("snap", "--json").stdout)["changed"] == 0
        (project / "d" / "b.py").write_text("print(1)\n")
        assert run("status").stdout == "M d/b.py\n"
        assert json.loads(run("snap", "--dir", ".", "--json").stdout)["files"] == 1

    @pytest.mark.parametrize("named", [".holdfast/", ".holdfast", "./.holdfast"])
    @pytest.mark.parametrize("is_there", [True, False])
    def test_the_directory_of_the_store_may_be_named(self, run, project, named, is_there):
        if is_there:
            (project / ".holdfast").mkdir()
        snap(run, "--store", named)
        assert (project / ".holdfast" / "store.db").is_file()
        snap(run, "--store", named)
        snap(run)
        assert len(json.loads(run("timeline", "--json").stdout)["checkpoints"]) == 3

    def test_a_directory_that_is_not_there_yet_may_be_named_too(self, run, project, tmp_path_factory):
        stores = tmp_path_factory.mktemp("elsewhere") / "stores"
        snap(run, "--store", f"{stores}/")
        snap(run, "--store", f"{stores}/")
        assert (stores / "store.db").is_file()

    def test_in_a_session_of_an_agent(self, run, project):
        snap(run, "--session", "run-1")
        assert "run-1" in run("sessions").stdout

    def test_what_is_refused_is_said(self, run, project):
        result = run("snap", "--dir", "/")
        assert result.exit_code == 2
        assert "root of the file system" in result.stderr


class TestStatus:
    def test_needs_a_store(self, run, project):
        assert run("status").exit_code == 3

    def test_says_what_is_left_out_and_how_much_that_is(self, run, project):
        snap(run)
        assert "left out   x.log: 6 B in 1 files (.gitignore: *.log)" in run("status", "--left-out").stderr
        listed = json.loads(run("status", "--left-out", "--json").stdout)["left_out"]
        assert {"path": "x.log", "reason": ".gitignore: *.log", "files": 1, "bytes": 6} in listed
        assert "left_out" not in json.loads(run("status", "--json").stdout)

    def test_lists_what_changed(self, run, project):
        snap(run)
        assert run("status").stdout == ""
        (project / "a.txt").write_text("one\n2\n")
        (project / "d" / "b.py").unlink()
        (project / "new\x1b[31m").mkdir()
        (project / ".gitignore").chmod(0o640)
        assert run("status").stdout == "P .gitignore\nM a.txt\nD d/b.py\nA new\\x1b[31m/\n"
        changes = {one["path"]: one for one in json.loads(run("status", "--json").stdout)["changes"]}
        assert changes[".gitignore"]["after"]["mode"] == "0640"
        assert changes["d/b.py"]["after"] is None
        snap(run)
        assert run("status").stdout == ""

    def test_without_its_cache_it_is_compared_with_the_last_snapshot(self, run, project):
        snap(run)
        for file in (project / ".holdfast" / "store.db-workspaces").iterdir():
            file.unlink()
        (project / "a.txt").write_text("changed\n")
        assert run("status").stdout == "M a.txt\n"


class TestDiff:
    def test_shows_lines(self, run, project):
        first = snap(run)
        (project / "a.txt").write_text("one\n2\n")
        assert run("diff").stdout == "M a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
        second = snap(run)
        assert run("diff").stdout == ""
        assert run("diff", first[-8:]).stdout == run("diff", first, second).stdout
        assert run("diff", second, first).stdout == "M a.txt\n@@ -1,2 +1,2 @@\n one\n-2\n+two\n"
        assert run("diff", first, "--stat").stdout == "M a.txt  +1 -1\n"
        assert run("diff", first, "--name-only").stdout == "a.txt\n"
        [change] = json.loads(run("diff", first, second, "--json").stdout)["changes"]
        assert (change["path"], change["status"], change["before"]["size"]) == ("a.txt", "M", 8)

    def test_shows_neither_secrets_nor_what_has_no_lines(self, run, project):
        snap(run)
        (project / ".env").write_text("PASSWORD=1\n")
        (project / "image").write_bytes(b"\x00\x01")
        (project / "link").symlink_to("a.txt")
        shown = run("diff").stdout
        assert "PASSWORD" not in shown
        assert shown.startswith("A .env\n  nothing → file, 11 B\nA image\n  nothing → file, 2 B\nA link\n")

    def test_of_a_checkpoint_without_files(self, run, made):
        result = run("diff", "main", "--files")
        assert result.exit_code == 3
        assert "has no snapshot of files" in result.stderr

    def test_stat_and_names_are_two_things(self, run, project):
        assert run("diff", "--stat", "--name-only").exit_code == 2
