"""The WAL has room for the next commits: they need not make it longer."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from holdfast import SyncClient
from holdfast.backends import sqlite_room

SHORTEN = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall()"


def wal_of(store: Path) -> Path:
    return store.with_name(f"{store.name}-wal")


def sizes_after_saves(client: SyncClient, store: Path, count: int) -> list[int]:
    sizes = []
    for number in range(count):
        client.save("agent", session_id="run", execution_state={"number": number})
        sizes.append(wal_of(store).stat().st_size)
    return sizes


def numbers_in(store: Path, limit: int) -> list[int]:
    with SyncClient.sqlite(store) as client:
        entries = client.timeline(session_id="run", limit=limit)
        return [client.restore(entry.checkpoint_id).execution_state["number"] for entry in reversed(entries)]


def test_of_many_commits_few_make_the_wal_longer(tmp_path: Path):
    store = tmp_path / "store.db"
    with SyncClient.sqlite(store) as client:
        sizes = sizes_after_saves(client, store, 40)
    assert len(set(sizes)) <= 8


def test_commits_of_one_size_never_use_it_up(tmp_path: Path):
    """It is added before there is too little: a commit that goes beyond it takes as long as one that finds none."""
    wal = wal_of(tmp_path / "store.db")
    wal.write_bytes(b"\1" * 9_000)
    room = sqlite_room.Room(tmp_path / "store.db")
    used, longer = 9_000, 0
    while used < sqlite_room.ENOUGH_BYTES:
        room.make()
        with wal.open("r+b") as file:
            file.seek(used)
            longer += used + 82_400 > wal.stat().st_size
            file.write(b"\1" * 82_400)
        used += 82_400
    assert longer == 1  # the first, of which nothing was known


def test_a_large_commit_does_not_make_room_for_more_like_it(tmp_path: Path):
    store = tmp_path / "store.db"
    with SyncClient.sqlite(store) as client:
        client.save("agent", session_id="run", execution_state={"large": os.urandom(300_000)})
        large = wal_of(store).stat().st_size
        sizes_after_saves(client, store, 12)
        assert wal_of(store).stat().st_size <= 2 * large


def test_a_wal_that_somebody_shortens_is_taken_as_it_is(tmp_path: Path):
    store = tmp_path / "store.db"
    with SyncClient.sqlite(store) as client:
        for number in range(30):
            client.save("agent", session_id="run", execution_state={"number": number})
            if number % 7 == 3:
                # As another program would that has the store open, too.
                subprocess.run([sys.executable, "-c", SHORTEN, store], check=True)
    assert numbers_in(store, 50) == list(range(30))


def test_a_store_that_is_saved_to_once_gets_no_room(tmp_path: Path):
    store = tmp_path / "store.db"
    with SyncClient.sqlite(store) as client:
        [size] = sizes_after_saves(client, store, 1)
    assert (size - 32) % 4120 == 0  # a header, and frames of a page each: nothing else


def test_without_a_sync_for_each_commit_none_is_made(tmp_path: Path):
    store = tmp_path / "store.db"
    with SyncClient.sqlite(store, durability="fast") as client:
        sizes = sizes_after_saves(client, store, 20)
    assert len(set(sizes)) == 20


def test_it_ends_where_the_wal_begins_again(tmp_path: Path):
    store = tmp_path / "store.db"
    wal_of(store).write_bytes(b"\1" * (sqlite_room.ENOUGH_BYTES - 100_000))
    room = sqlite_room.Room(store)
    for _ in range(10):
        room.make()
        with wal_of(store).open("ab") as file:
            file.write(b"\1" * 4120)
    assert wal_of(store).stat().st_size < sqlite_room.ENOUGH_BYTES + sqlite_room.MOST_BYTES + 4120


def test_nothing_that_is_in_the_file_is_written_over(tmp_path: Path):
    store = tmp_path / "store.db"
    room = sqlite_room.Room(store)
    wal_of(store).write_bytes(b"\1" * 4120)
    room.make()
    with wal_of(store).open("ab") as file:
        file.write(b"\2" * 4120)
    room.make()
    found = wal_of(store).read_bytes()
    assert found[:8240] == b"\1" * 4120 + b"\2" * 4120
    assert found[8240:] == bytes(len(found) - 8240)
    assert len(found) >= 8240 + sqlite_room.LEAST_BYTES - 4096


def test_what_was_committed_is_read_from_a_wal_with_room_behind_it(tmp_path: Path):
    """As after a crash: the files as they are while the store is open, opened elsewhere."""
    store = tmp_path / "store.db"
    with SyncClient.sqlite(store) as client:
        for number in range(6):
            client.save("agent", session_id="run", execution_state={"number": number})
            copied = tmp_path / f"after-{number}"
            copied.mkdir()
            # By another process: one that has a store open must not open its files by other means.
            subprocess.run(["cp", store, wal_of(store), copied], check=True)
            assert numbers_in(copied / "store.db", 50) == list(range(number + 1))
            with closing(sqlite3.connect(copied / "store.db")) as plain:
                assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            shutil.rmtree(copied)


def test_clients_of_one_store_make_room_for_each_other(tmp_path: Path):
    store = tmp_path / "store.db"
    with SyncClient.sqlite(store) as one, SyncClient.sqlite(store) as other:
        for number in range(30):
            (one, other)[number % 2].save("agent", session_id="run", execution_state={"number": number})
    assert numbers_in(store, 50) == list(range(30))


def test_a_store_behind_a_link_has_its_wal_beside_the_file(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    store, link = tmp_path / "elsewhere" / "store.db", tmp_path / "link.db"
    with SyncClient.sqlite(store) as client:
        client.save("agent", session_id="run", execution_state={"number": 0})
    link.symlink_to(store)
    wal_of(link).write_bytes(b"of somebody else")
    with SyncClient.sqlite(link) as client:
        for number in range(1, 10):
            client.save("agent", session_id="run", execution_state={"number": number})
        assert wal_of(link).read_bytes() == b"of somebody else"
    assert numbers_in(store, 50) == list(range(10))


def test_where_there_is_no_wal_none_is_made(tmp_path: Path):
    store = tmp_path / "store.db"
    room = sqlite_room.Room(store)
    room.make()
    room.make()
    assert not wal_of(store).exists()
