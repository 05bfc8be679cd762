"""The model: the expected answers of a store, in dictionaries.

It predicts. The machine asks it first who may do what (`refusal`, `why_not`), then does it, then
tells it what was done. It takes over from the store only what nobody can know before: ids, and the
tree of a session that was leased first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stores import Clock

from holdfast import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    Framework,
    HandoffStatus,
    LeaseHeldError,
    LeaseLostError,
)

Refusal = type[Exception] | None
Listed = tuple[str, HandoffStatus, str | None, int | None, str | None]  # id, status, by, since, next_id


@dataclass
class Kept:
    """A checkpoint as it must come back."""

    id: str
    session: str
    tree: str
    parent: str | None
    sequence: int
    agent: str
    step: int
    state: Any
    context: Any
    created_us: int
    ttl: float | None = None
    name: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    framework: Framework = Framework.CUSTOM
    target: str | None = None
    buried: bool = False  # expired by hand, by a policy or by a collection
    undoable: bool = False  # what it held is still there
    gone: bool = False  # with its whole tree
    pinned: bool = False
    tags: set[str] = field(default_factory=set)
    entry: Entry | None = None  # of a handoff: its place in the inbox of its target

    @property
    def is_held(self) -> bool:
        return self.pinned or bool(self.tags)


@dataclass
class Entry:
    """What became of a handoff: who claimed it last, and what followed it."""

    claimed: Grant | None = None
    claimed_us: int = 0
    moved_from: str | None = None
    next: str | None = None
    by: str | None = None
    passed_on: bool = False
    done_us: int = 0


@dataclass(frozen=True)
class Grant:
    """A lease that was given out, in force or not. `handle` is what its holder has in hand."""

    handle: Any
    session: str
    token: int
    holder: str
    seconds: float
    process: int
    claimed: str | None = None
    claim_id: str | None = None


@dataclass
class Held:
    """The lease in a session's row."""

    until_us: int
    holder: str
    process: int


@dataclass
class Line:
    """A session: its tree, what it stands at, the last number given out, the last token, and its lease."""

    tree: str | None  # None: it was leased and never saved to
    head: str | None = None
    sequence: int = 0
    fence: int = 0
    lease: Held | None = None


class Model:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.kept: dict[str, Kept] = {}  # in the order of their commits
        self.lines: dict[str, Line] = {}
        self.grants: list[Grant] = []
        self.tags: dict[str, str] = {}
        self.ended: set[int] = set()  # processes that have died

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def has_outlived(self, kept: Kept) -> bool:
        return kept.ttl is not None and self.clock.us >= kept.created_us + round(kept.ttl * 1_000_000)

    def is_live(self, kept: Kept) -> bool:
        return not (kept.buried or kept.gone or (self.has_outlived(kept) and not kept.is_held))

    def why_not(self, kept: Kept) -> Refusal:
        """What is raised by whoever needs this checkpoint."""
        if kept.gone:
            return CheckpointNotFoundError
        return None if self.is_live(kept) else CheckpointExpiredError

    def find_nearest_live(self, id_: str | None) -> Kept | None:
        while id_ is not None:
            kept = self.kept[id_]
            if self.is_live(kept):
                return kept
            id_ = kept.parent
        return None

    def head(self, session: str) -> Kept | None:
        line = self.lines.get(session)
        return self.find_nearest_live(line.head) if line else None

    def live(self) -> list[Kept]:
        return [kept for kept in self.kept.values() if self.is_live(kept)]

    def live_of(self, session: str) -> list[Kept]:
        """Newest first."""
        return sorted((kept for kept in self.live() if kept.session == session), key=lambda kept: -kept.sequence)

    def add(
        self, id_: str, session: str, parent: Kept | None, *, tree: str, grant: Grant | None = None, **fields: Any
    ) -> Kept:
        """A new checkpoint, made under that lease, and the head of its session. A handoff ends the lease."""
        line = self.lines.setdefault(session, Line(None))
        holder = line.lease.holder if grant and line.lease else None
        fields.setdefault("step", parent.step + 1 if parent else 0)
        kept = Kept(
            id=id_,
            session=session,
            tree=tree,
            parent=parent.id if parent else None,
            sequence=line.sequence + 1,
            created_us=self.clock.us,
            **fields,
        )
        is_handoff = kept.target is not None
        if is_handoff:
            kept.entry = Entry()
        if grant is None or is_handoff:
            line.lease = None
        if parent is not None and parent.entry is not None and parent.session == session:
            claimed = grant.claimed if grant and not is_handoff else None
            if is_handoff or kept.agent == parent.target or claimed == parent.id:
                by = holder if holder and not is_handoff else kept.agent
                parent.entry = Entry(next=id_, by=by, passed_on=is_handoff, done_us=self.clock.us)
        assert id_ not in self.kept, "an id was given out twice"
        self.kept[id_] = kept
        line.tree, line.head, line.sequence = tree, id_, kept.sequence
        return kept

    def bury(self, kept: Kept) -> None:
        """It expires, and heads move off it."""
        kept.undoable = kept.undoable or not self.has_outlived(kept)
        kept.buried = True
        for line in self.lines.values():
            if line.head == kept.id:
                nearest = self.find_nearest_live(kept.id)
                line.head = nearest.id if nearest else None

    # -- leases -------------------------------------------------------------------------------------------------------

    def is_leased(self, session: str) -> bool:
        """Whether somebody holds its lease: it has not run out, and its process has not died."""
        line = self.lines.get(session)
        held = line.lease if line else None
        return held is not None and self.clock.us < held.until_us and held.process not in self.ended

    def holds(self, grant: Grant) -> bool:
        line = self.lines.get(grant.session)
        held = line.lease if line and line.fence == grant.token else None
        return held is not None and self.clock.us < held.until_us

    def refusal(self, session: str, grant: Grant | None) -> Refusal:
        """What is raised by whoever writes to the session with that lease, or with none."""
        if grant is None:
            return LeaseHeldError if self.is_leased(session) else None
        return None if self.holds(grant) else LeaseLostError

    def may_begin(self, session: str, tree: str) -> bool:
        """Whether a fork in that tree may take the name: nobody has it, or a session of the tree
        that stands at nothing."""
        line = self.lines.get(session)
        return line is None or (line.tree == tree and line.head is None and not self.is_leased(session))

    def next_token(self, session: str) -> int:
        return max(self.lines.get(session, Line(None)).fence + 1, self.clock.us)

    def give(self, grant: Grant) -> None:
        line = self.lines.setdefault(grant.session, Line(None))
        line.fence = grant.token
        line.lease = Held(self.clock.us + round(grant.seconds * 1e6), grant.holder, grant.process)
        self.grants.append(grant)

    # -- handoffs -----------------------------------------------------------------------------------------------------

    def claim_in_force(self, kept: Kept) -> Grant | None:
        grant = kept.entry.claimed if kept.entry else None
        line = self.lines[kept.session]
        return grant if grant and line.fence == grant.token and self.is_leased(kept.session) else None

    def status(self, kept: Kept) -> Listed:
        entry, line = kept.entry, self.lines[kept.session]
        assert entry is not None
        if entry.next is not None:
            status = HandoffStatus.PASSED_ON if entry.passed_on else HandoffStatus.TAKEN_UP
            return kept.id, status, entry.by, entry.done_us, entry.next
        if entry.claimed is not None and line.fence == entry.claimed.token and line.lease is not None:
            status = HandoffStatus.CLAIMED if self.is_leased(kept.session) else HandoffStatus.TIMED_OUT
            return kept.id, status, entry.claimed.holder, entry.claimed_us, None
        return kept.id, HandoffStatus.OPEN, None, None, None

    def inbox(self, agent: str, *, include_claimed: bool) -> list[Listed]:
        offered = [kept for kept in self.live() if kept.target == agent and kept.entry is not None]
        listed = [self.status(kept) for kept in sorted(offered, key=lambda kept: (kept.created_us, kept.id))]
        waiting = (HandoffStatus.OPEN, HandoffStatus.TIMED_OUT)
        return [one for one in listed if include_claimed or one[1] in waiting]

    # -- letting go ---------------------------------------------------------------------------------------------------

    def let_go(self, keep_last: int, keep_every: int | None) -> set[str]:
        """What a policy lets go."""
        heads = {head.id for session in self.lines if (head := self.head(session))}
        going = set()
        for session in {kept.session for kept in self.live()}:
            for kept in self.live_of(session)[keep_last:]:
                waits = kept.entry is not None and kept.entry.next is None
                is_nth = keep_every is not None and kept.sequence % keep_every == 0
                if not (kept.id in heads or kept.is_held or waits or is_nth):
                    going.add(kept.id)
        return going

    def collect(self) -> None:
        """Expiries become final. A tree without anything live goes, unless somebody holds a lease in it; so does a
        session that was leased and never saved to, when nobody holds its lease any more."""
        for kept in self.kept.values():
            if not kept.gone and not self.is_live(kept):
                kept.buried, kept.undoable, kept.entry = True, False, None
            kept.undoable = False
        for line in self.lines.values():
            nearest = self.find_nearest_live(line.head)
            line.head = nearest.id if nearest else None
        staying = {kept.tree for kept in self.live()}
        staying |= {line.tree for session, line in self.lines.items() if self.is_leased(session) and line.tree}
        for kept in self.kept.values():
            kept.gone = kept.gone or kept.tree not in staying
        for session in [name for name, line in self.lines.items() if line.tree not in staying]:
            if not self.is_leased(session):
                del self.lines[session]
