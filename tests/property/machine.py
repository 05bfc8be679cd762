"""A state machine that drives a store through its clients, beside a model that is only dictionaries.

The model keeps every checkpoint that was ever saved with all that it must come back with, where each session stands,
and the time. After each step a few checkpoints are compared, at the end all of them.
"""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from holdfast import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    ConflictError,
    Framework,
    SyncClient,
    UsageError,
)
from machine_values import large, odd, stretches
from strategies import same
from support import Clock, Store

AGENTS = st.sampled_from(["planner", "writer", "\ud800"])
NAMES = st.sampled_from(["s", "t", "../x", "a:b", "", "\x00", "ünï"])
TTL = st.none() | st.none() | st.sampled_from([10, 60.5, 1000])


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
    buried: bool = False  # expired by hand, or by a collection
    gone: bool = False  # with its whole tree
    pinned: bool = False
    passed_on: bool = False  # a handoff that was handed on


@dataclass
class Line:
    """A session: its tree, what it stands at, and the last number given out."""

    tree: str
    head: str | None
    sequence: int


class Model:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.kept: dict[str, Kept] = {}
        self.lines: dict[str, Line] = {}

    def is_live(self, kept: Kept) -> bool:
        outlived = kept.ttl is not None and self.clock.us >= kept.created_us + round(kept.ttl * 1_000_000)
        return not (kept.buried or kept.gone or (outlived and not kept.pinned))

    def nearest_live(self, id_: str | None) -> Kept | None:
        while id_ is not None:
            kept = self.kept[id_]
            if self.is_live(kept):
                return kept
            id_ = kept.parent
        return None

    def head(self, session: str) -> Kept | None:
        line = self.lines.get(session)
        return self.nearest_live(line.head) if line else None

    def live(self) -> list[Kept]:
        return [kept for kept in self.kept.values() if self.is_live(kept)]

    def add(self, id_: str, session: str, parent: Kept | None, **fields: Any) -> Kept:
        line = self.lines.get(session)
        tree = line.tree if line else parent.tree if parent else id_
        sequence = line.sequence + 1 if line else 1
        fields.setdefault("step", parent.step + 1 if parent else 0)
        kept = Kept(
            id=id_,
            session=session,
            tree=tree,
            parent=parent.id if parent else None,
            sequence=sequence,
            created_us=self.clock.us,
            **fields,
        )
        assert id_ not in self.kept, "an id was given out twice"
        self.kept[id_] = kept
        self.lines[session] = Line(tree, id_, sequence)
        return kept

    def let_go(self, keep_last: int, keep_every: int | None) -> set[str]:
        """What a policy lets go."""
        heads = {head.id for session in self.lines if (head := self.head(session))}
        going = set()
        for session in {kept.session for kept in self.live()}:
            newest_first = sorted((k for k in self.live() if k.session == session), key=lambda k: -k.sequence)
            for kept in newest_first[keep_last:]:
                waits = kept.target is not None and not kept.passed_on
                is_nth = keep_every is not None and kept.sequence % keep_every == 0
                if not (kept.id in heads or kept.pinned or waits or is_nth):
                    going.add(kept.id)
        return going

    def collect(self) -> None:
        for kept in self.kept.values():
            if not kept.gone and not self.is_live(kept):
                kept.buried = True
        for line in self.lines.values():
            nearest = self.nearest_live(line.head)
            line.head = nearest.id if nearest else None
        trees = {kept.tree for kept in self.kept.values()}
        for tree in trees - {kept.tree for kept in self.live()}:
            for kept in self.kept.values():
                if kept.tree == tree:
                    kept.gone = True
            for session in [name for name, line in self.lines.items() if line.tree == tree]:
                del self.lines[session]


# -- what agents do to their states -----------------------------------------------------------------------------------


@st.composite
def first_states(draw: st.DrawFn) -> Any:
    state: dict[Any, Any] = {"m": draw(stretches)}
    if draw(st.booleans()):
        state["values"] = {"m": draw(stretches), "n": draw(st.integers(0, 3))}
    if draw(st.booleans()):
        state["text"] = draw(large)
    if draw(st.booleans()):
        state["any"] = draw(odd)
    return state


@dataclass(frozen=True)
class Edit:
    """What an agent does to its state between two saves."""

    kind: str
    path: tuple[str, ...]
    at: int
    until: int
    new: list[Any]
    text: str | bytes

    def __call__(self, state: Any) -> None:
        """Changes the state in place."""
        if self.kind == "text":
            state["text"] = self.text
        elif self.kind == "drop":
            state.pop("any", None)
        elif self.kind == "key":  # another order of keys
            state["m"] = state.pop("m", [])
        else:
            for key in self.path[:-1]:
                state = state.setdefault(key, {})
            self._edit_list(state.setdefault(self.path[-1], []))

    def _edit_list(self, items: list[Any]) -> None:
        new = copy.deepcopy(self.new)
        if self.kind == "extend":
            items += new
        elif self.kind == "insert":
            items[self.at : self.at] = new
        elif self.kind == "delete":
            del items[self.at : self.until]
        elif self.kind == "replace":
            items[self.at : self.until] = new
        elif self.kind == "slide":
            items += new
            del items[: len(new)]
        elif self.kind == "move" and items:
            items.append(items.pop(self.at % len(items)))


edits = st.builds(
    Edit,
    kind=st.sampled_from(["extend", "extend", "insert", "delete", "replace", "slide", "text", "move", "drop", "key"]),
    path=st.sampled_from([("m",), ("m",), ("values", "m")]),
    at=st.integers(0, 100),
    until=st.integers(0, 200),
    new=stretches,
    text=large,
)


# -- the machine ------------------------------------------------------------------------------------------------------


class StoreMachine(RuleBasedStateMachine):
    """Subclasses say which kind of store. `clients` have a memory each, as processes do."""

    kind = "memory"
    server = ""
    checkpoints: Bundle[str] = Bundle("checkpoints")

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.store = Store(self.kind, Path(self.directory.name), self.server)
        self.clock = Clock()
        self.model = Model(self.clock)
        self.clients = [self.open(), self.open()]
        self.counter = 0

    def open(self) -> SyncClient:
        client = self.store.client()
        self.clock.rules(client)
        return client

    def teardown(self) -> None:
        try:
            self.check_everything()
        finally:
            self.store.close()
            self.directory.cleanup()

    def new_id(self) -> str:
        self.counter += 1
        return f"01939c5e-7c1b-7000-8a2f-{self.counter:012x}"

    # -- saving -------------------------------------------------------------------------------------------------------

    @initialize(target=checkpoints, state=first_states())
    def begin(self, state: Any) -> str:
        return self._save(0, "s", None, state, {})

    @rule(target=checkpoints, who=st.integers(0, 1), session=NAMES, state=first_states(), context=odd, agent=AGENTS,
          ttl=TTL, step=st.none() | st.integers(0, 9))  # fmt: skip
    def save_anything(self, who, session, state, context, agent, ttl, step) -> str:
        return self._save(
            who, session, None, state, {} if context is None else context, agent=agent, ttl=ttl, step=step
        )

    @rule(target=checkpoints, who=st.integers(0, 1), session=NAMES, edit=edits, ttl=TTL)
    def go_on(self, who, session, edit, ttl) -> str:
        """What agents do: the state of the head, changed a little."""
        head = self.model.head(session)
        state = copy.deepcopy(head.state) if head and isinstance(head.state, dict) else {"m": []}
        edit(state)
        return self._save(who, session, None, state, copy.deepcopy(head.context) if head else {}, ttl=ttl)

    @rule(target=checkpoints, who=st.integers(0, 1), session=NAMES, parent=checkpoints, edit=edits)
    def save_after_another_parent(self, who, session, parent, edit) -> str:
        kept = self.model.kept[parent]
        state = copy.deepcopy(kept.state)
        edit(state)
        line = self.model.lines.get(session)
        if not self.model.is_live(kept):
            with pytest.raises(CheckpointNotFoundError if kept.gone else CheckpointExpiredError):
                self.clients[who].save("a", session_id=session, parent_id=parent, execution_state=state)
            return parent
        if line is not None and line.tree != kept.tree:
            with pytest.raises(UsageError, match="another tree"):
                self.clients[who].save("a", session_id=session, parent_id=parent, execution_state=state)
            return parent
        return self._save(who, session, kept, state, {})

    def _save(
        self,
        who: int,
        session: str,
        parent: Kept | None,
        state: Any,
        context: Any,
        *,
        agent: str = "planner",
        ttl: float | None = None,
        step: int | None = None,
    ) -> str:
        expected = parent or self.model.head(session)
        saved = self.clients[who].save(
            agent, execution_state=state, context=context, session_id=session, ttl_seconds=ttl, step_index=step,
            parent_id=parent.id if parent else None, step_name=f"step of {agent}", note=len(self.model.kept),
        )  # fmt: skip
        fields = {} if step is None else {"step": step}
        self.model.add(
            saved, session, expected, agent=agent, state=copy.deepcopy(state), context=copy.deepcopy(context), ttl=ttl,
            name=f"step of {agent}", metadata={"note": len(self.model.kept)}, **fields,
        )  # fmt: skip
        return saved

    @rule(target=checkpoints, who=st.integers(0, 1), session=NAMES, new=stretches, nested=stretches,
          both=st.booleans(), again=st.booleans())  # fmt: skip
    def append(self, who, session, new, nested, both, again) -> str:
        head = self.model.head(session)
        older = head.state if head and isinstance(head.state, dict) else {}
        appended: dict[str, Any] = {"m": new} | ({"values.m": nested} if both else {})
        state: dict[str, Any] = {"n": 1, "m": [*older.get("m", []), *new]}
        if both:
            state["values"] = {"m": [*older.get("values", {}).get("m", []), *nested]}
        id_ = self.new_id()
        for _ in range(2 if again else 1):
            saved = self.clients[who].save(
                "planner", session_id=session, execution_state={"n": 1}, append=appended, checkpoint_id=id_
            )
            assert saved == id_
        self.model.add(id_, session, head, agent="planner", state=copy.deepcopy(state), context={})
        return id_

    @rule(who=st.integers(0, 1), id_=checkpoints, other=st.booleans())
    def repeat(self, who, id_, other) -> None:
        """The same id with the same content is a no-op, with other content a conflict."""
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
        if other or kept.buried:
            with pytest.raises(ConflictError):
                self.clients[who].save(**arguments)
        else:
            assert self.clients[who].save(**arguments) == id_

    # -- going other ways ---------------------------------------------------------------------------------------------

    @rule(target=checkpoints, who=st.integers(0, 1), source=checkpoints, session=NAMES)
    def fork(self, who, source, session) -> str:
        kept = self.model.kept[source]
        if not self.model.is_live(kept) or session in self.model.lines:
            with pytest.raises((CheckpointNotFoundError, CheckpointExpiredError, ConflictError)):
                self.clients[who].fork(source, session_id=session)
            return source
        report = self.clients[who].fork(source, session_id=session)
        self.model.add(
            report.checkpoint_id, session, kept, agent=kept.agent, step=kept.step, state=copy.deepcopy(kept.state),
            context=copy.deepcopy(kept.context), ttl=kept.ttl, name="fork", metadata=kept.metadata,
            framework=kept.framework,
        )  # fmt: skip
        return report.checkpoint_id

    @rule(target=checkpoints, who=st.integers(0, 1), source=checkpoints)
    def handoff(self, who, source) -> str:
        kept = self.model.kept[source]
        if not self.model.is_live(kept):
            with pytest.raises((CheckpointNotFoundError, CheckpointExpiredError)):
                self.clients[who].handoff(source, "approver")
            return source
        id_ = self.clients[who].handoff(source, "approver")
        kept.passed_on = True
        self.model.add(
            id_, kept.session, kept, agent=kept.agent, state=copy.deepcopy(kept.state),
            context=copy.deepcopy(kept.context), ttl=kept.ttl, name="handoff_to_approver", metadata=kept.metadata,
            framework=kept.framework, target="approver",
        )  # fmt: skip
        return id_

    @rule(who=st.integers(0, 1), session=NAMES, to=checkpoints)
    def rollback(self, who, session, to) -> None:
        kept, line = self.model.kept[to], self.model.lines.get(session)
        if line is None or not self.model.is_live(kept) or kept.tree != line.tree:
            with pytest.raises((CheckpointNotFoundError, CheckpointExpiredError, UsageError)):
                self.clients[who].rollback(session, to=to)
            return
        report = self.clients[who].rollback(session, to=to)
        assert report.to_id == to
        line.head = to

    # -- ending -------------------------------------------------------------------------------------------------------

    @rule(who=st.integers(0, 1), id_=consumes(checkpoints))
    def expire(self, who, id_) -> None:
        kept = self.model.kept[id_]
        if kept.pinned:
            with pytest.raises(ConflictError, match="unpin"):
                self.clients[who].expire(id_)
            return
        assert self.clients[who].expire(id_) is self.model.is_live(kept)
        if kept.gone:
            return
        kept.buried = True
        for line in self.model.lines.values():
            if line.head == id_:
                nearest = self.model.nearest_live(id_)
                line.head = nearest.id if nearest else None

    @rule(who=st.integers(0, 1), id_=checkpoints, tags=st.booleans())
    def pin(self, who, id_, tags) -> None:
        kept = self.model.kept[id_]
        if self.model.is_live(kept):
            self.clients[who].pin(id_)
            kept.pinned = True
            return
        with pytest.raises(CheckpointNotFoundError if kept.gone else CheckpointExpiredError):
            self.clients[who].tag("name", id_) if tags else self.clients[who].pin(id_)

    @rule(who=st.integers(0, 1), id_=checkpoints)
    def unpin(self, who, id_) -> None:
        kept = self.model.kept[id_]
        assert self.clients[who].unpin(id_) is kept.pinned
        kept.pinned = False

    @rule(
        who=st.integers(0, 1), keep_last=st.integers(0, 6), keep_every=st.none() | st.integers(1, 4), dry=st.booleans()
    )
    def retain(self, who, keep_last, keep_every, dry) -> None:
        going = self.model.let_go(keep_last, keep_every)
        report = self.clients[who].retain(keep_last=keep_last, keep_every=keep_every, dry_run=dry)
        assert {id_ for session in report.sessions for id_ in session.going} == going
        if not dry:
            for id_ in going:
                self.model.kept[id_].buried = True
            self.model.collect()

    @rule(who=st.integers(0, 1), session=NAMES, count=st.integers(0, 3))
    def keep_the_last(self, who, session, count) -> None:
        """By hand, heads included: all but the last ones of a session expire, and are collected and packed."""
        live = [kept for kept in self.model.live() if kept.session == session]
        for kept in sorted(live, key=lambda kept: -kept.sequence)[count:]:
            self.expire(who, kept.id)
        self.collect(who, dry=False)

    @rule(seconds=st.sampled_from([-5, 0.001, 15, 100]))
    def time_passes(self, seconds) -> None:
        """Clocks go back, too: as far as nothing that has ended comes to life again."""
        if seconds < 0 and any(kept.ttl for kept in self.model.kept.values()):
            return
        self.clock.forward(seconds)

    @rule(who=st.integers(0, 1), dry=st.booleans())
    def collect(self, who, dry) -> None:
        live = len(self.model.live())
        due = sum(
            not kept.buried and not kept.gone and not self.model.is_live(kept) for kept in self.model.kept.values()
        )
        assert self.clients[who].gc(dry_run=dry).expired_by_ttl == due
        if not dry:
            self.model.collect()
        assert len(self.model.live()) == live

    @rule(who=st.integers(0, 1))
    def reopen(self, who) -> None:
        """A new process on the same store."""
        self.clients[who] = self.open()

    # -- what must hold -----------------------------------------------------------------------------------------------

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
        client = self.open()
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
        for session in expected:
            self._check_tree(client, session)

    def _check_checkpoint(self, kept: Kept, client: SyncClient | None = None) -> None:
        client = client or self.clients[kept.sequence % 2]
        if not self.model.is_live(kept):
            with pytest.raises(CheckpointNotFoundError if kept.gone else CheckpointExpiredError):
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
        live = [kept for kept in self.model.live() if kept.session == session and kept.tree == line.tree]
        expected = [kept.id for kept in sorted(live, key=lambda kept: -kept.sequence)]
        found = self.clients[1].timeline(session_id=session, limit=10_000)
        assert [entry.checkpoint_id for entry in found] == expected
        handed = [kept.id for kept in sorted(live, key=lambda kept: -kept.sequence) if kept.target == "approver"]
        assert [entry.checkpoint_id for entry in self.clients[1].timeline("approver", session)] == handed[:50]

    def _check_tree(self, client: SyncClient, session: str) -> None:
        tree = client.tree(session)
        live = {kept.id for kept in self.model.live() if kept.tree == tree.tree_id}
        assert {entry.checkpoint_id for entry in tree.entries} == live
        places = {entry.checkpoint_id: place for place, entry in enumerate(tree.entries)}
        for id_, parent in tree.parents.items():
            nearest = self.model.nearest_live(self.model.kept[id_].parent)
            assert parent == (nearest.id if nearest else None)
            assert parent is None or places[id_] < places[parent]
