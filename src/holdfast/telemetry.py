"""OpenTelemetry spans and metrics: names, attributes, and what records them.

Only the API package is used, and only if the program has imported it and set a provider: else,
nothing is recorded and nothing imported. No attribute has a value that users have saved: no state, argument,
result, or message of an exception. Recorded results of steps make no spans.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
SCOPE = "holdfast"

# -- spans -------------------------------------------------------------------------------------------------------------

SAVE, RESTORE, FORK, ROLLBACK = "holdfast.save", "holdfast.restore", "holdfast.fork", "holdfast.rollback"
HANDOFF, CLAIM, DECIDE = "holdfast.handoff", "holdfast.claim", "holdfast.approval.decide"
REPLAY, RETAIN, GC, VERIFY = "holdfast.replay", "holdfast.retain", "holdfast.gc", "holdfast.verify"
SNAPSHOT, RESTORE_FILES = "holdfast.workspace.snapshot", "holdfast.workspace.restore"
RUN, STEP, EFFECT = "holdfast.run", "holdfast.step", "holdfast.effect"
SPANS = (
    SAVE, RESTORE, FORK, ROLLBACK, HANDOFF, CLAIM, DECIDE, REPLAY, RETAIN, GC, VERIFY, SNAPSHOT, RESTORE_FILES, RUN,
    STEP, EFFECT,
)  # fmt: skip

# Events of these spans, by the class of the error that ended them.
EVENTS = {
    "ConflictError": "holdfast.conflict",
    "LeaseLostError": "holdfast.lease.lost",
    "EffectUnknownError": "holdfast.effect.unknown",
}

# -- attributes --------------------------------------------------------------------------------------------------------

SESSION, CHECKPOINT, PARENT = "holdfast.session.id", "holdfast.checkpoint.id", "holdfast.checkpoint.parent_id"
TREE, SEQUENCE = "holdfast.tree.id", "holdfast.sequence"
STATE_BYTES, STORED_BYTES = "holdfast.state.bytes", "holdfast.stored.bytes"
BACKEND, DURABILITY, FILES_CHANGED = "holdfast.backend", "holdfast.durability", "holdfast.files.changed"
STEP_NAME, EFFECT_KIND, EFFECT_STATUS = "holdfast.step.name", "holdfast.effect.kind", "holdfast.effect.status"
RUN_STATUS, RUN_FUNCTION = "holdfast.run.status", "holdfast.run.function"
CONVERSATION, AGENT, ERROR = "gen_ai.conversation.id", "gen_ai.agent.name", "error.type"
GEN_AI_OPERATION, TOOL = "gen_ai.operation.name", "gen_ai.tool.name"
INVOKE_AGENT, EXECUTE_TOOL = "invoke_agent", "execute_tool"  # the operations of runs and effects
OPERATION = "holdfast.operation"
ATTRIBUTES = (
    SESSION, CHECKPOINT, PARENT, TREE, SEQUENCE, STATE_BYTES, STORED_BYTES, BACKEND, DURABILITY, FILES_CHANGED,
    STEP_NAME, EFFECT_KIND, EFFECT_STATUS, RUN_STATUS, RUN_FUNCTION, CONVERSATION, AGENT, GEN_AI_OPERATION, TOOL, ERROR,
    OPERATION,
)  # fmt: skip

# -- metrics: no session or checkpoint is ever an attribute of one -----------------------------------------------------

DURATION = "holdfast.operation.duration"  # s; operation, backend, error.type
SAVES = "holdfast.saves"  # {checkpoint}; backend
STORED = "holdfast.stored"  # By: that saves have written; backend
STATE_SIZE = "holdfast.state.size"  # By: of whole states; backend
FILES = "holdfast.workspace.files.changed"  # {file}; operation
CONFLICTS = "holdfast.conflicts"  # {conflict}; operation, backend
EFFECTS = "holdfast.effects"  # {effect}; kind, status
RUNS_ALIVE = "holdfast.runs.alive"  # {run}: in this process
METRICS = (DURATION, SAVES, STORED, STATE_SIZE, FILES, CONFLICTS, EFFECTS, RUNS_ALIVE)


class RecordedSpan:
    """A span that is recorded now; without OpenTelemetry it takes attributes and drops them."""

    def __init__(self, span: Any = None, name: str = "") -> None:
        self._span, self.name = span, name

    def set(self, name: str, value: Any) -> None:
        if self._span is not None and value is not None:
            self._span.set_attribute(name, value)


_NONE = RecordedSpan()


class _Instruments:
    """What the program's providers give, made once for each pair of providers."""

    def __init__(self, trace: Any, metrics: Any) -> None:
        from holdfast import __version__

        self.trace = trace
        self.tracer = trace.get_tracer(SCOPE, __version__)
        meter = metrics.get_meter(SCOPE, __version__)
        self.duration = meter.create_histogram(DURATION, "s", "Duration of an operation")
        self.saves = meter.create_counter(SAVES, "{checkpoint}", "Checkpoints saved")
        self.stored = meter.create_counter(STORED, "By", "Bytes that saves have written")
        self.state_size = meter.create_histogram(STATE_SIZE, "By", "Size of a saved state")
        self.files = meter.create_counter(FILES, "{file}", "Files that had changed, or that a restore changed")
        self.conflicts = meter.create_counter(CONFLICTS, "{conflict}", "Operations refused by a conflict")
        self.effects = meter.create_counter(EFFECTS, "{effect}", "Effects carried out, or not")
        self.alive = meter.create_up_down_counter(RUNS_ALIVE, "{run}", "Runs at work in this process")


_made: list[tuple[Any, Any, _Instruments | None]] = []


def _instruments() -> _Instruments | None:
    """Return the instruments, if the program records; made again if it has changed providers.

    Other libraries import the API, too: without a provider that the program has set, no operation
    pays for spans and metrics that are dropped.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    from opentelemetry import metrics  # of the same package

    providers = trace.get_tracer_provider(), metrics.get_meter_provider()
    if not _made or _made[0][0] is not providers[0] or _made[0][1] is not providers[1]:
        is_recorded = any(_was_set(provider) for provider in providers)
        _made[:] = [(*providers, _Instruments(trace, metrics) if is_recorded else None)]
    return _made[0][2]


def _was_set(provider: Any) -> bool:
    """Return whether the program has set a provider: those of the API itself record nothing."""
    return not type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def traceparent() -> str | None:
    """Return the span that is open now, in the form of W3C Trace Context; None without one."""
    trace = sys.modules.get("opentelemetry.trace")
    context = None if trace is None else trace.get_current_span().get_span_context()
    if context is None or not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _links(made: _Instruments, parent: str | None) -> list[Any]:
    """Return a link to a span of another process. It is no parent: a run may begin days later."""
    try:
        _, trace_id, span_id, flags = (int(part, 16) for part in (parent or "").split("-"))
    except ValueError:
        return []
    trace = made.trace
    context = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags & 0xFF))
    return [trace.Link(context)] if context.is_valid else []


@contextmanager
def record(
    name: str, backend: str | None = None, *, linked_to: str | None = None, **attributes: Any
) -> Iterator[RecordedSpan]:
    """Record a span, and the duration of the operation; of an exception only the class.

    `linked_to` is what `traceparent` returned.
    """
    made = _instruments()
    if made is None:
        yield _NONE
        return
    started = time.perf_counter()
    error: str | None = None
    opened = made.tracer.start_as_current_span(
        name, links=_links(made, linked_to), record_exception=False, set_status_on_exception=False
    )
    with opened as span:
        recorded = RecordedSpan(span, name)
        for attribute, value in {BACKEND: backend, **attributes}.items():
            recorded.set(attribute, value)
        try:
            yield recorded
        except BaseException as raised:
            error = type(raised).__name__
            recorded.set(ERROR, error)
            span.set_status(made.trace.StatusCode.ERROR)
            if error in EVENTS:
                span.add_event(EVENTS[error])
            raise
        finally:
            labels = {OPERATION: name, BACKEND: backend, ERROR: error}
            labels = {label: value for label, value in labels.items() if value is not None}
            made.duration.record(time.perf_counter() - started, labels)
            if error is None and name == SAVE:
                made.saves.add(1, {BACKEND: backend or ""})
            if error == "ConflictError":
                made.conflicts.add(1, {OPERATION: name, BACKEND: backend or ""})


def record_on(ctx: Any, name: str) -> AbstractContextManager[RecordedSpan]:
    """Record an operation on the store of a context."""
    capabilities = ctx.backend.capabilities
    return record(name, capabilities.name, **{DURABILITY: capabilities.durability})


def trace_operation(name: str) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """Decorate an operation, whose first argument is or has its context: each call of it is a span."""

    def declare(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        @functools.wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if _instruments() is None:
                return await function(*args, **kwargs)
            with record_on(getattr(args[0], "_ctx", args[0]), name) as span:
                result = await function(*args, **kwargs)
                describe(span, result)
                return result

        return call

    return declare


def describe(span: RecordedSpan, result: Any) -> None:
    """Add the identity of what an operation returns: a record, a checkpoint or a report."""
    if isinstance(changed := getattr(result, "changed", None), int):
        count_files(span, changed)
    session = getattr(result, "session", None) or getattr(result, "session_id", None)
    if not isinstance(session, str):
        return
    span.set(SESSION, session)
    span.set(CONVERSATION, session)
    span.set(SEQUENCE, getattr(result, "sequence", None))
    for name, of_result in ((CHECKPOINT, "checkpoint_id"), (PARENT, "parent_id"), (TREE, "tree_id")):
        span.set(name, getattr(result, of_result, None))


def count_stored(ctx: Any, sizes: Callable[[], tuple[int, int]]) -> None:
    """Count the bytes that a save has written, of a state of so many, and note both in its span."""
    made = _instruments()
    if made is not None:
        backend = ctx.backend.capabilities.name
        stored, state = sizes()
        made.stored.add(stored, {BACKEND: backend})
        made.state_size.record(state, {BACKEND: backend})
        made.trace.get_current_span().set_attributes({STORED_BYTES: stored, STATE_BYTES: state})


def count_files(span: RecordedSpan, changed: int) -> None:
    """Count the files that a snapshot found changed, or that a restore changed."""
    span.set(FILES_CHANGED, changed)
    made = _instruments()
    if made is not None:
        made.files.add(changed, {OPERATION: span.name})


def count_effect(kind: str, status: str) -> None:
    """Count an effect by kind and by what became of it: done, failed, unknown, replayed or blocked."""
    made = _instruments()
    if made is not None:
        made.effects.add(1, {EFFECT_KIND: kind, EFFECT_STATUS: status})


def count_alive(change: int) -> None:
    """Count the runs at work in this process."""
    made = _instruments()
    if made is not None:
        made.alive.add(change)
