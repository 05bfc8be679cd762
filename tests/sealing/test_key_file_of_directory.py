"""The key file that `holdfast.toml` names: used once it is trusted, and never a stranger's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast import KeyRing, SyncClient
from holdfast.cli.main import cli

SECRET = "canary-93"


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("HOLDFAST_URL", "HOLDFAST_KEYS", "HOLDFAST_KEYS_FILE", "HOLDFAST_REQUIRE_KEYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    KeyRing.new_key(tmp_path / "home" / "keys.toml")
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def run(*args: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(cli, list(args), prog_name="holdfast")


def configure(project: Path, text: str) -> None:
    (project / "holdfast.toml").write_text(text)


def save(project: Path) -> Result:
    (project.parent / "state.json").write_text(json.dumps({"said": SECRET}))
    return run("save", "s", str(project.parent / "state.json"), "--agent", "a")


def stored_bytes(project: Path) -> bytes:
    return b"".join(path.read_bytes() for path in project.rglob("*") if path.is_file() and path.suffix != ".toml")


def ring(tmp_path: Path) -> KeyRing:
    return KeyRing.from_file(tmp_path / "home" / "keys.toml")


def test_commands_use_the_key_file_once_it_is_trusted(project: Path, tmp_path: Path):
    configure(project, 'keys = "~/keys.toml"\n')
    for command in (["init"], ["sessions"], ["doctor"]):
        refused = run(*command)
        assert refused.exit_code in (1, 3), command
    assert "holdfast trust" in save(project).stderr
    assert not (project / ".holdfast").exists()
    assert str(tmp_path / "home" / "keys.toml") in run("trust", "--yes").output
    assert run("init").exit_code == 0
    assert save(project).exit_code == 0
    assert SECRET.encode() not in stored_bytes(project)
    with SyncClient.sqlite(project / ".holdfast" / "store.db", keys=ring(tmp_path)) as client:
        assert client.latest("s").execution_state == {"said": SECRET}
    below = project / "below"
    below.mkdir()
    for place in (project, below):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            assert SECRET in run("show", "s@", "--state").output
            assert run("verify").exit_code == 0
            assert run("rekey", "--data", "--json").exit_code == 0


def test_the_first_save_seals_the_store_that_the_file_names(project: Path, tmp_path: Path):
    configure(project, 'store = "data.db"\nkeys = "~/keys.toml"\n')
    run("trust", "--yes")
    assert save(project).exit_code == 0
    assert SECRET.encode() not in stored_bytes(project)
    with SyncClient.sqlite(project / "data.db", keys=ring(tmp_path)) as client:
        assert client.latest("s").execution_state == {"said": SECRET}


def test_a_store_that_the_user_names_has_the_keys_of_the_environment_only(project: Path, tmp_path: Path):
    configure(project, 'keys = "~/keys.toml"\n')
    run("trust", "--yes")
    save(project)
    other = tmp_path / "other.db"
    with SyncClient.sqlite(other) as client:
        client.save("a", session_id="plain", execution_state={})
    assert "plain" in run("sessions", "--store", str(other)).output
    sealed = str(project / ".holdfast" / "store.db")
    assert run("sessions", "--store", sealed).exit_code != 0
    assert run("sessions", "--store", sealed, HOLDFAST_KEYS_FILE=str(tmp_path / "home" / "keys.toml")).exit_code == 0


def test_the_environment_comes_first(project: Path, tmp_path: Path):
    configure(project, 'keys = "~/keys.toml"\n')
    KeyRing.new_key(tmp_path / "home" / "own.toml")
    with SyncClient.sqlite(keys=KeyRing.from_file(tmp_path / "home" / "own.toml")) as client:
        client.save("a", session_id="own", execution_state={})
    shown = run("sessions", HOLDFAST_KEYS_FILE=str(tmp_path / "home" / "own.toml"))
    assert "own" in shown.output  # without trust: nothing of the file was used


def test_a_key_file_that_comes_with_the_directory_is_refused_even_if_trusted(project: Path):
    KeyRing.new_key(project / "keys.toml")
    (project / "linked").symlink_to(project)
    for named in (project / "keys.toml", project / "linked" / "keys.toml", project / "below" / ".." / "keys.toml"):
        configure(project, f'keys = "{named}"\n')
        run("trust", "--yes")
        refused = save(project)
        assert refused.exit_code == 2
        assert "within the directory" in refused.stderr
    assert not (project / ".holdfast").exists()


def test_a_changed_configuration_loses_its_trust(project: Path, tmp_path: Path):
    configure(project, 'keys = "~/keys.toml"\n')
    run("trust", "--yes")
    save(project)
    KeyRing.new_key(tmp_path / "home" / "stranger.toml")
    configure(project, 'keys = "~/stranger.toml"\n')
    assert "has changed since" in save(project).stderr
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "home")
    configure(project, f'keys = "{link}/keys.toml"\n')
    run("trust", "--yes")
    assert save(project).exit_code == 0
    (tmp_path / "elsewhere").mkdir()
    KeyRing.new_key(tmp_path / "elsewhere" / "keys.toml")
    link.unlink()
    link.symlink_to(tmp_path / "elsewhere")  # the same text, another file
    assert "has changed since" in save(project).stderr


@pytest.mark.parametrize("value", ['"keys.toml"', '"../keys.toml"', '""', "7", '"$HOME/keys.toml"', r'"/a\u0000b"'])
def test_only_a_full_path_names_a_key_file(project: Path, value: str):
    configure(project, f"keys = {value}\n")
    refused = save(project)
    assert (refused.exit_code, "full path" in refused.stderr) == (2, True)


def test_a_key_file_that_others_can_read_or_that_is_missing_is_refused(project: Path, tmp_path: Path):
    configure(project, 'keys = "~/keys.toml"\n')
    run("trust", "--yes")
    (tmp_path / "home" / "keys.toml").chmod(0o644)
    assert "0600" in save(project).stderr or "chmod" in save(project).stderr
    (tmp_path / "home" / "keys.toml").unlink()
    refused = save(project)
    assert (refused.exit_code, "can't be read" in refused.stderr) == (1, True)
    assert not (project / ".holdfast" / "store.db").exists()
