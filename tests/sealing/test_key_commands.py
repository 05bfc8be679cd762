"""`holdfast keys`, `rekey` and `encrypt`, and commands on a sealed store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast import KeyRing, SyncClient
from holdfast.cli.main import cli


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOLDFAST_URL", "HOLDFAST_KEYS", "HOLDFAST_KEYS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def run(*args: str, keys: str | None = "keys.toml") -> Result:
    environment = {"HOLDFAST_KEYS_FILE": keys} if keys else {}
    return CliRunner(env=environment).invoke(cli, list(args), prog_name="holdfast")


@pytest.fixture
def plain() -> str:
    with SyncClient.sqlite("plain.db") as client:
        for number in range(3):
            saved = client.save("writer", execution_state={"said": f"canary {number}"}, session_id="canary-session")
        client.tag("canary-tag", saved)
    return saved


def said(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_store_is_encrypted_rekeyed_and_read(plain: str):
    refused = run("encrypt", "plain.db", "sealed.db", keys=None)
    assert refused.exit_code == 2
    assert "holdfast keys new" in refused.stderr
    assert run("keys", "new", "keys.toml", keys=None).exit_code == 0
    first = said(run("encrypt", "plain.db", "sealed.db", "--json"))
    assert (first["copied"], first["already_there"]) == (3, 0)
    assert said(run("encrypt", "plain.db", "sealed.db", "--json"))["already_there"] == 3
    with SyncClient.sqlite("plain.db") as client:  # it was in use meanwhile
        client.save("writer", execution_state={"said": "later"}, session_id="canary-session")
    assert said(run("encrypt", "plain.db", "sealed.db", "--json"))["copied"] == 1
    for path in Path().glob("sealed.db*"):
        assert b"canary" not in path.read_bytes()
    assert run("verify", "--store", "sealed.db").exit_code == 0
    shown = run("timeline", "canary-session", "--store", "sealed.db", "--json")
    assert len(said(shown)["checkpoints"]) == 4
    assert "canary-tag" in run("tag", "--store", "sealed.db").stdout

    status = said(run("rekey", "--status", "--store", "sealed.db", "--json"))
    assert status["is_current"] is True
    assert said(run("keys", "new", "keys.toml", "--json"))["file"] == "keys.toml"
    assert "holdfast rekey" in run("rekey", "--status", "--store", "sealed.db").stderr
    assert said(run("rekey", "--store", "sealed.db", "--json"))["protected_by"] != status["protected_by"]
    assert said(run("keys", "export", "-o", "rows", "--store", "sealed.db", "--json"))["file"] == "rows"
    assert run("keys", "export", "-o", "rows", "--store", "sealed.db").exit_code == 2
    assert said(run("keys", "import", "rows", "--store", "sealed.db", "--json"))["put_back"] == 0
    Path("keys.toml").write_text(Path("keys.toml").read_text().splitlines()[0])
    assert run("show", "canary-session@", "--store", "sealed.db").exit_code == 0


def test_data_is_encrypted_again_and_the_old_keys_are_destroyed(plain: str):
    run("keys", "new", "keys.toml")
    run("encrypt", "plain.db", "sealed.db")
    first = said(run("rekey", "--status", "--store", "sealed.db", "--json"))
    assert (first["epoch"], first["old_epochs"]) == (1, [])
    assert "epoch 2" in (done := run("rekey", "--data", "--store", "sealed.db")).stdout
    assert "epoch 1 are still accepted: holdfast rekey --destroy-old" in done.stderr
    refused = run("rekey", "--destroy-old", "--store", "sealed.db")  # no terminal to ask
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert run("rekey", "--status", "--data", "--store", "sealed.db").exit_code == 2
    status = said(run("rekey", "--destroy-old", "--yes", "--store", "sealed.db", "--json"))
    assert (status["epoch"], status["old_epochs"], status["is_resealing"]) == (2, [], False)
    assert status["trees_current"] == status["trees"] == 1
    assert len(said(run("timeline", "canary-session", "--store", "sealed.db", "--json"))["checkpoints"]) == 3
    assert run("verify", "--store", "sealed.db").exit_code == 0


def test_without_keys_a_sealed_store_is_refused_with_a_hint(plain: str):
    run("keys", "new", "keys.toml")
    run("encrypt", "plain.db", "sealed.db")
    for command in (
        ["sessions"],
        ["timeline", "canary-session"],
        ["gc"],
        ["verify"],
        ["rekey"],
        ["keys", "export", "-o", "x"],
    ):
        result = run(*command, "--store", "sealed.db", keys=None)
        assert result.exit_code in (1, 2), command
        assert "HOLDFAST_KEYS_FILE" in result.stderr, command
    assert run("sessions", "--store", "plain.db").exit_code == 5  # keys were given


def test_an_export_of_a_sealed_store_is_plain_only_by_name(plain: str):
    run("keys", "new", "keys.toml")
    run("encrypt", "plain.db", "sealed.db")
    refused = run("export", "-o", "bundle", "--store", "sealed.db")
    assert refused.exit_code == 2
    assert "--plain" in refused.stderr
    assert not Path("bundle").exists()
    assert run("export", "-o", "bundle", "--plain", "--store", "sealed.db").exit_code == 0
    assert run("copy", "sealed.db", "again.db", "--plain").exit_code == 0
    with SyncClient.sqlite("again.db") as client:
        assert len(client.timeline("canary-session")) == 3
    assert run("copy", "sealed.db", "sealed-again.db").exit_code == 0
    with SyncClient.sqlite("sealed-again.db", keys=KeyRing.from_file("keys.toml")) as client:
        assert client.latest("canary-session").execution_state == {"said": "canary 2"}


def commands_of(section: str) -> str:
    """The lines of a section of the page that a shell runs."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "encrypt-a-store.md").read_text("utf-8")
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line.removeprefix("    $ ") for line in text.splitlines() if line.startswith("    $ ")]
    assert lines
    return "\n".join(lines)


def shell(commands: str) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-e", "-c", commands], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_the_page_encrypts_a_store(plain: str):
    Path(".holdfast").mkdir()
    Path("plain.db").rename(".holdfast/store.db")
    ring = KeyRing.new_key("keys.toml")
    shell(commands_of("Encrypt an existing store"))
    with SyncClient.sqlite("sealed.db", keys=ring) as client:
        assert client.restore(plain).execution_state == {"said": "canary 2"}


def test_the_page_opens_an_old_backup_with_the_new_key(monkeypatch: pytest.MonkeyPatch):
    ring = KeyRing.new_key("keys.toml")
    with SyncClient.sqlite(keys=ring) as client:
        saved = client.save("a", execution_state={"n": 1})
    Path("backup.db").write_bytes(Path(".holdfast/store.db").read_bytes())
    ring = KeyRing.new_key("keys.toml")
    with SyncClient.sqlite(keys=ring) as client:
        client.rekey(data=True)
    new, _ = Path("keys.toml").read_text().splitlines()
    Path("keys.toml").write_text(new)
    monkeypatch.setenv("HOLDFAST_KEYS_FILE", "keys.toml")
    shell(commands_of("Keep backups readable"))
    with SyncClient.sqlite(keys=KeyRing.from_file("keys.toml")) as client:
        assert client.restore(saved).execution_state == {"n": 1}
