"""A store opened by a relative path stays the same when the process changes its directory."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from holdfast import SyncClient
from holdfast.errors import StoreError

OPENERS = [
    pytest.param(SyncClient.sqlite, id="sqlite"),
    pytest.param(lambda path: SyncClient.open(f"sqlite:///{path}"), id="sqlite-url"),
    pytest.param(SyncClient.files, id="files"),
]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another directory, with a store of the same name in it. The current one is beside it."""
    here, there = tmp_path / "here", tmp_path / "there"
    for one in (here, there):
        one.mkdir()
    monkeypatch.chdir(here)
    return there


@pytest.mark.parametrize("opened", OPENERS)
def test_a_thread_that_comes_later_reads_the_store_that_was_opened(opened, elsewhere: Path):
    with opened("store") as client:
        client.save("a", session_id="s", execution_state={"n": 1})
        os.chdir(elsewhere)
        with opened("store") as other:
            other.save("a", session_id="s", execution_state={"n": "of another store"})
        seen: list[object] = []
        thread = threading.Thread(target=lambda: seen.append(client.latest("s", agent_id="a").execution_state))
        thread.start()
        thread.join()
    assert seen == [{"n": 1}]


@pytest.mark.parametrize("opened", OPENERS)
def test_a_forked_process_writes_to_the_store_that_was_opened(opened, elsewhere: Path):
    with opened("store") as client:
        client.save("a", session_id="s", execution_state={"n": 1})
        os.chdir(elsewhere)
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                client.save("a", session_id="s", execution_state={"n": 2})
                failed = 0
            finally:
                os._exit(failed)
        assert os.waitpid(child, 0)[1] == 0
        assert client.latest("s", agent_id="a").execution_state == {"n": 2}
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("opened", OPENERS)
def test_what_is_told_of_a_store_names_it_from_everywhere(opened, elsewhere: Path):
    with opened("store") as client:
        place = str(Path("store").absolute())
        os.chdir(elsewhere)
        assert place in repr(client)
        assert client.stats().location == place


def test_a_link_is_followed_before_what_is_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "far" / "below").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "far" / "below")
    monkeypatch.chdir(tmp_path / "here")
    with SyncClient.sqlite("link/../store.db") as client:
        client.save("a", session_id="s", execution_state={})
    assert (tmp_path / "far" / "store.db").exists()


@pytest.mark.parametrize("opened", OPENERS)
def test_a_relative_path_in_a_directory_that_was_deleted_is_told(opened, elsewhere: Path):
    os.chdir(elsewhere)
    elsewhere.rmdir()
    try:
        with pytest.raises(StoreError, match=r"current directory was deleted.*give the whole path"):
            opened("store")
    finally:
        os.chdir(elsewhere.parent)
