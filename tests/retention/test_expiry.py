"""expire, time to live and gc: what ends, what stays, what is removed."""

from __future__ import annotations

import pytest
from stores import SOME_ID, Clock, Store, messages

from holdfast import CheckpointExpiredError, CheckpointNotFoundError, SyncClient, UsageError
from holdfast.backends.bridge.step import run_inline
from holdfast.format.state import record
from holdfast.model import ids
from holdfast.operations.expire import BY_HAND, tombstone_all

pytestmark = pytest.mark.every_store


@pytest.fixture
def timed(store: Store, clock: Clock) -> SyncClient:
    client = store.client()
    clock.rules(client)
    return client


class TestExpire:
    def test_is_true_once(self, client: SyncClient):
        saved = client.save("a", session_id="s")
        assert client.expire(saved) is True
        assert client.expire(saved) is False
        assert client.expire(SOME_ID) is False

    def test_of_a_head_moves_it_to_the_nearest_live_ancestor(self, client: SyncClient):
        first, second, third, fourth = (client.save("a", session_id="s", execution_state={"x": i}) for i in range(4))
        client.expire(third)
        assert client.latest(session_id="s").checkpoint_id == fourth
        client.expire(fourth)
        assert client.latest(session_id="s").checkpoint_id == second
        following = client.restore(client.save("a", session_id="s"))
        assert (following.parent_id, following.sequence) == (second, 5)
        assert client.restore(first).execution_state == {"x": 0}

    def test_moves_the_heads_of_other_sessions_too(self, client: SyncClient):
        root = client.save("a", session_id="s")
        head = client.save("a", session_id="s")
        client.fork(root, session_id="t")
        client.rollback("t", to=head)
        client.expire(head)
        assert client.latest(session_id="s").checkpoint_id == root
        assert client.latest(session_id="t").checkpoint_id == root

    def test_of_everything_leaves_a_session_that_can_begin_again(self, client: SyncClient):
        for saved in [client.save("a", session_id="s", execution_state={"m": messages(20)}) for _ in range(3)]:
            client.expire(saved)
        assert client.latest(session_id="s") is None
        assert client.timeline(session_id="s") == []
        again = client.restore(client.save("a", session_id="s", execution_state={"m": messages(3)}))
        assert (again.parent_id, again.sequence, again.step_index) == (None, 4, 0)
        assert again.execution_state == {"m": messages(3)}

    def test_children_of_an_expired_parent_keep_working(self, client: SyncClient):
        parent = client.save("a", session_id="s", execution_state={"m": messages(30)})
        child = client.save("a", session_id="s", execution_state={"m": messages(31)})
        client.expire(parent)
        client.gc()
        assert client.restore(child).execution_state == {"m": messages(31)}
        assert client.restore(child).parent_id == parent
        grandchild = client.save("a", session_id="s", append={"m": messages(1, 31)})
        assert client.restore(grandchild).execution_state == {"m": messages(32)}
        report = client.verify()
        assert (report.ok, report.checked, report.expired, report.ended_chains) == (True, 2, 1, 1)

    def test_a_parent_that_expired_cannot_be_followed(self, client: SyncClient):
        old = client.save("a", session_id="s")
        client.save("a", session_id="s")
        client.expire(old)
        with pytest.raises(CheckpointExpiredError):
            client.save("a", session_id="s", parent_id=old)

    def test_is_seen_by_a_client_that_remembers_the_checkpoint(self, store: Store):
        one, two = store.client(), store.client()
        first = one.save("a", session_id="s", execution_state={"m": messages(20)})
        second = one.save("a", session_id="s", execution_state={"m": messages(21)})
        two.expire(second)
        two.gc()
        third = one.restore(one.save("a", session_id="s", append={"m": ["x"]}))
        assert (third.parent_id, third.execution_state) == (first, {"m": [*messages(20), "x"]})

    def test_the_error_says_when_and_why(self, timed: SyncClient, clock: Clock):
        by_hand = timed.save("a", session_id="s")
        by_ttl = timed.save("a", session_id="s", ttl_seconds=60)
        timed.expire(by_hand)
        clock.forward(61)
        with pytest.raises(CheckpointExpiredError, match=r"2027-01-15 08:00:00 UTC \(expired by hand\)"):
            timed.restore(by_hand)
        with pytest.raises(CheckpointExpiredError, match=r"2027-01-15 08:01:00 UTC \(its TTL of 60 s\)"):
            timed.restore(by_ttl)


class TestExpiringManyAtOnce:
    """What retention and collection do: `tombstone_all`."""

    def expire_all(self, client: SyncClient, saved: list[str]) -> list[str]:
        ctx = client._ctx
        found = [one for one in run_inline(ctx.backend.records([ids.from_text(id_) for id_ in saved])) if one]
        read = [(one, record.unpack(ctx.codec, one.data)) for one in found]
        return [ids.to_text(id_) for id_ in run_inline(tombstone_all(ctx, read[0][1].tree, read, BY_HAND))]

    @pytest.mark.slow
    def test_takes_few_commits_and_moves_each_head_to_what_is_left(self, store: Store):
        client, recorder = store.recorded()
        saved = [client.save("a", session_id="s", execution_state={"x": i}) for i in range(450)]
        client.fork(saved[9], session_id="t")
        client.rollback("t", to=saved[440])
        recorder.forget()
        assert sorted(self.expire_all(client, saved[1:])) == sorted(saved[1:])
        assert recorder.calls["commit_all"] == 3
        assert client.latest(session_id="s").checkpoint_id == client.latest(session_id="t").checkpoint_id == saved[0]
        assert client.verify().ok
        with pytest.raises(CheckpointExpiredError):
            client.restore(saved[-1])

    def test_leaves_out_what_somebody_else_expired_meanwhile(self, store: Store):
        client, recorder = store.recorded()
        saved = [client.save("a", session_id="s", execution_state={"x": i}) for i in range(6)]
        other = store.client()

        def interfere(_: object) -> None:
            recorder.before_commit = None
            other.expire(saved[3])
            other.save("b", session_id="s")

        recorder.before_commit = interfere
        assert self.expire_all(client, saved[2:]) == [saved[2], saved[4], saved[5]]
        assert [entry.agent_id for entry in client.timeline(session_id="s")] == ["b", "a", "a"]
        assert client.verify().ok


class TestTimeToLive:
    @pytest.mark.parametrize("ttl", [0, -1, 0.0, float("nan"), float("inf"), True, "60", -0.5, 1e12])
    def test_must_be_positive(self, quick: SyncClient, ttl):
        with pytest.raises(UsageError, match="ttl_seconds"):
            quick.save("a", session_id="s", ttl_seconds=ttl)
        assert quick.timeline(session_id="s") == []

    @pytest.mark.parametrize("ttl", [1, 0.25, 10**9])
    def test_may_be_whole_or_not(self, quick: SyncClient, ttl):
        assert quick.restore(quick.save("a", ttl_seconds=ttl)).ttl_seconds == ttl

    def test_ends_a_checkpoint_at_its_moment(self, timed: SyncClient, clock: Clock):
        stays = timed.save("a", session_id="s", execution_state={"x": 1})
        goes = timed.save("a", session_id="s", execution_state={"x": 2}, ttl_seconds=60)
        clock.forward(59.999999)
        assert timed.latest(session_id="s").checkpoint_id == goes
        clock.forward(0.000001)
        with pytest.raises(CheckpointExpiredError):
            timed.restore(goes)
        assert timed.latest(session_id="s").checkpoint_id == stays
        assert [entry.checkpoint_id for entry in timed.timeline(session_id="s")] == [stays]
        assert timed.sessions()[0].head.checkpoint_id == stays
        assert timed.expire(goes) is False

    def test_the_next_save_follows_the_nearest_live_ancestor(self, timed: SyncClient, clock: Clock):
        stays = timed.save("a", session_id="s", execution_state={"m": messages(20)})
        timed.save("a", session_id="s", execution_state={"m": messages(25)}, ttl_seconds=60)
        clock.forward(61)
        following = timed.restore(timed.save("a", session_id="s", append={"m": ["x"]}))
        assert (following.parent_id, following.sequence) == (stays, 3)
        assert following.execution_state == {"m": [*messages(20), "x"]}

    def test_of_a_parent_does_not_touch_its_children(self, timed: SyncClient, clock: Clock):
        timed.save("a", session_id="s", execution_state={"m": messages(30)}, ttl_seconds=60)
        child = timed.save("a", session_id="s", execution_state={"m": messages(31)})
        clock.forward(61)
        timed.gc()
        assert timed.restore(child).execution_state == {"m": messages(31)}

    def test_is_kept_by_a_handoff_and_counted_anew(self, timed: SyncClient, clock: Clock):
        source = timed.save("a", session_id="s", ttl_seconds=60)
        clock.forward(30)
        handed = timed.handoff(source, "b")
        clock.forward(31)
        assert timed.restore(handed).ttl_seconds == 60
        with pytest.raises(CheckpointExpiredError):
            timed.restore(source)


class TestCollection:
    def test_of_a_store_where_everything_lives_removes_nothing(self, client: SyncClient):
        for count in (20, 21, 22):
            client.save("a", session_id="s", execution_state={"m": messages(count), "b": "x" * 5000})
        report = client.gc()
        assert (report.expired_by_ttl, report.records, report.segments, report.segments_trimmed, report.blobs) == (
            0,
        ) * 5
        assert report.bytes_freed == 0

    def test_turns_what_outlived_its_ttl_into_tombstones(self, timed: SyncClient, clock: Clock):
        timed.save("a", session_id="s")
        goes = timed.save("a", session_id="s", ttl_seconds=60)
        clock.forward(61)
        assert timed.gc().expired_by_ttl == 1
        assert timed.gc().expired_by_ttl == 0
        with pytest.raises(CheckpointExpiredError, match="time to live"):
            timed.restore(goes)
        assert timed.stats().expired == 1

    def test_a_tombstone_stays_until_its_tree_is_collected(self, client: SyncClient):
        first = client.save("a", session_id="s")
        second = client.save("a", session_id="s")
        client.expire(first)
        client.gc()
        with pytest.raises(CheckpointExpiredError):
            client.restore(first)
        client.expire(second)
        assert client.gc().records == 2
        for gone in (first, second):
            with pytest.raises(CheckpointNotFoundError):
                client.restore(gone)
        assert client.sessions() == []
        assert client.stats().checkpoints == client.stats().expired == 0

    def test_a_tree_lives_as_long_as_one_of_its_forks(self, client: SyncClient):
        root = client.save("a", session_id="s", execution_state={"m": messages(30)})
        fork = client.fork(root, session_id="t").checkpoint_id
        client.expire(root)
        client.gc()
        assert client.restore(fork).execution_state == {"m": messages(30)}
        with pytest.raises(CheckpointExpiredError):
            client.restore(root)

    def test_a_collected_session_begins_a_new_tree(self, store: Store):
        client, other = store.client(), store.client()
        gone = client.save("a", session_id="s", execution_state={"m": messages(20)})
        other.save("b", session_id="s", append={"m": [1]})
        for entry in client.timeline(session_id="s"):
            client.expire(entry.checkpoint_id)
        client.gc()
        new = other.restore(other.save("a", session_id="s", execution_state={"m": messages(20)}))
        assert (new.sequence, new.parent_id, new.tree_id) == (1, None, new.checkpoint_id)
        assert new.tree_id != gone
        assert client.latest(session_id="s").checkpoint_id == new.checkpoint_id
        assert client.verify().ok

    def test_frees_what_only_the_expired_referred_to(self, client: SyncClient):
        kept = client.save("a", session_id="s", execution_state={"m": messages(30)})
        goes = client.save("a", session_id="s", execution_state={"m": messages(300), "b": "x" * 50_000})
        before = client.stats()
        client.expire(goes)
        report = client.gc()
        after = client.stats()
        assert report.blobs == 1
        assert report.segments + report.segments_trimmed >= 1
        assert after.blob_bytes == 0
        assert after.segment_bytes < before.segment_bytes / 2
        assert client.restore(kept).execution_state == {"m": messages(30)}
        assert client.gc().bytes_freed == 0

    def test_keeps_a_blob_that_another_tree_uses(self, client: SyncClient):
        goes = client.save("a", execution_state={"b": "x" * 50_000})
        stays = client.save("a", execution_state={"b": "x" * 50_000})
        client.expire(goes)
        assert client.gc().blobs == 0
        assert client.restore(stays).execution_state == {"b": "x" * 50_000}

    def test_trims_a_run_of_which_little_is_alive(self, client: SyncClient):
        """One run of 300 elements, of which the head still uses three, from its middle."""
        client.save("a", session_id="s", execution_state={"m": messages(300, size=200)})
        few = [*messages(300, size=200)[150:153], *[f"new {i} " * 100 for i in range(10)]]
        stays = client.save("a", session_id="s", execution_state={"m": few})
        client.expire(client.timeline(session_id="s")[1].checkpoint_id)
        assert client.gc().segments_trimmed >= 1
        assert client.restore(stays).execution_state == {"m": few}
        more = client.save("a", session_id="s", execution_state={"m": [*few, *messages(300)]})
        assert client.restore(more).execution_state == {"m": [*few, *messages(300)]}
        assert client.verify().ok

    def test_a_dry_run_says_what_would_go_and_changes_nothing(self, timed: SyncClient, clock: Clock):
        timed.save("a", session_id="s", execution_state={"m": messages(30), "b": "x" * 5000})
        timed.expire(timed.save("a", session_id="s", execution_state={"m": messages(60), "b": "y" * 5000}))
        timed.save("a", session_id="gone", execution_state={"m": messages(50)}, ttl_seconds=60)
        clock.forward(61)
        before = timed.stats()
        announced = timed.gc(dry_run=True)
        assert timed.stats() == before
        done = timed.gc()
        assert announced.dry_run
        assert not done.dry_run
        for name in ("expired_by_ttl", "records", "segments", "segments_trimmed", "blobs"):
            assert getattr(announced, name) == getattr(done, name), name
        assert done.expired_by_ttl == 1
        assert done.records == 1

    def test_lets_a_session_that_is_rolled_back_go_on_where_its_log_was_cut(self, client: SyncClient):
        states = [{"m": messages(count)} for count in (20, 25, 30)]
        saved = [client.save("a", session_id="s", execution_state=state) for state in states]
        client.rollback("s", to=saved[0])
        client.expire(saved[1])
        client.expire(saved[2])
        client.gc()
        other = {"m": [*messages(20), *messages(10, 500)]}
        following = client.save("a", session_id="s", execution_state=other)
        assert client.restore(following).execution_state == other
        assert client.restore(saved[0]).execution_state == states[0]
        assert client.verify().ok


class TestWhatAClientRemembersOfCollectedSessions:
    """Another process expired and collected what this one remembers: that is no damage, and no reason to refuse."""

    @pytest.fixture
    def clients(self, store: Store) -> tuple[SyncClient, SyncClient]:
        return store.client(), store.client()

    @pytest.mark.parametrize("count", [1, 30], ids=["short list", "long list"])
    @pytest.mark.parametrize("ancestor", [False, True], ids=["nothing left", "an ancestor left"])
    def test_an_append_follows_what_is_still_there(self, clients, count: int, ancestor: bool):
        one, other = clients
        if ancestor:
            one.save("a", session_id="s", execution_state={"m": ["ancestor"]})
        state = {"m": messages(count), "rest": {f"key {i}": "value" * 5 for i in range(20)}}
        collected = one.save("a", session_id="s", execution_state=state)
        other.expire(collected)
        other.gc()
        saved = one.save("a", session_id="s", append={"+m": ["new"]})
        assert one.restore(saved).execution_state == {"m": ["ancestor", "new"] if ancestor else ["new"]}
        assert one.verify().ok

    def test_an_edit_is_stored_whole(self, clients):
        one, other = clients
        collected = one.save("a", session_id="s", execution_state={"m": messages(40), "b": "x" * 5000})
        other.expire(collected)
        other.gc()
        state = {"m": [*messages(40)[:7], "edited", *messages(40)[9:]], "b": "x" * 5000}
        assert one.restore(one.save("a", session_id="s", execution_state=state)).execution_state == state
        assert one.verify().ok

    def test_a_parent_in_another_tree_is_no_longer_in_another_tree(self, clients):
        one, other = clients
        root = one.save("a", session_id="root")
        other.expire(one.save("a", session_id="s"))
        other.gc()
        saved = one.restore(one.save("a", session_id="s", parent_id=root))
        assert (saved.parent_id, saved.tree_id, saved.sequence) == (root, root, 1)

    def test_a_handoff_and_a_fork_by_the_same_name(self, clients):
        one, other = clients
        root = one.save("a", session_id="root")
        other.expire(one.save("a", session_id="s"))
        other.gc()
        assert one.fork(root, session_id="s").tree_id == root
        assert one.restore(one.handoff(one.latest(session_id="s").checkpoint_id, "b")).sequence == 2

    def test_a_refusal_is_about_the_store_as_it_is(self, clients):
        """What was no list in a parent that another writer has replaced."""
        one, other = clients
        one.save("a", session_id="s", execution_state={"m": "text"})
        other.save("a", session_id="s", execution_state={"m": ["list"]})
        assert one.restore(one.save("a", session_id="s", append={"m": [1]})).execution_state == {"m": ["list", 1]}
