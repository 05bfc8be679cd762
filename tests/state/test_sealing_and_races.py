"""Sealing is inline in a commit; blobs and collection don't race; rows move by compare-and-set."""

from __future__ import annotations

import threading
import time

import pytest
from stores import Store, messages

from holdfast import ConflictError, SyncClient
from holdfast.backends.port import ABSENT, Commit, CommitConflict, RowKey, RowWrite
from holdfast.format.state import log_segment

pytestmark = pytest.mark.every_store


def stored_runs(client: SyncClient) -> list:
    return client._ctx.backend.backend.page_segments(None, 10_000)


class TestSealing:
    def test_happens_in_the_commit_that_fills_a_run(self, store: Store):
        """Small runs gather at the end of a log; once there are 64 KB of them, one takes their place."""
        client, recorder = store.recorded()
        saves_that_sealed = []
        for count in range(20, 120):
            recorder.forget()
            client.save("a", session_id="s", execution_state={"m": messages(count, size=2000)})
            assert len([commit for commit in recorder.commits if commit.record]) == 1
            if any(run.first < run.tail for commit in recorder.commits for run in commit.segments):
                saves_that_sealed.append(count)
        assert 2 <= len(saves_that_sealed) <= 6
        assert len(stored_runs(client)) < 40
        assert client.latest(session_id="s").execution_state == {"m": messages(119, size=2000)}

    def test_readers_of_old_checkpoints_see_no_difference(self, store: Store):
        client, reader = store.client(), store.client()
        saved = {}
        for count in range(10, 130, 3):
            id_ = client.save("a", session_id="s", execution_state={"m": messages(count, size=1500)})
            saved[id_] = count
        for id_, count in saved.items():
            assert reader.restore(id_).execution_state == {"m": messages(count, size=1500)}

    def test_a_reader_beside_a_writer_that_seals(self, disk_store: Store):
        writer, reader = disk_store.client(), disk_store.client()
        first = writer.save("a", session_id="s", execution_state={"m": messages(12, size=4000)})
        done = threading.Event()

        def write() -> None:
            try:
                for count in range(13, 80):
                    writer.save("a", session_id="s", execution_state={"m": messages(count, size=4000)})
            finally:
                done.set()

        thread = threading.Thread(target=write)
        thread.start()
        reads = 0
        while not done.is_set() or reads == 0:
            assert reader.restore(first).execution_state == {"m": messages(12, size=4000)}
            state = reader.latest(session_id="s").execution_state
            assert state == {"m": messages(len(state["m"]), size=4000)}
            reads += 1
        thread.join()

    def test_what_is_sealed_is_compressed(self, client: SyncClient):
        client.save("a", execution_state={"m": messages(200, size=2000)})
        assert sum(run.size for run in stored_runs(client)) < 200 * 2000 / 5
        assert max(run.length for run in stored_runs(client)) * 2000 >= log_segment.SEAL_BYTES


WITH_BLOB = {"blob": "x" * 20_000}


class TestBlobsAndCollection:
    def saved_during_gc(self, store: Store, monkeypatch, *, clock_offset_ns: int) -> tuple[SyncClient, str]:
        """A save of the same blob, by another client, between gc's look at it and its deletion."""
        client, recorder = store.recorded()
        other = store.client()
        client.expire(client.save("a", session_id="s", execution_state=WITH_BLOB))
        saved = []
        real = time.time_ns

        def meanwhile(commits) -> None:
            if any(commit.delete_blobs for commit in commits):
                recorder.before_commit = None
                monkeypatch.setattr(time, "time_ns", lambda: real() + clock_offset_ns)
                saved.append(other.save("b", session_id="t", execution_state=WITH_BLOB))
                monkeypatch.undo()

        recorder.before_commit = meanwhile
        client.gc()
        return client, saved[0]

    @pytest.mark.parametrize("offset", [0, -3_600_000_000_000, 3_600_000_000_000], ids=["same", "behind", "ahead"])
    def test_a_blob_written_again_during_collection_stays(self, store: Store, monkeypatch, offset: int):
        """Whatever the other writer's clock says."""
        client, saved = self.saved_during_gc(store, monkeypatch, clock_offset_ns=offset)
        assert client.restore(saved).execution_state == WITH_BLOB
        assert client.verify().ok

    def test_a_blob_that_only_the_parent_wrote_stays_while_a_child_needs_it(self, store: Store):
        """The child did not write it again, because its parent had it; then the parent goes."""
        client, recorder = store.recorded()
        parent = client.save("a", session_id="s", execution_state=WITH_BLOB)
        recorder.forget()
        child = client.save("a", session_id="s", execution_state=WITH_BLOB | {"x": 1})
        assert all(not commit.blobs for commit in recorder.commits)
        client.expire(parent)
        client.gc()
        assert client.restore(child).execution_state == WITH_BLOB | {"x": 1}

    def test_a_parent_that_expires_before_the_commit_is_not_followed(self, store: Store):
        """The save had skipped the parent's blob and runs; gc removed them in between: nothing is built upon them."""
        client, recorder = store.recorded()
        other = store.client()
        state = WITH_BLOB | {"m": messages(30)}
        parent = client.save("a", session_id="s", execution_state=state)

        def meanwhile(commits) -> None:
            recorder.before_commit = None
            other.expire(parent)
            other.gc()

        recorder.before_commit = meanwhile
        saved = client.save("a", session_id="s", execution_state={**state, "m": messages(31)})
        assert client.restore(saved).execution_state == {**state, "m": messages(31)}
        assert client.restore(saved).parent_id is None
        assert client.verify().ok

    def test_runs_and_records_committed_during_collection_stay(self, store: Store):
        """At every commit that gc makes, others save, append, fork and roll back."""
        client, recorder = store.recorded()
        other = store.client()
        expected = {}

        def remember(id_: str, state) -> str:
            expected[id_] = state
            return id_

        root = remember(client.save("a", session_id="s", execution_state={"m": messages(40)}), {"m": messages(40)})
        for count in (80, 120):
            client.expire(
                client.save("a", session_id="s", execution_state={"m": messages(count), "b": f"{count}" * 5000})
            )
        client.expire(client.save("a", session_id="gone", execution_state={"m": messages(90, 7)}))
        steps = iter(range(100))

        def meanwhile(commits) -> None:
            recorder.before_commit = None
            step = next(steps)
            state = {"m": [*messages(40), f"during gc {step}"], "b": f"{(80, 120)[step % 2]}" * 5000}
            remember(other.save("b", session_id="s", parent_id=root, execution_state=state), state)
            remember(other.fork(root, session_id=f"fork {step}").checkpoint_id, {"m": messages(40)})
            state = {"m": [*messages(40), *messages(50, 1000 + step)]}
            remember(other.save("b", session_id=f"fork {step}", execution_state=state), state)
            other.rollback("s", to=root)
            recorder.before_commit = meanwhile

        recorder.before_commit = meanwhile
        client.gc()
        recorder.before_commit = None
        assert next(steps) >= 3
        client.gc()
        for id_, state in expected.items():
            assert client.restore(id_).execution_state == state
        assert client.verify().ok


class TestRows:
    """Heads and everything else that is not state are rows with compare-and-set in the same commit."""

    def test_a_commit_whose_row_moved_changes_nothing(self, store: Store):
        backend = store.backend()
        key, other = RowKey("head", b"s", b"t" * 16), RowKey("lease", b"s", b"t" * 16)
        [outcome] = backend.commit_all([Commit(tree=b"t" * 16, rows=[RowWrite(key, b"one", ABSENT)])])
        assert outcome is None
        [outcome] = backend.commit_all(
            [Commit(tree=b"t" * 16, rows=[RowWrite(other, b"x", ABSENT), RowWrite(key, b"two", ABSENT)])]
        )
        assert isinstance(outcome, CommitConflict)
        assert outcome.kind == "row"
        [row, nothing] = backend.rows([key, other])
        assert (row.value, row.version, nothing) == (b"one", 1, None)

    def test_of_two_forks_with_one_name_one_wins(self, store: Store):
        one, recorder = store.recorded()
        two = store.client()
        root = one.save("a", session_id="s")
        winners = []

        def meanwhile(commits) -> None:
            recorder.before_commit = None
            winners.append(two.fork(root, session_id="t"))

        recorder.before_commit = meanwhile
        with pytest.raises(ConflictError, match="exists already"):
            one.fork(root, session_id="t")
        assert one.latest(session_id="t").checkpoint_id == winners[0].checkpoint_id
        assert len(one.timeline(session_id="t")) == 1

    def test_a_head_that_expires_while_another_saves(self, store: Store):
        client, recorder = store.recorded()
        other = store.client()
        first = client.save("a", session_id="s")
        second = client.save("a", session_id="s")

        def meanwhile(commits) -> None:
            recorder.before_commit = None
            other.expire(second)

        recorder.before_commit = meanwhile
        third = client.restore(client.save("a", session_id="s"))
        assert (third.parent_id, third.sequence) == (first, 3)

    def test_a_save_in_the_moment_of_expiring_the_head_is_not_lost(self, store: Store):
        client, recorder = store.recorded()
        other = store.client()
        client.save("a", session_id="s")
        second = client.save("a", session_id="s")
        saved = []

        def meanwhile(commits) -> None:
            recorder.before_commit = None
            saved.append(other.save("b", session_id="s"))

        recorder.before_commit = meanwhile
        assert client.expire(second) is True
        assert client.latest(session_id="s").checkpoint_id == saved[0]
        assert client.restore(saved[0]).parent_id == second
