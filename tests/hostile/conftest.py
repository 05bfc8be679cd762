"""The user's own files, and a repository from a stranger beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from strangers_clone import HASH

from holdfast import SyncClient


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """The user's own files, which nothing may touch."""
    home = tmp_path / "home"
    for name, text in {
        ".ssh/authorized_keys": "my key",
        ".bashrc": "my settings\n" * 500,
        "documents/a": "one",
        "documents/b": "two",
        f"documents/{HASH}": "three",
        "documents/_store/a.row": "four",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def clone(tmp_path, monkeypatch) -> Path:
    """A repository with a store in it, as the current directory."""
    clone = tmp_path / "clone"
    clone.mkdir()
    monkeypatch.chdir(clone)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    with SyncClient.files(durability="fast") as client:
        for step in range(3):
            long = [f"{number} " * 200 for number in range(20 + step)]
            client.save("a", session_id="s", execution_state={"step": step, "text": "x" * 5000, "long": long})
    return clone
