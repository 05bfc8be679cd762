"""Where a store is made when nobody says where: `.holdfast`, which git does not see."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from holdfast import SyncClient


@pytest.mark.parametrize("opened", [SyncClient.sqlite, SyncClient.files])
def test_the_default_store_ignores_itself_in_git(opened, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    with opened() as client:
        client.save("a", session_id="s", execution_state={"x": 1})
    assert stat.S_IMODE((tmp_path / ".holdfast").stat().st_mode) == 0o700
    seen = subprocess.run(["git", "status", "--porcelain"], check=True, capture_output=True, text=True).stdout
    assert seen == ""


def test_a_directory_that_was_there_is_left_as_it_is(tmp_path: Path):
    (tmp_path / ".holdfast").mkdir()
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        client.save("a")
    assert not (tmp_path / ".holdfast" / ".gitignore").exists()
