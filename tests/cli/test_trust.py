"""`holdfast trust`: what it shows, what it records, and when that ends."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from configurations import EVENT, assert_refused, configure


class TestTrusting:
    @pytest.fixture
    def asking(self, clone):
        configure(clone, 'store = "redis://ann:pass-word@127.0.0.1:1/0"\n[workspace]\ninclude_git = true\n')
        return clone

    def records(self) -> list[Path]:
        place = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast" / "trust"
        return sorted(place.iterdir()) if place.is_dir() else []

    def test_shows_what_is_asked_for_before_it_records(self, run, asking):
        result = run("trust")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "store = redis://ann:***@127.0.0.1:1/0 (it is a URL" in result.stderr
        assert "workspace.include_git = true" in result.stderr
        assert self.records() == []
        result = run("trust", "--yes")
        assert result.stdout == f"{asking} is trusted until its configuration changes\n"
        assert f"undo: holdfast trust --revoke {asking}" in result.stderr
        assert run("trust", "--yes").stdout == f"{asking} is trusted already\n"

    def test_a_person_is_asked(self, asking):
        import pty

        for answer, is_trusted in ((b"n\n", False), (b"y\n", True)):
            primary, secondary = pty.openpty()
            os.write(primary, answer)
            done = subprocess.run(
                [sys.executable, "-m", "holdfast", "trust"], cwd=asking, stdin=secondary, stdout=subprocess.PIPE,
                stderr=secondary, timeout=60, check=False,
            )  # fmt: skip
            os.close(secondary)
            os.close(primary)
            assert done.returncode == 0
            assert bool(self.records()) == is_trusted

    def test_the_record_is_the_users_own(self, run, asking):
        run("trust", "--yes")
        [record] = self.records()
        assert record.stat().st_mode & 0o777 == 0o600
        assert record.parent.stat().st_mode & 0o777 == 0o700
        assert record.parent.parent.stat().st_mode & 0o777 == 0o700
        assert "pass-word" not in record.read_text()

    def test_without_xdg_config_home_it_is_below_the_home_directory(self, run, asking, monkeypatch):
        for value in (None, "relative/path"):
            if value is None:
                monkeypatch.delenv("XDG_CONFIG_HOME")
            else:
                monkeypatch.setenv("XDG_CONFIG_HOME", value)
            run("trust", "--yes")
            [record] = (Path.home() / ".config" / "holdfast" / "trust").iterdir()
            record.unlink()
        assert not (asking / "relative").exists()

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda file: file.chmod(0o666),
            lambda file: (file.rename(file.with_name("x")), file.symlink_to("x")),
            lambda file: file.write_text("{"),
            lambda file: file.write_text("[]"),
            lambda file: file.write_text(json.dumps({**json.loads(file.read_text()), "directory": "/elsewhere"})),
            lambda file: (file.unlink(), os.mkfifo(file)),
            lambda file: (file.unlink(), file.mkdir()),
        ],
    )
    def test_a_record_that_can_not_be_relied_on_does_not_count(self, run, asking, spoil):
        run("trust", "--yes")
        [record] = self.records()
        spoil(record)
        assert_refused(run("sessions"), "is not trusted")
        assert run("trust", "--list").exit_code == 0

    def test_it_is_for_that_directory_alone(self, run, asking, monkeypatch):
        run("trust", "--yes")
        copy = shutil.copytree(asking, asking.parent / "copy")
        monkeypatch.chdir(copy)
        assert_refused(run("sessions"), f"holdfast trust {copy}")

    def test_it_is_known_by_every_name_of_the_directory(self, run, asking):
        link = asking.parent / "link"
        link.symlink_to(asking)
        assert json.loads(run("trust", str(link), "--yes", "--json").stdout)["directory"] == str(asking)
        assert "needs trust" not in run("sessions").stderr

    @pytest.mark.parametrize(
        "text", ['store = "redis://other"', 'store = "../b.db"', 'store = "../a.db"\n[workspace]\nmax_files = 9',
                 'store = "../a.db" # !'],
    )  # fmt: skip
    def test_a_change_ends_it(self, run, clone, text):
        configure(clone, 'store = "../a.db"')
        run("trust", "--yes")
        assert run("save", "s", "state.json").exit_code == 0
        configure(clone, text)
        assert_refused(run("sessions"), "was trusted on ", "its configuration has changed since")
        checks = {check["name"]: check for check in json.loads(run("doctor", "--json").stdout)["checks"]}
        assert checks["trust"]["found"] == "changed since it was trusted"
        assert "changed" in run("trust", "--list").stdout

    def test_another_part_of_pyproject_does_not_end_it(self, run, clone):
        text = '[tool.holdfast]\nstore = "../a.db"\n[project]\nname = "{}"\n'
        configure(clone, text.format("a"), "pyproject.toml")
        assert_refused(run("save", "s", "state.json"))
        run("trust", "--yes")
        configure(clone, text.format("b"), "pyproject.toml")
        assert run("save", "s", "state.json").exit_code == 0
        configure(clone, text.format("b").replace("a.db", "b.db"), "pyproject.toml")
        assert_refused(run("sessions"))

    def test_list_and_revoke(self, run, asking):
        assert json.loads(run("trust", "--list", "--json").stdout) == {"directories": []}
        run("trust", "--yes")
        [one] = json.loads(run("trust", "--list", "--json").stdout)["directories"]
        assert (one["directory"], one["status"]) == (str(asking), "trusted")
        assert f"{asking}  {one['trusted_at']}  trusted\n" in run("trust", "--list").stdout
        assert json.loads(run("trust", "--revoke", str(asking), "--json").stdout) == {
            "directory": str(asking), "trusted": False, "changed": True,
        }  # fmt: skip
        assert_refused(run("sessions"), "is not trusted")
        assert run("trust", "--revoke").stdout == f"{asking} was not trusted: nothing to do\n"

    def test_one_that_is_gone_can_be_revoked(self, run, asking, monkeypatch):
        run("trust", "--yes")
        monkeypatch.chdir(asking.parent)
        shutil.rmtree(asking)
        assert "gone" in run("trust", "--list").stdout
        assert run("trust", "--revoke", "clone").stdout == f"{asking} is trusted no longer\n"
        assert self.records() == []

    def test_where_nothing_is_asked_for_nothing_is_recorded(self, run, clone):
        configure(clone, 'store = ".holdfast/store.db"\n[workspace]\nsecrets = "skip"\n')
        assert run("trust", "--yes").stdout == f"{clone} asks for nothing that needs trust\n"
        assert self.records() == []
        assert "not needed" in run("doctor").stdout

    def test_wrong_usage(self, run, clone):
        assert run("trust", "--list", "--revoke").exit_code == 2
        assert run("trust", "nowhere").exit_code == 2

    def test_what_is_shown_can_not_play_with_the_terminal(self, run, clone):
        configure(clone, 'store = "redis://x\\u001b[2K\\r\\nall is well"\n')
        for command in (["trust"], ["sessions"]):
            said = run(*command).stderr
            assert "\x1b" not in said
            assert "\nall is well" not in said

    def test_the_nearest_directory_is_meant(self, run, asking, monkeypatch):
        (asking / "below").mkdir()
        monkeypatch.chdir(asking / "below")
        assert json.loads(run("trust", "--yes", "--json").stdout)["directory"] == str(asking)
        assert "ok    trusted since " in run("doctor", "--store", str(asking.parent / "own.db")).stdout

    def test_a_place_that_can_not_be_written_is_said(self, run, asking, monkeypatch):
        blocked = asking.parent / "blocked"
        blocked.write_text("")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(blocked))
        result = run("trust", "--yes")
        assert result.exit_code == 1
        assert "nothing was changed" in result.stderr


class TestInstalledHook:
    def test_no_module_of_the_project_is_imported(self, run, clone, monkeypatch):
        monkeypatch.setattr(shutil, "which", lambda _name: None)
        (clone / "click.py").write_text("open('executed', 'w').close()\n")
        assert run("hook", "claude-code", "--yes").exit_code == 0
        [hook] = json.loads((clone / ".claude" / "settings.json").read_text())["hooks"]["PostToolUse"][0]["hooks"]
        done = subprocess.run(
            shlex.split(hook["command"]), input=json.dumps({**EVENT, "cwd": str(clone)}), cwd=clone,
            capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert not (clone / "executed").exists()

    @pytest.mark.parametrize("flags", [[], ["--local"]])
    def test_settings_that_lead_out_of_the_project_are_left_alone(self, run, clone, tmp_path_factory, flags):
        outside = tmp_path_factory.mktemp("outside")
        (outside / "settings.json").write_text("{}")
        (outside / "settings.local.json").write_text("{}")
        (clone / ".claude").symlink_to(outside)
        result = run("hook", "claude-code", "--yes", *flags)
        assert result.exit_code == 2
        assert "leads out of the project" in result.stderr
        assert {file.read_text() for file in outside.iterdir()} == {"{}"}
