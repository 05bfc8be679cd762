"""Saves, forks and rollbacks."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, multiple, rule
from machine_base import AGENTS, NAMES, TTL, UNDER, WHO, Base, checkpoints
from machine_states import change_inside, edits, first_states
from machine_values import odd, stretches

from holdfast import CheckpointNotFoundError, ConflictError, UsageError


class Saves(Base):
    @initialize(target=checkpoints, state=first_states())
    def begin(self, state) -> str:
        return self.save(0, "s", state)

    @rule(target=checkpoints, who=WHO, session=NAMES, state=first_states(), context=odd, agent=AGENTS, ttl=TTL,
          step=st.none() | st.integers(0, 9), under=UNDER)  # fmt: skip
    def save_anything(self, who, session, state, context, agent, ttl, step, under) -> str:
        return self.save(who, session, state, context, agent=agent, ttl=ttl, step=step, under=under)

    @rule(target=checkpoints, who=WHO, session=NAMES, edit=edits, ttl=TTL, under=UNDER)
    def go_on(self, who, session, edit, ttl, under) -> str:
        """What agents do: the state of the head, changed a little."""
        head = self.model.head(session)
        state = copy.deepcopy(head.state) if head and isinstance(head.state, dict) else {"m": []}
        edit(state)
        return self.save(who, session, state, copy.deepcopy(head.context) if head else {}, ttl=ttl, under=under)

    @rule(target=checkpoints, who=WHO, session=st.sampled_from(["s", "t"]), edit=st.none() | edits, under=UNDER,
          inside=st.lists(st.none() | st.integers(0, 200), min_size=1, max_size=5))  # fmt: skip
    def go_on_with_the_same_objects(self, who, session, edit, under, inside) -> Any:
        """What agents do that live on: their state is changed in place, or not at all, and is given again."""
        if edit is not None:
            edit(self.living)
        saved = []
        for at in inside:
            if at is not None:
                change_inside(self.living.setdefault("m", []), at)
            saved.append(self.save(who, session, self.living, under=under))
        return multiple(*(id_ for id_ in saved if isinstance(id_, str)))

    @rule(target=checkpoints, who=WHO, session=st.none() | NAMES, parent=checkpoints, edit=edits, agent=AGENTS,
          under=UNDER)  # fmt: skip
    def save_after_another_parent(self, who, session, parent, edit, agent, under) -> str:
        """In the parent's session, or in another one."""
        kept = self.model.kept[parent]
        session = kept.session if session is None else session
        state = copy.deepcopy(kept.state)
        edit(state)
        return self.save(who, session, state, parent=kept, agent=agent, under=under)

    @rule(target=checkpoints, who=WHO, session=NAMES, new=stretches, nested=stretches, both=st.booleans(),
          again=st.booleans(), under=UNDER)  # fmt: skip
    def append(self, who, session, new, nested, both, again, under) -> str:
        head, grant = self.model.head(session), self.lease_for(session, under)
        older = head.state if head and isinstance(head.state, dict) else {}
        appended: dict[str, Any] = {"+m": new} | ({"+values.m": nested} if both else {})
        state: dict[str, Any] = {"n": 1, "m": [*older.get("m", []), *new]}
        if both:
            state["values"] = {"m": [*older.get("values", {}).get("m", []), *nested]}
        id_, refusal = self.new_id(), self.model.refusal(session, grant)
        for _ in range(2 if again else 1):
            saved = self.attempt(
                refusal,
                lambda: self.clients[who].save(
                    "planner", session_id=session, execution_state={"n": 1}, append=appended, checkpoint_id=id_,
                    lease=grant.handle if grant else None,
                ),
            )  # fmt: skip
            assert saved == (id_ if refusal is None else None)
        if refusal is not None:
            return multiple()
        self.added(who, id_, session, head, grant=grant, agent="planner", state=copy.deepcopy(state), context={})
        return id_

    @rule(who=WHO, id_=checkpoints, other=st.booleans())
    def repeat(self, who, id_, other) -> None:
        """The same id with the same content is a no-op, with other content a conflict. No lease is asked for: nothing
        is written."""
        kept = self.model.kept[id_]
        if kept.gone or kept.target is not None or kept.name == "fork":
            return
        arguments: dict[str, Any] = {
            "agent_id": kept.agent, "execution_state": copy.deepcopy(kept.state), "session_id": kept.session,
            "context": copy.deepcopy(kept.context), "step_name": kept.name, "step_index": kept.step,
            "ttl_seconds": kept.ttl, "checkpoint_id": id_, **kept.metadata,
        }  # fmt: skip
        if other:
            arguments["context"] = {"something": "else"}
        refusal = ConflictError if other or kept.buried else None
        saved = self.attempt(refusal, lambda: self.clients[who].save(**arguments))
        assert saved == (None if refusal else id_)

    @rule(target=checkpoints, who=WHO, source=checkpoints, session=NAMES)
    def fork(self, who, source, session) -> str:
        kept = self.model.kept[source]
        refusal = self.model.why_not(kept) or (None if self.model.may_begin(session, kept.tree) else ConflictError)
        report = self.attempt(refusal, lambda: self.clients[who].fork(source, session_id=session))
        if report is None:
            return multiple()
        self.added(
            who, report.checkpoint_id, session, kept, agent=kept.agent, step=kept.step, state=copy.deepcopy(kept.state),
            context=copy.deepcopy(kept.context), ttl=kept.ttl, name="fork", metadata=kept.metadata,
            framework=kept.framework,
        )  # fmt: skip
        return report.checkpoint_id

    @rule(who=WHO, session=st.none() | NAMES, to=checkpoints, under=UNDER)
    def rollback(self, who, session, to, under) -> None:
        """To where that session, or another one, stood before."""
        kept = self.model.kept[to]
        session = kept.session if session is None else session
        line, grant = self.model.lines.get(session), self.lease_for(session, under)
        refusal = (
            CheckpointNotFoundError
            if line is None
            else self.model.refusal(session, grant)
            or self.model.why_not(kept)
            or (UsageError if kept.tree != line.tree else None)
        )
        handle = grant.handle if grant else None
        report = self.attempt(refusal, lambda: self.clients[who].rollback(session, to=to, lease=handle))
        if report is not None:
            assert (report.from_id, report.to_id) == (line.head, to)
            line.head = to
            if grant is not None:  # it goes on living
                self.save(who, session, {"m": ["from here"]}, grant=grant)

    @rule(who=WHO)
    def reopen(self, who) -> None:
        """A new client on the same store, without memories."""
        self.clients[who] = self.open(who)
