"""Repeating a save is safe (P9); two writers never silently overwrite (P8)."""

from __future__ import annotations

import pytest
from stores import OTHER_ID, SOME_ID, Store, messages

from holdfast import CheckpointBuilder, ConflictError, StoreError, SyncClient

pytestmark = pytest.mark.every_store


def test_the_same_id_with_the_same_content_is_a_no_op(client: SyncClient):
    for _ in range(3):
        saved = client.save("a", "crewai", {"m": messages(20)}, "s", checkpoint_id=SOME_ID, note=1, ttl_seconds=60)
        assert saved == SOME_ID
    assert [entry.sequence for entry in client.timeline(session_id="s")] == [1]


def test_also_after_the_head_moved_on(client: SyncClient):
    client.save("a", session_id="s")
    client.save("a", execution_state={"x": 1}, session_id="s", checkpoint_id=SOME_ID)
    head = client.save("a", execution_state={"x": 2}, session_id="s")
    assert client.save("a", execution_state={"x": 1}, session_id="s", checkpoint_id=SOME_ID) == SOME_ID
    assert client.latest(session_id="s").checkpoint_id == head
    assert len(client.timeline(session_id="s")) == 3


def test_also_from_a_client_that_knows_nothing(store: Store):
    store.client().save("a", execution_state={"m": messages(20)}, session_id="s", checkpoint_id=SOME_ID)
    again = store.client()
    assert again.save("a", execution_state={"m": messages(20)}, session_id="s", checkpoint_id=SOME_ID) == SOME_ID
    assert len(again.timeline(session_id="s")) == 1


@pytest.mark.parametrize("start", [2, 30], ids=["short", "long"])
def test_with_declared_appends(store: Store, start: int):
    client = store.client()
    client.save("a", execution_state={"m": messages(start)}, session_id="s")
    for again in (client, client, store.client()):
        again.save("a", append={"m": ["new"]}, session_id="s", checkpoint_id=SOME_ID)
    client.save("a", append={"m": ["newer"]}, session_id="s")
    for again in (client, store.client()):
        again.save("a", append={"m": ["new"]}, session_id="s", checkpoint_id=SOME_ID)
    assert client.restore(SOME_ID).execution_state == {"m": [*messages(start), "new"]}
    assert client.latest(session_id="s").execution_state == {"m": [*messages(start), "new", "newer"]}
    assert len(client.timeline(session_id="s")) == 3
    with pytest.raises(ConflictError):
        client.save("a", append={"m": ["other"]}, session_id="s", checkpoint_id=SOME_ID)


@pytest.mark.parametrize("start", [1, 30], ids=["short", "long"])
def test_with_declared_appends_after_the_parent_expired(client: SyncClient, start: int):
    parent = client.save("a", execution_state={"m": messages(start)}, session_id="s")
    client.save("a", append={"m": ["new"]}, session_id="s", checkpoint_id=SOME_ID)
    client.expire(parent)
    assert client.save("a", append={"m": ["new"]}, session_id="s", checkpoint_id=SOME_ID) == SOME_ID
    with pytest.raises(ConflictError):
        client.save("a", append={"m": ["other"]}, session_id="s", checkpoint_id=SOME_ID)


def test_with_an_expected_head(client: SyncClient):
    head = client.save("a", session_id="s")
    for _ in range(2):
        client.save("a", execution_state={"x": 1}, session_id="s", checkpoint_id=SOME_ID, expect_head=head)
    assert len(client.timeline(session_id="s")) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"execution_state": {"x": 2}},
        {"context": {"y": 2}},
        {"agent_id": "b"},
        {"framework": "crewai"},
        {"step_name": "other"},
        {"step_index": 7},
        {"ttl_seconds": 5},
        {"note": 2},
        {"extra": 1},
        {"tasks": [1]},
        {"app_version": "2"},
        {"session_id": "t"},
        {"parent_id": "root"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_the_same_id_with_other_content_is_a_conflict_and_nothing_changes(client: SyncClient, other):
    root = client.save("a", session_id="s")
    client.save("a", session_id="s")
    same = {"agent_id": "a", "execution_state": {"x": 1}, "context": {"y": 1}, "session_id": "s", "note": 1}
    client.save(**same, checkpoint_id=SOME_ID)
    before = client.restore(SOME_ID)
    changed = same | {name: root if value == "root" else value for name, value in other.items()}
    with pytest.raises(ConflictError, match=SOME_ID):
        client.save(**changed, checkpoint_id=SOME_ID)
    assert client.restore(SOME_ID) == before
    assert client.latest(session_id="s").checkpoint_id == SOME_ID
    assert client.timeline(session_id="t") == []


def test_an_expired_id_is_not_used_again(client: SyncClient):
    client.save("a", execution_state={"x": 1}, session_id="s", checkpoint_id=SOME_ID)
    client.expire(SOME_ID)
    with pytest.raises(ConflictError):
        client.save("a", execution_state={"x": 1}, session_id="s", checkpoint_id=SOME_ID)


def test_an_unclear_failure_names_the_id_to_repeat_with(memory_store: Store):
    """The commit happens, but its answer is lost."""
    client, recorder = memory_store.recorded()
    client.save("a", session_id="s")

    def lost(commits):
        recorder.before_commit = None
        recorder.inner.commit_all(commits)
        raise StoreError("the answer was lost")

    recorder.before_commit = lost
    with pytest.raises(StoreError, match="lost") as error:
        client.save("a", execution_state={"x": 1}, session_id="s")
    stored = error.value.checkpoint_id
    assert stored is not None
    assert client.save("a", execution_state={"x": 1}, session_id="s", checkpoint_id=stored) == stored
    assert client.timeline(session_id="s")[0].checkpoint_id == stored
    assert len(client.timeline(session_id="s")) == 2


class TestExpectedHead:
    def test_holds(self, client: SyncClient):
        head = client.save("a", session_id="s")
        assert client.restore(client.save("a", session_id="s", expect_head=head)).parent_id == head

    def test_is_refused_where_the_session_stands_elsewhere(self, client: SyncClient):
        old = client.save("a", session_id="s")
        head = client.save("a", session_id="s")
        for session, stands in (("s", head), ("new", "nothing")):
            with pytest.raises(ConflictError, match=f"stands at {stands}, not at the expected {old}"):
                client.save("a", session_id=session, expect_head=old)
        assert client.latest(session_id="s").checkpoint_id == head
        assert client.timeline(session_id="new") == []

    def test_is_compared_with_the_store_not_with_what_this_process_remembers(self, store: Store):
        one, two = store.client(), store.client()
        mine = one.save("a", session_id="s")
        theirs = two.save("b", session_id="s")
        with pytest.raises(ConflictError, match="another writer was first"):
            one.save("a", session_id="s", expect_head=mine)
        assert one.restore(one.save("a", session_id="s", expect_head=theirs)).parent_id == theirs

    def test_is_accepted_although_this_process_remembers_another(self, store: Store):
        one, two = store.client(), store.client()
        one.save("a", session_id="s")
        theirs = two.save("b", session_id="s")
        assert one.restore(one.save("a", session_id="s", expect_head=theirs)).parent_id == theirs

    def test_is_refused_when_somebody_saves_in_the_last_moment(self, store: Store):
        client, recorder = store.recorded()
        other = store.client()
        head = client.save("a", session_id="s")

        def meanwhile(commits):
            recorder.before_commit = None
            other.save("b", session_id="s")

        recorder.before_commit = meanwhile
        with pytest.raises(ConflictError, match="another writer was first"):
            client.save("a", session_id="s", expect_head=head)
        assert [entry.agent_id for entry in client.timeline(session_id="s")] == ["b", "a"]


class TestSaveCheckpoint:
    def test_keeps_what_was_built(self, client: SyncClient):
        built = (
            CheckpointBuilder("a", "autogen")
            .session("s")
            .step(3, "draft")
            .execution_state({"m": messages(20)})
            .context({"c": 1})
            .tag(x=1)
            .tag(y=2)
            .ttl(60)
            .handoff("b", "v1")
            .tasks([1])
            .workspace("snap-1")
            .app_version("9")
            .state_version(2)
            .build()
        )
        assert client.save_checkpoint(built) == built.checkpoint_id
        restored = client.restore(built.checkpoint_id)
        decided_by_the_store = {"checksum", "created_at", "tree_id", "sequence", "stored_state_version"}
        for name, value in built.as_dict().items():
            if name not in decided_by_the_store:
                assert getattr(restored, name) == value, name
        assert restored.tree_id == built.checkpoint_id
        assert restored.sequence == 1

    def test_again_is_a_no_op_and_changed_a_conflict(self, client: SyncClient):
        builder = CheckpointBuilder("a").session("s").execution_state({"x": 1})
        built = builder.build()
        client.save_checkpoint(built)
        client.save("a", session_id="s")
        assert client.save_checkpoint(built) == built.checkpoint_id
        restored = client.restore(built.checkpoint_id)
        assert client.save_checkpoint(restored) == built.checkpoint_id
        restored.execution_state["x"] = 2
        with pytest.raises(ConflictError):
            client.save_checkpoint(restored)
        assert len(client.timeline(session_id="s")) == 2

    def test_without_a_parent_follows_the_head_with_one_makes_a_fork(self, client: SyncClient):
        root = client.save("a", session_id="s")
        head = client.save("a", session_id="s")
        follows = client.save_checkpoint(CheckpointBuilder("a").session("s").build())
        forks = client.save_checkpoint(CheckpointBuilder("a").session("s").parent(root).build())
        assert client.restore(follows).parent_id == head
        assert client.restore(follows).step_index == 2
        assert client.restore(forks).parent_id == root

    def test_refuses_an_entry_without_state(self, client: SyncClient):
        client.save("a", session_id="s")
        [entry] = client.timeline(session_id="s")
        with pytest.raises(AttributeError, match="restore"):
            client.save_checkpoint(entry)


def test_two_ids_are_two_checkpoints(client: SyncClient):
    for id_ in (SOME_ID, OTHER_ID):
        client.save("a", execution_state={"x": 1}, session_id="s", checkpoint_id=id_)
    assert {entry.checkpoint_id for entry in client.timeline(session_id="s")} == {SOME_ID, OTHER_ID}


class TestHandoffsAndForks:
    """Their errors carry the id, too: giving it as `new_id` makes the repetition safe."""

    def test_a_handoff_again_is_the_same_handoff(self, client: SyncClient):
        source = client.save("a", session_id="s", execution_state={"x": 1})
        assert client.handoff(source, "b", new_id=SOME_ID) == SOME_ID
        client.save("a", session_id="s", execution_state={"x": 2})
        assert client.handoff(source, "b", new_id=SOME_ID) == SOME_ID
        assert len(client.timeline(session_id="s")) == 3

    def test_the_id_of_another_handoff_is_a_conflict(self, client: SyncClient):
        source = client.save("a", session_id="s", execution_state={"x": 1})
        client.handoff(source, "b", new_id=SOME_ID)
        with pytest.raises(ConflictError):
            client.handoff(source, "c", new_id=SOME_ID)
        with pytest.raises(ConflictError):
            client.fork(source, new_id=SOME_ID)

    def test_a_fork_again_is_the_same_fork(self, client: SyncClient):
        source = client.save("a", session_id="s", execution_state={"x": 1})
        first = client.fork(source, new_id=SOME_ID)
        assert client.fork(source, new_id=SOME_ID) == first
        assert client.fork(source, session_id=first.session_id, new_id=SOME_ID) == first
        with pytest.raises(ConflictError):
            client.fork(source, session_id="elsewhere", new_id=SOME_ID)
        assert len(client.sessions()) == 2
