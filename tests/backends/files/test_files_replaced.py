"""A files store that is emptied, deleted or replaced under a client: saves reach the store at the path."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import NewerVersionError, StoreError, SyncClient


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outer" / "store"


def empty(path: Path) -> None:
    """As `rm -rf store/*` does."""
    for entry in path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


HAPPENINGS: dict[str, Callable[[Path], object]] = {
    "rmtree": shutil.rmtree,
    "rmtree of its parent": lambda path: shutil.rmtree(path.parent),
    "rename": lambda path: path.rename(path.with_name("other")),
    "emptied": empty,
    "its description": lambda path: (path / "holdfast.json").unlink(),
}


@pytest.mark.parametrize("happens", HAPPENINGS.values(), ids=HAPPENINGS.keys())
@pytest.mark.parametrize("saved_before", [0, 3])
def test_no_save_to_a_store_that_is_gone_is_acknowledged(
    path: Path, happens: Callable[[Path], object], saved_before: int
):
    with SyncClient.files(path) as client:
        for number in range(saved_before):
            client.save("a", session_id="s", execution_state={"n": number})
        happens(path)
        for _ in range(3):
            with pytest.raises(StoreError, match="gone"):
                client.save("a", session_id="s", execution_state={"n": "never acknowledged"})


def test_what_is_saved_to_a_store_in_its_place_is_found_there(path: Path):
    other = path.with_name("backup")
    with SyncClient.files(other) as client:
        client.save("b", session_id="theirs", execution_state={})
    with SyncClient.files(path) as client:
        client.save("a", session_id="s", execution_state={"n": 1})
        shutil.rmtree(path)
        other.rename(path)
        saved = client.save("a", session_id="s", execution_state={"n": 2})
    with SyncClient.files(path) as client:
        assert client.session_ids() == ["s", "theirs"]
        assert client.restore(saved).execution_state == {"n": 2}
        assert client.verify().ok


def test_a_store_of_a_newer_version_in_its_place_is_left_alone(path: Path):
    with SyncClient.files(path) as client:
        client.save("a", session_id="s", execution_state={"n": 1})
        newer = path / "newer"
        newer.write_text('{"format": 999, "layout": "files"}')
        newer.replace(path / "holdfast.json")
        with pytest.raises(NewerVersionError):
            client.save("a", session_id="s", execution_state={"n": 2})
    assert len([found for found in (path / "records").rglob("*") if found.is_file()]) == 1
