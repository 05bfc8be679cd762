"""take: a worker takes a due run, with the session's lease, by one commit.

The commit compares the head's row, so of workers that find the same run one gets it. It also
counts the attempt, since a run that kills its process gets no chance to do so itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from holdfast.format.rows import head as heads
from holdfast.format.rows import run as rows
from holdfast.format.rows.run import CallRow, DueRow, FailureRow, RunRow
from holdfast.operations import delegation, lookup, wake
from holdfast.operations import due as index
from holdfast.operations import lease as leasing
from holdfast.operations.context import StoreContext
from holdfast.operations.delegation import OpenOffer
from holdfast.operations.session_cache import SessionTip

DIED = "ProcessDied"
DEATHS_TOGETHER = 2  # after so many, a run that may have killed its process is kept apart from others like it


class TakenRun(NamedTuple):
    """A run that this process carries out now, under a lease of its own."""

    session_id: str
    tree: bytes
    token: int
    expires_at_us: int
    hint: DueRow  # the one that finds the run if this process dies
    run: RunRow
    call: CallRow


class RunLimit(NamedTuple):
    """What a worker knows of a function: its version, and how many lives may fail."""

    version: str
    attempts: int


async def take(
    ctx: StoreContext, due: DueRow, find_limit: Callable[[str, str], RunLimit | None], *, holder: str, seconds: float,
    admit: Callable[[bytes, int], bool] | None = None,
) -> TakenRun | None:  # fmt: skip
    """Take the run of a hint, if it is due; else put the hint right, and return None.

    `admit` says whether a run may be carried out now that may have killed its process.
    """
    # The head is read first. Every change of the run moves it, so the commit fails if the run changes after that.
    tip = await lookup.revalidated_tip(ctx, due.session)
    found = await index.load(ctx, due.session, due.tree)
    if found is None or tip.tree != due.tree or found.run.function is None:
        await index.drop(ctx, due)
        return None
    run, held, now = found.run, tip.head.lease, ctx.now_us()
    offer = await delegation.offer_of(ctx, found.run.function, due.tree) if found.call.is_delegated else None
    is_answered = offer is not None and offer.is_ended and (held is None or not leasing.is_alive(ctx, held))
    if is_answered and (run.state not in rows.OVER or held is not None):
        await _end_answered(ctx, due, tip, run)
        return None
    is_cancelled = held is not None and held.cancellation is not None
    if held is not None and not is_cancelled and leasing.is_alive(ctx, held):  # even if over: it may die before release
        await index.postpone(ctx, due, max(held.expires_at_us, now), held.process)
        return None
    if run.state in rows.OVER or is_cancelled:
        await index.drop(
            ctx, due, extra_rows=[awaits_row.delete() for awaits_row in index.awaits_of(run, due.session, due.tree)]
        )
        return None
    if held is None:  # else a life died, and its row is about an earlier one
        if run.state == rows.READY and run.due_us is not None and run.due_us > now:
            await index.move(ctx, due, run.due_us)
            return None
        if run.state in (rows.PARKED, rows.DOUBTFUL) and not await wake.is_ready(ctx, run, due.tree):
            await index.postpone(ctx, due, wake.next_check_us(ctx, run, due.session))
            return None
    limit = find_limit(found.run.function, run.version)
    if limit is None:
        return None
    run = _count_death(run, tip, is_dead=held is not None)
    if run.attempts >= limit.attempts:
        await _give_up(ctx, due, tip, run, offer)
        return None
    if admit is not None and _may_kill(run, limit) and not admit(due.session, tip.head.sequence):
        return None
    session_id = heads.session_name(due.session)
    head = leasing.grant(ctx, session_id, tip.head, holder=holder, seconds=seconds)
    assert head.lease is not None
    assert run.function is not None
    taken = run._replace(
        state=rows.TAKEN, token=head.fence, at_us=now, version=limit.version, due_us=None, wait=None, more_waits=(),
        effects=(), sequence=head.sequence,
    )  # fmt: skip
    hint = DueRow(head.lease.expires_at_us, due.session, due.tree, run.function, limit.version, head.lease.process)
    writes = [taken.write(due.session, due.tree), due.delete(), hint.write()]
    writes += [awaits_row.delete() for awaits_row in index.awaits_of(run, due.session, due.tree)]
    if offer is not None:
        writes.append(offer.claim(head, now))
    if not await leasing.move_head(ctx, due.session, tip, head, extra_rows=writes):
        return None
    return TakenRun(session_id, due.tree, head.fence, head.lease.expires_at_us, hint, taken, found.call)


def _count_death(run: RunRow, tip: SessionTip, *, is_dead: bool) -> RunRow:
    """Return the run with the attempt counted that died, unless that had saved something new."""
    if not is_dead or run.state != rows.TAKEN:
        return run
    if tip.head.sequence > run.sequence:
        return run if run.failure is not None and run.failure.error_type != DIED else run._replace(attempts=0)
    attempts = run.attempts + 1
    died = f"its process died without a new checkpoint, in attempt {attempts}"
    return run._replace(attempts=attempts, failure=FailureRow(DIED, died, None, ""))


def _may_kill(run: RunRow, limit: RunLimit) -> bool:
    """Return whether the process died so often that the run may be the cause, or a victim of the cause."""
    has_died = run.failure is not None and run.failure.error_type == DIED
    return has_died and run.attempts >= max(min(DEATHS_TOGETHER, limit.attempts - 1), 1)


async def _give_up(ctx: StoreContext, due: DueRow, tip: SessionTip, run: RunRow, offer: OpenOffer | None) -> None:
    """End a run whose attempts are used up: it is kept for a person.

    The session that delegated it gets no result.
    """
    failed = run._replace(state=rows.FAILED, token=tip.head.fence, at_us=ctx.now_us(), due_us=None)
    writes = [failed.write(due.session, due.tree), *index.make_removal(ctx, due)]
    if offer is not None:
        why = "a worker" if run.failure is None else f"a worker, {run.failure.error_type}: {run.failure.message}"
        writes += await offer.cancel(ctx, why)
    await leasing.move_head(ctx, due.session, tip, tip.head._replace(lease=None), extra_rows=writes)


async def _end_answered(ctx: StoreContext, due: DueRow, tip: SessionTip, run: RunRow) -> None:
    """End a delegated run that has answered: its worker died then, or a claimant was first."""
    state = run.state if run.state in rows.OVER else rows.COMPLETED
    ended = run._replace(state=state, token=tip.head.fence, at_us=ctx.now_us(), due_us=None, wait=None, failure=None)
    head = tip.head._replace(lease=None)
    await leasing.move_head(
        ctx, due.session, tip, head, extra_rows=[ended.write(due.session, due.tree), *index.make_removal(ctx, due)]
    )
