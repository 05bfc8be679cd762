"""How the command line finds the store: option, environment, configuration, parent directories."""

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
    assert "holdfast init" in result.stderr
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


class TestSettings:
    """holdfast.toml, and [tool.holdfast] in pyproject.toml."""

    @pytest.fixture
    def other(self, tmp_path):
        (tmp_path / "data").mkdir()
        with SyncClient.sqlite(tmp_path / "data" / "other.db") as client:
            client.save(agent_id="a", session_id="other")
        return tmp_path / "data" / "other.db"

    @pytest.mark.parametrize(
        ("file", "text"),
        [
            ("holdfast.toml", 'store = "data/other.db"\n'),
            ("holdfast.toml", 'store = "sqlite:///data/other.db"\n'),
            ("pyproject.toml", '[project]\nname = "x"\n\n[tool.holdfast]\nstore = "data/other.db"\n'),
        ],
    )
    def test_names_a_store_from_where_the_file_is(self, run, other, made, tmp_path, monkeypatch, file, text):
        (tmp_path / file).write_text(text)
        below = tmp_path / "a" / "b"
        below.mkdir(parents=True)
        monkeypatch.chdir(below)
        assert sessions_of(run("sessions", "--json")) == ["other"]

    def test_flag_and_environment_go_before_it(self, run, other, made, tmp_path, monkeypatch):
        (tmp_path / "holdfast.toml").write_text('store = "nowhere.db"\n')
        assert sessions_of(run("sessions", "--json", "--store", str(other))) == ["other"]
        monkeypatch.setenv("HOLDFAST_URL", str(other))
        assert sessions_of(run("sessions", "--json")) == ["other"]
        monkeypatch.delenv("HOLDFAST_URL")
        refused = run("sessions")
        assert refused.exit_code == 3
        assert f"nowhere.db ({tmp_path / 'holdfast.toml'})" in refused.stderr

    def test_holdfast_toml_goes_before_pyproject(self, run, other, made, tmp_path):
        (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\nstore = "nowhere.db"\n')
        (tmp_path / "holdfast.toml").write_text(f'store = "{other}"\n')
        assert sessions_of(run("sessions", "--json")) == ["other"]

    def test_a_nearer_store_goes_before_a_file_above(self, run, other, tmp_path, monkeypatch):
        (tmp_path / "holdfast.toml").write_text('store = "data/other.db"\n')
        (tmp_path / "inner").mkdir()
        with SyncClient.sqlite(tmp_path / "inner" / ".holdfast" / "store.db") as client:
            client.save(agent_id="a", session_id="inner")
        monkeypatch.chdir(tmp_path / "inner")
        assert sessions_of(run("sessions", "--json")) == ["inner"]

    def test_what_saves_makes_the_store_that_is_named(self, run, tmp_path, monkeypatch):
        (tmp_path / "holdfast.toml").write_text('store = "made/here.db"\n')
        (tmp_path / "below").mkdir()
        (tmp_path / "state.json").write_text("{}")
        monkeypatch.chdir(tmp_path / "below")
        assert run("save", "s", "../state.json").exit_code == 0
        assert (tmp_path / "made" / "here.db").is_file()
        assert sessions_of(run("sessions", "--json")) == ["s"]

    @pytest.mark.parametrize("text", ["stor = 1", "store = 1", "store = ''", "store = [", "store = '\udcff'"])
    def test_a_mistake_is_said(self, run, made, tmp_path, text):
        (tmp_path / "holdfast.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
        result = run("sessions")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "holdfast.toml" in result.stderr

    def test_files_that_say_nothing_are_passed_by(self, run, made, tmp_path):
        (tmp_path / "pyproject.toml").write_text("this is no TOML, and none of ours")
        (tmp_path / "holdfast.toml").write_text("# later\n")
        assert "main" in sessions_of(run("sessions", "--json"))

    def test_the_directory_of_the_file_is_the_one_that_is_worked_in(self, run, tmp_path, monkeypatch):
        (tmp_path / "holdfast.toml").write_text(f'store = "{tmp_path.parent / tmp_path.name}-store.db"\n')
        assert run("trust", "--yes").exit_code == 0  # the store is outside the directory
        (tmp_path / "below").mkdir()
        (tmp_path / "file").write_text("x")
        monkeypatch.chdir(tmp_path / "below")
        said = json.loads(run("snap", "--json").stdout)
        assert said["files"] == 2
