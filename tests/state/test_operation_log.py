"""The log of operations: what it says, what undo and redo bring back, what they refuse, and that it
can't be torn from what it is about."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from stores import SOME_ID, Clock, Store, python_process

from holdfast import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    ConflictError,
    HoldfastError,
    LeaseHeldError,
    StoreError,
    SyncClient,
    UsageError,
)
from holdfast.backends.port import Commit, RowWrite
from holdfast.format.rows import operation_log as rows_of_the_log
from holdfast.operations import operation_log


class World:
    """Two sessions of three checkpoints each, in trees of their own; what is done to them, and what
    people see of it."""

    def __init__(self, client: SyncClient) -> None:
        self.client = client
        self.a = [client.save("agent", session_id="a", execution_state={"step": step}) for step in range(3)]
        self.b = [client.save("agent", session_id="b", execution_state={"step": step}) for step in range(3)]

    def seen(self) -> dict[str, Any]:
        client = self.client
        return {
            "heads": {one.session_id: one.head.checkpoint_id for one in client.sessions()},
            "latest": {one: client.latest(session_id=one).execution_state for one in ("a", "b")},
            "tags": client.tags(),
            "pins": client.pins(),
            "live": {id_ for id_ in (*self.a, *self.b) if self.is_live(id_)},
        }

    def is_live(self, id_: str) -> bool:
        try:
            return self.client.restore(id_).checkpoint_id == id_
        except CheckpointExpiredError:
            return False


def tagged(world: World) -> None:
    world.client.tag("good", world.a[0])


def moved(world: World) -> None:
    world.client.tag("standing", world.b[2], force=True)


KINDS: dict[str, Callable[[World], object]] = {
    "rollback": lambda world: world.client.rollback("a", to=world.a[0]),
    "tag": tagged,
    "tag that moves": moved,
    "untag": lambda world: world.client.untag("standing"),
    "pin": lambda world: world.client.pin(world.a[1], note="why"),
    "pin with another note": lambda world: world.client.pin(world.b[0], note="other"),
    "unpin": lambda world: world.client.unpin(world.b[0]),
    "expire": lambda world: world.client.expire(world.a[1]),
    "expire of a head": lambda world: world.client.expire(world.a[2]),
    "unexpire": lambda world: world.client.unexpire(world.b[1]),
    "fork": lambda world: world.client.fork(world.a[1], session_id="what-if"),
    "adopt": lambda world: world.client.adopt("way"),
}


def prepared(client: SyncClient) -> World:
    world = World(client)
    client.tag("standing", world.a[0])
    client.pin(world.b[0], note="one")
    client.expire(world.b[1])
    client.fork(world.b[0], session_id="way")
    client.save("agent", session_id="way", execution_state={"way": 1})
    return world


@pytest.mark.parametrize("kind", KINDS)
class TestEachKind:
    def test_is_undone_and_redone(self, client: SyncClient, kind: str):
        world = prepared(client)
        before = world.seen()
        KINDS[kind](world)
        after = world.seen()
        assert after != before
        made = client.operations(limit=1)[0]
        assert kind.startswith(made.kind)
        for _ in range(2):
            undone = client.undo()
            assert (undone.kind, undone.operation.operation_id) == ("undo", made.operation_id)
            assert world.seen() == before
            redone = client.redo()
            assert (redone.kind, redone.operation.operation_id) == ("redo", made.operation_id)
            assert world.seen() == after
        assert client.verify().ok

    def test_is_written_down_by_the_commit_that_carries_it_out(self, sqlite_store: Store, kind: str):
        """So no crash comes between the two: there is one commit that people can see something of,
        and the log is in it."""
        client, recorder = sqlite_store.recorded()
        world = prepared(client)
        for act in (lambda: KINDS[kind](world), client.undo, client.redo):
            seen = world.seen()
            before = {one.operation_id for one in client.operations()}
            recorder.forget()
            act()
            first = recorder.commits[0]
            assert [write.key.space for write in first.rows].count(rows_of_the_log.SPACE) == 1
            # What follows only settles what is not seen.
            assert all(not _is_logged(commit) for commit in recorder.commits[1:])
            assert len({one.operation_id for one in client.operations()} - before) == 1
            assert world.seen() != seen

    def test_a_commit_that_fails_leaves_neither(self, sqlite_store: Store, kind: str):
        client, recorder = sqlite_store.recorded()
        world = prepared(client)
        acts = (lambda: KINDS[kind](world), client.undo, client.redo)

        def fails(_commits: object) -> None:
            raise StoreError("the disk is full")

        for act in acts:
            before, log = world.seen(), client.operations()
            recorder.before_commit = fails
            with pytest.raises(StoreError):
                act()
            recorder.before_commit = None
            other = sqlite_store.client()
            world.client = other
            assert world.seen() == before
            assert other.operations() == log
            world.client = client
            act()


def _is_logged(commit: Commit) -> bool:
    return any(write.key.space == rows_of_the_log.SPACE for write in commit.rows)


class TestSteps:
    def test_undo_and_redo_step_through_the_log(self, client: SyncClient):
        world = World(client)
        pictures = [world.seen()]
        for act in ("expire of a head", "tag", "pin", "fork", "rollback"):
            KINDS[act](world)
            pictures.append(world.seen())
        for picture in pictures[-2::-1]:
            client.undo()
            assert world.seen() == picture
        with pytest.raises(CheckpointNotFoundError, match="nothing to undo"):
            client.undo()
        for picture in pictures[1:]:
            client.redo()
            assert world.seen() == picture
        with pytest.raises(CheckpointNotFoundError, match="nothing to redo"):
            client.redo()

    def test_one_is_named_by_its_id_or_the_end_of_it(self, client: SyncClient):
        world = World(client)
        client.tag("one", world.a[0])
        client.tag("two", world.a[1])
        second, first = client.operations()
        assert client.undo(first.short_id).operation.operation_id == first.operation_id
        assert [tag.name for tag in client.tags()] == ["two"]
        with pytest.raises(ConflictError, match="undone already"):
            client.undo(first.operation_id)
        with pytest.raises(ConflictError, match="not undone"):
            client.redo(second.operation_id)
        assert client.redo(first.operation_id).kind == "redo"
        assert [tag.name for tag in client.tags()] == ["one", "two"]
        with pytest.raises(CheckpointNotFoundError, match="no operation"):
            client.undo(SOME_ID)
        with pytest.raises(UsageError, match="no operation"):
            client.undo("latest")

    def test_an_undo_is_an_operation_and_can_be_undone(self, client: SyncClient):
        world = World(client)
        client.tag("one", world.a[0])
        undo = client.undo()
        assert client.tags() == []
        again = client.undo(undo.operation_id)
        assert again.kind == "redo"
        assert [tag.name for tag in client.tags()] == ["one"]
        with pytest.raises(ConflictError, match="taken back already"):
            client.undo(undo.operation_id)
        assert [one.kind for one in client.operations()] == ["redo", "undo", "tag"]
        assert [one.is_undone for one in client.operations()] == [False, False, False]

    def test_a_dry_run_changes_nothing_and_says_what_would_be_undone(self, client: SyncClient):
        world = World(client)
        client.tag("one", world.a[0])
        log = client.operations()
        report = client.undo(dry_run=True)
        assert (report.dry_run, report.operation, report.operation_id) == (True, log[0], None)
        assert client.operations() == log
        assert len(client.tags()) == 1


class TestTheLog:
    def test_says_who_did_what_when_and_to_what(self, store: Store, clock: Clock):
        client = store.client()
        clock.rules(client)
        world = World(client)
        client.rollback("a", to=world.a[0], by="ann")
        [made] = client.operations()
        [change] = made.changes
        assert (made.kind, made.by, made.session_id) == ("rollback", "ann", "a")
        assert (change.kind, change.name, change.before, change.after) == ("head", "a", world.a[2], world.a[0])
        assert made.text() == f"head 'a': {world.a[2][-8:]} → {world.a[0][-8:]}"
        client.undo(by="bob")
        undo, made = client.operations()
        assert (undo.kind, undo.by, undo.of, made.is_undone) == ("undo", "bob", made.operation_id, True)
        client.pin(world.b[0])
        assert client.operations()[0].by.startswith("process ")

    def test_is_listed_newest_first_of_all_or_of_one_session(self, client: SyncClient):
        world = World(client)
        for id_ in (world.a[0], world.b[0], world.a[1]):
            client.pin(id_)
        assert [one.session_id for one in client.operations()] == ["a", "b", "a"]
        assert [one.changes[0].name for one in client.operations("a")] == [world.a[1], world.a[0]]
        assert [one.changes[0].name for one in client.operations(limit=1)] == [world.a[1]]
        assert client.operations("nobody") == []

    def test_holds_nothing_of_saves_or_of_what_changed_nothing(self, client: SyncClient):
        world = World(client)
        client.rollback("a", to=world.a[2])
        client.untag("none")
        client.unpin(world.a[0])
        client.unexpire(world.a[0])
        assert client.operations() == []
        client.pin(world.a[0])
        client.pin(world.a[0])
        client.tag("one", world.a[0])
        client.tag("one", world.a[0])
        assert [one.kind for one in client.operations()] == ["tag", "pin"]
        with pytest.raises(CheckpointNotFoundError):
            client.redo()

    def test_gc_leaves_the_newest(self, client: SyncClient, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(operation_log, "KEPT", 3)
        world = World(client)
        for step in range(6):
            client.tag(f"tag {step}", world.a[step % 3])
        client.gc()
        assert [one.changes[0].name for one in client.operations()] == ["tag 5", "tag 4", "tag 3"]
        for _ in range(3):
            client.undo()
        with pytest.raises(CheckpointNotFoundError):
            client.undo()
        assert len(client.tags()) == 3

    def test_of_a_tree_that_is_gone_nothing_is_left(self, client: SyncClient):
        world = World(client)
        for id_ in world.a:
            client.expire(id_)
        client.pin(world.b[0])
        client.gc()
        assert [one.session_id for one in client.operations()] == ["b"]

    def test_a_damaged_entry_is_found(self, memory_store: Store):
        client = memory_store.client()
        world = World(client)
        client.pin(world.a[0])
        backend = memory_store.backend()
        [(key, row)] = backend.scan(rows_of_the_log.SPACE)
        damaged = row.value[:5] + bytes([row.value[5] ^ 1]) + row.value[6:]
        backend.commit_all([Commit(tree=key.tree, rows=[RowWrite(key, damaged)])])
        assert not client.verify().ok
        with pytest.raises(HoldfastError, match="damaged"):
            client.operations()


class TestWhatWasBuiltUpon:
    def test_a_session_that_went_on_stays(self, client: SyncClient):
        world = World(client)
        client.rollback("a", to=world.a[0])
        following = client.save("agent", session_id="a")
        with pytest.raises(ConflictError, match=f"has gone on since: it stands at {following}.*holdfast rollback"):
            client.undo()
        assert client.latest(session_id="a").checkpoint_id == following

    def test_a_session_that_another_writes_to_stays(self, client: SyncClient):
        world = World(client)
        client.rollback("a", to=world.a[0])
        with client.lease("a"), pytest.raises(LeaseHeldError):
            client.undo()
        client.undo()
        assert client.latest(session_id="a").checkpoint_id == world.a[2]

    def test_a_tag_that_was_moved_again_stays(self, client: SyncClient):
        world = World(client)
        client.tag("one", world.a[0])
        first = client.operations()[0]
        client.tag("one", world.b[0], force=True)
        with pytest.raises(ConflictError, match=f"moved since: it is at {world.b[0]}"):
            client.undo(first.operation_id)
        client.untag("one")
        with pytest.raises(ConflictError, match="it is gone now"):
            client.undo(first.operation_id)
        assert client.tags() == []

    def test_a_pin_that_was_changed_again_stays(self, client: SyncClient):
        world = World(client)
        client.pin(world.a[0], note="one")
        first = client.operations()[0]
        client.pin(world.a[0], note="two")
        with pytest.raises(ConflictError, match="another note since"):
            client.undo(first.operation_id)
        assert client.pins()[0].note == "two"

    def test_forks_of_one_act_are_undone_together(self, client: SyncClient):
        world = World(client)
        before = world.seen()
        client.fork(world.a[0], set=[{"step": 10}, {"step": 11}, {}], session_id="n")
        after = world.seen()
        client.undo()
        assert world.seen() == before
        client.redo()
        assert world.seen() == after
        assert [client.latest(session_id=f"n-{n}").execution_state["step"] for n in (1, 2, 3)] == [10, 11, 0]
        client.save("agent", session_id="n-2")
        with pytest.raises(ConflictError, match="'n-2' has later saves"):
            client.undo()
        assert len(client.sessions()) == 5

    def test_a_fork_that_went_on_stays(self, client: SyncClient):
        world = World(client)
        client.fork(world.a[0], session_id="way")
        saved = client.save("agent", session_id="way")
        with pytest.raises(ConflictError, match=f"has later saves than its fork: its head is {saved}"):
            client.undo()
        assert client.latest(session_id="way").checkpoint_id == saved

    def test_a_fork_that_is_pinned_stays(self, client: SyncClient):
        world = World(client)
        fork = client.fork(world.a[0], session_id="way")
        made = client.operations()[0]
        client.pin(fork.checkpoint_id)
        with pytest.raises(ConflictError, match="pinned"):
            client.undo(made.operation_id)
        assert client.latest(session_id="way").checkpoint_id == fork.checkpoint_id

    def test_a_name_of_an_undone_fork_is_free_again(self, client: SyncClient):
        world = World(client)
        client.fork(world.a[0], session_id="way")
        first = client.undo().operation
        assert client.session("way") is None
        second = client.fork(world.a[1], session_id="way")
        assert client.latest(session_id="way").execution_state == {"step": 1}
        with pytest.raises(ConflictError, match="begun again"):
            client.redo(first.operation_id)
        client.save("agent", session_id="way")
        assert client.timeline(session_id="way")[-1].checkpoint_id == second.checkpoint_id
        assert client.verify().ok

    def test_what_is_tagged_or_pinned_since_does_not_expire_again(self, client: SyncClient):
        world = World(client)
        client.expire(world.a[1])
        client.undo()
        client.pin(world.a[1])
        with pytest.raises(ConflictError, match="pinned"):
            client.redo(client.operations()[-1].operation_id)
        assert world.is_live(world.a[1])

    def test_the_target_of_a_rollback_that_has_expired_is_said(self, client: SyncClient):
        world = World(client)
        client.rollback("a", to=world.a[0])
        first = client.operations()[0]
        client.expire(world.a[2])
        with pytest.raises(CheckpointExpiredError):
            client.undo(first.operation_id)
        client.undo()
        client.undo()
        assert client.latest(session_id="a").checkpoint_id == world.a[2]


class TestExpiry:
    def test_is_in_force_at_once_and_undone_until_gc_has_run(self, client: SyncClient):
        world = World(client)
        client.expire(world.a[2])
        assert not world.is_live(world.a[2])
        client.undo()
        assert client.restore(world.a[2]).execution_state == {"step": 2}
        client.redo()
        client.gc()
        with pytest.raises(CheckpointExpiredError, match="gc"):
            client.undo()
        assert client.latest(session_id="a").checkpoint_id == world.a[1]

    def test_a_head_that_has_gone_on_stays_and_is_said(self, client: SyncClient):
        world = World(client)
        client.expire(world.a[2])
        following = client.save("agent", session_id="a")
        report = client.undo()
        assert report.left == ("session 'a' has gone on since, and stays where it stands",)
        assert client.latest(session_id="a").checkpoint_id == following
        assert world.is_live(world.a[2])

    def test_retention_is_written_down_and_final(self, client: SyncClient):
        world = World(client)
        client.tag("kept", world.b[0])
        client.retain(keep_last=1)
        assert len(client.operations()) == 1
        client.retain(keep_last=1, dry_run=False)
        made = client.operations()[0]
        assert (made.kind, made.can_be_undone) == ("retain", False)
        assert sum(int(change.after or 0) for change in made.changes) == 3
        with pytest.raises(CheckpointExpiredError, match="can't be undone"):
            client.undo(made.operation_id)
        assert client.undo().operation.kind == "tag"

    def test_what_a_time_to_live_ends_is_no_operation(self, store: Store, clock: Clock):
        client = store.client()
        clock.rules(client)
        client.save("agent", session_id="s", ttl_seconds=5)
        client.save("agent", session_id="s")
        clock.forward(timedelta(seconds=6).total_seconds())
        assert client.gc().expired_by_ttl == 1
        assert client.operations() == []


class TestAdopting:
    def test_the_session_goes_on_from_what_the_fork_came_to(self, client: SyncClient):
        world = World(client)
        client.fork(world.a[0], session_id="way")
        last = client.save("agent", session_id="way", execution_state={"way": 1}, context={"c": 1}, cost=2)
        report = client.adopt("way", by="ann")
        adopted = client.latest(session_id="a")
        assert (report.checkpoint_id, report.session_id, report.fork_id) == (adopted.checkpoint_id, "a", last)
        assert (adopted.execution_state, adopted.agent_context, adopted.parent_id) == ({"way": 1}, {"c": 1}, last)
        assert adopted.metadata == {"cost": 2, "adopted_from": last, "adopted_session": "way"}
        assert client.operations()[0].by == "ann"
        client.undo()
        assert client.latest(session_id="a").checkpoint_id == world.a[2]
        assert client.latest(session_id="way").checkpoint_id == last
        assert client.verify().ok

    def test_only_by_a_relative(self, client: SyncClient):
        World(client)
        with pytest.raises(CheckpointNotFoundError):
            client.adopt("nobody")
        with pytest.raises(UsageError, match="not a fork of a session that still exists"):
            client.adopt("a")
        with pytest.raises(UsageError, match="no relative"):
            client.adopt("a", "b")
        with pytest.raises(UsageError, match="itself"):
            client.adopt("a", "a")
        assert client.operations() == []


class TestKilled:
    """A process that is killed at any moment leaves each operation whole, with its entry, or nothing of it."""

    def test_in_the_middle_of_many_operations(self, sqlite_store: Store):
        client = sqlite_store.client()
        saved = [client.save("agent", session_id="a", execution_state={"step": step}) for step in range(4)]
        with python_process(
            """
            import sys
            from holdfast import SyncClient
            client = SyncClient.open(sys.argv[1])
            for turn in range(60):
                client.tag("mark", sys.argv[2 + turn % 2], force=True)
                client.rollback("a", to=sys.argv[4 + turn % 2])
                print(turn, flush=True)
            sys.stdin.read()
            """,
            sqlite_store.url,
            *saved,
        ) as worker:
            assert worker.stdout is not None
            for _ in range(5):  # it is at work, and nobody knows where
                worker.stdout.readline()
            worker.kill()
            worker.wait()
        log = client.operations(limit=None)
        heads = [one.changes[0] for one in log if one.kind == "rollback"]
        tags = [one.changes[0] for one in log if one.kind == "tag"]
        assert client.latest(session_id="a").checkpoint_id == heads[0].after
        assert client.tags()[0].checkpoint_id == tags[0].after
        for changes in (heads, tags):  # each went on from where the one before had led
            assert [one.before for one in changes[:-1]] == [one.after for one in changes[1:]]
        for _ in log:
            client.undo()
        assert (client.latest(session_id="a").checkpoint_id, client.tags()) == (saved[3], [])
        assert client.verify().ok
