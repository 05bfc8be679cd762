"""Pins and tags: what they keep, what they refuse, and who wins against an expiry."""

from __future__ import annotations

import pytest
from stores import SOME_ID, Clock, Store, messages, python_process

from holdfast import CheckpointExpiredError, CheckpointNotFoundError, ConflictError, SyncClient, UsageError
from holdfast.backends.port import Commit, RowWrite
from holdfast.format.rows import hold
from holdfast.model import ids


@pytest.fixture
def timed(store: Store, clock: Clock) -> SyncClient:
    client = store.client()
    clock.rules(client)
    return client


class TestPins:
    def test_are_listed_until_they_are_removed(self, client: SyncClient):
        first, second = (client.save("a", session_id="s") for _ in range(2))
        other = client.save("a", session_id="t")
        made = client.pin(first, note="the good one")
        client.pin(other)
        assert (made.checkpoint_id, made.session_id, made.note) == (first, "s", "the good one")
        assert {pin.checkpoint_id for pin in client.pins()} == {first, other}
        assert client.pins("s") == [made]
        assert client.unpin(first) is True
        assert client.unpin(first) is False
        assert client.unpin(second) is False
        assert client.unpin(SOME_ID) is False
        assert [pin.checkpoint_id for pin in client.pins()] == [other]

    def test_again_changes_the_note_and_nothing_else(self, timed: SyncClient, clock: Clock):
        saved = timed.save("a", session_id="s")
        first = timed.pin(saved, note="\ud800 one")
        clock.forward(60)
        assert timed.pin(saved) == first
        again = timed.pin(saved, note="two")
        assert (again.note, again.pinned_at) == ("two", first.pinned_at)
        assert timed.pins() == [again]

    def test_a_pinned_checkpoint_is_not_expired(self, client: SyncClient):
        saved = client.save("a", session_id="s", execution_state={"m": messages(20)})
        client.save("a", session_id="s", execution_state={"m": messages(21)})
        client.pin(saved, note="release")
        with pytest.raises(ConflictError, match=r"pinned \('release'\).*unpin"):
            client.expire(saved)
        client.gc()
        assert client.restore(saved).execution_state == {"m": messages(20)}
        client.unpin(saved)
        assert client.expire(saved) is True
        with pytest.raises(CheckpointExpiredError):
            client.restore(saved)

    def test_what_is_not_there_or_has_expired_is_not_pinned(self, client: SyncClient):
        with pytest.raises(CheckpointNotFoundError):
            client.pin(SOME_ID)
        saved = client.save("a", session_id="s")
        client.expire(saved)
        with pytest.raises(CheckpointExpiredError):
            client.pin(saved)
        assert client.pins() == []
        with pytest.raises(CheckpointNotFoundError):
            client.pin("no id")

    def test_a_pinned_checkpoint_outlives_its_time_to_live(self, timed: SyncClient, clock: Clock):
        kept = timed.save("a", session_id="s", execution_state={"m": messages(20)}, ttl_seconds=60)
        goes = timed.save("a", session_id="s", execution_state={"m": messages(30)}, ttl_seconds=60)
        timed.pin(kept)
        clock.forward(61)
        assert timed.restore(kept).execution_state == {"m": messages(20)}
        assert timed.get(kept).checkpoint_id == kept
        assert timed.latest(session_id="s").checkpoint_id == kept
        assert [entry.checkpoint_id for entry in timed.timeline(session_id="s")] == [kept]
        assert timed.sessions()[0].head.checkpoint_id == kept
        assert timed.tree("s").heads == {"s": kept}
        assert [entry.checkpoint_id for entry in timed.tree("s").entries] == [kept]
        assert (timed.stats().checkpoints, timed.stats().expired) == (1, 1)
        assert timed.gc(dry_run=True).expired_by_ttl == 1
        assert timed.gc().expired_by_ttl == 1
        with pytest.raises(CheckpointExpiredError):
            timed.restore(goes)
        following = timed.restore(timed.save("a", session_id="s", append={"m": ["x"]}))
        assert (following.parent_id, following.execution_state) == (kept, {"m": [*messages(20), "x"]})
        assert timed.verify().ok
        timed.unpin(kept)
        with pytest.raises(CheckpointExpiredError):
            timed.restore(kept)
        assert timed.gc().expired_by_ttl == 1
        assert timed.restore(following.checkpoint_id).execution_state == following.execution_state

    def test_a_checkpoint_whose_time_is_over_is_not_pinned(self, timed: SyncClient, clock: Clock):
        saved = timed.save("a", session_id="s", ttl_seconds=60)
        clock.forward(60)
        with pytest.raises(CheckpointExpiredError):
            timed.pin(saved)

    def test_a_whole_tree_is_not_collected_around_a_pin(self, client: SyncClient):
        first, second, third = (client.save("a", session_id="s", execution_state={"x": i}) for i in range(3))
        client.pin(second)
        client.expire(first)
        client.expire(third)
        client.gc()
        assert client.latest(session_id="s").checkpoint_id == second
        assert client.restore(second).execution_state == {"x": 1}
        assert client.verify().ok

    def test_reading_costs_nothing_more_without_a_time_to_live(self, store: Store):
        saved = store.client().save("a", session_id="s")
        client, recorder = store.recorded()
        client.restore(saved)
        client.get(saved)
        assert recorder.calls["rows"] == 0


class TestTags:
    def test_name_a_checkpoint(self, client: SyncClient):
        saved = client.save("a", session_id="s")
        made = client.tag("v1", saved)
        assert (made.name, made.checkpoint_id) == ("v1", saved)
        assert client.tagged("v1") == made
        assert client.tag("v1", saved) == made
        client.tag("ünï\ud800", saved)
        assert [tag.name for tag in client.tags()] == ["v1", "ünï\ud800"]
        assert client.untag("v1") is True
        assert client.untag("v1") is False
        assert client.tagged("v1") is None
        assert [tag.name for tag in client.tags()] == ["ünï\ud800"]

    def test_keep_like_pins(self, timed: SyncClient, clock: Clock):
        saved = timed.save("a", session_id="s", ttl_seconds=60)
        timed.save("a", session_id="s")
        timed.tag("good", saved)
        timed.tag("better", saved)
        with pytest.raises(ConflictError, match=r"'better', 'good'.*untag"):
            timed.expire(saved)
        clock.forward(61)
        timed.gc()
        assert timed.restore(saved).checkpoint_id == saved
        timed.untag("good")
        assert timed.restore(saved).checkpoint_id == saved
        timed.untag("better")
        with pytest.raises(CheckpointExpiredError):
            timed.restore(saved)
        assert timed.gc().expired_by_ttl == 1
        assert timed.verify().ok

    def test_and_pins_keep_apart(self, client: SyncClient):
        saved = client.save("a", session_id="s")
        client.tag("v1", saved)
        assert client.pins() == []
        assert client.unpin(saved) is False
        client.pin(saved)
        client.untag("v1")
        assert [pin.checkpoint_id for pin in client.pins()] == [saved]
        client.tag("v1", saved)
        client.unpin(saved)
        with pytest.raises(ConflictError, match="tagged"):
            client.expire(saved)

    def test_move_only_when_told_to(self, client: SyncClient):
        first, second = (client.save("a", session_id="s") for _ in range(2))
        elsewhere = client.save("a", session_id="t")
        client.tag("good", first)
        with pytest.raises(ConflictError, match=f"{first}.*force"):
            client.tag("good", second)
        for target, left in ((second, first), (elsewhere, second)):
            client.tag("good", target, force=True)
            assert client.tagged("good").checkpoint_id == target
            assert client.expire(left) is True
        with pytest.raises(ConflictError, match="tagged 'good'"):
            client.expire(elsewhere)

    @pytest.mark.parametrize("name", ["", SOME_ID, "0c4c1d9be2f1", "deadbeef", "DEAD-BEEF", 7, None])
    def test_that_read_like_an_id_are_refused(self, quick: SyncClient, name):
        saved = quick.save("a", session_id="s")
        with pytest.raises(UsageError):
            quick.tag(name, saved)
        assert quick.tags() == []

    def test_only_name_what_is_there(self, client: SyncClient):
        with pytest.raises(CheckpointNotFoundError):
            client.tag("v1", SOME_ID)
        saved = client.save("a", session_id="s")
        client.expire(saved)
        with pytest.raises(CheckpointExpiredError):
            client.tag("v1", saved)
        assert client.tags() == []

    def test_a_move_that_was_interrupted_keeps_too_much_only_until_it_matters(self, client: SyncClient):
        """The name still stands in the hold it has left, as after a crash between the two commits of a move."""
        first, second = (client.save("a", session_id="s") for _ in range(2))
        client.tag("good", second)
        key = hold.hold_key(ids.from_text(first), ids.from_text(first))
        stale = RowWrite(key, hold.Hold(tags=(b"good", b"gone")).pack(key))
        client._ctx.backend.backend.commit_all([Commit(key.tree, rows=[stale])])
        assert client.expire(first) is True
        assert client.tagged("good").checkpoint_id == second

    def test_a_tag_whose_hold_was_refused_does_not_count(self, client: SyncClient):
        """A sharded store may show a row of the store though the rest of its commit was refused."""
        first, second = (client.save("a", session_id="s") for _ in range(2))
        client.tag("good", first)
        key = hold.tag_key(b"good")
        half = RowWrite(key, hold.TagRow(ids.from_text(second), ids.from_text(first), 1).pack(key))
        client._ctx.backend.backend.commit_all([Commit(b"", rows=[half])])
        assert client.tags() == []
        assert client.tagged("good") is None
        with pytest.raises(ConflictError, match="tagged 'good'"):
            client.expire(first)
        client.tag("good", second)
        assert client.tagged("good").checkpoint_id == second
        assert client.expire(first) is True


def test_verify_finds_a_pin_whose_checkpoint_is_gone_and_a_damaged_one(client: SyncClient):
    saved = client.save("a", session_id="s")
    client.tag("v1", saved)
    assert client.verify().ok
    lost = hold.hold_key(ids.from_text(SOME_ID), ids.from_text(saved))
    tag = hold.tag_key(b"v1")
    client._ctx.backend.backend.commit_all(
        [Commit(lost.tree, rows=[RowWrite(lost, hold.Hold(1).pack(lost)), RowWrite(tag, b"damaged")])]
    )
    assert sorted(problem.checkpoint_id for problem in client.verify().problems) == ["", SOME_ID]


@pytest.mark.parametrize("verb", ["pin", "tag"])
def test_a_pin_that_comes_between_an_expirys_look_and_its_commit_wins(store: Store, verb):
    other = store.client()
    saved = other.save("a", session_id="s", execution_state={"x": 1})
    client, recorder = store.recorded()

    def interfere(_):
        recorder.before_commit = None
        if verb == "pin":
            other.pin(saved)
        else:
            other.tag("v1", saved)

    recorder.before_commit = interfere
    with pytest.raises(ConflictError, match=f"is {verb}"):
        client.expire(saved)
    assert client.latest(session_id="s").execution_state == {"x": 1}


@pytest.mark.parametrize("verb", ["pin", "tag"])
def test_an_expiry_that_comes_between_a_pins_look_and_its_commit_wins(store: Store, verb):
    other = store.client()
    saved = other.save("a", session_id="s")
    client, recorder = store.recorded()

    def interfere(_):
        recorder.before_commit = None
        assert other.expire(saved)

    recorder.before_commit = interfere
    with pytest.raises(CheckpointExpiredError):
        client.pin(saved) if verb == "pin" else client.tag("v1", saved)
    assert (client.pins(), client.tags()) == ([], [])


RACER = """
    import sys
    from holdfast import CheckpointExpiredError, ConflictError, SyncClient
    verb, url, *ids = sys.argv[1:]
    with SyncClient.open(url) as client:
        print("ready", flush=True)
        sys.stdin.readline()
        for id_ in ids:
            try:
                if verb == "expire":
                    print(client.expire(id_), flush=True)
                elif verb == "tag":
                    client.tag("t" + id_, id_)
                    print(True, flush=True)
                else:
                    client.pin(id_)
                    print(True, flush=True)
            except (CheckpointExpiredError, ConflictError):
                print(False, flush=True)
"""


@pytest.mark.parametrize("verb", ["pin", "tag"])
@pytest.mark.slow
def test_of_an_expiry_and_a_pin_at_once_exactly_one_is_done(disk_store: Store, verb):
    """Two processes go over the same checkpoints; one in the other's wake, so that they meet again and again."""
    client = disk_store.client()
    saved = [client.save("a", session_id="s", execution_state={"m": messages(12, i)}) for i in range(60)]
    client.save("a", session_id="s")  # nobody wants this one: the tree stays
    racers = [python_process(RACER, what, disk_store.url, *saved) for what in ("expire", verb)]
    for racer in racers:
        racer.stdout.readline()
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    outcomes = []
    for racer in racers:
        out, err = racer.communicate(timeout=240)
        assert racer.returncode == 0, err
        outcomes.append([line == "True" for line in out.split()])
    expired, held = outcomes
    assert [one + other for one, other in zip(expired, held, strict=True)] == [1] * len(saved)
    client.gc()
    for number, id_ in enumerate(saved):
        if held[number]:
            assert client.restore(id_).execution_state == {"m": messages(12, number)}
        else:
            with pytest.raises(CheckpointExpiredError):
                client.restore(id_)
    assert client.verify().ok
