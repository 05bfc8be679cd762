"""run.sleep: a timer that survives. Its end is recorded when it begins; a resume waits for the rest."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.errors import UsageError
from holdfast.format.rows import head
from holdfast.format.rows.run import TIMER, WaitedFor
from holdfast.format.state.run_journal import OK, STEP, JournalRecord
from holdfast.operations import lease as leasing
from holdfast.operations import lookup, validate
from holdfast.runs import suspend
from holdfast.runs.engine import RunEngine
from holdfast.runs.step import StepCall

LONGEST_PAUSE = 1.0  # between two looks at the clock and at the lease
EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


def build_call(core: RunEngine, path: str, seconds: Any, until: Any, key: str | None) -> tuple[StepCall, int]:
    """Return the call of a sleep, and the time (µs) when it ends."""
    place = core.sites.place(path, "sleep", key)
    return StepCall(place, "sleep", build_call), wake_us(core.ctx.now_us(), "seconds", seconds, until)


def wake_us(now_us: int, parameter: str, seconds: Any, until: Any) -> int:
    """Return the time that is so many seconds from now, or a moment."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if (seconds is None) == (until is None):
        raise UsageError(f"give either {parameter} or until")
    if seconds is not None:
        return now_us + round(validate.seconds(parameter, seconds, least=0) * 1e6)
    return moment_us("until", until)


def moment_us(parameter: str, moment: Any) -> int:
    """Return a moment in microseconds; one without a time zone is refused."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise UsageError(f"{parameter} is {moment!r:.60}: it must be a datetime with a time zone")
    return (moment - EPOCH) // MICROSECOND


async def sleep(core: RunEngine, call: StepCall, until_us: int) -> None:
    """Record the end of the sleep, unless it is recorded, and wait for it."""
    known = core.find_record(call)
    if known is not None and known.status == OK:
        until_us = core.ctx.codec.decode(known.payload, path="result")
    else:
        with suspend.call(core):
            now = core.ctx.now_us()
            core.record(JournalRecord(call.place, STEP, OK, core.ctx.codec.encode(until_us), 1, now, now, []))
            await core.save(call.name)
    with suspend.note_wait(core, call.place):
        await _wait(core, call.place, until_us)


async def _wait(core: RunEngine, place: str, until_us: int) -> None:
    """Wait until a time: without a process under a worker, if the run does nothing else meanwhile.

    In this process the time is over once either clock says so: the wall clock may be set back.
    """
    left = (until_us - core.ctx.now_us()) / 1e6
    ends = time.monotonic() + left
    while left > 0:
        if left > suspend.AT_ONCE:
            suspend.suspend(core, place, WaitedFor(TIMER, (), until_us))
        await core.ctx.backend.sleep(min(left, LONGEST_PAUSE))
        await refuse_lost(core)
        left = min((until_us - core.ctx.now_us()) / 1e6, ends - time.monotonic())


async def refuse_lost(core: RunEngine) -> None:
    """Raise if the run was cancelled or has lost its lease: a wait saves nothing that would say so."""
    found = await lookup.find_head(core.ctx, head.session_key(core.lease.session_id), core.tree)
    if found is not None:
        leasing.refuse(core.ctx, core.lease.session_id, found[0], core.lease)
