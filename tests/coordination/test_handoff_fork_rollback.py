"""handoff, fork and rollback: other ways on from a checkpoint. Nothing is copied, nothing is removed."""

from __future__ import annotations

import pytest
from stores import SOME_ID, Store, messages

from holdfast import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    ConflictError,
    SyncClient,
    UsageError,
)


class TestHandoff:
    def test_is_a_child_that_keeps_what_the_source_had(self, client: SyncClient):
        source = client.save(
            "a", "langgraph", {"x": 1}, "s", context={"y": 2}, step_index=3, step_name="plan", ttl_seconds=60,
            tasks=[1], app_version="v", note=1,
        )  # fmt: skip
        handed = client.restore(client.handoff(source, "b", schema="invoice@2"))
        original = client.restore(source)
        for name in ("agent_id", "session_id", "framework", "execution_state", "agent_context", "metadata", "tree_id",
                     "ttl_seconds", "tasks", "app_version"):  # fmt: skip
            assert getattr(handed, name) == getattr(original, name), name
        assert (handed.parent_id, handed.step_index, handed.sequence) == (source, 4, 2)
        assert (handed.handoff_target, handed.handoff_schema) == ("b", "invoice@2")
        assert handed.step_name == "handoff_to_b"
        assert client.latest(session_id="s").checkpoint_id == handed.checkpoint_id

    def test_of_an_older_checkpoint_is_a_fork(self, client: SyncClient):
        old = client.save("a", session_id="s", execution_state={"x": 1})
        new = client.save("a", session_id="s", execution_state={"x": 2})
        handed = client.restore(client.handoff(old, "b"))
        assert (handed.parent_id, handed.execution_state) == (old, {"x": 1})
        assert set(client.tree("s").leaves) == {new, handed.checkpoint_id}

    def test_the_target_goes_on_from_it(self, client: SyncClient):
        handed = client.handoff(client.save("a", session_id="s", execution_state={"m": messages(20)}), "b")
        assert client.timeline("s", agent_id="b")[0].checkpoint_id == handed
        answered = client.restore(client.save("b", session_id="s", append={"m": [1]}))
        assert (answered.parent_id, len(answered.execution_state["m"])) == (handed, 21)

    def test_to_oneself_is_refused(self, client: SyncClient):
        with pytest.raises(UsageError, match="another agent"):
            client.handoff(client.save("a"), "a")

    def test_of_what_is_not_there_or_expired(self, client: SyncClient):
        with pytest.raises(CheckpointNotFoundError):
            client.handoff(SOME_ID, "b")
        saved = client.save("a")
        client.expire(saved)
        with pytest.raises(CheckpointExpiredError):
            client.handoff(saved, "b")

    def test_writes_no_state(self, store: Store):
        client, recorder = store.recorded()
        saved = client.save("a", execution_state={"m": messages(200), "b": "x" * 9000})
        recorder.forget()
        client.handoff(saved, "b")
        assert recorder.written_bytes() == 0


class TestFork:
    def test_begins_a_session_with_the_same_state_at_the_same_step(self, client: SyncClient):
        source = client.save("a", "crewai", {"m": messages(20)}, "s", step_index=3, context={"c": 1}, note=1)
        report = client.fork(source, session_id="what-if")
        forked = client.latest(session_id="what-if")
        assert (report.checkpoint_id, report.session_id) == (forked.checkpoint_id, "what-if")
        assert (report.source_id, report.tree_id) == (source, source)
        assert (forked.parent_id, forked.step_index, forked.sequence) == (source, 3, 1)
        assert forked.execution_state == {"m": messages(20)}
        assert (forked.agent_context, forked.metadata, forked.framework) == ({"c": 1}, {"note": 1}, "crewai")
        assert client.latest(session_id="s").checkpoint_id == source

    def test_makes_up_a_session_id(self, client: SyncClient):
        source = client.save("a", session_id="s")
        names = {client.fork(source).session_id for _ in range(3)}
        assert len(names | {"s"}) == 4

    def test_into_an_existing_session_is_refused(self, client: SyncClient):
        source = client.save("a", session_id="s")
        other = client.save("a", session_id="t")
        for taken in ("s", "t"):
            with pytest.raises(ConflictError, match="exists already"):
                client.fork(source, session_id=taken)
        assert client.latest(session_id="t").checkpoint_id == other

    def test_of_what_is_not_there_or_expired(self, client: SyncClient):
        with pytest.raises(CheckpointNotFoundError):
            client.fork(SOME_ID)
        saved = client.save("a")
        client.expire(saved)
        with pytest.raises(CheckpointExpiredError):
            client.fork(saved)

    def test_both_lines_go_on_and_neither_sees_the_other(self, client: SyncClient):
        client.save("a", session_id="s", execution_state={"m": messages(20)})
        source = client.save("a", session_id="s", execution_state={"m": messages(21)})
        client.fork(source, session_id="t")
        main = client.save("a", session_id="s", execution_state={"m": messages(22)})
        other = client.save("a", session_id="t", execution_state={"m": [*messages(21), "another way"]})
        assert client.restore(main).execution_state == {"m": messages(22)}
        assert client.restore(other).execution_state == {"m": [*messages(21), "another way"]}
        assert client.verify().ok

    def test_writes_no_state_at_any_size(self, store: Store):
        client, recorder = store.recorded()
        sizes = []
        for count in (20, 2000):
            saved = client.save("a", execution_state={"m": messages(count)})
            recorder.forget()
            client.fork(saved)
            assert recorder.written_bytes() == 0
            sizes.append(recorder.record_bytes())
        assert abs(sizes[0] - sizes[1]) < 50


class TestRollback:
    def test_moves_the_head_and_can_be_undone(self, client: SyncClient):
        first = client.save("a", session_id="s", execution_state={"x": 1})
        second = client.save("a", session_id="s", execution_state={"x": 2})
        report = client.rollback("s", to=first)
        assert (report.session_id, report.from_id, report.to_id) == ("s", second, first)
        assert client.latest(session_id="s").execution_state == {"x": 1}
        assert client.restore(second).execution_state == {"x": 2}
        client.rollback("s", to=report.from_id)
        assert client.latest(session_id="s").checkpoint_id == second

    def test_the_next_save_follows_the_checkpoint_that_was_gone_back_to(self, client: SyncClient):
        first = client.save("a", session_id="s", execution_state={"m": messages(20)})
        client.save("a", session_id="s", execution_state={"m": messages(22)})
        client.rollback("s", to=first)
        third = client.restore(client.save("a", session_id="s", append={"m": ["other"]}))
        assert (third.parent_id, third.sequence, third.step_index) == (first, 3, 1)
        assert third.execution_state == {"m": [*messages(20), "other"]}

    def test_seen_by_a_client_that_remembers_another_head(self, store: Store):
        one, two = store.client(), store.client()
        first = one.save("a", session_id="s", execution_state={"m": messages(20)})
        one.save("a", session_id="s", execution_state={"m": messages(22)})
        two.rollback("s", to=first)
        third = one.restore(one.save("a", session_id="s", append={"m": ["other"]}))
        assert third.parent_id == first
        assert third.execution_state == {"m": [*messages(20), "other"]}

    def test_to_another_session_of_the_tree(self, client: SyncClient):
        source = client.save("a", session_id="s")
        client.fork(source, session_id="t")
        better = client.save("a", session_id="t", execution_state={"x": "better"})
        client.rollback("s", to=better)
        assert client.latest(session_id="s").execution_state == {"x": "better"}
        assert client.restore(client.save("a", session_id="s")).parent_id == better

    def test_to_another_tree_is_refused(self, client: SyncClient):
        mine = client.save("a", session_id="s")
        with pytest.raises(UsageError, match="does not belong to the tree"):
            client.rollback("s", to=client.save("a", session_id="t"))
        assert client.latest(session_id="s").checkpoint_id == mine

    def test_to_what_is_not_there_or_expired(self, client: SyncClient):
        with pytest.raises(CheckpointNotFoundError, match="'s'"):
            client.rollback("s", to=SOME_ID)
        saved = client.save("a", session_id="s")
        client.save("a", session_id="s")
        client.expire(saved)
        with pytest.raises(CheckpointNotFoundError):
            client.rollback("s", to=SOME_ID)
        with pytest.raises(CheckpointExpiredError):
            client.rollback("s", to=saved)

    def test_with_an_expected_head(self, client: SyncClient):
        first = client.save("a", session_id="s")
        second = client.save("a", session_id="s")
        with pytest.raises(ConflictError, match="moved"):
            client.rollback("s", to=first, expect_head=first)
        assert client.latest(session_id="s").checkpoint_id == second
        client.rollback("s", to=first, expect_head=second)
        assert client.latest(session_id="s").checkpoint_id == first

    def test_whoever_saves_meanwhile_is_not_overlooked(self, store: Store):
        client, recorder = store.recorded()
        other = store.client()
        first = client.save("a", session_id="s")
        client.save("a", session_id="s")
        saved = []

        def meanwhile(commits):
            recorder.before_commit = None
            saved.append(other.save("b", session_id="s"))

        recorder.before_commit = meanwhile
        with pytest.raises(ConflictError, match="another writer"):
            client.rollback("s", to=first)
        assert client.latest(session_id="s").checkpoint_id == saved[0]
