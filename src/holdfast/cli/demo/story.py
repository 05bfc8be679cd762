"""The acts of the demo, in order. Each does one thing and returns its measurements."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.demo import agent
from holdfast.cli.demo.processes import AgentProcess, run_agent

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient
    from holdfast.model.reports import Stats, VerifyReport

SESSION = "order-pumps"
FORK = "order-pumps-fastest"
POLICY, OTHER_POLICY = "cheapest", "fastest"
KILLED_AT_WORK = "begins quote_cascade"  # in the middle of a step, with the one before acknowledged
KILLED_AT_SAVE = "saving book_freight"  # while its checkpoint is being written
FORKED_AFTER = "compare_quotes"  # the last step before the decision


@dataclass(frozen=True, slots=True)
class Crash:
    """A life that was killed, and what the store had afterwards. `found` is the last step that it holds."""

    life: AgentProcess
    acknowledged: str
    found: str
    lost: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return self.life.was_killed and not self.lost


@dataclass(frozen=True, slots=True)
class FinalState:
    """A run that reached its end; `repeated` are steps done again although their save was acknowledged."""

    state: dict[str, Any]
    is_exact: bool  # equal to what a run without interruption arrives at
    repeated: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return self.is_exact and not self.repeated


@dataclass(frozen=True, slots=True)
class Fork:
    source_id: str
    seconds: float
    life: AgentProcess
    ending: FinalState


def crash(client: SyncClient, store: Path, kill_when: str, before: list[AgentProcess]) -> Crash:
    """Run the agent until it prints `kill_when`, kill it, and check what is left."""
    life = run_agent(store, SESSION, POLICY, kill_when=kill_when)
    acknowledged = [name for process in (*before, life) for name in process.saved]
    stored = {entry.step_name for entry in client.timeline(session_id=SESSION)}
    head = client.latest(session_id=SESSION)
    return Crash(
        life=life,
        acknowledged=acknowledged[-1] if acknowledged else "",
        found=(head.step_name or "") if head else "",
        lost=tuple(name for name in acknowledged if name not in stored),
    )


def finish(client: SyncClient, session: str, policy: str, lives: list[AgentProcess]) -> FinalState:
    """Return the final state of the session, after all its lives."""
    head = client.latest(session_id=session)
    state = head.execution_state if head else {}
    repeated: list[str] = []
    acknowledged: set[str] = set()
    for process in lives:
        repeated += [name for name in process.began if name in acknowledged]
        acknowledged |= process.saved.keys()
    return FinalState(state=state, is_exact=_is_same(state, agent.run_uninterrupted(policy)), repeated=tuple(repeated))


def fork(client: SyncClient, store: Path) -> Fork:
    """Goes back to before the decision, in a session of its own, and decides otherwise."""
    source = next(entry for entry in client.timeline(session_id=SESSION) if entry.step_name == FORKED_AFTER)
    started = time.perf_counter()
    client.fork(source.checkpoint_id, session_id=FORK)
    seconds = time.perf_counter() - started
    life = run_agent(store, FORK, OTHER_POLICY)
    return Fork(source.checkpoint_id, seconds, life, finish(client, FORK, OTHER_POLICY, [life]))


def check(store: Path) -> tuple[VerifyReport, Stats]:
    """Verify the store as the next process will find it: the last close has checkpointed its WAL."""
    from holdfast.client.sync import SyncClient

    with SyncClient.sqlite(store) as client:
        return client.verify(), client.stats()


def _is_same(a: Any, b: Any) -> bool:
    """Equal, in every type, too: 1 is not 1.0, and a date is not its text."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(_is_same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(_is_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
