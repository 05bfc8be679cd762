"""`holdfast ui` on a sealed store: it opens it with keys, shows everything, and stores nothing in clear."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from sealed_story import CANARY, tell
from web_site import started

from holdfast import KeyRing, SyncClient

pytestmark = pytest.mark.slow


def test_the_page_of_a_sealed_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, token, key_file = tmp_path / "store" / "store.db", tmp_path / "token", tmp_path / "keys.toml"
    ring = KeyRing.new_key(key_file)
    with SyncClient.sqlite(path, keys=ring) as client:
        last = tell(client, tmp_path / "work")
        session = client.get(last).session_id
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()

    refused = subprocess.run(
        [sys.executable, "-m", "holdfast", "ui", "--store", str(path), "--no-open"],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "HOLDFAST_KEYS_FILE" in refused.stderr

    monkeypatch.setenv("HOLDFAST_KEYS_FILE", str(key_file))
    with (
        started("--store", str(path), "--token-file", str(token)) as said,
        httpx.Client(base_url=f"{said['origin']}/api/v1", trust_env=False, timeout=60) as http,
    ):
        http.headers["authorization"] = f"Bearer {token.read_text().strip()}"
        assert session in [one["session_id"] for one in http.get("/sessions").json()["sessions"]]
        state = http.get(f"/checkpoints/{last}/state")
        assert f"{CANARY}-key" in state.text
        assert http.get("/verify").json()["ok"] is True
        assert http.get("/effects").json()["effects"][0]["tool"] == f"{CANARY}-tool"
        assert http.post(f"/checkpoints/{last}/tag", json={"name": f"{CANARY}-best"}).status_code == 200
    stored = [path for place in ("store", "temporary") for path in (tmp_path / place).rglob("*") if path.is_file()]
    assert stored
    assert [path for path in stored if CANARY.encode() in path.read_bytes() or CANARY in path.name] == []
    with SyncClient.sqlite(path, keys=ring) as client:
        assert client.tagged(f"{CANARY}-best").checkpoint_id == last
