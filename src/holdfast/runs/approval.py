"""The approval gate of an effect, between its identity and its intent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.backends.port import RowWrite
from holdfast.errors import ApprovalError, UsageError
from holdfast.format.rows import approval as entries
from holdfast.format.rows.approval import ApprovalRequest, ApprovalRow
from holdfast.format.rows.ledger import LedgerEntry
from holdfast.model import ids
from holdfast.model.approval import Call, Gate
from holdfast.operations import approval as approvals
from holdfast.runs import call_binding
from holdfast.runs.engine import RunEngine

if TYPE_CHECKING:
    from holdfast.runs.call_sites import EffectCall


class ApprovedCall(NamedTuple):
    """An approval of a call: its id, other arguments if there are any, and the rows to write.

    The rows use the approval up, in the commit that writes the intent.
    """

    approval_id: str
    arguments: Mapping[str, Any] | None
    rows: Sequence[RowWrite]


async def get_approval(
    core: RunEngine, call: EffectCall, effect_id: bytes, duplicates: Sequence[LedgerEntry]
) -> ApprovedCall | None:
    """Return the approval of a call; None if it needs none. Raise if it is pending or rejected."""
    requested = Call(
        tool=call.name,
        arguments=call.arguments,
        identity=call.identified,
        kind=str(call.kind),
        undoable=call.undo is not None,
        schema=call_binding.schema_hash(call.fn, kind=str(call.kind)),
    )
    gate, approvers = _choose_gate(core, call, requested)
    if gate is Gate.GO:
        return None
    ctx, session_id = core.ctx, core.options.session_id
    held = await approvals.request(
        ctx,
        ApprovalRequest(
            session_id=session_id,
            call=requested,
            gate=gate,
            approvers=approvers,
            summary=_summary(call, duplicates),
            seconds=core.options.approval_seconds,
            request_key=effect_id,
            by_identity=True,
        ),
    )
    if held.approval.is_pending:
        held = await approvals.wait(ctx, held, seconds=core.options.approval_wait)
    approval = approvals.check_granted(held.approval)
    approved = approval.arguments
    given = (entries.order_keys(ctx.codec, dict(item)) for item in (call.arguments, approved))
    now, then = (ctx.codec.encode(item, "arguments") for item in given)
    if now != then:
        await _check_arguments(core, call, held, approved)
    assert approval.may_run is not None
    use = await approvals.use(ctx, held, session_id=session_id, digest=approval.may_run, by=ids.to_text(effect_id))
    return ApprovedCall(approval.approval_id, None if now == then else approved, [use])


async def _check_arguments(core: RunEngine, call: EffectCall, held: ApprovalRow, changed: Mapping[str, Any]) -> None:
    """Raise before the intent is written: a mistyped name must not leave an effect in doubt."""
    try:
        call_binding.bind_arguments(call.fn, *call_binding.spread(call.fn, changed))
    except UsageError as error:
        await approvals.withdraw(core.ctx, held)
        approval = held.approval
        raise ApprovalError(
            f"approval {approval.short_id} was given with other arguments ({', '.join(map(repr, changed)) or 'none'}), "
            f"but {error}. Nothing was carried out. That approval is void: the run asks again when it resumes",
            approval.approval_id,
        ) from None


def _choose_gate(core: RunEngine, call: EffectCall, requested: Call) -> tuple[Gate, str | None]:
    """Return the gate and the approvers that `approve` names, or else the run's policy."""
    approve, policy = call.approve, core.options.policy
    if approve in (None, False):
        return (Gate.GO, None) if policy is None else (Gate(policy.gate(requested)), policy.approvers)
    if approve is True:
        return Gate.APPROVE, None if policy is None else policy.approvers
    if not isinstance(approve, str):
        raise UsageError(f"effect {call.name!r:.60}: approve is {approve!r:.60}: it must be who is asked, or True")
    return Gate.APPROVE, approve


def _summary(call: EffectCall, duplicates: Sequence[LedgerEntry]) -> str | None:
    if not duplicates:
        return None
    same = ", ".join(ids.short(ids.to_text(duplicate.id)) for duplicate in duplicates[:5])
    return f"{call.name} may have been carried out already, on another branch or before a rollback: {same}"
