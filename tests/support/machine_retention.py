"""Retention: pins, tags, expiry, policies, time to live, and gc."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import consumes, multiple, rule
from machine_base import NAMES, WHO, Base, checkpoints, expired

from holdfast import CheckpointExpiredError, ConflictError

TAGS = st.sampled_from(["good", "\ud800"])


class Retention(Base):
    @rule(target=expired, who=WHO, id_=consumes(checkpoints))
    def expire(self, who, id_) -> str:
        kept = self.model.kept[id_]
        if kept.is_held:
            match = "is pinned" if kept.pinned else "is tagged"
            self.attempt(ConflictError, lambda: self.clients[who].expire(id_), match)
            return multiple()
        assert self.clients[who].expire(id_) is self.model.is_live(kept)
        if not kept.gone and not kept.buried:
            self.model.bury(kept)
        return id_

    @rule(target=checkpoints, who=WHO, id_=consumes(expired), after=st.sampled_from([0, 0, 15]))
    def unexpire(self, who, id_, after) -> str:
        """At once, or after its time to live is over, too."""
        self.clock.forward(after)
        kept = self.model.kept[id_]
        refusal, was_live = self.model.why_not(kept), self.model.is_live(kept)
        if refusal is CheckpointExpiredError and kept.buried and kept.undoable and not self.model.has_outlived(kept):
            refusal = None
        undone = self.attempt(refusal, lambda: self.clients[who].unexpire(id_))
        if refusal is not None:
            return multiple()
        assert undone is not was_live
        kept.buried = False
        return id_

    @rule(who=WHO, id_=checkpoints, after=st.sampled_from([0, 15, 100]))
    def think_again(self, who, id_, after) -> None:
        self.expire(who, id_)
        self.unexpire(1 - who, id_, after)

    @rule(who=WHO, id_=checkpoints)
    def pin(self, who, id_) -> None:
        kept = self.model.kept[id_]
        refusal = self.model.why_not(kept)
        self.attempt(refusal, lambda: self.clients[who].pin(id_))
        kept.pinned = kept.pinned or refusal is None

    @rule(who=WHO, id_=checkpoints)
    def unpin(self, who, id_) -> None:
        kept = self.model.kept[id_]
        assert self.clients[who].unpin(id_) is kept.pinned
        kept.pinned = False

    @rule(who=WHO, id_=checkpoints, name=TAGS, force=st.booleans())
    def tag(self, who, id_, name, force) -> None:
        kept, before = self.model.kept[id_], self.model.tags.get(name)
        refusal = self.model.why_not(kept)
        if refusal is None and before not in (None, id_) and not force:
            refusal = ConflictError
        self.attempt(refusal, lambda: self.clients[who].tag(name, id_, force=force))
        if refusal is None:
            self._take_away(name)
            self.model.tags[name] = id_
            kept.tags.add(name)

    @rule(who=WHO, name=TAGS)
    def untag(self, who, name) -> None:
        assert self.clients[who].untag(name) is (name in self.model.tags)
        self._take_away(name)

    def _take_away(self, name: str) -> None:
        before = self.model.tags.pop(name, None)
        if before is not None:
            self.model.kept[before].tags.discard(name)

    @rule(who=WHO, keep_last=st.integers(0, 6), keep_every=st.none() | st.none() | st.integers(1, 4), dry=st.booleans())
    def retain(self, who, keep_last, keep_every, dry) -> None:
        going = self.model.let_go(keep_last, keep_every)
        report = self.clients[who].retain(keep_last=keep_last, keep_every=keep_every, dry_run=dry)
        assert {id_ for session in report.sessions for id_ in session.going} == going
        if not dry:
            for id_ in going:
                self.model.bury(self.model.kept[id_])
            self.model.collect()

    @rule(who=WHO, session=NAMES, count=st.integers(0, 3))
    def keep_the_last(self, who, session, count) -> None:
        """By hand, heads included: all but the last ones of a session expire, and are collected and packed."""
        for kept in self.model.live_of(session)[count:]:
            self.expire(who, kept.id)
        self.collect(who, dry=False)

    @rule(seconds=st.sampled_from([-5, 0.001, 15, 100]))
    def time_passes(self, seconds) -> None:
        """Clocks go back, too: as far as no checkpoint that has ended comes to life again."""
        if seconds < 0 and any(kept.ttl for kept in self.model.kept.values()):
            return
        self.clock.forward(seconds)

    @rule(who=WHO, dry=st.booleans())
    def collect(self, who, dry) -> None:
        live = len(self.model.live())
        due = sum(
            not kept.buried and not kept.gone and not self.model.is_live(kept) for kept in self.model.kept.values()
        )
        assert self.clients[who].gc(dry_run=dry).expired_by_ttl == due
        if not dry:
            self.model.collect()
        assert len(self.model.live()) == live
