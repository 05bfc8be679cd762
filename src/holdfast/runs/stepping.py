"""step: recorded once, and replayed when the run is resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.codec.codec import Codec
from holdfast.errors import UnsupportedValueError, UsageError
from holdfast.model.runs import Retry
from holdfast.objects.journal import FAILED, OK, STEP, Record
from holdfast.runs import failures, frames
from holdfast.runs.core import Core


@dataclass(slots=True)
class StepCall:
    """A step that is asked for: where in the program, and what is to be called."""

    place: str
    name: str
    fn: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    retry: Retry | None = None
    raises: tuple[type[Exception], ...] = ()
    formerly: str | None = None  # the place under the name that it had in an earlier version of the program


async def step(core: Core, call: StepCall) -> Any:
    """Its recorded result or failure; or calls it, records what comes of it, and saves by the run's policy."""
    codec, now_us = core.services.codec, core.services.now_us
    known = core.known(call)
    if known is not None and known.status == OK:
        await core.save_if_interrupted(call.place, call.name)
        return codec.decode(known.payload)
    attempts = known.attempts if known is not None else 0
    if known is not None and known.status == FAILED and (call.retry is None or attempts >= call.retry.attempts):
        raised = failures.rebuilt(codec, known.payload, call.place, call.raises)
        core.raised_again(raised, known)
        raise raised
    about = inputs(codec, call)
    path = f"{call.place}/"
    while True:
        started = now_us()
        attempts += 1
        try:
            with frames.Call(core, path):
                result = await core.call(call.fn, call.args, call.kwargs)
        except Exception as error:
            payload = failures.packed(codec, error)
            record = Record(call.place, STEP, FAILED, payload, attempts, started, now_us(), about)
            number = core.record(record, error)
            await core.after_step(call.name, number)
            if call.retry is None or not call.retry.goes_on(attempts, error):
                raise
            core.places.begin_again(path)
            core.reopen_what_ended(error, path)
        except BaseException:
            core.places.give_back(call.place)
            raise
        else:
            payload = _encoded(codec, result, call.name)
            record = _new(Record, (call.place, STEP, OK, payload, attempts, started, now_us(), about))
            number = core.record(record)
            try:
                await core.after_step(call.name, number)
            except BaseException:
                core.places.interrupt(call.place)
                core.places.give_back(call.place)
                raise
            return result
        await core.services.backend.sleep(call.retry.wait(attempts))


def _encoded(codec: Codec, result: Any, name: str) -> bytes:
    try:
        return codec.encode(result)
    except UnsupportedValueError:  # once more, to say which step it was
        return codec.encode(result, f"the result of step {name!r:.60}")


_new = tuple.__new__  # see `objects/continuing.py`
_NO_INPUTS = hashlib.sha256(b"\x92\x90\x80").digest()[:16]  # of [[], {}], encoded


def inputs(codec: Codec, call: StepCall) -> list[bytes]:
    """A digest of what a step is called with, so that a replay can tell whether it is asked the same again; nothing, if that
    can't be written down."""
    if not call.args and not call.kwargs:
        return [_NO_INPUTS]
    try:
        return [hashlib.sha256(codec.encode([list(call.args), call.kwargs], "arguments")).digest()[:16]]
    except Exception:  # whatever a registered class says to being encoded: the step itself may do well with it
        return []


def checked_retry(given: Any) -> Retry | None:
    """A policy as such, or a number of attempts."""
    if given is None or isinstance(given, Retry):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return Retry(attempts=given)
    raise UsageError(f"retry is {given!r:.60}: it must be a Retry, or how often the step is tried")
