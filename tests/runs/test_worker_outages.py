"""A worker whose store fails for a while carries on; one whose client was closed ends."""

import logging
import sqlite3
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Runnables, StoreBusyError, StoreError, SyncClient, runnable

pytestmark = pytest.mark.slow


@pytest.fixture
def names():
    made = Runnables()
    runnable("fine", registry=made)(lambda run: run.step("one", lambda: "done"))
    return made


def wait_until(is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_completed(client, session):
    return client.run_status(session).status == "completed"


def failures(caplog):
    return [one for one in caplog.records if one.msg == "store failed"]


class Working:
    """A worker in a thread, and what it has raised."""

    def __init__(self, client, names):
        self.stop, self.error = threading.Event(), None
        self.thread = threading.Thread(target=self._work, args=(client, names), daemon=True)
        self.thread.start()

    def _work(self, client, names):
        try:
            client.work(runnables=names, stop=self.stop)
        except Exception as error:
            self.error = error

    def end(self):
        self.stop.set()
        self.thread.join(60)
        assert not self.thread.is_alive()


def test_a_worker_outlasts_a_store_that_is_locked_for_a_while(tmp_path, names, caplog):
    caplog.set_level(logging.WARNING, "holdfast.work")
    path = tmp_path / "store.db"
    ahead_us = 0
    with SyncClient.sqlite(path, timeout=0.1) as client:
        client._ctx.now_us = client._client._ctx.now_us = lambda: time.time_ns() // 1000 + ahead_us
        worker = Working(client, names)
        client.start("fine", session_id="first")
        wait_until(lambda: is_completed(client, "first"))
        client.start("fine", session_id="late", at=datetime.now(UTC) + timedelta(hours=1))
        locked = sqlite3.connect(path, isolation_level=None)
        locked.execute("BEGIN IMMEDIATE")  # keeps all writers out
        ahead_us = 3_601_000_000  # only now it is due
        wait_until(lambda: len(failures(caplog)) >= 2)
        locked.close()
        wait_until(lambda: is_completed(client, "late"))
        worker.end()
        assert worker.error is None


def test_a_worker_that_drains_or_begins_says_at_once_that_the_store_fails(tmp_path, names):
    path = tmp_path / "store.db"
    with SyncClient.sqlite(path, timeout=0.1) as client:
        client.start("fine", session_id="s")
        locked = sqlite3.connect(path, isolation_level=None)
        locked.execute("BEGIN IMMEDIATE")
        for drain in (True, False):
            with pytest.raises(StoreBusyError):
                client.work(runnables=names, drain=drain)
        locked.close()
        assert client.work(runnables=names, drain=True) == 1


def test_a_worker_ends_once_its_client_is_closed(tmp_path, names):
    client = SyncClient.sqlite(tmp_path / "store.db")
    worker = Working(client, names)
    client.start("fine", session_id="s")
    wait_until(lambda: is_completed(client, "s"))
    client.close()
    worker.thread.join(60)
    assert not worker.thread.is_alive()
    assert isinstance(worker.error, StoreError)
