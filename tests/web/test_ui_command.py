"""`holdfast ui`: what it prints, what it refuses, and what it serves."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import httpx
import pytest
from click.testing import CliRunner
from web_site import fill, started

from holdfast import SyncClient
from holdfast.cli.main import cli


@pytest.fixture
def store(tmp_path) -> str:
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        fill(client)
    return str(tmp_path / "store.db")


def test_it_serves_a_store_until_it_is_interrupted(store):
    with started(store) as said, httpx.Client(base_url=said["origin"], trust_env=False) as browser:
        assert browser.get(said["url"]).status_code == 303
        found = browser.get("/api/v1/status").json()
        assert (found["store"], found["writable"], found["found_by"]) == (store, True, "--store")


@pytest.mark.slow
def test_an_exported_file_is_only_read(store, tmp_path):
    exported = tmp_path / "all.hf"
    with SyncClient.sqlite(store) as client:
        client.export(exported)
    with started(str(exported)) as said, httpx.Client(base_url=said["origin"], trust_env=False) as browser:
        browser.get(said["url"])
        found = browser.get("/api/v1/status").json()
        assert (found["source"], found["writable"], found["sessions"]) == ("bundle", False, 3)
        answer = browser.post("/api/v1/undo", json={}, headers={"origin": said["origin"]})
        assert answer.json()["error"] == "read_only"
    assert CliRunner().invoke(cli, ["ui", str(exported), "--write", "--no-open"]).exit_code == 2


@pytest.mark.slow
def test_a_token_file_is_private_and_outlives_the_server(store, tmp_path):
    file = tmp_path / "token"
    with started(store, "--token-file", str(file)) as said:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        bearer = {"authorization": f"Bearer {file.read_text().strip()}"}
        assert httpx.get(f"{said['origin']}/api/v1/status", headers=bearer, trust_env=False).status_code == 200
        with httpx.Client(base_url=said["origin"], trust_env=False) as browser:
            browser.get(said["url"])
            cookies = dict(browser.cookies)
    port = str(said["port"])
    with started(store, "--token-file", str(file), "--port", port) as said:
        assert httpx.get(f"{said['origin']}/api/v1/status", cookies=cookies, trust_env=False).status_code == 200
    file.chmod(0o644)
    refused = CliRunner().invoke(cli, ["ui", store, "--token-file", str(file), "--no-open"])
    assert refused.exit_code == 2
    assert "others may read" in refused.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "--allow-remote"),
        (["--host", "192.168.1.5"], "--allow-remote"),
        (["--allow-remote", "box.example"], "--token-file"),
        (["--store", "x"], "the same thing"),
    ],
)
def test_what_would_open_the_page_to_others_is_refused(store, options, words):
    refused = CliRunner().invoke(cli, ["ui", store, "--no-open", *options])
    assert refused.exit_code == 2
    assert words in refused.output


def test_the_page_is_loaded_by_its_command_only():
    names = ("starlette", "uvicorn", "anyio", "holdfast.web")
    code = f"import sys, holdfast, holdfast.cli.main; print([name for name in {names} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert found.stdout.strip() == "[]"


def test_without_the_extra_it_says_what_to_install(store, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    refused = CliRunner().invoke(cli, ["ui", store, "--no-open"])
    assert "pip install 'holdfast[ui]'" in refused.output
