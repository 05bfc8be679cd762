"""verify and stats: is everything there and right, and how much is it?"""

from __future__ import annotations

import sqlite3

import pytest
from stores import Clock, Store, messages

from holdfast import CorruptError, SyncClient


def test_a_sound_store_is_verified(client: SyncClient):
    assert client.verify().ok
    for count in (20, 25, 400):
        client.save("a", session_id="s", execution_state={"m": messages(count), "b": "x" * 5000})
    client.save("a", session_id="t")
    assert (client.verify().checked, client.verify().problems) == (4, ())
    assert (client.verify("t").checked, client.verify("t").ok) == (1, True)
    assert client.verify()


@pytest.mark.parametrize("table", ["run", "blob"])
def test_damaged_or_missing_content_is_found_by_verify_and_by_restore(sqlite_store: Store, table: str):
    client = sqlite_store.client()
    sound = client.save("a", session_id="sound", execution_state={"m": ["other" * 500] * 10})
    damaged = client.save("a", session_id="s", execution_state={"m": messages(30), "b": "x" * 5000})
    later = client.save("a", session_id="s", execution_state={"m": messages(31), "b": "x" * 5000})
    client.close()
    with sqlite3.connect(sqlite_store.where / "store.db") as database:
        if table == "blob":
            database.execute("DELETE FROM blob")
        else:
            for key, data in database.execute("SELECT k, data FROM run").fetchall():
                database.execute("UPDATE run SET data = ? WHERE k = ?", (data.replace(b"message 7", b"massage 7"), key))
    database.close()
    client = sqlite_store.client()
    report = client.verify()
    assert not report
    assert report.affected == {damaged, later}
    [problem] = report.problems
    assert (problem.checkpoint_id, problem.affected) == (damaged, (damaged, later))
    for concerned in (damaged, later):
        with pytest.raises(CorruptError):
            client.restore(concerned)
    assert client.restore(sound).execution_state == {"m": ["other" * 500] * 10}
    assert client.verify("sound").ok


def test_nothing_new_is_built_upon_a_damaged_list(sqlite_store: Store):
    """A save whose parent is damaged stores what it was given, whole; a declared append says that it can't."""
    client = sqlite_store.client()
    client.save("a", session_id="s", execution_state={"m": messages(30)})
    client.close()
    with sqlite3.connect(sqlite_store.where / "store.db") as database:
        for key, data in database.execute("SELECT k, data FROM run").fetchall():
            database.execute("UPDATE run SET data = ? WHERE k = ?", (data.replace(b"message 7", b"massage 7"), key))
    database.close()
    client = sqlite_store.client()
    with pytest.raises(CorruptError):
        client.save("a", session_id="s", append={"m": ["x"]})
    edited = [*messages(30)[:10], *messages(30)[12:]]
    saved = client.save("a", session_id="s", execution_state={"m": edited})
    assert client.restore(saved).execution_state == {"m": edited}


def test_stats_count_live_and_expired_checkpoints(store: Store, clock: Clock):
    client = store.client()
    clock.rules(client)
    assert (client.stats().checkpoints, client.stats().sessions, client.stats().logical_bytes) == (0, 0, 0)
    client.save("a", session_id="s", execution_state={"m": messages(100)})
    client.save("a", session_id="s", execution_state={"m": messages(101)})
    client.save("a", session_id="t", ttl_seconds=60)
    client.expire(client.save("a", session_id="s"))
    clock.forward(61)
    stats = client.stats()
    assert (stats.checkpoints, stats.expired) == (2, 2)
    assert stats.backend == store.kind
    assert 2 * 100 * 500 < stats.logical_bytes < 2 * 101 * 600
    assert 0 < stats.segment_bytes < stats.logical_bytes
    assert stats.stored_bytes >= stats.segment_bytes + stats.record_bytes
    assert stats.blob_bytes == 0


def test_stats_and_sessions_agree(client: SyncClient):
    client.save("a", session_id="s")
    client.expire(client.save("a", session_id="t"))
    assert client.stats().sessions == len(client.sessions()) == 1


def test_a_long_history_is_many_times_larger_than_what_is_stored(client: SyncClient):
    for count in range(1, 120):
        client.save("a", session_id="s", execution_state={"m": messages(count)})
    stats = client.stats()
    assert stats.logical_bytes > 20 * (stats.segment_bytes + stats.record_bytes)
    assert stats.ratio == stats.logical_bytes / stats.stored_bytes


def test_repr_of_a_client_says_where_it_keeps_things(store: Store):
    client = store.client()
    assert store.kind in repr(client)
    assert repr(client).startswith("<SyncClient")
