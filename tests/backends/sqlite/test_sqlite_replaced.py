"""A SQLite store that is deleted, renamed or replaced under a client: saves reach the file at the path."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from paths import SUPPORT

from holdfast import Client, StoreError, SyncClient
from holdfast.backends.sqlite import file_identity, schema

ENDLESS = SUPPORT / "endless_saves.py"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "store.db"


def replace(path: Path) -> None:
    """By another store, as a restored backup, without stopping the agents."""
    other = path.with_name("backup.db")
    with SyncClient.sqlite(other) as client:
        client.save("b", session_id="theirs", execution_state={})
    for suffix in ("-wal", "-shm"):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
    other.replace(path)


HAPPENINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "unlink": (lambda path: path.unlink(), "deleted, renamed or moved.*open a new client"),
    "rename": (lambda path: path.rename(path.with_name("other.db")), "deleted, renamed or moved"),
    "rename of its directory": (lambda path: path.parent.rename(path.parent.with_name("other")),
                                "deleted, renamed or moved"),
    "rmtree": (lambda path: shutil.rmtree(path.parent), "deleted, renamed or moved"),
    "replace": (replace, "replaced by another file.*Open a new client"),
    "the WAL": (lambda path: path.with_name("store.db-wal").unlink(),
                "store.db-wal was deleted or replaced.*open new ones"),
}  # fmt: skip


@pytest.mark.parametrize(("happens", "told"), HAPPENINGS.values(), ids=HAPPENINGS.keys())
@pytest.mark.parametrize("saved_before", [0, 3])
def test_no_save_to_a_file_that_is_not_at_its_path_is_acknowledged(
    path: Path, happens: Callable[[Path], object], told: str, saved_before: int
):
    with SyncClient.sqlite(path) as client:
        for number in range(saved_before):
            client.save("a", session_id="s", execution_state={"n": number})
        happens(path)
        with pytest.raises(StoreError, match=told) as raised:
            client.save("a", session_id="s", execution_state={"n": "never acknowledged"})
        assert raised.value.checkpoint_id is not None
        for _ in range(2):
            with pytest.raises(StoreError, match=told):
                client.save("a", session_id="s", execution_state={"n": "never acknowledged"})
    with SyncClient.sqlite(path) as again:
        saved = again.save("a", session_id="s", execution_state={"n": "found"})
        assert again.restore(saved).execution_state == {"n": "found"}


def test_a_failing_client_makes_no_new_file(path: Path):
    with SyncClient.sqlite(path) as client:
        client.save("a", session_id="s", execution_state={})
        path.unlink()
        with pytest.raises(StoreError):
            client.save("a", session_id="s", execution_state={})
        with pytest.raises(StoreError, match="deleted, renamed or moved"):
            client.latest(session_id="s")
    assert not path.exists()


def test_each_save_of_a_batch_has_its_own_error(path: Path):
    async def save_all() -> list[BaseException | str]:
        async with Client.sqlite(path) as client:
            for n in range(20):
                await client.save("a", session_id=f"s{n}", execution_state={})
            path.unlink()  # noqa: ASYNC240 - this is the test
            saves = (client.save("a", session_id=f"s{n}", execution_state={"n": n}) for n in range(20))
            return await asyncio.gather(*saves, return_exceptions=True)

    errors = asyncio.run(save_all())
    assert all(isinstance(error, StoreError) for error in errors)
    assert len({error.checkpoint_id for error in errors if isinstance(error, StoreError)}) == 20


def test_a_link_to_the_store_that_leads_elsewhere_now(path: Path):
    SyncClient.sqlite(path).close()
    link = path.with_name("current.db")
    link.symlink_to(path)
    with SyncClient.sqlite(link) as client:
        client.save("a", session_id="s", execution_state={})
        assert path.with_name("store.db-wal").exists()
        client.save("a", session_id="s", execution_state={})
        with SyncClient.sqlite(path.with_name("other.db")):
            link.unlink()
            link.symlink_to(path.with_name("other.db"))
            with pytest.raises(StoreError, match="replaced by another file"):
                client.save("a", session_id="s", execution_state={})


def test_who_only_reads_notices_soon(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_identity, "READERS_CHECK_SECONDS", 0.05)
    with SyncClient.sqlite(path) as writer, SyncClient.sqlite(path) as reader:
        saved = writer.save("a", session_id="s", execution_state={"n": 1})
        assert reader.restore(saved).execution_state == {"n": 1}
        replace(path)
        time.sleep(0.06)
        with pytest.raises(StoreError, match="replaced by another file"):
            reader.session_ids()


def test_files_that_come_and_go_as_sqlite_has_it_are_no_alarm(path: Path, monkeypatch: pytest.MonkeyPatch):
    """Closing the last connection removes the WAL; checkpoints, VACUUM, a fork and a rename back
    leave the file what it is."""
    monkeypatch.setattr(file_identity, "READERS_CHECK_SECONDS", 0.0)
    with SyncClient.sqlite(path) as client:
        client.save("a", session_id="s", execution_state={"n": 1})
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            client.save("a", session_id="s", execution_state={"n": 2})
            other.execute("VACUUM")
        client.save("a", session_id="s", execution_state={"n": 3})
        if pid := os.fork():
            assert os.waitpid(pid, 0)[1] == 0
        else:
            client.save("a", session_id="s", execution_state={"n": 4})
            client.close()
            os._exit(0)
        client.save("a", session_id="s", execution_state={"n": 5})
        path.rename(path.with_name("away.db"))
        path.with_name("away.db").rename(path)
        client.save("a", session_id="s", execution_state={"n": 6})
        assert len(client.timeline(session_id="s")) == 6
        assert client.verify().problems == ()


def test_one_that_is_replaced_while_it_is_opened_is_the_new_one(path: Path, monkeypatch: pytest.MonkeyPatch):
    SyncClient.sqlite(path).close()
    check = schema.check

    def replaced(connection: sqlite3.Connection, where: Path) -> int:
        monkeypatch.undo()
        replace(path)
        return check(connection, where)

    monkeypatch.setattr(schema, "check", replaced)
    with SyncClient.sqlite(path) as client:
        assert client.session_ids() == ["theirs"]
        client.save("a", session_id="s", execution_state={})
    with SyncClient.sqlite(path) as client:
        assert client.session_ids() == ["s", "theirs"]


def started(path: Path, session: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ENDLESS), str(path), session], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def stop(process: subprocess.Popen[str]) -> list[str]:
    """End a process and return the rest of its lines. `communicate` would lose those that `readline` has buffered."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    rest = process.stdout.read().splitlines()
    process.stdout.close()
    process.wait()
    return rest


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(3))
def test_a_store_replaced_under_load_loses_no_acknowledged_save(path: Path, round_: int):
    """One process saves to the store that is replaced, another one to the new store, both at full speed."""
    path.parent.mkdir()
    first = started(path, "old")
    assert first.stdout is not None
    for _ in range(20 + 40 * round_):
        first.stdout.readline()
    replace(path)
    replaced = time.monotonic_ns()
    second = started(path, "new")
    assert second.stdout is not None
    acknowledged = [second.stdout.readline() for _ in range(200)]
    late = stop(first)
    acknowledged += stop(second)
    assert "replaced by another file" in late[-1] or "was deleted" in late[-1]  # whichever file it looked at first
    assert [line for line in late[:-1] if int(line.split()[1]) > replaced] == []
    assert acknowledged[-1] == "end"
    with SyncClient.sqlite(path) as client:
        numbers = {
            client.restore(one.checkpoint_id).execution_state["number"]
            for one in client.timeline(session_id="new", limit=None)
        }
        assert numbers == set(range(len(acknowledged) - 1))
        assert client.session_ids() == ["new", "theirs"]
        assert client.verify().problems == ()
