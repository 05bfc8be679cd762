"""Graves: what collection leaves of expired checkpoints. They go on being known as expired,
wherever they are asked for."""

from __future__ import annotations

import uuid

import pytest
from bundles import exported, imported
from stores import Clock, Recorder, Store, messages

from holdfast import CheckpointExpiredError, CheckpointNotFoundError, ConflictError, CorruptError, SyncClient
from holdfast.backends.port import Commit, RowWrite
from holdfast.format.rows import head, packed_tombstones
from holdfast.model import ids


def saved_steps(client: SyncClient, count: int, session: str = "s", *, given: bool = False) -> list[str]:
    return [
        client.save(
            "a", session_id=session, execution_state={"x": i}, checkpoint_id=str(uuid.uuid4()) if given else None
        )
        for i in range(count)
    ]


def bury(client: SyncClient, *gone: str) -> None:
    for id_ in gone:
        client.expire(id_)
    assert client.gc().tombstones_packed == len(gone)


def records(store: Store) -> int:
    return len(store.backend().page_records(None, 10_000))


class TestABuriedCheckpoint:
    @pytest.fixture(params=[False, True], ids=["ids of ours", "ids of others"])
    def steps(self, client: SyncClient, request: pytest.FixtureRequest) -> list[str]:
        """Nine, of which the first four and the seventh are buried."""
        saved = saved_steps(client, 9, given=request.param)
        bury(client, *saved[:4], saved[6])
        return saved

    def test_is_no_record_any_more(self, store: Store, steps: list[str]):
        assert records(store) == 4

    def test_is_expired_and_says_when_and_why(self, store: Store, clock: Clock):
        client = store.client()
        clock.rules(client)
        first, second, _ = saved_steps(client, 3)
        client.expire(first)
        clock.forward(60)
        client.expire(second)
        client.gc()
        for id_, minute in ((first, "08:00:00"), (second, "08:01:00")):
            with pytest.raises(
                CheckpointExpiredError, match=rf"'s' expired on 2027-01-15 {minute} UTC \(expired by hand\)"
            ):
                client.restore(id_)

    def test_cannot_be_read_followed_forked_or_handed_on(self, client: SyncClient, steps: list[str]):
        for id_ in (*steps[:4], steps[6]):
            for attempt in (
                lambda id_=id_: client.restore(id_),
                lambda id_=id_: client.get(id_),
                lambda id_=id_: client.fork(id_, session_id="t"),
                lambda id_=id_: client.handoff(id_, "b"),
                lambda id_=id_: client.rollback("s", to=id_),
                lambda id_=id_: client.save("a", session_id="s", parent_id=id_),
            ):
                with pytest.raises(CheckpointExpiredError):
                    attempt()
            assert client.expire(id_) is False

    def test_keeps_its_id(self, client: SyncClient, steps: list[str]):
        with pytest.raises(ConflictError):
            client.save("a", session_id="s", execution_state={"x": 0}, checkpoint_id=steps[0])
        with pytest.raises(ConflictError):
            client.fork(steps[8], session_id="t", new_id=steps[0])
        assert client.latest(session_id="s").checkpoint_id == steps[8]

    def test_is_left_out_of_the_timeline_without_leaving_a_gap(self, client: SyncClient, steps: list[str]):
        live = [steps[8], steps[7], steps[5], steps[4]]
        assert [entry.checkpoint_id for entry in client.timeline(session_id="s")] == live
        assert [entry.checkpoint_id for entry in client.timeline(session_id="s", limit=3)] == live[:3]
        following = client.restore(client.save("a", session_id="s"))
        assert (following.sequence, following.parent_id) == (10, steps[8])

    def test_is_in_the_tree_so_that_lines_go_on_above_it(self, client: SyncClient, steps: list[str]):
        tree = client.tree("s")
        assert set(tree.expired) == {*steps[:4], steps[6]}
        assert tree.parents[steps[7]] == steps[5]
        assert tree.parents[steps[4]] is None

    def test_is_counted(self, client: SyncClient, steps: list[str]):
        report, stats = client.verify(), client.stats()
        assert (report.ok, report.checked, report.expired, report.ended_chains) == (True, 4, 5, 2)
        assert (stats.checkpoints, stats.expired) == (4, 5)
        of_session = client.verify(session_id="s")
        assert (of_session.ok, of_session.checked, of_session.expired) == (True, 4, 5)

    def test_is_found_by_the_end_of_its_id(self, client: SyncClient, steps: list[str]):
        assert client.find(steps[2][-8:]) == [steps[2]]
        assert client.find(steps[8][-8:]) == [steps[8]]
        assert client.find("0" * 30) == []

    def test_is_passed_by_a_head_that_moves(self, client: SyncClient, steps: list[str]):
        client.expire(steps[8])
        client.expire(steps[7])
        assert client.latest(session_id="s").checkpoint_id == steps[5]
        assert client.sessions()[0].head.checkpoint_id == steps[5]

    def test_goes_with_its_tree(self, store: Store, client: SyncClient, steps: list[str]):
        for id_ in (*steps[4:6], *steps[7:]):
            client.expire(id_)
        announced = client.gc(dry_run=True)
        done = client.gc()
        assert announced.records == done.records == 9
        assert store.backend().scan(head.GRAVES) == []
        for id_ in steps:
            with pytest.raises(CheckpointNotFoundError):
                client.restore(id_)
        assert client.sessions() == []
        assert client.restore(client.save("a", session_id="s")).sequence == 1

    def test_takes_few_bytes(self, store: Store, client: SyncClient, steps: list[str]):
        packs = [row.value for key, row in store.backend().scan(head.GRAVES) if packed_tombstones.is_pack(key)]
        assert sum(map(len, packs)) < 5 * 100


class TestWhatIsBuried:
    def test_a_tombstone_of_a_live_tree_and_nothing_else(self, store: Store, clock: Clock):
        client = store.client()
        clock.rules(client)
        stays, goes = saved_steps(client, 2)
        outlives = client.save("a", session_id="s", ttl_seconds=10)
        client.expire(goes)
        clock.forward(11)
        announced = client.gc(dry_run=True)
        assert records(store) == 3
        done = client.gc()
        assert announced.tombstones_packed == done.tombstones_packed == 2
        assert announced.bytes_freed == done.bytes_freed > 0
        assert records(store) == 1
        assert client.gc().tombstones_packed == 0
        assert client.restore(stays).execution_state == {"x": 0}
        for id_, why in ((goes, "by hand"), (outlives, "time to live")):
            with pytest.raises(CheckpointExpiredError, match=why):
                client.restore(id_)

    def test_not_one_that_can_still_be_undone(self, store: Store):
        """Expired while the collection was under way: its bytes are kept, and so is its record."""
        client, recorder = store.recorded()
        other = store.client()
        saved = saved_steps(client, 4)
        client.expire(saved[0])

        def expire_another(commits) -> None:
            if any(write.key.space == head.EXPIRED and write.value is None for c in commits for write in c.rows):
                recorder.before_commit = None
                other.expire(saved[1])

        recorder.before_commit = expire_another
        assert client.gc().tombstones_packed == 1
        assert records(store) == 3
        assert len(store.backend().scan(head.EXPIRED)) == 1

    @pytest.mark.slow
    def test_many_in_few_commits(self, store: Store):
        client, recorder = store.recorded()
        saved = saved_steps(client, 450)
        for id_ in saved[:440]:
            client.expire(id_)
        recorder.forget()
        client.gc()
        assert recorder.calls["commit_all"] <= 6
        assert records(store) == 10
        assert len(client.timeline(session_id="s")) == 10
        assert client.verify().expired == 440
        for id_ in (saved[0], saved[200], saved[439]):
            with pytest.raises(CheckpointExpiredError):
                client.restore(id_)

    @pytest.mark.slow
    def test_many_that_outlived_their_ttl_in_few_commits(self, store: Store, clock: Clock):
        client, recorder = store.recorded()
        clock.rules(client)
        stays = client.save("a", session_id="s")
        for _ in range(250):
            client.save("a", session_id="s", ttl_seconds=5)
        clock.forward(6)
        recorder.forget()
        assert client.gc().expired_by_ttl == 250
        assert recorder.calls["commit_all"] <= 4
        assert client.latest(session_id="s").checkpoint_id == stays

    def test_with_a_root_that_shares_its_tag_with_another_tree(self, client: SyncClient):
        """Ids that somebody else made may be alike in what tells trees apart."""
        roots = [f"01939c5e-7c1b-7000-8a2f-0c4c{number:08x}" for number in range(6)]
        for number, root in enumerate(roots):
            client.save("a", session_id=f"s{number}", checkpoint_id=root)
            client.save("a", session_id=f"s{number}")
        bury(client, *roots)
        for root in roots:
            with pytest.raises(CheckpointExpiredError):
                client.restore(root)
        with pytest.raises(CheckpointNotFoundError):
            client.restore("01939c5e-7c1b-7000-8a2f-0c4cffffffff")
        assert client.verify().ok

    def test_of_every_session_of_the_tree(self, client: SyncClient):
        saved = saved_steps(client, 3)
        forked = client.fork(saved[1], session_id="t").checkpoint_id
        last = client.save("a", session_id="t")
        bury(client, *saved, forked)
        assert client.latest(session_id="s") is None
        assert client.timeline(session_id="s") == []
        assert client.session("s") is None
        assert [entry.checkpoint_id for entry in client.timeline(session_id="t")] == [last]
        again = client.restore(client.save("a", session_id="s"))
        assert (again.sequence, again.parent_id) == (4, None)
        assert client.verify().ok


class TestExportAndImport:
    def test_what_is_buried_is_exported_and_known_where_it_is_imported(self, store: Store):
        client, there = store.client(), SyncClient.memory()
        saved = saved_steps(client, 6)
        client.fork(saved[2], session_id="t")
        for id_ in saved[:3]:
            client.expire(id_)
        before = exported(client, ["t"])
        client.gc()
        assert exported(client, ["t"]) == before
        for again in (False, True):
            report = imported(there, before)
            assert (report.imported, report.already_there) == ((0, 7) if again else (7, 0))
        for id_ in saved[:3]:
            with pytest.raises(CheckpointExpiredError):
                there.restore(id_)
        assert [entry.sequence for entry in there.timeline(session_id="s")] == [6, 5, 4]
        assert there.verify().ok
        assert exported(there) == exported(client)

    def test_what_is_buried_here_stays_so_though_it_lives_in_the_file(self, store: Store):
        client = store.client()
        saved = saved_steps(client, 4)
        whole = exported(client)
        bury(client, *saved[:2])
        report = imported(client, whole)
        assert (report.imported, report.already_there) == (0, 4)
        with pytest.raises(CheckpointExpiredError):
            client.restore(saved[0])
        assert client.verify().ok


class TestReading:
    def test_a_timeline_without_gaps_reads_no_graves(self, store: Store):
        client, recorder = store.recorded()
        saved = saved_steps(client, 40)
        bury(client, *saved[:5])
        recorder.forget()
        assert len(client.timeline(session_id="s", limit=20)) == 20
        assert recorder.calls["scan"] == 0
        assert recorder.calls["session_records"] == 1

    def test_a_number_that_is_in_no_grave_is_missing(self, store: Store):
        client = store.client()
        saved = saved_steps(client, 8)
        bury(client, *saved[:3])
        [lost] = [one for one in store.backend().page_records(None, 10) if one.sequence == 5]
        store.backend().commit_all([Commit(tree=ids.from_text(saved[0]), delete_records=[(lost.id, lost.data)])])
        with pytest.raises(CorruptError, match="number 5 "):
            client.timeline(session_id="s")
        assert len(client.timeline(session_id="s", limit=3)) == 3
        assert any("1 of the 8 checkpoints" in problem.message for problem in client.verify().problems)

    def test_a_session_without_a_head_whose_checkpoints_are_all_buried_is_damaged(self, store: Store):
        client = store.client()
        saved = saved_steps(client, 2)
        client.fork(saved[1], session_id="t")
        bury(client, *saved)
        tree = ids.from_text(saved[0])
        store.backend().commit_all([Commit(tree, rows=[RowWrite(head.head_key(b"s", tree), None)])])
        with pytest.raises(CorruptError, match="no head"):
            store.client().save("a", session_id="s")

    @pytest.mark.slow
    def test_what_is_buried_between_two_looks_is_not_missed(self, store: Store):
        client, recorder = store.recorded()
        saved = saved_steps(client, 500)
        other = store.client()
        for id_ in saved[:300]:
            other.expire(id_)
        meddler = Meddler(recorder)
        reader = SyncClient(meddler)
        meddler.before = other.gc
        assert [entry.sequence for entry in reader.timeline(session_id="s", limit=None)] == list(range(500, 300, -1))
        assert meddler.before is None


class Meddler:
    """Does something between the first and the second page of a session's records."""

    def __init__(self, inner: Recorder) -> None:
        self._inner = inner
        self.before = None

    def session_records(self, session: bytes, **how: int | None):
        if how.get("before") is not None and self.before is not None:
            meddle, self.before = self.before, None
            meddle()
        return self._inner.session_records(session, **how)

    def __getattr__(self, name: str):
        return getattr(self._inner, name)


class TestTwoCollectionsAtOnce:
    def interrupted(self, store: Store, meddle, before=None) -> SyncClient:
        """A client whose next commit of a kind, a burial, is preceded by something else."""
        client, recorder = store.recorded()

        def before_commit(commits) -> None:
            if any(map(before or burying, commits)):
                recorder.before_commit = None
                meddle()

        recorder.before_commit = before_commit
        return client

    def test_one_of_them_buries(self, store: Store):
        other = store.client()
        saved = saved_steps(other, 6)
        for id_ in saved[:3]:
            other.expire(id_)
        assert self.interrupted(store, other.gc).gc().tombstones_packed == 0
        assert (records(store), other.verify().expired) == (3, 3)

    def test_each_buries_others(self, store: Store):
        """The second one has found what the first one had not: the packs must not overlap."""
        other = store.client()
        saved = saved_steps(other, 8)
        for id_ in saved[1:6:2]:
            other.expire(id_)

        def meddle() -> None:
            for id_ in saved[0:6:2]:
                other.expire(id_)
            other.gc()

        client = self.interrupted(store, meddle)
        client.gc()
        client.gc()
        assert (records(store), client.verify().expired) == (2, 6)
        for id_ in saved[:6]:
            with pytest.raises(CheckpointExpiredError):
                client.restore(id_)

    def test_a_tree_that_is_removed_meanwhile_gets_no_graves(self, store: Store):
        other = store.client()
        saved = saved_steps(other, 3)
        other.expire(saved[0])

        def meddle() -> None:
            for id_ in saved[1:]:
                other.expire(id_)
            other.gc()

        self.interrupted(store, meddle).gc()
        assert store.backend().scan(head.GRAVES) == []
        assert records(store) == 0

    @pytest.mark.parametrize("before", ["it is removed", "its runs are removed"])
    def test_a_tree_that_is_saved_to_after_it_was_found_dead_stays(self, store: Store, before: str):
        other = store.client()
        other.expire(other.save("a", session_id="s", execution_state={"m": messages(30)}))
        later: list[str] = []
        client = self.interrupted(
            store,
            lambda: later.append(other.save("b", session_id="s", execution_state={"m": messages(20)})),
            burying if before == "it is removed" else lambda commit: bool(commit.delete_segments),
        )
        assert client.gc().records == 0
        assert client.latest(session_id="s").checkpoint_id == later[0]
        assert client.restore(later[0]).execution_state == {"m": messages(20)}
        assert client.verify().ok


def burying(commit: Commit) -> bool:
    return any(write.key.space == head.GRAVES for write in commit.rows)
