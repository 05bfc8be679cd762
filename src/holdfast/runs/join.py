"""join: wait for delegated work, and record which answers were used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.coordination import contract_use
from holdfast.coordination.delegation import Delegation, DelegationFailure, DelegationResult, JoinResult
from holdfast.errors import CheckpointExpiredError, CheckpointNotFoundError, ContractError, UsageError
from holdfast.format.rows.inbox import FollowUp
from holdfast.format.rows.run import JOIN
from holdfast.format.state.run_journal import OK, STEP, JournalRecord
from holdfast.operations import cancel as cancelling
from holdfast.operations import delegation as delegating
from holdfast.operations import validate
from holdfast.operations.delegation import DONE, FAILED, DelegationAnswer
from holdfast.operations.wait import NotedWait
from holdfast.runs import sleep, suspend
from holdfast.runs import step as stepping
from holdfast.runs.engine import RunEngine
from holdfast.runs.step import StepCall

COLLECT, CANCEL = "collect", "cancel"
Answers = dict[str, DelegationAnswer]  # by session


class JoinCall(NamedTuple):
    """A checked call of `join`."""

    step: StepCall
    asked: Sequence[Delegation]
    need: int
    timeout: float | None
    on_failure: str


def build_call(
    core: RunEngine,
    path: str,
    asked: Iterable[Delegation],
    need: int | None,
    timeout: float | None,
    on_failure: str,
    key: str | None,
) -> JoinCall:
    given = list(asked)
    wrong = next((delegation for delegation in given if not isinstance(delegation, Delegation)), None)
    if wrong is not None:
        raise UsageError(f"asked has a {type(wrong).__name__}: give what `run.delegate` returned")
    if need is not None and (isinstance(need, bool) or not isinstance(need, int) or not 0 <= need <= len(given)):
        raise UsageError(f"need is {need!r:.60}: it must be a number of results from 0 to {len(given)}")
    if timeout is not None:
        timeout = validate.seconds("timeout", timeout, least=0)
    policy = validate.one_of("on_failure", on_failure, (COLLECT, CANCEL))
    place = core.sites.place(path, "join", key)
    sessions = [delegation.session_id for delegation in given]
    return JoinCall(
        StepCall(place, "join", build_call, (sessions,)), given, len(given) if need is None else need, timeout, policy
    )


async def join(core: RunEngine, call: JoinCall) -> JoinResult:
    """Return the recorded answers; or wait for them, record those that are used, and save."""
    codec, step = core.ctx.codec, call.step
    known = core.find_record(step)
    if known is not None and known.status == OK:
        await core.save_unreturned(step.place, step.name)
        used = {session: DelegationAnswer(status, value, label, tuple(error))
                for session, status, value, label, error in codec.decode(known.payload)}  # fmt: skip
        return await _result(core, call, used, await _mark_late(core, call, used))
    started = core.ctx.now_us()
    try:
        with suspend.note_wait(core, step.place):
            used = await _wait(core, call)
    except BaseException:
        core.sites.give_back(step.place)
        raise
    payload = codec.encode([[session, *answer[:3], list(answer.error)] for session, answer in used.items()])
    about = stepping.inputs(codec, step)
    number = core.record(JournalRecord(step.place, STEP, OK, payload, 1, started, core.ctx.now_us(), about))
    try:
        await core.after_step(step.name, number)
    except BaseException:
        core.sites.mark_interrupted(step.place)
        core.sites.give_back(step.place)
        raise
    return await _result(core, call, used, {})


async def _wait(core: RunEngine, call: JoinCall) -> Answers:
    """Wait until enough have answered, none is left, or the time is over; return the answers till then."""
    ctx, session = core.ctx, core.lease.session_id
    wait = await NotedWait.begin(ctx, core.tree, session, call.step.place, JOIN, call.timeout)
    found: Answers = {}
    has_cancelled = False
    while True:
        seen = ctx.backend.committed  # before reading: any later commit ends the wait
        await sleep.refuse_lost(core)
        left = [delegation for delegation in call.asked if delegation.session_id not in found]
        found |= await _find(core, left)
        left = [delegation for delegation in left if delegation.session_id not in found]
        done = sum(answer.status == DONE for answer in found.values())
        is_hopeless = done + len(left) < call.need
        if left and is_hopeless and call.on_failure == CANCEL and not has_cancelled:
            has_cancelled = True
            for delegation in left:
                why = f"{session} can no longer get {call.need} results"
                await cancelling.cancel(
                    ctx, delegation.session_id, by=f"join of {session}".replace("\n", " "), reason=why
                )
            continue
        if done >= call.need or not left or wait.is_over:
            await wait.end()
            return found
        # With CANCEL any failure may be the one that makes the rest pointless.
        enough = 1 if call.on_failure == CANCEL else min(call.need - done, len(left))
        await suspend.pause(
            core, call.step.place, wait, seen, tuple(delegation.session_id for delegation in left), mark=enough
        )


async def _find(core: RunEngine, wanted: Sequence[Delegation]) -> Answers:
    """Return the answers that are there; one that its contract can't read is a failure."""
    ended = await delegating.find_answers(core.ctx, [delegation.ended_key for delegation in wanted]) if wanted else []
    found: Answers = {}
    for delegation, entry in zip(wanted, ended, strict=True):
        if entry is not None:
            found[delegation.session_id] = await _load(core, delegation, entry)
    return found


async def _load(core: RunEngine, delegation: Delegation, entry: FollowUp) -> DelegationAnswer:
    try:
        answer = await delegating.load_answer(core.ctx, entry)
    except (CheckpointExpiredError, CheckpointNotFoundError) as error:  # it came, and is gone
        return DelegationAnswer(FAILED, error=(type(error).__name__, str(error)))
    if answer.status == DONE and delegation.returns is not None:
        try:
            await contract_use.read_answer(core.ctx, answer.value, answer.label, delegation.returns)
        except ContractError as error:
            return DelegationAnswer(FAILED, error=(type(error).__name__, str(error)))
    return answer


async def _mark_late(core: RunEngine, call: JoinCall, used: Answers) -> Answers:
    return await _find(core, [delegation for delegation in call.asked if delegation.session_id not in used])


async def _result(core: RunEngine, call: JoinCall, used: Answers, late: Answers) -> JoinResult:
    answered = [
        await _make_result(core, delegation, used[delegation.session_id])
        for delegation in call.asked
        if delegation.session_id in used
    ]
    return JoinResult(
        results=tuple(result for result in answered if isinstance(result, DelegationResult)),
        failed=tuple(failure for failure in answered if isinstance(failure, DelegationFailure)),
        missing=tuple(delegation for delegation in call.asked if delegation.session_id not in used),
        late=tuple(
            [
                await _make_result(core, delegation, late[delegation.session_id])
                for delegation in call.asked
                if delegation.session_id in late
            ]
        ),
    )


async def _make_result(
    core: RunEngine, delegation: Delegation, answer: DelegationAnswer
) -> DelegationResult | DelegationFailure:
    if answer.status != DONE:
        kind, message = answer.error
        return DelegationFailure(delegation=delegation, status=answer.status, error_type=kind, message=message)
    value: Any = answer.value
    if delegation.returns is not None:
        value = await contract_use.read_answer(core.ctx, value, answer.label, delegation.returns)
    return DelegationResult(delegation=delegation, value=value)
