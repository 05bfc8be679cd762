"""The end of a run's life: what its row says, written by the commit that releases the lease."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast import telemetry
from holdfast.backends.port import RowWrite
from holdfast.errors import (
    ApprovalPendingError,
    EffectBlockedError,
    EffectUnknownError,
    LeaseLostError,
    NewerStateError,
    NewerVersionError,
    ResultNotKeptError,
    RunTimeoutError,
    UnknownTypeError,
)
from holdfast.format.rows import head, ledger
from holdfast.format.rows import run as run_rows
from holdfast.format.rows.run import DueRow, FailureRow, RunRow, WaitedFor
from holdfast.format.state import run_journal
from holdfast.model import ids
from holdfast.model.effect import EffectRecord
from holdfast.operations import due
from holdfast.runs import answer, outcome
from holdfast.runs.engine import RunEngine
from holdfast.runs.suspend import RunSuspension

LAST_LINES = 12
LEFT_TO_OTHERS_US = 30_000_000
_IN_DOUBT = (EffectUnknownError, EffectBlockedError, ResultNotKeptError)
LONGEST_MESSAGE, LONGEST_TRACEBACK = 2_000, 4_000


class RunResult:
    """The result of a run, as part of its interfaces."""

    _core: RunEngine

    @property
    def result(self) -> Any:
        """The result, for `client.runs`: it is stored when the run ends without an exception."""
        encoded = self._core.result
        return None if encoded is None else self._core.ctx.codec.decode(encoded, path="result")

    @result.setter
    def result(self, result: Any) -> None:
        set_result(self._core, result)


def set_result(core: RunEngine, result: Any) -> None:
    """Encode the result of a run; raise if it can't be kept."""
    core.result = None if result is None else outcome.encode_result(core.ctx.codec, result, "the result of the run")[0]


def begin(core: RunEngine) -> None:
    """Open the span of a run, whose program begins."""
    telemetry.count_alive(1)
    core.span.callback(telemetry.count_alive, -1)
    backend, started_by = core.ctx.backend.capabilities.name, None if core.taken is None else core.taken.call.trace
    recording = telemetry.record(telemetry.RUN, backend, linked_to=started_by, **core.attributes())
    span = core.span.enter_context(recording)
    core.span.callback(lambda: span.set(telemetry.RUN_STATUS, None if core.ended is None else core.ended.state))
    span.set(telemetry.GEN_AI_OPERATION, telemetry.INVOKE_AGENT)
    span.set(telemetry.RUN_FUNCTION, None if core.taken is None else core.taken.run.function)


async def close(core: RunEngine, error: BaseException | None) -> None:
    """Save the rest of a run, and leave to its lease what its release writes about the end."""
    try:
        await core.close(error)
    except BaseException as failed:
        core.lease.at_release = await end_rows(core, failed)
        raise
    else:
        core.lease.at_release = await end_rows(core, error)
    finally:
        core.span.close()


async def end_rows(core: RunEngine, error: BaseException | None) -> Sequence[RowWrite]:
    """Return the rows that a life writes as it releases its lease; none if it has lost it."""
    if any(isinstance(item, LeaseLostError) for item in outcome.error_chain(error)):
        return ()
    session = head.session_key(core.options.session_id)
    last = await _load(core) if core.taken is None else None
    row = core.ended = await end_row(core, error, last)
    if last is not None and last.function is not None and last.state not in run_rows.OVER:
        # Workers have still to carry out what was started by name, whatever else runs in its session.
        hint = DueRow(core.ctx.now_us(), session, core.tree, last.function, last.version)
        return [hint.write(), *core.progress.list_unwritten(session, core.tree)]
    write = row.write(session, core.tree)
    await answer.send(core, row, write)
    writes = [write, *core.progress.list_unwritten(session, core.tree)]
    writes += [awaits_row.write() for awaits_row in due.awaits_of(row, session, core.tree)]
    if core.taken is not None:
        if row.state in run_rows.OVER:
            writes += due.make_removal(core.ctx, core.taken.hint)
        else:
            writes.append(core.taken.hint.delete())
            assert row.function is not None
            at_us = core.ctx.now_us() if row.due_us is None else row.due_us  # a parked one is looked at once, at least
            writes.append(DueRow(at_us, session, core.tree, row.function, row.version).write())
    return writes


async def end_row(core: RunEngine, error: BaseException | None, last: RunRow | None) -> RunRow:
    """Return the row of a run whose program has returned, or has raised this error.

    `last` is the session's row, unless a worker has taken the run.
    """
    now = core.ctx.now_us()
    before = RunRow("", 0, 0, started_us=core.opened_us) if core.taken is None else core.taken.run
    if last is not None:
        before = before._replace(digest=last.digest, takes_more=last.takes_more)
    row = before._replace(
        state=run_rows.COMPLETED, token=core.lease.token, at_us=now, due_us=None, wait=None, more_waits=(), effects=(),
        failure=None,
    )  # fmt: skip
    if error is None:
        takes_more = before.takes_more if core.life is None else core.life.runnable.turns
        return _keep_name(row._replace(attempts=0, result=core.result, takes_more=takes_more), last)
    for cause in _causes(error):
        if isinstance(cause, RunSuspension):
            return _suspend_row(core, row, cause)
        if isinstance(cause, ApprovalPendingError):
            wait = WaitedFor(run_rows.APPROVAL, (cause.approval_id,), None)
            return row._replace(state=run_rows.PARKED, attempts=0, wait=wait)
        if isinstance(cause, _IN_DOUBT):
            effects = await _versions(core, cause)
            if effects:
                return row._replace(state=run_rows.DOUBTFUL, effects=effects, failure=describe(core, cause))
    if core.taken is not None:
        return _end_worked_row(core, row, core.taken.run, error)
    if not isinstance(error, Exception):
        return row._replace(state=run_rows.STOPPED, failure=describe(core, error))
    failed = last if last is not None and last.state == run_rows.FAILED else None
    attempts = failed.attempts if failed is not None else 0
    return _keep_name(row._replace(state=run_rows.FAILED, attempts=attempts + 1, failure=describe(core, error)), failed)


def _keep_name(row: RunRow, last: RunRow | None) -> RunRow:
    """Return the row of a life that no worker has carried out, with the name of the run before it."""
    return row if last is None else row._replace(function=last.function, version=last.version)


def _suspend_row(core: RunEngine, row: RunRow, suspension: RunSuspension) -> RunRow:
    """Return the row of a run that waits without a process, or that its worker has handed back."""
    if not suspension.waits:
        failure = core.taken.run.failure if core.taken is not None else None
        return row._replace(state=run_rows.READY, due_us=row.at_us, failure=failure)
    # A time comes by itself: only for something else a worker has to look.
    others = [waited_for for waited_for in suspension.waits if waited_for.kind != run_rows.TIMER]
    timers = sorted(
        (waited_for for waited_for in suspension.waits if waited_for.kind == run_rows.TIMER),
        key=lambda waited_for: waited_for.until_us or 0,
    )
    wait, *more = *others, *timers
    if others:
        return row._replace(state=run_rows.PARKED, attempts=0, wait=wait, more_waits=tuple(more))
    return row._replace(state=run_rows.READY, attempts=0, due_us=wait.until_us, wait=wait)


def _end_worked_row(core: RunEngine, row: RunRow, before: RunRow, error: BaseException) -> RunRow:
    """Return the row of a worker's run that raised: due again later, or failed for good."""
    life = core.life
    assert life is not None
    if isinstance(error, NewerStateError | UnknownTypeError | NewerVersionError):  # for a worker with newer code
        return row._replace(state=run_rows.READY, due_us=row.at_us + LEFT_TO_OTHERS_US, failure=describe(core, error))
    if life.is_stopping and not isinstance(error, Exception):
        return row._replace(state=run_rows.READY, due_us=row.at_us, failure=before.failure)
    attempts, failure = before.attempts + 1, describe(core, error)
    if not isinstance(error, Exception):
        error = RuntimeError()  # a program that exits is tried again like one that raises
    if isinstance(error, RunTimeoutError) or not life.runnable.retry.goes_on(attempts, error):
        return row._replace(state=run_rows.FAILED, attempts=attempts, failure=failure)
    due_us = row.at_us + round(life.runnable.retry.wait(attempts) * 1e6)
    return row._replace(state=run_rows.READY, attempts=attempts, due_us=due_us, failure=failure)


async def _load(core: RunEngine) -> RunRow | None:
    key = run_rows.run_key(head.session_key(core.options.session_id), core.tree)
    [row] = await core.ctx.backend.rows([key])
    return None if row is None else run_rows.unpack_run(key, row)


async def _versions(
    core: RunEngine, error: EffectUnknownError | EffectBlockedError | ResultNotKeptError
) -> tuple[tuple[bytes, int], ...]:
    """Return the effects that an error names, with the versions of their ledger entries."""
    named: list[EffectRecord | None] = [*error.effects] if isinstance(error, EffectBlockedError) else [error.effect]
    found = [ids.from_text(record.effect_id) for record in named if record is not None]
    entries = await core.ctx.backend.rows([ledger.key(id_, core.tree) for id_ in found])
    return tuple((id_, row.version) for id_, row in zip(found, entries, strict=True) if row is not None)


def describe(core: RunEngine, error: BaseException) -> FailureRow:
    """Return class, message and step of an error, and the end of its traceback.

    The class of the error and the rules of redaction are the program's own, and may raise. The end
    of the run must be saved all the same, or it would be tried for ever.
    """
    step = core.find_step(error)
    codec = core.ctx.codec
    try:
        shown = codec.redact_text("".join(traceback.format_exception(error, chain=False)), "exception")
        message = codec.redact_text(outcome.message_of(error), "exception")
    except Exception as raised:
        shown, message = "", f"it can't be shown: {type(raised).__name__} was raised"
    return FailureRow(
        outcome.error_name(error),
        message[:LONGEST_MESSAGE],
        None if step is None else run_journal.name_of(step.partition("#")[0]),
        "\n".join(shown.splitlines()[-LAST_LINES:])[-LONGEST_TRACEBACK:],
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its causes, and the members of groups."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        item = waiting.pop(0)
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        if item.__cause__ is not None:
            waiting.append(item.__cause__)
        if isinstance(item, BaseExceptionGroup):
            waiting += item.exceptions
