"""Stores that earlier versions wrote, as they wrote them: every later one opens them and finds the same."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import story

from holdfast import CheckpointNotFoundError, NewerVersionError, SyncClient

VERSIONS = sorted(folder.name for folder in story.HERE.iterdir() if (folder / "sqlite.tar.gz").exists())
STORES = [(version, kind) for version in VERSIONS for kind in story.KINDS]


def expected(version: str, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((story.HERE / version / f"{kind}.json").read_text())
    return found


def bytes_of(where: Path) -> dict[str, bytes]:
    """Every file, but for what SQLite keeps beside an open database and the files store's lock."""
    return {
        str(path.relative_to(where)): path.read_bytes()
        for path in where.rglob("*")
        if path.is_file() and not path.name.endswith(("-wal", "-shm")) and path.name != "lock"
    }


def test_there_are_some():
    assert VERSIONS


@pytest.fixture(params=STORES, ids="-".join)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, Path]:
    version, kind = request.param
    story.unpack(story.HERE / version / f"{kind}.tar.gz", tmp_path)
    return version, kind, tmp_path


def test_everything_in_them_is_found(golden: tuple[str, str, Path]):
    version, kind, where = golden
    with story.KINDS[kind](where) as client:
        wanted = expected(version, kind)
        assert story.found(client) == wanted
        assert client.verify().ok
        assert all(story.is_gone(client, id_) for id_ in wanted["expired"])


def test_their_log_of_operations_is_empty_and_begins(golden: tuple[str, str, Path]):
    _, kind, where = golden
    with story.KINDS[kind](where) as client:
        assert client.operations() == []
        with pytest.raises(CheckpointNotFoundError, match="nothing to undo"):
            client.undo()
        before = client.tagged("the edited one")
        client.untag("the edited one")
        client.undo()
        assert client.tagged("the edited one") == before
        assert client.verify().ok


def test_they_go_on(golden: tuple[str, str, Path]):
    _, kind, where = golden
    with story.KINDS[kind](where) as client:
        client.fork(client.tagged("the edited one").checkpoint_id, "on")
        state = client.latest(session_id="on").execution_state
        grown = state["values"]["messages"]
        grown += story.messages(3, 500)
        client.save("writer", execution_state=state, session_id="on")
        rest = {key: value for key, value in state.items() if key != "values"}
        told = client.save(
            "w", execution_state=rest, session_id="on", append={"values.messages": story.messages(1, 503)}
        )
        assert client.restore(told).execution_state["values"]["messages"] == [*grown, *story.messages(1, 503)]
        for session in client.session_ids():
            client.save("w", execution_state={"and": "on"}, session_id=session)
        with client.claim(client.inbox("b")[0].handoff_id, agent_id="b") as claim:
            assert claim.checkpoint.execution_state == {"for": "b"}
        client.gc()
        assert client.verify().ok


@pytest.mark.parametrize("version", VERSIONS)
def test_an_export_is_imported_and_is_the_same_when_exported_again(version: str, tmp_path: Path):
    file = story.HERE / version / "export.holdfast"
    with SyncClient.memory() as client:
        client.import_(file)
        wanted = expected(version, "sqlite")
        got = story.found(client)
        assert {key: got[key] for key in ("checkpoints", "timelines", "heads", "pins", "tags")} == {
            key: wanted[key] for key in ("checkpoints", "timelines", "heads", "pins", "tags")
        }
        client.export(tmp_path / "again.holdfast")
    assert (tmp_path / "again.holdfast").read_bytes() == file.read_bytes()


class TestAStoreOfANewerVersion:
    """Made up: what the next version may write. It is refused by name, and not a byte of it is changed."""

    def refused(self, kind: str, where: Path) -> None:
        before = bytes_of(where)
        with pytest.raises(NewerVersionError, match="newer") as refusal, story.KINDS[kind](where) as client:
            client.latest(session_id="long")
        assert "pgrade" in str(refusal.value)
        assert bytes_of(where) == before

    def test_of_sqlite(self, tmp_path: Path):
        story.unpack(story.HERE / VERSIONS[-1] / "sqlite.tar.gz", tmp_path)
        database = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        database.execute("PRAGMA user_version=99")
        database.execute("CREATE TABLE of_the_future (n INTEGER)")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
        self.refused("sqlite", tmp_path)

    def test_of_files(self, tmp_path: Path):
        story.unpack(story.HERE / VERSIONS[-1] / "files.tar.gz", tmp_path)
        about = tmp_path / "store" / "holdfast.json"
        about.chmod(0o600)
        about.write_text(json.dumps(json.loads(about.read_text()) | {"format": 99}))
        self.refused("files", tmp_path)

    def test_a_record_in_a_store_that_is_known(self, tmp_path: Path):
        """An older holdfast meets a single record of a newer one: that one is refused, the others are there."""
        story.unpack(story.HERE / VERSIONS[-1] / "sqlite.tar.gz", tmp_path)
        head = expected(VERSIONS[-1], "sqlite")["heads"]["'long'"]
        with story.KINDS["sqlite"](tmp_path):
            pass  # so that the tables are those of now
        database = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        id_ = bytes.fromhex(head.replace("-", ""))
        [data] = database.execute("SELECT data FROM record WHERE id = ?", (id_,)).fetchone()
        database.execute("UPDATE record SET data = ? WHERE id = ?", (data[:3] + b"\x63" + data[4:], id_))
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
        self.refused("sqlite", tmp_path)
        with story.KINDS["sqlite"](tmp_path) as client:
            assert client.latest(session_id="values") is not None
