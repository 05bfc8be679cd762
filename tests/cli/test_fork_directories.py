"""`holdfast fork REF DIR`: commands in DIR find the store, by a record of the user's own that no
other directory can use."""

import json
import os
import shutil
from pathlib import Path

import pytest

from holdfast.cli.commands.fork import _record
from holdfast.cli.store_location import StoreLocation


@pytest.fixture
def forked(run, tmp_path, monkeypatch) -> Path:
    """The directory of a fork; its store is in another one."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "file").write_text("one\n")
    monkeypatch.chdir(tmp_path / "project")
    assert run("init").exit_code == 0
    assert run("snap").exit_code == 0
    assert run("fork", "@", str(tmp_path / "fork")).exit_code == 0
    return tmp_path / "fork"


def records() -> list[Path]:
    return list(Path(os.environ["XDG_CONFIG_HOME"], "holdfast", "forks").glob("*"))


def store_of(run) -> Path:
    result = run("status", "--json")
    assert result.exit_code == 0
    return Path(json.loads(result.stdout)["store"])


def test_commands_find_the_store_and_the_directory(run, forked, tmp_path, monkeypatch):
    (forked / "below").mkdir()
    monkeypatch.chdir(forked / "below")
    assert store_of(run) == tmp_path / "project" / ".holdfast" / "store.db"
    (forked / "file").write_text("two\n")
    assert run("snap", "-m", "in the fork").exit_code == 0
    taken = json.loads(run("show", f"workspace {forked}", "--json").stdout)
    assert taken["step_name"] == "in the fork"
    assert not (forked / "below" / ".holdfast").exists()


def test_status_and_diff_compare_with_the_checkpoint_it_was_made_from(run, forked, monkeypatch):
    monkeypatch.chdir(forked)
    report = json.loads(run("status", "--json").stdout)
    assert (report["has_snapshot"], report["changes"]) == (True, [])
    assert run("diff").stdout == ""
    (forked / "file").write_text("other\n")
    assert run("status").stdout == "M file\n"
    assert run("diff").stdout.splitlines()[0] == "M file"
    assert "-one" in run("diff").stdout
    assert run("snap").exit_code == 0
    assert run("diff").stdout == ""


def test_nothing_is_added_to_the_directory(run, forked):
    assert [path.name for path in forked.iterdir()] == ["file"]
    [record] = records()
    assert record.stat().st_mode & 0o777 == 0o600


def test_what_the_files_of_the_fork_say_is_about_the_first_directory(run, forked, tmp_path, monkeypatch):
    (forked / "holdfast.toml").write_text('store = "redis://203.0.113.7/0"\n')
    monkeypatch.chdir(forked)
    assert store_of(run) == tmp_path / "project" / ".holdfast" / "store.db"


def test_a_store_of_its_own_goes_first(run, forked, monkeypatch):
    monkeypatch.chdir(forked)
    assert run("init").exit_code == 0
    assert store_of(run) == forked / ".holdfast" / "store.db"


def test_a_copy_is_another_directory(run, forked, tmp_path, monkeypatch):
    shutil.copytree(forked, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    assert run("sessions").exit_code == 3


def test_so_is_one_that_takes_its_place(run, forked, tmp_path, monkeypatch):
    forked.rename(tmp_path / "moved")
    forked.mkdir()
    monkeypatch.chdir(forked)
    assert run("sessions").exit_code == 3


@pytest.mark.parametrize("content", ["", "[]", '{"directory": 1}', '{"store": "/x"}', "{" * 5000])
def test_a_record_that_can_not_be_read_does_not_count(run, forked, monkeypatch, content):
    records()[0].write_text(content)
    monkeypatch.chdir(forked)
    assert run("sessions").exit_code == 3


def test_a_record_that_others_may_write_does_not_count(run, forked, monkeypatch):
    records()[0].chmod(0o666)
    monkeypatch.chdir(forked)
    assert run("sessions").exit_code == 3


def test_records_of_directories_that_are_gone_are_removed(run, forked, tmp_path):
    shutil.rmtree(forked)
    assert run("fork", "@", str(tmp_path / "second")).exit_code == 0
    assert len(records()) == 1


def test_a_password_is_not_recorded(tmp_path, capsys):
    _record(tmp_path, StoreLocation("url", "--store", url="postgresql://ann:secret@db.example/agents"), "id")
    assert records() == []
    assert "name the store" in capsys.readouterr().err


def test_a_fork_is_made_where_no_record_can_be(run, forked, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/nowhere")
    result = run("fork", "@", str(tmp_path / "second"))
    assert result.exit_code == 0
    assert "--store" in result.stderr
