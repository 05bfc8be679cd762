"""Imports that are killed, raced and collected beneath: a tree is whole or absent, and importing
again makes it whole."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from bundles import equal_stores, exported, fill, imported
from stores import Clock, Store, messages, python_process

from holdfast import ConflictError, SyncClient
from holdfast.operations.bundle import import_ as importing
from holdfast.operations.staging import STAGED_FOR_SECONDS

pytestmark = [pytest.mark.every_store, pytest.mark.slow]

IMPORTER = """
    import sys
    from holdfast import SyncClient
    from holdfast.operations.bundle import import_ as importing
from holdfast.operations.staging import STAGED_FOR_SECONDS
    importing.STAGED_BYTES = 20_000
    with SyncClient.open(sys.argv[1]) as client:
        print("begin", flush=True)
        client.import_(sys.argv[2])
        print("done", flush=True)
"""


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree goes in many commits, as a large one does."""
    monkeypatch.setattr(importing, "STAGED_BYTES", 20_000)


def large(client: SyncClient) -> bytes:
    fill(client)
    for step in range(8):
        text = os.urandom(15_000).hex()
        client.save("w", execution_state={"m": messages(300, 1000 * step), "t": text}, session_id="large")
    return exported(client)


def test_killed_at_any_moment(disk_store: Store, quick: SyncClient, tmp_path: Path) -> None:
    data = large(quick)
    file = tmp_path / "x.holdfast"
    file.write_bytes(data)
    sessions = {one.session_id for one in quick.sessions()}
    trees = [{"main", "side/é"}, {"small"}, {"large"}]
    for delay in (0.0, 0.01, 0.03, 0.06, 0.1, 0.2):
        process = python_process(IMPORTER, disk_store.url, str(file))
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        client = disk_store.client()
        assert client.verify().problems == ()
        there = {one.session_id for one in client.sessions()}
        assert all(tree <= there or not tree & there for tree in trees)
    client = disk_store.client()
    imported(client, data)
    assert {one.session_id for one in client.sessions()} == sessions
    equal_stores(quick, client)
    assert client.verify().problems == ()
    assert exported(client) == data


def test_what_a_killed_import_left_is_collected_in_time(store: Store, quick: SyncClient, clock: Clock, staged) -> None:
    large(quick)
    data = exported(quick, "large")
    client, recorder = store.recorded()
    clock.rules(client)
    clean = client.stats()

    def dies(commits) -> None:
        if any(commit.delete_records for commit in commits):  # the commit of a tree whose parts were staged
            raise KeyboardInterrupt

    recorder.before_commit = dies
    with pytest.raises(KeyboardInterrupt):
        imported(client, data)
    recorder.before_commit = None
    assert client.sessions() == []
    assert client.stats().segment_bytes > 0
    client.gc()
    assert client.stats().segment_bytes > 0  # it may be going on
    clock.forward(STAGED_FOR_SECONDS + 1)
    client.gc()
    client.gc()
    after = client.stats()
    assert (after.segment_bytes, after.blob_bytes, after.checkpoints) == (clean.segment_bytes, clean.blob_bytes, 0)


def test_collected_between_any_two_of_its_commits(store: Store, quick: SyncClient, staged) -> None:
    """A collection beside an import takes nothing that the import needs."""
    data = large(quick)
    client, recorder = store.recorded()
    collector = store.client()
    recorder.before_commit = lambda _commits: collector.gc() and None
    imported(client, data)
    recorder.before_commit = None
    assert sum(1 for commit in recorder.commits if commit.record is not None) > 3  # it took several
    collector.gc()
    equal_stores(quick, client)
    assert client.verify().problems == ()
    assert not any("importing" in one.session_id for one in client.sessions())
    stats = client.stats()
    assert stats.checkpoints == quick.stats().checkpoints  # what held the parts meanwhile is gone


def test_only_what_was_imported_is_an_event(quick: SyncClient, staged) -> None:
    data = large(quick)
    client = SyncClient.memory()
    imported(client, data)
    seen = [event.checkpoint.checkpoint_id for event in client.events(after="start", follow=False)]
    live = [
        entry.checkpoint_id
        for one in quick.sessions()
        for entry in quick.timeline(session_id=one.session_id, limit=None)
    ]
    assert sorted(seen) == sorted(live)


def test_collected_while_it_commits(store: Store, quick: SyncClient, staged) -> None:
    """A collection that has listed and marked before the tree's commit, and deletes after it."""
    data = large(quick)
    client, importing_ = store.recorded()
    collector, collecting = store.recorded()
    collector.expire(collector.save("g", execution_state={"m": messages(50)}, session_id="garbage"))
    about_to_delete, go_on = threading.Event(), threading.Event()

    def wait_before_deleting(commits) -> None:
        if any(commit.delete_segments or commit.delete_blobs for commit in commits):
            about_to_delete.set()
            go_on.wait(240)

    def the_collection_begins(commits) -> None:
        if any(commit.more_records for commit in commits):  # all parts of the tree are staged
            importing_.before_commit = None
            thread.start()
            assert about_to_delete.wait(240)

    collecting.before_commit = wait_before_deleting
    importing_.before_commit = the_collection_begins
    thread = threading.Thread(target=collector.gc)
    imported(client, data)
    go_on.set()
    thread.join()
    assert exported(client, ["main", "side/é", "small", "large"]) == data
    assert client.verify().problems == ()


def test_a_writer_that_goes_on_meanwhile_is_a_conflict_and_keeps_its_save(store: Store, quick: SyncClient) -> None:
    fill(quick)
    client, recorder = store.recorded()
    imported(client, exported(quick))
    state = quick.latest(session_id="main").execution_state
    quick.save("w", execution_state={**state, "more": 1}, session_id="main")
    writer = store.client()

    def saves(commits) -> None:
        if any(commit.more_records for commit in commits):
            recorder.before_commit = None
            writer.save("w", execution_state={"mine": 1}, session_id="main")

    recorder.before_commit = saves
    with pytest.raises(ConflictError, match="has gone another way"):
        imported(client, exported(quick))
    assert writer.latest(session_id="main").execution_state == {"mine": 1}
    assert client.verify().problems == ()


def test_two_imports_at_once(store: Store, quick: SyncClient, staged) -> None:
    data = large(quick)
    one, recorder = store.recorded()
    other = store.client()

    def other_first(commits) -> None:
        if any(commit.more_records for commit in commits):
            recorder.before_commit = None
            imported(other, data)

    recorder.before_commit = other_first
    imported(one, data)
    equal_stores(quick, one)
    one.gc()
    assert one.verify().problems == ()
    assert exported(one) == data


# -- exporting beside others ------------------------------------------------------------------------------------------


def test_exported_beside_a_writer(disk_store: Store, tmp_path: Path) -> None:
    process = python_process(
        """
        import sys
        from holdfast import SyncClient
        from stores import messages
        with SyncClient.open(sys.argv[1]) as client:
            history = messages(20)
            step = 0
            while True:
                history += messages(2, 100 * step)
                ids = [client.save("w", execution_state={"m": history, "n": step}, session_id=f"s{n}") for n in (0, 1)]
                if step % 5 == 2:
                    client.fork(ids[0], f"fork {step}")
                    client.expire(ids[1])
                if step % 20 == 19:
                    client.gc()
                if step == 5:
                    print("going", flush=True)
                step += 1
        """,
        disk_store.url,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "going\n"
        client = disk_store.client()
        for number in range(6):
            path = tmp_path / f"{number}.holdfast"
            client.export(path)
            there = SyncClient.memory()
            there.import_(path)
            assert there.verify().problems == ()
            assert exported(there) == path.read_bytes()
    finally:
        process.kill()
        process.communicate()


def test_what_is_collected_while_it_is_exported_makes_it_begin_again(store: Store, tmp_path: Path) -> None:
    client = store.client()
    ids = [
        client.save("w", execution_state={"m": messages(40, 100 * n), "t": f"{n}" * 5000}, session_id="s")
        for n in range(4)
    ]
    other = store.client()

    def collects() -> None:
        for id_ in ids[:2]:
            other.expire(id_)
        other.gc()

    told: list[int] = []

    def progress(done: int, _all: int) -> None:
        if not told:
            collects()
        told.append(done)

    path = tmp_path / "x.holdfast"
    report = client.export(path, progress=progress)
    assert report.checkpoints in (2, 4)  # as it was before, or as it was after
    there = SyncClient.memory()
    there.import_(path)
    assert there.verify().problems == ()
    assert len(there.timeline(session_id="s")) == report.checkpoints


def test_a_stream_that_can_not_begin_again_says_so(store: Store) -> None:
    client = store.client()
    ids = [client.save("w", execution_state={"t": f"{n}" * 90_000}, session_id="s") for n in range(30)]
    other = store.client()

    class Collecting(io.BytesIO):
        def write(self, data) -> int:
            if self.tell() == 0:
                for id_ in ids[:-1]:
                    other.expire(id_)
                other.gc()
            return super().write(data)

    # All before the first chunk was read before it: the export is as it stood then, or it refuses.
    file = Collecting()
    try:
        client.export(file)
    except ConflictError as error:
        assert "Export again" in str(error)
    else:
        there = SyncClient.memory()
        there.import_(io.BytesIO(file.getvalue()))
        assert there.verify().problems == ()
