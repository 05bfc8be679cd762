"""Leases: a save without one, or with a lost one, is refused; one with the live lease never is."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from machine_base import NAMES, WHO, Base
from machine_model import Grant, Held

from holdfast import LeaseHeldError, LeaseLostError, UsageError

SECONDS = st.sampled_from([10, 60, 1000])
WHICH = st.integers(0, 3)


class Leases(Base):
    def tick(self) -> None:
        """A token is later than those of a session of the same name that was collected: two are never given out within
        one microsecond."""
        self.clock.us += 1

    def grant(self, which: int) -> Grant:
        """One of those that were given out, the latest ones mostly."""
        return self.model.grants[-1 - which % len(self.model.grants)]

    @rule(who=WHO, session=st.none() | NAMES, seconds=SECONDS)
    def lease(self, who, session, seconds) -> None:
        """Any session, or the one that was saved to last."""
        self.tick()
        if session is None:
            session = next(reversed(self.model.kept.values())).session
        refusal = LeaseHeldError if self.model.is_leased(session) else None
        token, holder = self.model.next_token(session), f"client {who}"
        handle = self.attempt(refusal, lambda: self.clients[who].lease(session, seconds=seconds, holder=holder))
        if handle is not None:
            assert handle.token == token
            assert token not in {grant.token for grant in self.model.grants if grant.session == session}
            self.model.give(Grant(handle, session, token, holder, seconds, self.process_of(who)))

    @precondition(lambda self: self.model.grants)
    @rule(who=WHO, which=WHICH, seconds=SECONDS, waits=st.booleans())
    def take_over(self, who, which, seconds, waits) -> None:
        """A session that was leased before, as soon as that has run out."""
        if waits:
            self._wait_for_its_end(self.grant(which))
        self.lease(who, self.grant(which).session, seconds)

    @precondition(lambda self: self._lost())
    @rule(who=WHO, which=WHICH)
    def come_back_late(self, who, which) -> None:
        """With a lease that is over, which others may have taken since."""
        lost = self._lost()
        grant = lost[-1 - which % len(lost)]
        self.save(who, grant.session, {"m": ["too late"]}, grant=grant)

    def _lost(self) -> list[Grant]:
        return [grant for grant in self.model.grants if not self.model.holds(grant)]

    @precondition(lambda self: self.model.grants)
    @rule(which=WHICH)
    def renew(self, which) -> None:
        grant = self.grant(which)
        held = self.model.holds(grant)
        self.attempt(None if held else LeaseLostError, grant.handle.renew)
        if held:
            lease = self.model.lines[grant.session].lease
            until_us = self.clock.us + round(grant.seconds * 1e6)
            self.model.lines[grant.session].lease = Held(until_us, lease.holder, lease.process)
            assert grant.handle.expires_at_us == until_us

    @precondition(lambda self: self.model.grants)
    @rule(which=WHICH)
    def release(self, which) -> None:
        """Of a claim, too: the handoff is open again, if nobody went on from it."""
        grant = self.grant(which)
        held = self.model.holds(grant)
        assert grant.handle.release() is held
        if held:
            self.model.lines[grant.session].lease = None

    @precondition(lambda self: self.model.grants)
    @rule(who=WHO, which=WHICH, before=st.booleans(), then=st.sampled_from(["renew", "release", "save", "wait"]))
    def use_it_at_the_last_moment(self, who, which, before, then) -> None:
        """Or just after that."""
        grant = self.grant(which)
        self._wait_for_its_end(grant, before)
        if then == "save":
            self.save(who, grant.session, {"m": ["at the last moment"]}, grant=grant)
        elif then != "wait":
            {"renew": self.renew, "release": self.release}[then](which)

    def _wait_for_its_end(self, grant: Grant, before: int = 0) -> None:
        line = self.model.lines.get(grant.session)
        if line is not None and line.lease is not None:
            self.clock.us = max(self.clock.us, line.lease.until_us - before)

    @precondition(lambda self: self.model.grants)
    @rule(who=WHO, which=WHICH, session=NAMES)
    def use_the_lease_of_another_session(self, who, which, session) -> None:
        grant = self.grant(which)
        if grant.session != session:
            self.attempt(UsageError, lambda: self.clients[who].save("a", session_id=session, lease=grant.handle))
