"""A process forks while its other threads save: children save, too, and the parent goes on
(gunicorn, multiprocessing)."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from typing import Any

import pytest
from campaign import SOAK
from forking_writer import forked
from paths import SUPPORT
from stores import Store

from holdfast import SyncClient
from holdfast.backends.port import RowKey
from holdfast.backends.sqlite import schema
from holdfast.backends.sqlite.backend import SqliteBackend

pytestmark = pytest.mark.every_store

CHILDREN = 60 if SOAK else 5
WRITER = SUPPORT / "forking_writer.py"


def run(url: str, kind: str, way: str, children: int = CHILDREN) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, WRITER, url, kind, str(children), way],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "way"), [("sync", "fork"), ("async", "fork"), ("sync", "multiprocessing")])
def test_children_save_and_the_parent_goes_on(store: Store, kind: str, way: str):
    url = "memory://" if store.kind == "memory" else store.url
    told = run(url, kind, way, CHILDREN * 4 if store.kind == "memory" else CHILDREN)
    assert Counter(told["children"]).keys() == {"done"}
    assert (told["failures"], told["hanging"]) == ([], 0)
    assert told["went_on"]
    assert told["found"] == len(told["acknowledged"])
    if store.kind == "memory":
        return
    with SyncClient.open(url) as client:
        saved = {
            entry.checkpoint_id: entry.agent_id
            for session in client.sessions(limit=None)
            for entry in client.timeline(session_id=session.session_id, limit=None)
        }
        assert saved.keys() >= set(told["acknowledged"])
        assert Counter(saved.values())["child"] == 2 * len(told["children"])
        assert client.verify().ok


@pytest.mark.slow
def test_a_store_that_another_thread_opens_meanwhile(tmp_path, monkeypatch):
    """No thread is in SQLite at the moment of a fork, not even one that opens a store just then."""
    in_use = SqliteBackend(tmp_path / "one.db")
    held, inside, is_over = threading.Event(), threading.Event(), threading.Event()
    check = schema.check

    def hold() -> None:
        with in_use._writing:  # as a commit does: the fork waits for it
            held.set()
            inside.wait(1)

    def open_another() -> None:
        time.sleep(0.3)  # by now the fork waits
        SqliteBackend(tmp_path / "two.db").close()

    def check_slowly(connection, path):
        if path.name == "two.db":
            inside.set()
            is_over.wait(20)
        return check(connection, path)

    monkeypatch.setattr(schema, "check", check_slowly)
    threads = [threading.Thread(target=hold), threading.Thread(target=open_another)]
    for thread in threads:
        thread.start()
    held.wait()

    def use_stores() -> str:
        """A fork in the child waits for all stores that it knows."""
        return forked(lambda: str(in_use.rows([RowKey("", b"")])), 40)

    said = forked(use_stores, 90)
    is_over.set()
    for thread in threads:
        thread.join(20)
    in_use.close()
    assert said == "[None]"


def test_clients_are_collected_all_the_same():
    """What is to begin again in a child is not kept alive by that."""
    from holdfast.backends import fork_safety

    client = SyncClient.memory()
    client.save("a", session_id="s")
    owners = [weakref.ref(client._ctx.memory), weakref.ref(client._ctx.backend)]
    guarded = len(fork_safety._guarded)
    del client
    gc.collect()
    assert [owner() for owner in owners] == [None, None]
    assert len(fork_safety._guarded) < guarded
