"""State machine that drives a store through two clients, and compares it with a model of dictionaries.

The model (`machine_model.py`) keeps every checkpoint that was ever saved with all that it must come
back with, where each session stands, who holds which lease, what became of each handoff, and the
time. A rule asks it what must happen, which error and which only, does it, and tells it. The rules
are sorted by theme, one class each:

    machine_base.py       the clients, and how something is attempted
    machine_saves.py      save, append, repeat, fork, rollback
    machine_leases.py     lease, renew, release
    machine_handoffs.py   handoff, inbox, claim
    machine_retention.py  pin, tag, expire, retain, gc, the clock
    machine_events.py     a reader with a cursor

Here is what must hold at any time: after each step a few checkpoints are compared, at the end everything.
"""

from __future__ import annotations

import pytest
from hypothesis.stateful import invariant, precondition
from machine_events import Events, check_events
from machine_handoffs import Handoffs
from machine_model import Kept
from machine_retention import Retention
from machine_saves import Saves
from strategies import same

from holdfast import SyncClient
from holdfast.backends.bridge.step import run_inline
from holdfast.format.rows import head as rows
from holdfast.model import ids


class StoreMachine(Saves, Handoffs, Retention, Events):
    @invariant()
    def the_newest_is_as_it_was_saved(self) -> None:
        if self.model.kept:
            self._check_checkpoint(next(reversed(self.model.kept.values())))

    @invariant()
    def every_session_stands_where_it_should(self) -> None:
        for session, line in self.model.lines.items():
            expected = self.model.head(session)
            if line.sequence % 3 == 0:
                found = self.clients[0].latest(session_id=session)
                assert (found.checkpoint_id if found else None) == (expected.id if expected else None)

    @precondition(lambda self: len(self.model.kept) % 5 == 4)
    @invariant()
    def timelines_are_in_the_order_of_saves(self) -> None:
        for session in self.model.lines:
            self._check_timeline(session)

    def check_everything(self) -> None:
        client = self.clients[0] = self.open(0)
        for kept in self.model.kept.values():
            self._check_checkpoint(kept, client)
        for session in self.model.lines:
            self._check_timeline(session)
        expected = {session: head.id for session in self.model.lines if (head := self.model.head(session))}
        assert {session.session_id: session.head.checkpoint_id for session in client.sessions()} == expected
        report = client.verify()
        assert report.problems == ()
        live = self.model.live()
        assert report.checked == len(live)
        assert report.expired == sum(not kept.gone for kept in self.model.kept.values()) - len(live)
        stats = client.stats()
        assert (stats.checkpoints, stats.expired) == (report.checked, report.expired)
        assert stats.sessions == len(expected)
        assert stats.stored_bytes >= 0 <= stats.logical_bytes
        for session in self.model.lines:
            self._check_tree(client, session)
        for agent in ("approver", "writer"):
            self.inbox(0, agent, include_claimed=True)
        assert {pin.checkpoint_id for pin in client.pins()} == {kept.id for kept in live if kept.pinned}
        assert {tag.name: tag.checkpoint_id for tag in client.tags()} == self.model.tags
        self.read_events(0, at_most=None)
        check_events(list(client.events(after="start", follow=False)), live)
        self._check_that_only_what_is_needed_is_left()

    def _check_checkpoint(self, kept: Kept, client: SyncClient | None = None) -> None:
        client = client or self.clients[kept.sequence % 2]
        refusal = self.model.why_not(kept)
        if refusal is not None:
            with pytest.raises(refusal):
                client.restore(kept.id)
            return
        found = client.restore(kept.id)
        assert same(found.execution_state, kept.state)
        assert same(found.agent_context, kept.context)
        assert (found.checkpoint_id, found.session_id, found.agent_id) == (kept.id, kept.session, kept.agent)
        assert (found.parent_id, found.tree_id, found.sequence) == (kept.parent, kept.tree, kept.sequence)
        assert (found.step_index, found.step_name, found.ttl_seconds) == (kept.step, kept.name, kept.ttl)
        assert (found.metadata, found.framework, found.handoff_target) == (kept.metadata, kept.framework, kept.target)
        assert round(found.created_at.timestamp() * 1e6) == kept.created_us

    def _check_timeline(self, session: str) -> None:
        line = self.model.lines[session]
        live = [kept for kept in self.model.live_of(session) if kept.tree == line.tree]
        found = self.clients[1].timeline(session_id=session, limit=10_000)
        assert [entry.checkpoint_id for entry in found] == [kept.id for kept in live]
        handed = [kept.id for kept in live if "approver" in (kept.agent, kept.target)]
        assert [entry.checkpoint_id for entry in self.clients[1].timeline(session, agent_id="approver")] == handed[:50]

    def _check_tree(self, client: SyncClient, session: str) -> None:
        tree = client.tree(session)
        live = {kept.id for kept in self.model.live() if kept.tree == tree.tree_id}
        assert {entry.checkpoint_id for entry in tree.entries} == live
        assert {
            id_: (handoff.status, handoff.by, handoff.next_id) for id_, handoff in tree.handoffs.items()
        } == {
            id_: (status, by, next_id)
            for id_, status, by, _, next_id in (
                self.model.status(self.model.kept[id_]) for id_ in live if self.model.kept[id_].entry
            )
        }  # fmt: skip
        places = {entry.checkpoint_id: place for place, entry in enumerate(tree.entries)}
        for id_, parent in tree.parents.items():
            nearest = self.model.find_nearest_live(self.model.kept[id_].parent)
            assert parent == (nearest.id if nearest else None)
            assert parent is None or places[id_] < places[parent]

    def _check_that_only_what_is_needed_is_left(self) -> None:
        """After a collection there is a head for each session that the model knows, and an entry for each handoff."""
        self.collect(0, dry=False)
        assert self._keys("head") == self._keys("session") == {rows.session_key(name) for name in self.model.lines}
        handoffs = [kept for kept in self.model.live() if kept.entry is not None]
        assert {key[-16:] for key in self._keys("inbox")} == {ids.from_text(kept.id) for kept in handoffs}
        assert self._keys("expired") == set()

    def _keys(self, space: str) -> set[bytes]:
        return {key.key for key, _ in run_inline(self.clients[0]._ctx.backend.scan(space))}
