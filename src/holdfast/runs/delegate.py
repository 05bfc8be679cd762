"""delegate: child sessions for the items of a call, made once whatever happens in between."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from holdfast.coordination import contract_use
from holdfast.coordination.contract import Contract
from holdfast.coordination.delegation import Delegation
from holdfast.errors import ContractError, UsageError
from holdfast.format.rows.delegation import DelegationRow
from holdfast.format.state.run_journal import OK, STEP, JournalRecord
from holdfast.model import ids
from holdfast.operations import delegation as delegating
from holdfast.operations import validate
from holdfast.operations.delegation import DelegatedCall
from holdfast.runs import runnable
from holdfast.runs import step as stepping
from holdfast.runs.engine import RunEngine
from holdfast.runs.step import StepCall

LONGEST_STEM = 200


class DelegateCall(NamedTuple):
    """A call of `delegate`, with valid items: `plain` has them as they are sent."""

    step: StepCall
    agent: str
    items: list[Any]
    plain: list[Any]
    contract: Contract[Any] | None
    returns: Contract[Any] | None


def build_call(
    core: RunEngine,
    path: str,
    agent: Any,
    items: Iterable[Any],
    contract: Contract[Any] | None,
    returns: Contract[Any] | None,
    key: str | None,
) -> DelegateCall:
    """Return a checked call. An invalid item is refused before anything is written."""
    agent = validate.name("agent", agent)
    if isinstance(items, str | bytes | dict):
        raise UsageError(f"items is a {type(items).__name__}: it must be a list, with an element for each delegation")
    for option, item in (("contract", contract), ("returns", returns)):
        if item is not None and not isinstance(item, Contract):
            raise UsageError(f"{option} is a {type(item).__name__}: it must be what `holdfast.contract(...)` gave")
    given = list(items)
    plain = [_encode(contract, number, item) for number, item in enumerate(given)]
    name = f"delegate {agent}"
    place = core.sites.place(path, name, key)
    return DelegateCall(StepCall(place, name, build_call, (agent, plain)), agent, given, plain, contract, returns)


def _encode(contract: Contract[Any] | None, number: int, item: Any) -> Any:
    try:
        return item if contract is None else contract.encode(item)
    except ContractError as error:
        raise ContractError(f"item {number}: {error}", error.problems) from error


async def delegate(core: RunEngine, call: DelegateCall) -> tuple[Delegation, ...]:
    """Return the delegations that were recorded; or make them, record them, and save."""
    ctx = core.ctx
    known = core.find_record(call.step)
    if known is not None and known.status == OK:
        await core.save_unreturned(call.step.place, call.step.name)
        made = [(child, bytes(offer)) for child, offer in ctx.codec.decode(known.payload)]
        return _delegations(call, made)
    started = ctx.now_us()
    try:
        for contract in (call.contract, call.returns):
            if contract is not None:
                await contract_use.register(ctx, contract)
        rows = await delegating.declare(ctx, core.lease, core.tree, _rows(core, call, started)) if call.items else []
        for row, item in zip(rows, call.plain, strict=True):
            await delegating.offer(ctx, row, core.options.agent_id, item, _find_call(core, call, item, started))
    except BaseException:
        core.sites.give_back(call.step.place)
        raise
    made = [(row.child, row.offer) for row in rows]
    payload = ctx.codec.encode([list(item) for item in made])
    about = stepping.inputs(ctx.codec, call.step)
    number = core.record(JournalRecord(call.step.place, STEP, OK, payload, 1, started, ctx.now_us(), about))
    try:
        await core.after_step(call.step.name, number)
    except BaseException:
        core.sites.mark_interrupted(call.step.place)
        core.sites.give_back(call.step.place)
        raise
    return _delegations(call, made)


def _find_call(core: RunEngine, call: DelegateCall, item: Any, at_us: int) -> DelegatedCall | None:
    """Return the call of the named function that carries out the work, if the agent is one."""
    names = runnable.DECLARED if core.life is None else core.life.runnables
    known = names.newest(call.agent)
    if known is None:
        return None
    label = None if call.contract is None else call.contract.label
    arguments = core.ctx.codec.encode([[item], {}, label], "arguments")
    return DelegatedCall(call.agent, known.version, arguments, at_us)


def _rows(core: RunEngine, call: DelegateCall, at_us: int) -> list[DelegationRow]:
    """Return the rows of the children. Equal items are told apart by their number."""
    counted: Counter[bytes] = Counter()
    session = core.lease.session_id
    found = []
    for item in call.plain:
        encoded = core.ctx.codec.encode(item, "items")
        number = counted[encoded]
        counted[encoded] += 1
        origin = core.ctx.codec.encode([core.tree, session, call.step.place, encoded, number])
        child = f"{session[:LONGEST_STEM]}.{call.agent[:LONGEST_STEM]}.{hashlib.sha256(origin).hexdigest()[:16]}"
        found.append(
            DelegationRow(
                child,
                session,
                call.agent,
                core.ctx.new_id(None),
                core.checkpoint,
                at_us,
                None if call.contract is None else call.contract.label,
                None if call.returns is None else call.returns.label,
            )
        )
    return found


def _delegations(call: DelegateCall, made: Iterable[tuple[str, bytes]]) -> tuple[Delegation, ...]:
    """Return the recorded children with their items, which a changed program may give in another number."""
    items = [*call.items]
    return tuple(
        Delegation(
            session_id=child,
            agent_id=call.agent,
            handoff_id=ids.to_text(offer),
            item=items[number] if number < len(items) else None,
            returns=call.returns,
        )
        for number, (child, offer) in enumerate(made)
    )
