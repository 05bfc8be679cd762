"""The execution of one step: recorded once, and replayed when the run is resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast import telemetry
from holdfast.codec.codec import Codec
from holdfast.errors import ResultNotKeptError, UnsupportedValueError, UsageError
from holdfast.format.state.run_journal import FAILED, OK, STEP, JournalRecord
from holdfast.model.run_policy import Retry
from holdfast.runs import call_sites, outcome, suspend
from holdfast.runs.engine import RunEngine


@dataclass(slots=True)
class StepCall:
    """A call of a step: its place in the program, and the function."""

    place: str
    name: str
    fn: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    retry: Retry | None = None
    raises: tuple[type[Exception], ...] = ()


@dataclass(slots=True)
class ValueCall:
    """A step whose value its caller makes, and records afterwards.

    One that `is_optional` is not made: it tells what became of other calls.
    """

    place: str
    name: str
    is_optional: bool
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


KNOWN_VALUE = "holdfast_known_value"
"""The attribute of functions that return a value which is known before: their steps call nothing."""


async def step(core: RunEngine, call: StepCall) -> Any:
    """Return or raise the recorded outcome; or call the step, record the outcome, and save by the policy."""
    codec = core.ctx.codec
    known = core.find_record(call)
    if known is not None and known.status == OK:
        core.index.note_path(f"{call.place}/")
        await core.save_unreturned(call.place, call.name)
        return codec.decode(known.payload, path="result")
    attempts = known.attempts if known is not None else 0
    if known is not None and known.status == FAILED and (call.retry is None or attempts >= call.retry.attempts):
        raised = outcome.decode_error(codec, known.payload, call.place, call.raises)
        core.note_raised_again(raised, known)
        raise raised
    backend = core.ctx.backend.capabilities.name
    with suspend.call(core), telemetry.record(telemetry.STEP, backend, **core.attributes()) as span:
        span.set(telemetry.STEP_NAME, call.name)
        return await _call(core, call, attempts)


async def _call(core: RunEngine, call: StepCall, attempts: int) -> Any:
    """Call the step until it succeeds or its attempts are used up; record and save each outcome."""
    codec, now_us = core.ctx.codec, core.ctx.now_us
    about = inputs(codec, call)
    path = f"{call.place}/"
    while True:
        started = now_us()
        attempts += 1
        try:
            with call_sites.CallFrame(core, path):
                result = await core.call(call.fn, call.args, call.kwargs)
        except Exception as error:
            payload = outcome.encode_error(codec, error)
            record = JournalRecord(call.place, STEP, FAILED, payload, attempts, started, now_us(), about)
            number = core.record(record, error)
            await core.after_step(call.name, number)
            if call.retry is None or not call.retry.goes_on(attempts, error):
                raise
            core.sites.restart(path)
            core.reopen_failures(error, path)
        except BaseException:
            core.sites.give_back(call.place)
            raise
        else:
            try:
                payload = codec.encode(result)
            except UnsupportedValueError:
                payload, result = await _encode_or_fail(core, call, result, attempts, started, about)
            record = JournalRecord(call.place, STEP, OK, payload, attempts, started, now_us(), about)
            number = core.record(record)
            try:
                await core.after_step(call.name, number)
            except BaseException:
                core.sites.mark_interrupted(call.place)
                core.sites.give_back(call.place)
                raise
            return result
        suspend.refuse_if_stopping(core)
        await core.ctx.backend.sleep(call.retry.wait(attempts))


async def _encode_or_fail(
    core: RunEngine, call: StepCall, result: Any, attempts: int, started: int, about: list[bytes]
) -> tuple[bytes, Any]:
    """Encode a result that can't be kept exactly as plain data; if that fails, the step fails.

    It is not retried, since another attempt would end the same.
    """
    codec = core.ctx.codec
    try:
        return outcome.encode_result(codec, result, f"the result of step {call.name!r:.60}")
    except UnsupportedValueError as error:
        raised = ResultNotKeptError(
            f"step {call.name!r:.60} was carried out, but its result could not be kept: {error}. Let the function "
            "return something that can be kept: the step is called again if this ends the run"
        )
        payload = outcome.encode_error(codec, raised)
        record = JournalRecord(call.place, STEP, FAILED, payload, attempts, started, core.ctx.now_us(), about)
        await core.after_step(call.name, core.record(record, raised))
        raise raised from error


_NO_INPUTS = hashlib.sha256(b"\x92\x90\x80").digest()[:16]  # of [[], {}], encoded


def inputs(codec: Codec, call: StepCall | ValueCall) -> list[bytes]:
    """Return a digest of a step's arguments, for replays to compare; nothing if they can't be encoded."""
    if not call.args and not call.kwargs:
        return [_NO_INPUTS]
    try:
        return [hashlib.sha256(codec.encode([list(call.args), call.kwargs], "arguments")).digest()[:16]]
    except Exception:  # whatever a registered class says to being encoded: the step itself may do well with it
        return []


def check_retry(given: Any) -> Retry | None:
    """Return a retry policy as it is, or one of a number of attempts."""
    if given is None or isinstance(given, Retry):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return Retry(attempts=given)
    raise UsageError(f"retry is {given!r:.60}: it must be a Retry, or how often the step is tried")
