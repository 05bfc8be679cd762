"""Base of the state machine: the clients, the model, and the attempt of an operation."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from campaign import tally
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple
from machine_model import Grant, Kept, Model, Refusal
from machine_values import some
from stores import Clock, Store

from holdfast import SyncClient, UsageError

WHO = st.integers(0, 1)
AGENTS = st.sampled_from(["planner", "writer", "\ud800"])
TARGETS = st.sampled_from(["approver", "approver", "writer"])
NAMES = st.sampled_from(["s", "s", "s", "t", "t", "../x", "a:b", "", "\x00", "ünï"])  # often the same
TTL = st.none() | st.sampled_from([10, 60.5, 1000])
UNDER = st.sampled_from(["what it takes", "what it takes", "nothing", "the newest", "an older one"])
"""Under which lease something is attempted; see `lease_for`."""

checkpoints: Bundle[str] = Bundle("checkpoints")
handoffs: Bundle[str] = Bundle("handoffs")  # these are among the checkpoints, too
expired: Bundle[str] = Bundle("expired")  # by hand


class Base(RuleBasedStateMachine):
    """Subclasses say which kind of store. `clients` have a memory each, as processes do."""

    kind = "memory"
    server = ""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.store = Store(self.kind, Path(self.directory.name), self.server)
        self.clock = Clock()
        self.model = Model(self.clock)
        self.clients = [self.open(0), self.open(1)]
        self.counter = 0
        self.living: dict[str, Any] = {"m": some(70, 120, 0)}
        self.steps = -1  # what is counted is looked at before the first one, too

    def open(self, who: int) -> SyncClient:
        """A client of the process that this number stands for."""
        del who
        client = self.store.client()
        self.clock.rules(client)
        return client

    def process_of(self, who: int) -> int:
        del who
        return 0

    def teardown(self) -> None:
        try:
            self.check_everything()
        finally:
            self.store.close()
            self.directory.cleanup()
        tally(f"steps of the state machine, {type(self).__name__}", done=self.steps, wrong=0)

    @invariant()
    def a_step_was_taken(self) -> None:
        self.steps += 1

    def check_everything(self) -> None:
        raise NotImplementedError  # each machine has its own

    def new_id(self) -> str:
        self.counter += 1
        return f"01939c5e-7c1b-7000-8a2f-{self.counter:012x}"

    def attempt(self, refusal: Refusal, call: Callable[[], Any], match: str | None = None) -> Any:
        """What the call gives; None if it is refused, which it must be exactly as predicted."""
        if refusal is None:
            return call()
        with pytest.raises(refusal, match=match) as caught:
            call()
        assert caught.type is refusal
        return None

    def lease_for(self, session: str, under: str) -> Grant | None:
        """A lease of that session, or none: the one in force, if there is one; or the one that was
        given last, or the one before it, whatever became of them."""
        of_session = [grant for grant in self.model.grants if grant.session == session]
        if under == "what it takes":
            return next((grant for grant in reversed(of_session) if self.model.holds(grant)), None)
        if under == "nothing" or not of_session:
            return None
        return of_session[-1] if under == "the newest" else of_session[max(len(of_session) - 2, 0)]

    def save(
        self,
        who: int,
        session: str,
        state: Any,
        context: Any = None,
        *,
        under: str = "what it takes",
        grant: Grant | None = None,
        parent: Kept | None = None,
        agent: str = "planner",
        ttl: float | None = None,
        step: int | None = None,
    ) -> Any:
        """Saves, and tells the model; gives the id, or nothing if it is refused."""
        context = {} if context is None else context
        grant = grant or self.lease_for(session, under)
        line = self.model.lines.get(session)
        refusal, match = self.model.refusal(session, grant), None
        if refusal is None and parent is not None:
            refusal = self.model.why_not(parent)
            if refusal is None and line is not None and line.tree != parent.tree:
                refusal, match = UsageError, "another tree"
        expected, note = parent or self.model.head(session), len(self.model.kept)
        saved = self.attempt(
            refusal,
            lambda: self.clients[who].save(
                agent, execution_state=state, context=context, session_id=session, ttl_seconds=ttl, step_index=step,
                parent_id=parent.id if parent else None, step_name=f"step of {agent}", note=note,
                lease=grant.handle if grant else None,
            ),
            match,
        )  # fmt: skip
        if saved is None:
            return multiple()
        fields = {} if step is None else {"step": step}
        self.added(
            who, saved, session, expected, grant=grant, agent=agent, state=copy.deepcopy(state),
            context=copy.deepcopy(context), ttl=ttl, name=f"step of {agent}", metadata={"note": note}, **fields,
        )  # fmt: skip
        return saved

    def added(self, who: int, id_: str, session: str, parent: Kept | None, **fields: Any) -> Kept:
        """Tells the model of a new checkpoint."""
        line = self.model.lines.get(session)
        if line is None:
            tree = parent.tree if parent else id_
        elif line.tree is not None:
            tree = line.tree
        else:  # it was leased before anything was saved to it: the lease has brought its tree
            tree = self.clients[who].get(id_).tree_id
            assert tree not in {kept.tree for kept in self.model.kept.values()}
        return self.model.add(id_, session, parent, tree=tree, **fields)
