"""retain, du and unexpire: what goes, what stays, what it takes, and what can be undone."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from stores import SOME_ID, Clock, Store, messages, python_process

from holdfast import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    Retention,
    StoreUsage,
    SyncClient,
    UsageError,
)


@pytest.fixture
def timed(store: Store, clock: Clock) -> SyncClient:
    client = store.client()
    clock.rules(client)
    return client


def grown(client: SyncClient, count: int, session: str = "s") -> list[str]:
    """A conversation of some size: each step adds a message, and has a page of its own that can't be compressed."""
    return [
        client.save("a", session_id=session, execution_state={"m": messages(12 + i), "page": page(session, i)})
        for i in range(count)
    ]


def page(session: str, number: int) -> bytes:
    return random.Random(f"{session} {number}").randbytes(6000)


def live(client: SyncClient, session: str = "s") -> list[str]:
    return [entry.checkpoint_id for entry in client.timeline(session_id=session, limit=None)][::-1]


class TestPolicies:
    def test_keep_last(self, client: SyncClient):
        saved, others = grown(client, 6), grown(client, 3, "t")
        report = client.retain(keep_last=2, dry_run=False)
        assert (live(client), live(client, "t")) == (saved[-2:], others[-2:])
        assert (report.going, report.kept, report.dry_run) == (5, 4, False)
        assert [(one.session_id, one.going, one.kept) for one in report.sessions] == [
            ("s", tuple(saved[:4]), 2),
            ("t", tuple(others[:1]), 2),
        ]
        assert client.restore(saved[-2]).execution_state["m"] == messages(16)
        assert client.verify().ok

    def test_keep_every(self, client: SyncClient):
        saved = grown(client, 7)
        client.retain(keep_every=3, dry_run=False)
        assert live(client) == [saved[2], saved[5], saved[6]]

    def test_rules_add_up(self, client: SyncClient):
        saved = grown(client, 9)
        client.retain(Retention(keep_last=2, keep_every=3), dry_run=False)
        assert live(client) == [saved[2], saved[5], *saved[7:]]

    def test_older_than(self, timed: SyncClient, clock: Clock):
        old = grown(timed, 3)
        clock.forward(3600)
        young = grown(timed, 3)
        clock.forward(60)
        timed.retain(older_than=timedelta(minutes=30), dry_run=False)
        assert live(timed) == young
        assert timed.retain(older_than=timedelta(minutes=30)).going == 0
        with pytest.raises(CheckpointExpiredError, match="retention"):
            timed.restore(old[0])

    def test_what_is_pinned_or_tagged_and_every_head_stay(self, client: SyncClient):
        saved = grown(client, 6)
        client.pin(saved[0])
        client.tag("good", saved[2])
        fork = client.fork(saved[1], session_id="t").checkpoint_id
        client.rollback("s", to=saved[3])
        client.retain(keep_last=0, dry_run=False)
        assert live(client) == [saved[0], saved[2], saved[3]]
        assert live(client, "t") == [fork]
        assert client.latest(session_id="s").checkpoint_id == saved[3]
        assert client.restore(fork).execution_state["m"] == messages(13)

    def test_where_a_session_stands_stays_though_its_head_has_outlived_its_time(self, timed: SyncClient, clock: Clock):
        _, second = grown(timed, 2)
        timed.save("a", session_id="s", ttl_seconds=60)
        clock.forward(61)
        timed.retain(keep_last=0, dry_run=False)
        assert live(timed) == [second]
        assert timed.latest(session_id="s").checkpoint_id == second

    def test_handoffs_stay_as_long_as_they_wait(self, client: SyncClient):
        saved = grown(client, 2)
        waiting = client.handoff(saved[-1], "b")
        client.rollback("s", to=saved[-1])
        client.save("a", session_id="s")
        head = client.save("a", session_id="s")
        client.retain(keep_last=0, dry_run=False)
        assert live(client) == [waiting, head]
        client.rollback("s", to=waiting)
        taken_up = client.save("b", session_id="s")
        client.retain(keep_last=0, dry_run=False)
        assert live(client) == [taken_up]

    def test_of_one_session_or_agent(self, client: SyncClient):
        saved, others = grown(client, 3), grown(client, 3, "t")
        client.retain(keep_last=1, session_id="t", dry_run=False)
        assert (live(client), live(client, "t")) == (saved, others[-1:])
        mine = [client.save("b", session_id="s") for _ in range(2)]
        client.save("a", session_id="s")
        client.retain(keep_last=1, agent_id="b", dry_run=False)
        assert not set(mine) & set(live(client))
        assert set(saved) <= set(live(client))

    def test_a_dry_run_changes_nothing_and_is_what_is_done_then(self, client: SyncClient):
        saved = grown(client, 8)
        before = client.stats()
        said = client.retain(keep_last=3)
        assert (client.stats(), live(client)) == (before, saved)
        assert (said.dry_run, said.going, said.store_bytes_after) == (True, 5, None)
        done = client.retain(keep_last=3, dry_run=False)
        assert (done.sessions, done.bytes_before) == (said.sessions, said.bytes_before)
        assert done.bytes_after < done.bytes_before
        assert abs(said.bytes_after - done.bytes_after) < 0.1 * done.bytes_before

    @pytest.mark.parametrize("rules", [{}, {"keep_last": -1}, {"older_than": 7}])
    def test_that_cannot_be_meant_are_refused(self, quick: SyncClient, rules):
        saved = grown(quick, 3)
        with pytest.raises(UsageError):
            quick.retain(**rules, dry_run=False)
        with pytest.raises(UsageError, match="not both"):
            quick.retain(Retention(keep_last=1), keep_last=2)
        with pytest.raises(UsageError, match="Retention"):
            quick.retain({"keep_last": 1})
        assert live(quick) == saved


class TestMaxBytes:
    def test_the_oldest_go_until_it_fits(self, client: SyncClient):
        saved = grown(client, 40)
        said = client.retain(max_bytes=100_000)
        assert said.bytes_before > 200_000
        assert 0 < said.going < 39
        report = client.retain(max_bytes=100_000, dry_run=False)
        assert report.sessions == said.sessions
        assert live(client) == saved[report.going :]
        assert report.fits
        assert 50_000 < report.bytes_after <= 110_000
        assert client.restore(saved[-1]).execution_state["m"] == messages(51)
        assert client.verify().ok

    def test_nothing_goes_if_it_fits_already(self, client: SyncClient):
        grown(client, 5)
        assert client.retain(max_bytes=10_000_000).going == 0

    def test_never_takes_what_another_rule_keeps(self, client: SyncClient):
        saved = grown(client, 10)
        report = client.retain(max_bytes=0, keep_last=4, dry_run=False)
        assert live(client) == saved[6:]
        assert not report.fits

    def test_the_oldest_of_all_sessions_go_first(self, timed: SyncClient, clock: Clock):
        first = grown(timed, 10, "s")
        clock.forward(1)
        second = grown(timed, 10, "t")
        report = timed.retain(max_bytes=timed.retain(keep_last=100).bytes_before - 30_000, dry_run=False)
        assert live(timed, "s") == first[report.going :]
        assert live(timed, "t") == second
        assert 3 <= report.going <= 8


class TestSharing:
    def test_forks_keep_what_they_need_after_their_origin_has_gone(self, client: SyncClient):
        saved = grown(client, 20)
        forks = [client.fork(saved[number], session_id=f"fork-{number}").checkpoint_id for number in (3, 9, 15)]
        later = client.save("a", session_id="fork-9", append={"m": messages(2, 21)}, execution_state={})
        client.retain(keep_last=1, dry_run=False)
        assert live(client) == saved[-1:]
        for number, fork in zip((3, 15), (forks[0], forks[2]), strict=True):
            state = client.restore(fork).execution_state
            assert state == {"m": messages(12 + number), "page": page("s", number)}
        assert live(client, "fork-9") == [later]
        assert client.restore(later).execution_state == {"m": messages(23)}
        assert client.verify().ok
        assert client.retain(keep_last=1).going == 0

    @pytest.mark.slow
    def test_beside_a_writer_process(self, disk_store: Store):
        """A writer saves, forks and rolls back while a policy is applied again and again: all it stands at stays."""
        client = disk_store.client()
        grown(client, 5)
        writer = python_process(WRITER, disk_store.url)
        assert writer.stdout.readline() == "ready\n"
        rounds = 0
        while writer.poll() is None and rounds < 200:
            client.retain(keep_last=2, dry_run=False)
            rounds += 1
            if rounds == 2:  # now it may go on beyond its middle
                writer.stdin.write("go on\n")
                writer.stdin.flush()
        out, err = writer.communicate(timeout=240)
        assert writer.returncode == 0, err
        assert rounds >= 2
        assert out == "done\n"
        assert client.verify().ok
        client.retain(keep_last=2, dry_run=False)
        assert len(live(client)) <= 3
        assert client.verify().ok


WRITER = """
    import sys
    from holdfast import SyncClient
    from stores import messages
    with SyncClient.open(sys.argv[1], durability="fast") as client:
        print("ready", flush=True)
        for i in range(120):
            if i == 60:
                sys.stdin.readline()
            state = {"m": messages(12 + i)}
            saved = client.save("a", session_id="s", execution_state=state)
            found = client.latest(session_id="s")
            assert found.checkpoint_id == saved and found.execution_state == state, i
            if i % 20 == 10:
                fork = client.fork(saved, session_id=f"fork-{i}")
                assert client.restore(fork.checkpoint_id).execution_state == state, i
        for i in range(10, 120, 20):
            assert client.latest(session_id=f"fork-{i}").execution_state == {"m": messages(12 + i)}
        print("done", flush=True)
"""


def adds_up(usage: StoreUsage) -> bool:
    kinds = usage.record_bytes + usage.tombstone_bytes + usage.segment_bytes + usage.blob_bytes + usage.row_bytes
    uses = sum(one.exclusive_bytes for one in usage.sessions) + usage.shared_bytes + usage.unused_bytes
    uses += usage.tombstone_bytes + usage.row_bytes - usage.unused_row_bytes
    return kinds + usage.overhead_bytes == uses + usage.overhead_bytes == usage.total_bytes


class TestUsage:
    def test_of_nothing(self, client: SyncClient):
        usage = client.du()
        assert usage.sessions == ()
        assert adds_up(usage)

    def test_adds_up_to_what_the_store_takes(self, client: SyncClient):
        saved = grown(client, 6)
        grown(client, 2, "t")
        client.fork(saved[2], session_id="fork")
        client.expire(saved[1])
        usage = client.du()
        stats = client.stats()
        assert adds_up(usage)
        assert usage.total_bytes == stats.stored_bytes
        assert (usage.segment_bytes, usage.blob_bytes, usage.row_bytes) == (
            stats.segment_bytes,
            stats.blob_bytes,
            stats.row_bytes,
        )
        assert [(one.session_id, one.checkpoints) for one in usage.sessions] == [("s", 5), ("t", 2), ("fork", 1)]
        assert usage.unused_bytes > 6000  # the expired one's page, and its record
        client.gc()
        after = client.du()
        assert adds_up(after)
        assert after.unused_bytes < 2000

    def test_tells_what_a_session_has_alone_from_what_it_shares(self, client: SyncClient):
        saved = grown(client, 4)
        client.fork(saved[-1], session_id="fork")
        fork, origin = sorted(client.du().sessions, key=lambda one: one.exclusive_bytes)
        assert (fork.session_id, origin.session_id) == ("fork", "s")
        assert fork.exclusive_bytes == fork.record_bytes < 2000
        assert fork.shared_bytes == origin.shared_bytes > 12_000
        client.expire(client.latest(session_id="fork").checkpoint_id)
        [alone] = [one for one in client.du().sessions if one.session_id == "s"]
        assert (alone.shared_bytes, alone.exclusive_bytes) == (0, origin.exclusive_bytes + origin.shared_bytes)

    def test_what_is_exclusive_is_freed_when_the_session_goes(self, client: SyncClient):
        saved = grown(client, 6)
        client.fork(saved[2], session_id="fork")
        before = client.du()
        [origin] = [one for one in before.sessions if one.session_id == "s"]
        for id_ in saved:
            client.expire(id_)
        client.gc()
        after = client.du()
        freed = sum(
            getattr(before, kind) - getattr(after, kind) for kind in ("record_bytes", "segment_bytes", "blob_bytes")
        )
        assert freed == pytest.approx(origin.exclusive_bytes, rel=0.1)
        assert client.verify().ok

    def test_of_one_session(self, client: SyncClient):
        grown(client, 2)
        grown(client, 2, "t")
        usage = client.du("t")
        assert [one.session_id for one in usage.sessions] == ["t"]
        assert usage.total_bytes == client.stats().stored_bytes
        with pytest.raises(CheckpointNotFoundError):
            client.du("nobody")

    def test_reads_no_state(self, store: Store):
        grown(store.client(), 3)
        client, recorder = store.recorded()
        client.du()
        client.retain(keep_last=1)
        assert (recorder.calls["segments"], recorder.calls["blobs"], recorder.calls["commit_all"]) == (0, 0, 0)


class TestUnexpire:
    def test_brings_back_what_was_expired(self, client: SyncClient):
        saved = grown(client, 3)
        client.expire(saved[1])
        assert client.unexpire(saved[1]) is True
        assert client.unexpire(saved[1]) is False
        assert live(client) == saved
        client.gc()
        assert client.restore(saved[1]).execution_state["m"] == messages(13)
        assert client.verify().ok

    def test_of_a_head_leaves_the_session_where_it_is(self, client: SyncClient):
        first, second = grown(client, 2)
        client.expire(second)
        client.unexpire(second)
        assert client.latest(session_id="s").checkpoint_id == first
        client.rollback("s", to=second)
        assert client.latest(session_id="s").execution_state["m"] == messages(13)

    def test_is_too_late_after_gc(self, client: SyncClient):
        saved = grown(client, 3)
        client.expire(saved[1])
        client.gc()
        with pytest.raises(CheckpointExpiredError, match="gc"):
            client.unexpire(saved[1])
        with pytest.raises(CheckpointNotFoundError):
            client.unexpire(SOME_ID)

    def test_does_not_undo_the_end_of_a_time_to_live(self, timed: SyncClient, clock: Clock):
        by_ttl, by_hand = (timed.save("a", session_id="s", ttl_seconds=60) for _ in range(2))
        timed.save("a", session_id="s")
        timed.expire(by_hand)
        clock.forward(61)
        for id_ in (by_ttl, by_hand):
            with pytest.raises(CheckpointExpiredError, match="time to live"):
                timed.unexpire(id_)

    def test_while_a_collection_looks_loses_nothing(self, store: Store):
        """It is expired when the collection looks at its record, and comes back before it looks at
        what can be undone."""
        other = store.client()
        saved = grown(other, 3)
        client, recorder = store.recorded()
        pages = recorder.inner.page_records
        met: list[bool] = []

        def page_records(after, limit):
            if after is None and recorder.calls["page_segments"]:  # the second look, at what refers to what
                other.expire(saved[1])
                found = pages(after, limit)
                met.append(other.unexpire(saved[1]))
                return found
            return pages(after, limit)

        recorder.page_records = page_records
        client.gc()
        assert met == [True]
        assert other.restore(saved[1]).execution_state["m"] == messages(13)
        assert other.verify().ok


def test_du_says_how_far_it_is_and_what_an_expiry_frees(quick):
    ids = [quick.save("a", session_id=f"s{number % 7}", execution_state={"n": number}) for number in range(1200)]
    told = []
    usage = quick.du(progress=lambda done, of_all: told.append((done, of_all)))
    assert told == [(1000, 1200)]
    assert sum(usage.parts.values()) == usage.total_bytes
    large = quick.save("a", session_id="large", execution_state={"text": "x" * 100_000})
    assert quick.freed_by([large]) > quick.freed_by(ids[:1])
    assert quick.freed_by([]) == 0
    assert quick.restore(large).execution_state["text"]
