"""A store on a file system that can only be read."""

import subprocess
from pathlib import Path

import pytest
from volumes import run, small_disk

from holdfast import SyncClient
from holdfast.errors import StoreError

pytestmark = pytest.mark.root


@pytest.mark.parametrize("is_there", [True, False])
def test_a_store_that_can_only_be_read_is_told(tmp_path: Path, is_there: bool):
    with small_disk(tmp_path / "disk") as disk:
        if is_there:
            with SyncClient.sqlite(disk / "store.db") as client:
                client.save("a", session_id="s", execution_state={})
        try:
            run("mount", "-o", "remount,ro", disk)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"a file system can't be made read-only here: {error.stderr.decode().strip()}")
        wanted = r"is read-only, and SQLite must write even to read.*copy the store" if is_there else "can be written"
        with pytest.raises(StoreError, match=wanted):
            SyncClient.sqlite(disk / "store.db")
