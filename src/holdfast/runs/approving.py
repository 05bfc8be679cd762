"""Where an effect waits for approval: between its identity being known and its intent being written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.backends.port import RowWrite
from holdfast.errors import ApprovalError, UsageError
from holdfast.model import ids
from holdfast.model.approval import Call, Gate
from holdfast.objects import approvals as entries
from holdfast.objects.approvals import Asked, Held
from holdfast.objects.ledger import Entry
from holdfast.operations import approvals
from holdfast.runs import calling
from holdfast.runs.core import Core

if TYPE_CHECKING:
    from holdfast.runs.effecting import EffectCall


class Admission(NamedTuple):
    """That a call may be carried out: by which approval, with which arguments instead of those that it was made with (None:
    with those), and the rows that use the approval up. They are written by the commit that writes the intent."""

    approval_id: str
    arguments: Mapping[str, Any] | None
    rows: Sequence[RowWrite]


async def admitted(core: Core, call: EffectCall, effect_id: bytes, suspects: Sequence[Entry]) -> Admission | None:
    """None if nobody has to be asked. Raises if somebody has, and has not answered, or has said no."""
    asked_for = Call(
        tool=call.name,
        arguments=call.arguments,
        identity=call.identified,
        kind=str(call.kind),
        undoable=call.undo is not None,
        schema=calling.schema_hash(call.fn, kind=str(call.kind)),
    )
    gate, approvers = _who(core, call, asked_for)
    if gate is Gate.GO:
        return None
    services, session_id = core.services, core.options.session_id
    held = await approvals.request(
        services,
        Asked(
            session_id=session_id,
            call=asked_for,
            gate=gate,
            approvers=approvers,
            summary=_summary(call, suspects),
            seconds=core.options.approval_seconds,
            request_key=effect_id,
        ),
    )
    if held.approval.is_pending:
        held = await approvals.wait(services, held, seconds=core.options.approval_wait)
    approval = approvals.granted(held.approval)
    changed = approval.decision.arguments if approval.decision is not None else None
    if changed is not None:
        await _check_it_can_be_called(core, call, held, changed)
    arguments = approval.arguments
    identity = approvals.identity_with(asked_for, arguments)
    digest = entries.call_digest(services.codec, call.name, identity, arguments, asked_for.schema)
    use = await approvals.use(services, held, session_id=session_id, digest=digest, by=ids.to_text(effect_id))
    return Admission(approval.approval_id, changed, [use])


async def _check_it_can_be_called(core: Core, call: EffectCall, held: Held, changed: Mapping[str, Any]) -> None:
    """Before anything is written down as started: a mistyped name must not leave an effect in doubt."""
    try:
        calling.bound(call.fn, *calling.spread(call.fn, changed))
    except UsageError as error:
        await approvals.withdraw(core.services, held)
        approval = held.approval
        raise ApprovalError(
            f"approval {approval.short_id} was given with other arguments ({', '.join(map(repr, changed)) or 'none'}), but "
            f"{error}. Nothing was carried out. That approval is void: the run asks anew when it goes on",
            approval.approval_id,
        ) from None


def _who(core: Core, call: EffectCall, asked_for: Call) -> tuple[Gate, str | None]:
    """What `approve` says, or else the run's policy."""
    approve, policy = call.approve, core.options.policy
    if approve in (None, False):
        return (Gate.GO, None) if policy is None else (Gate(policy.gate(asked_for)), policy.approvers)
    if approve is True:
        return Gate.APPROVE, None if policy is None else policy.approvers
    if not isinstance(approve, str):
        raise UsageError(f"effect {call.name!r:.60}: approve is {approve!r:.60}: it must be who is asked, or True")
    return Gate.APPROVE, approve


def _summary(call: EffectCall, suspects: Sequence[Entry]) -> str | None:
    if not suspects:
        return None
    same = ", ".join(ids.short(ids.to_text(one.id)) for one in suspects[:5])
    return f"{call.name} may have been carried out already, on another branch or before a rollback: {same}"
