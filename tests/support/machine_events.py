"""Events: one reader that stops and continues at its cursor, over the whole run."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule
from machine_base import AGENTS, NAMES, WHO, Base
from machine_model import Kept


class Events(Base):
    def __init__(self) -> None:
        super().__init__()
        self.cursor = "start"
        self.passed = 0  # so many checkpoints, in the order of their commits, lie before the cursor

    def coming(self) -> list[Kept]:
        """What is to be read from the cursor on: nothing twice, nothing missed; what has ended by now is left out."""
        return [kept for kept in list(self.model.kept.values())[self.passed :] if self.model.is_live(kept)]

    @rule(who=WHO, at_most=st.none() | st.integers(1, 5))
    def read_events(self, who, at_most) -> None:
        """Either client reads, with the same cursor, and may stop in the middle."""
        expected = self.coming()[:at_most]
        stream = self.clients[who].events(after=self.cursor, follow=False)
        found = [event for event, _ in zip(stream, expected, strict=False)]
        check_events(found, expected)
        if at_most is None or len(expected) < at_most:
            assert next(stream, None) is None
            self.cursor, self.passed = stream.cursor, len(self.model.kept)
        else:
            self.cursor = found[-1].cursor
            self.passed = list(self.model.kept).index(expected[-1].id) + 1

    @rule(who=WHO, session=st.none() | NAMES, agent=AGENTS | st.just("approver"))
    def look_ahead(self, who, session, agent) -> None:
        """Of a session, or of an agent: the cursor stays."""
        expected = [
            kept
            for kept in self.coming()
            if session in (None, kept.session) and (session is not None or agent in (kept.agent, kept.target))
        ]
        filters = {"agent_id": agent} if session is None else {"session_id": session}
        check_events(list(self.clients[who].events(after=self.cursor, follow=False, **filters)), expected)


def check_events(found: list[Any], expected: list[Kept]) -> None:
    assert [(event.checkpoint.checkpoint_id, event.checkpoint.sequence, event.kind) for event in found] == [
        (kept.id, kept.sequence, "checkpoint" if kept.target is None else "handoff") for kept in expected
    ]
