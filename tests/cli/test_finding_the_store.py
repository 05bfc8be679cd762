import json

import pytest

from holdfast import SyncClient
from holdfast.cli.store_location import StoreNotFoundError, locate, open_or_make_store


def sessions_of(result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return [session["session_id"] for session in json.loads(result.stdout)["sessions"]]


@pytest.mark.parametrize("command", ["sessions", "timeline", "verify", "doctor"])
def test_without_a_store_nothing_is_made_and_the_next_command_is_named(run, tmp_path, command):
    result = run(command)
    assert result.exit_code == 3
    assert "holdfast demo" in result.stderr
    assert "SyncClient.sqlite()" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["new.db", "sqlite:///new.db", "new-directory", "file:///tmp/there-is-no-such-store"])
def test_a_named_store_that_is_not_there_is_not_made(run, tmp_path, name):
    result = run("--store", name, "sessions")
    assert result.exit_code == 3
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_or_directory_is_no_store_and_stays_empty(run, tmp_path):
    (tmp_path / "empty.db").touch()
    (tmp_path / "empty").mkdir()
    assert run("--store", "empty.db", "sessions").exit_code == 3
    assert run("--store", "empty", "sessions").exit_code == 3
    assert (tmp_path / "empty.db").stat().st_size == 0
    assert list((tmp_path / "empty").iterdir()) == []


def test_found_by_walking_up(run, made, monkeypatch, tmp_path):
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert "main" in sessions_of(run("sessions", "--json"))


def test_found_by_the_environment_which_goes_before_walking_up(run, made, monkeypatch, tmp_path):
    with SyncClient.sqlite(tmp_path / "other.db") as client:
        client.save(agent_id="a", session_id="other")
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/other.db")
    assert sessions_of(run("sessions", "--json")) == ["other"]
    assert "main" in sessions_of(run("sessions", "--json", "--store", str(made.path)))


def test_a_file_is_sqlite_and_a_directory_is_files(run, made, tmp_path):
    with SyncClient.files(tmp_path / "tree") as client:
        client.save(agent_id="a", session_id="in-files")
    for named in ("tree", f"file://{tmp_path}/tree"):
        assert sessions_of(run("--store", named, "sessions", "--json")) == ["in-files"]
    for named in (str(made.path), f"sqlite:///{made.path}", ".holdfast", "."):
        assert "main" in sessions_of(run("--store", named, "sessions", "--json"))


def test_the_default_store_of_files_is_found_too(run, tmp_path):
    with SyncClient.files(tmp_path / ".holdfast" / "store") as client:
        client.save(agent_id="a", session_id="in-files")
    assert sessions_of(run("sessions", "--json")) == ["in-files"]


def test_a_memory_store_can_not_be_looked_at(run):
    assert run("--store", "memory://", "sessions").exit_code == 2


def test_an_unknown_scheme_is_a_usage_error(run):
    result = run("--store", "nonsense://x", "sessions")
    assert result.exit_code == 2
    assert "nonsense" in result.stderr


def test_the_database_of_another_program_is_left_alone(run, tmp_path):
    import sqlite3

    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    before = other.read_bytes()
    assert run("--store", str(other), "sessions").exit_code == 2
    assert other.read_bytes() == before


@pytest.mark.parametrize("named", [None, "new.db", "sub/new.db", "sqlite:///new.db", "file://{here}/tree"])
def test_a_command_that_saves_makes_a_store_where_there_is_none(tmp_path, named):
    named = named and named.format(here=tmp_path)
    for expected in ([], ["s"]):
        with open_or_make_store(named) as client:
            assert [session.session_id for session in client.sessions()] == expected
            client.save(agent_id="a", session_id="s")
    with locate(named).open() as client:
        assert client.session("s").saves == 2


def test_a_directory_of_something_else_is_made_no_store(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(StoreNotFoundError):
        open_or_make_store("photos")
    assert list((tmp_path / "photos").iterdir()) == []


def test_a_password_in_the_url_is_not_shown():
    shown = {
        "postgresql://me:secret@host/db": "postgresql://me:***@host/db",
        "postgresql://me@host/db?schema=x&password=secret": "postgresql://me@host/db?schema=x&password=***",
        "postgresql://me@host:5432/db": "postgresql://me@host:5432/db",
    }
    assert {url: str(locate(url)) for url in shown} == shown
