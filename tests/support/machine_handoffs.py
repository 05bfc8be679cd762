"""Handoffs: offer, list, claim, release, continue, and hand off again."""

from __future__ import annotations

import copy

from hypothesis import strategies as st
from hypothesis.stateful import multiple, rule
from machine_base import NAMES, TARGETS, UNDER, WHO, checkpoints, handoffs
from machine_leases import SECONDS, Leases
from machine_model import Entry, Grant, Held, Kept, Refusal
from machine_states import edits

from holdfast import ConflictError, LeaseHeldError, UsageError


class Handoffs(Leases):
    @rule(targets=(checkpoints, handoffs), who=WHO, source=checkpoints, to=TARGETS, under=UNDER)
    def handoff(self, who, source, to, under) -> str:
        """Of a handoff, too: it is passed on then."""
        kept = self.model.kept[source]
        grant = self.lease_for(kept.session, under)
        refusal = self.model.why_not(kept)
        if refusal is None and to == kept.agent and kept.target is None:
            refusal = UsageError
        refusal = refusal or self.model.refusal(kept.session, grant)
        handle = grant.handle if grant else None
        id_ = self.attempt(refusal, lambda: self.clients[who].handoff(source, to, lease=handle))
        if id_ is None:
            return multiple()
        self.added(
            who, id_, kept.session, kept, grant=grant, agent=kept.agent, state=copy.deepcopy(kept.state),
            context=copy.deepcopy(kept.context), ttl=kept.ttl, name=f"handoff_to_{to}", metadata=kept.metadata,
            framework=kept.framework, target=to,
        )  # fmt: skip
        return id_

    @rule(targets=(checkpoints, handoffs), who=WHO, session=NAMES, to=TARGETS)
    def offer(self, who, session, to) -> str:
        """What agents do: they hand off where they stand, and end their lease with it."""
        head = self.model.head(session)
        return self.handoff(who, head.id, to, "what it takes") if head else multiple()

    @rule(who=WHO, id_=checkpoints, agent=TARGETS)
    def claim_anything(self, who, id_, agent) -> None:
        """Mostly what is no handoff, or one to another agent."""
        self._claim(who, id_, agent, 60)

    @rule(who=WHO, id_=handoffs, seconds=SECONDS, again=st.booleans())
    def claim(self, who, id_, seconds, again) -> None:
        """As the right agent, perhaps twice, or with the id of the claim that was made before."""
        kept = self.model.kept[id_]
        earlier = kept.entry.claimed if kept.entry and again else None
        self._claim(who, id_, kept.target, seconds, claim_id=earlier.claim_id if earlier else None)

    @rule(who=WHO, id_=handoffs, with_its_id=st.booleans())
    def claim_twice(self, who, id_, with_its_id) -> None:
        """Whoever does not know the id of the claim is somebody else."""
        grant = self._claim(who, id_, self.model.kept[id_].target, 60)
        if grant is not None:
            self._claim(1 - who, id_, self.model.kept[id_].target, 10, claim_id=grant.claim_id if with_its_id else None)

    @rule(target=checkpoints, who=WHO, agent=TARGETS, edit=edits, as_the_agent=st.booleans())
    def take_up(self, who, agent, edit, as_the_agent) -> str:
        """What workers do: look into the inbox, claim the first one, go on from it."""
        waiting = self.clients[who].inbox(agent)
        assert [one.handoff_id for one in waiting] == [one[0] for one in self.model.inbox(agent, include_claimed=False)]
        grant = self._claim(who, waiting[0].handoff_id, agent, 60) if waiting else None
        if grant is None:
            return multiple()
        state = copy.deepcopy(self.model.kept[grant.claimed].state)
        edit(state)
        return self.save(who, grant.session, state, grant=grant, agent=agent if as_the_agent else "a worker")

    @rule(who=WHO, agent=TARGETS, include_claimed=st.booleans())
    def inbox(self, who, agent, include_claimed) -> None:
        found = self.clients[who].inbox(agent, include_claimed=include_claimed)
        listed = [
            (
                one.handoff_id,
                one.status,
                one.by,
                round(one.since.timestamp() * 1e6) if one.since else None,
                one.next_id,
            )
            for one in found
        ]
        assert listed == self.model.inbox(agent, include_claimed=include_claimed)

    def _claim(self, who: int, id_: str, agent: str, seconds: float, claim_id: str | None = None) -> Grant | None:
        self.tick()
        kept = self.model.kept[id_]
        refusal = self._claim_refusal(kept, agent, claim_id)
        if refusal is None:
            entry, line = kept.entry or Entry(), self.model.lines[kept.session]
            mine = self.model.claim_in_force(kept)  # by the same id: it is renewed
            token = mine.token if mine else self.model.next_token(kept.session)
            moved_from = line.head if line.head != id_ else entry.moved_from if mine else None
        holder = f"client {who}"
        claim = self.attempt(
            refusal,
            lambda: self.clients[who].claim(id_, agent, seconds=seconds, holder=holder, claim_id=claim_id),
        )
        if claim is None:
            return None
        assert (claim.handoff_id, claim.moved_from, claim.lease.token) == (id_, moved_from, token)
        assert claim_id in (None, claim.claim_id)
        grant = Grant(
            claim.lease,
            kept.session,
            token,
            holder,
            seconds,
            self.process_of(who),
            claimed=id_,
            claim_id=claim.claim_id,
        )
        self.model.give(grant)
        line.head, line.lease = id_, Held(self.clock.us + round(seconds * 1e6), holder, grant.process)
        kept.entry = Entry(claimed=grant, claimed_us=self.clock.us, moved_from=moved_from)
        return grant

    def _claim_refusal(self, kept: Kept, agent: str, claim_id: str | None) -> Refusal:
        if not self.model.is_live(kept):
            return self.model.why_not(kept)
        if kept.target != agent:
            return UsageError
        if kept.entry is not None and kept.entry.next is not None:
            return ConflictError
        mine = self.model.claim_in_force(kept)
        is_repeated = mine is not None and mine.claim_id == claim_id
        return LeaseHeldError if self.model.is_leased(kept.session) and not is_repeated else None
