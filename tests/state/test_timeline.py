"""timeline, sessions and tree: what is there, in the order it was made."""

from __future__ import annotations

import pytest
from stores import Clock, Store, messages

from holdfast import CheckpointNotFoundError, StateNotLoadedError, SyncClient, UsageError


def ids_of(entries) -> list[str]:
    return [entry.checkpoint_id for entry in entries]


class TestTimeline:
    def test_is_newest_first_and_empty_where_there_is_nothing(self, client: SyncClient):
        assert client.timeline(agent_id="a", session_id="s") == []
        saved = [client.save("a", session_id="s") for _ in range(5)]
        assert ids_of(client.timeline("s", agent_id="a")) == saved[::-1]
        assert [entry.sequence for entry in client.timeline("s", agent_id="a")] == [5, 4, 3, 2, 1]

    def test_has_fifty_entries_unless_told_otherwise(self, quick: SyncClient):
        saved = [quick.save("a", session_id="s") for _ in range(60)]
        assert ids_of(quick.timeline("s", agent_id="a")) == saved[:-51:-1]
        assert ids_of(quick.timeline("s", agent_id="a", limit=3)) == saved[:-4:-1]
        assert ids_of(quick.timeline("s", agent_id="a", limit=1000)) == saved[::-1]

    def test_can_be_longer_than_a_page(self, quick: SyncClient):
        saved = [quick.save("a" if i % 3 else "b", session_id="s") for i in range(500)]
        assert ids_of(quick.timeline(session_id="s", limit=1000)) == saved[::-1]
        assert ids_of(quick.timeline("s", agent_id="b", limit=1000)) == saved[::3][::-1]
        assert ids_of(quick.timeline("s", agent_id="b", limit=2)) == saved[::3][:-3:-1]

    def test_has_what_the_agent_made_and_what_it_was_handed(self, client: SyncClient):
        first = client.save("a", session_id="s")
        second = client.save("b", session_id="s")
        handed = client.handoff(first, "b")
        assert ids_of(client.timeline("s", agent_id="b")) == [handed, second]
        assert ids_of(client.timeline("s", agent_id="a")) == [handed, first]
        assert client.timeline("s", agent_id="nobody") == []

    def test_has_all_branches(self, client: SyncClient):
        root = client.save("a", session_id="s")
        left = client.save("a", session_id="s")
        client.rollback("s", to=root)
        right = client.save("a", session_id="s")
        assert ids_of(client.timeline("s", agent_id="a")) == [right, left, root]

    def test_entries_carry_everything_but_the_state(self, client: SyncClient):
        saved = client.save("a", "crewai", {"x": 1}, "s", step_name="plan", tasks=["t"], note=[1], ttl_seconds=60)
        [entry] = client.timeline("s", agent_id="a")
        whole = client.restore(saved).as_dict()
        del whole["execution_state"], whole["agent_context"]
        assert entry.as_dict() == whole
        for name in ("execution_state", "agent_context"):
            with pytest.raises(StateNotLoadedError, match="restore"):
                getattr(entry, name)

    def test_reads_no_state(self, store: Store):
        client, recorder = store.recorded()
        for i in range(3):
            client.save("a", execution_state={"messages": messages(20 + i), "blob": "x" * 5000}, session_id="s")
        recorder.forget()
        assert len(client.timeline("s", agent_id="a")) == 3
        assert recorder.calls["segments"] == recorder.calls["blobs"] == 0

    def test_needs_a_session(self, quick: SyncClient):
        with pytest.raises(UsageError, match=r"session_id.*sessions\(\)"):
            quick.timeline(agent_id="a")

    def test_entries_can_be_compared_and_found(self, client: SyncClient):
        for _ in range(3):
            client.save("a", session_id="s")
        once, again = client.timeline("s", agent_id="a"), client.timeline("s", agent_id="a")
        assert once == again
        assert once[1] in again
        assert once[0] != again[1]
        assert len({*once, *again}) == 3

    def test_shows_itself(self, quick: SyncClient):
        quick.save("<a>", session_id="s", step_name="plan & do")
        line = quick.timeline(session_id="s")
        assert "plan &amp; do" in line._repr_html_()
        assert "&lt;a&gt;" in line._repr_html_()
        assert line[0].short_id in repr(line[0])


class TestOrder:
    """Order is that of saves, whatever the clocks do (P6)."""

    def test_with_a_clock_that_stands_still_or_goes_back(self, store: Store, clock: Clock):
        client = store.client()
        clock.rules(client)
        saved = []
        for step in (0, 0, -5, -5, 3, -100):
            clock.forward(step)
            saved.append(client.save("a", session_id="s"))
        assert ids_of(client.timeline("s", agent_id="a")) == saved[::-1]
        assert client.latest(session_id="s").checkpoint_id == saved[-1]
        assert ids_of(client.tree("s").entries) == saved[::-1]

    def test_with_steps_out_of_order(self, client: SyncClient):
        saved = [client.save("a", session_id="s", step_index=step) for step in (5, 0, 9, 9, 1)]
        assert ids_of(client.timeline("s", agent_id="a")) == saved[::-1]
        assert [entry.step_index for entry in client.timeline("s", agent_id="a")] == [1, 9, 9, 0, 5]

    def test_with_two_clients_whose_clocks_disagree(self, store: Store):
        early, late = Clock(), Clock()
        late.forward(1000)
        clients = [store.client(), store.client()]
        late.rules(clients[0])
        early.rules(clients[1])
        saved = [clients[i % 2].save("a", session_id="s") for i in range(6)]
        assert ids_of(clients[0].timeline("s", agent_id="a")) == saved[::-1]
        assert [entry.parent_id for entry in clients[1].timeline("s", agent_id="a")] == [*saved[-2::-1], None]

    def test_sequence_numbers_are_never_reused(self, client: SyncClient):
        client.save("a", session_id="s")
        last = client.save("a", session_id="s")
        client.expire(last)
        client.gc()
        assert client.restore(client.save("a", session_id="s")).sequence == 3


class TestSessions:
    def test_the_one_saved_to_last_comes_first(self, store: Store, clock: Clock):
        client = store.client()
        clock.rules(client)
        assert client.sessions() == []
        for session in ("one", "two", "three", "one"):
            clock.forward(1)
            client.save("a", session_id=session)
        assert [session.session_id for session in client.sessions()] == ["one", "three", "two"]
        assert [session.saves for session in client.sessions()] == [2, 1, 1]
        assert [session.session_id for session in client.sessions(limit=1)] == ["one"]

    def test_each_carries_its_head_without_the_state(self, client: SyncClient):
        head = client.save("a", session_id="s", execution_state={"x": 1})
        [session] = client.sessions()
        assert session.head.checkpoint_id == head
        assert (session.agent_id, session.tree_id) == ("a", head)
        with pytest.raises(StateNotLoadedError):
            _ = session.head.execution_state

    def test_of_an_agent_are_those_whose_head_it_made_or_was_handed(self, client: SyncClient):
        client.save("a", session_id="mine")
        client.handoff(client.save("b", session_id="handed"), "a")
        client.save("b", session_id="other")
        assert {session.session_id for session in client.sessions(agent_id="a")} == {"mine", "handed"}

    def test_one_that_has_nothing_left_is_not_listed(self, client: SyncClient):
        client.expire(client.save("a", session_id="s"))
        assert client.sessions() == []


class TestTree:
    def test_of_an_unknown_session_is_not_found(self, client: SyncClient):
        with pytest.raises(CheckpointNotFoundError, match="'s'"):
            client.tree("s")

    def test_has_the_forks_in_other_sessions(self, client: SyncClient):
        root = client.save("a", session_id="s")
        main = client.save("a", session_id="s")
        fork = client.fork(root, session_id="t")
        child = client.save("a", session_id="t")
        for session in ("s", "t"):
            tree = client.tree(session)
            assert tree.tree_id == root
            assert tree.heads == {"s": main, "t": child}
            assert set(ids_of(tree.entries)) == {root, main, fork.checkpoint_id, child}
            assert set(tree.leaves) == {main, child}
            assert tree.common_ancestor(main, child) == root
            assert len(tree) == 4

    def test_children_come_before_their_parents_through_expired_ones_and_odd_clocks(self, store: Store, clock: Clock):
        client = store.client()
        clock.rules(client)
        oldest = client.save("a", session_id="s")
        clock.forward(-10)
        between = client.save("a", session_id="s")
        newest = client.save("a", session_id="s")
        client.expire(between)
        tree = client.tree("s")
        assert ids_of(tree.entries) == [newest, oldest]
        assert tree.parents == {newest: oldest, oldest: None}
        assert tree.expired == {between: oldest}
        assert [row.is_leaf for row in tree.lanes()] == [True, False]

    def test_shows_itself(self, quick: SyncClient):
        root = quick.save("a", session_id="s", step_name="<begin>")
        quick.save("a", session_id="s")
        quick.save("a", session_id="s", parent_id=root)
        shown = quick.tree("s")._repr_html_()
        assert shown.count("●") == 3
        assert "&lt;begin&gt;" in shown


def test_names_of_sessions_by_how_they_begin(client):
    names = [f"run-{number:03}" for number in range(250)]
    for name in (*names, "other", "ünï", "", "a\ud800"):
        client.save("a", session_id=name)
    gone = client.save("a", session_id="run-gone")
    client.expire(gone)
    assert client.session_ids("run-") == names
    assert client.session_ids("run-24") == names[240:]
    assert client.session_ids("run-", limit=3) == names[:3]
    assert client.session_ids("run-", limit=225) == names[:225]
    assert client.session_ids("ü") == ["ünï"]
    assert client.session_ids("a\ud800") == ["a\ud800"]
    assert client.session_ids("nobody") == client.session_ids(limit=0) == []
    assert sorted(client.session_ids()) == sorted(session.session_id for session in client.sessions())
