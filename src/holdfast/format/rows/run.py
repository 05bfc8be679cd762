"""Rows of runs: how the last life of a run ended, its call, its progress, and when a worker is due.

The row of a run is in the run's tree. It is written in the commit that takes or releases the
session's lease, so row and lease always agree. The rows of due runs are in no tree: they are an
index for workers, and a hint only. The run's own row decides.
"""

from __future__ import annotations

from typing import NamedTuple

import ormsgpack

from holdfast.backends.port import Row, RowKey, RowWrite
from holdfast.format.rows import head
from holdfast.model.lease import Process

RUN, CALL, PROGRESS, DUE, AWAITS = "run", "runcall", "progress", "due", "awaits"

# The states of a run without a lease, and of the life of a worker that has one.
READY = "ready"  # a worker is to take it, not before `due_us`
TAKEN = "taken"  # a worker has taken it
PARKED = "parked"  # it waits for something else than a time
DOUBTFUL = "doubtful"  # it met an effect whose outcome is unknown
STOPPED = "stopped"  # it was interrupted from outside, by Ctrl-C or a cancelled task
FAILED, COMPLETED = "failed", "completed"
OVER = (FAILED, COMPLETED)

# What a run waits for without a process.
TIMER, APPROVAL, JOIN, RECEIVE, MESSAGE = "timer", "approval", "join", "receive", "message"
OF_TOPICS = (RECEIVE, MESSAGE)
NO_PROCESS = Process("", 0, 0)


class FailureRow(NamedTuple):
    """The exception that ended a life: class, message, step, and the last lines of the traceback."""

    error_type: str
    message: str
    step: str | None
    traceback: str


class WaitedFor(NamedTuple):
    """What a run waits for without a process: a kind, its targets, and until when at most.

    `mark` is how many of the targets are enough, or the position after which a message counts.
    """

    kind: str
    targets: tuple[str, ...]
    until_us: int | None
    mark: int = 0


class RunRow(NamedTuple):
    """A run between two lives: its state, and under which lease (`token`) that was written.

    `function`, `version` and `digest` (of the arguments) are those of a run that workers carry out.
    `attempts` counts lives that failed, or died without a new checkpoint after `sequence`. `effects`
    are those in doubt, each with the version of its ledger entry then.
    """

    state: str
    token: int
    at_us: int
    attempts: int = 0
    function: str | None = None
    version: str = ""
    digest: bytes = b""
    due_us: int | None = None
    sequence: int = 0
    started_us: int = 0
    wait: WaitedFor | None = None
    effects: tuple[tuple[bytes, int], ...] = ()
    failure: FailureRow | None = None
    result: bytes | None = None
    more_waits: tuple[WaitedFor, ...] = ()  # of parallel branches
    takes_more: bool = False  # a turn of a conversation: once it has completed, the next one may be started

    @property
    def waits(self) -> tuple[WaitedFor, ...]:
        """What it waits for: any of these is enough."""
        return () if self.wait is None else (self.wait, *self.more_waits)

    def write(self, session: bytes, tree: bytes) -> RowWrite:
        key = run_key(session, tree)
        waits = [[wait.kind, [_text(target) for target in wait.targets], *wait[2:]] for wait in self.waits]
        failure = None if self.failure is None else [None if item is None else _text(item) for item in self.failure]
        fields = [
            self.state, self.token, self.at_us, self.attempts,
            None if self.function is None else _text(self.function), _text(self.version), self.digest, self.due_us,
            self.sequence, self.started_us, waits[0] if waits else None, [list(effect) for effect in self.effects],
            failure, self.result, waits[1:], self.takes_more,
        ]  # fmt: skip
        return RowWrite(key, head.protect(key, ormsgpack.packb(fields)))


def run_key(session: bytes, tree: bytes) -> RowKey:
    return RowKey(RUN, session, tree)


def unpack_run(key: RowKey, row: Row) -> RunRow:
    (
        state,
        token,
        at,
        attempts,
        function,
        version,
        digest,
        due,
        sequence,
        started,
        wait,
        effects,
        failure,
        result,
        *more,
    ) = ormsgpack.unpackb(head.content(key, row))
    name = head.session_name
    return RunRow(
        state, token, at, attempts, None if function is None else name(function), name(version), digest, due, sequence,
        started, None if wait is None else _waited_for(*wait), tuple((id_, known) for id_, known in effects),
        None if failure is None else _failure(*failure), result,
        tuple(_waited_for(*item) for item in more[0]) if more else (), len(more) > 1 and more[1],
    )  # fmt: skip


def _waited_for(kind: str, targets: list[bytes], until_us: int | None, mark: int = 0, *_: object) -> WaitedFor:
    return WaitedFor(kind, tuple(map(head.session_name, targets)), until_us, mark)


def _failure(error_type: bytes, message: bytes, step: bytes | None, traceback: bytes) -> FailureRow:
    name = head.session_name
    return FailureRow(name(error_type), name(message), None if step is None else name(step), name(traceback))


# -- the call --------------------------------------------------------------------------------------------------------


class CallRow(NamedTuple):
    """The call of a named function: the agent that the run belongs to, and the encoded arguments.

    A delegated run answers the offer whose id is the id of its tree. `trace` is the span that has
    started it, in the form of W3C Trace Context.
    """

    agent: str
    arguments: bytes
    is_delegated: bool = False
    trace: str | None = None

    def write(self, session: bytes, tree: bytes) -> RowWrite:
        key = call_key(session, tree)
        return RowWrite(key, head.protect(key, ormsgpack.packb([_text(self.agent), *self[1:]])))


def call_key(session: bytes, tree: bytes) -> RowKey:
    return RowKey(CALL, session, tree)


def unpack_call(key: RowKey, row: Row) -> CallRow:
    agent, arguments, *more = ormsgpack.unpackb(head.content(key, row))
    return CallRow(head.session_name(agent), arguments, *more[:2])


# -- progress --------------------------------------------------------------------------------------------------------


class ProgressRow(NamedTuple):
    """What a run has reported of its progress, under which lease, and when."""

    token: int
    done: float
    total: float | None
    note: str | None
    at_us: int

    def write(self, session: bytes, tree: bytes) -> RowWrite:
        key = progress_key(session, tree)
        note = None if self.note is None else _text(self.note)
        fields = [self.token, self.done, self.total, note, self.at_us]
        return RowWrite(key, head.protect(key, ormsgpack.packb(fields)))


def progress_key(session: bytes, tree: bytes) -> RowKey:
    return RowKey(PROGRESS, session, tree)


def unpack_progress(key: RowKey, row: Row) -> ProgressRow:
    token, done, total, note, at_us, *_ = ormsgpack.unpackb(head.content(key, row))
    return ProgressRow(token, done, total, None if note is None else head.session_name(note), at_us)


# -- the index of due runs -------------------------------------------------------------------------------------------


class DueRow(NamedTuple):
    """A hint for workers: look at this run at that time. `process` holds its lease until then, if given."""

    at_us: int
    session: bytes
    tree: bytes
    function: str
    version: str
    process: Process = NO_PROCESS

    @property
    def key(self) -> RowKey:
        return RowKey(DUE, self.at_us.to_bytes(8, "big") + self.session)

    def write(self) -> RowWrite:
        fields = [self.tree, _text(self.function), _text(self.version), *self.process]
        return RowWrite(self.key, head.protect(self.key, ormsgpack.packb(fields)))

    def delete(self) -> RowWrite:
        return RowWrite(self.key, None)


def unpack_due(key: RowKey, row: Row) -> DueRow:
    tree, function, version, place, pid, started, *_ = ormsgpack.unpackb(head.content(key, row))
    names = head.session_name(function), head.session_name(version)
    return DueRow(int.from_bytes(key.key[:8], "big"), key.key[8:], tree, *names, Process(place, pid, started))


# -- the index of runs that wait for messages --------------------------------------------------------------------------


class AwaitsRow(NamedTuple):
    """A parked run that waits for messages of a topic: who publishes one hints at the run."""

    topic: str
    session: bytes
    tree: bytes
    function: str
    version: str

    @property
    def key(self) -> RowKey:
        return RowKey(AWAITS, awaits_prefix(self.topic) + self.session)

    def write(self) -> RowWrite:
        fields = [self.tree, _text(self.function), _text(self.version)]
        return RowWrite(self.key, head.protect(self.key, ormsgpack.packb(fields)))

    def delete(self) -> RowWrite:
        return RowWrite(self.key, None)


def awaits_prefix(topic: str) -> bytes:
    name = _text(topic)
    return len(name).to_bytes(2, "big") + name


def unpack_awaits(topic: str, key: RowKey, row: Row) -> AwaitsRow:
    tree, function, version, *_ = ormsgpack.unpackb(head.content(key, row))
    session = key.key[len(awaits_prefix(topic)) :]
    return AwaitsRow(topic, session, tree, head.session_name(function), head.session_name(version))


def _text(text: str) -> bytes:
    return head.session_key(text)
