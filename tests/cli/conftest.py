"""A small store with a fork, a handoff, a TTL and values that JSON can't say; and ways to run the command line."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from stores import copy_empty_sqlite

from holdfast import SyncClient
from holdfast.cli.main import cli


@pytest.fixture(autouse=True)
def _no_store_from_outside(monkeypatch, tmp_path):
    """No test finds a store above its own directory, or by the environment, or what the user of this machine trusts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path.with_name(f"{tmp_path.name}-config")))
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run():
    """The command line in this process."""

    def invoke(*args: str) -> Result:
        return CliRunner().invoke(cli, list(args), catch_exceptions=False, prog_name="holdfast", terminal_width=80)

    return invoke


@pytest.fixture
def run_process(tmp_path):
    """The command line as a process of its own."""

    def start(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *args],
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
            env={**os.environ, **environment},
            timeout=240,
            check=False,
        )

    return start


def make_store(path):
    """Make session `main` with three steps and a handoff, and a fork of its first step; return the ids."""
    copy_empty_sqlite(path)
    with SyncClient.sqlite(path) as client:
        first = client.save(
            agent_id="worker", session_id="main", execution_state={"messages": ["one"]}, step_name="read"
        )
        second = client.save(
            agent_id="worker",
            session_id="main",
            execution_state={
                "messages": ["one", {"content": "two"}],
                "due": datetime(2026, 3, 1, tzinfo=UTC),
                "total": Decimal("1.50"),
                "pair": (1, 2),
                7: "seven",
            },
            context={"invoice": "INV-1"},
            step_name="decide",
            label="v1",
        )
        handed = client.handoff(second, target_agent_id="approver")
        fork = client.fork(first, session_id="what-if")
    return {"first": first, "second": second, "handed": handed, "fork": fork}


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """The bytes of such a store, and its ids: hundreds of tests begin with a copy."""
    path = tmp_path_factory.mktemp("made") / "store.db"
    ids = make_store(path)
    return path.read_bytes(), ids


@pytest.fixture
def made(tmp_path, made_once):
    """A store with what `make_store` makes. Its path, and the ids by what they are."""
    path = tmp_path / ".holdfast" / "store.db"
    if path.exists():  # another fixture has made it
        return SimpleNamespace(path=path, **make_store(path))
    content, ids = made_once
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)
    return SimpleNamespace(path=path, **ids)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A directory as it was cloned, with a secret of the user's."""
    place = tmp_path / "clone"
    place.mkdir()
    (place / ".env").write_text("KEY=1\n")
    (place / "state.json").write_text("{}")
    monkeypatch.chdir(place)
    return place
