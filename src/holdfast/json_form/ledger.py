"""Effects and approvals as JSON."""

from __future__ import annotations

from typing import Any

from holdfast.json_form.values import format_time, to_json
from holdfast.model.approval import Approval
from holdfast.model.effect import EffectRecord


def effect_fields(effect: EffectRecord) -> dict[str, Any]:
    return {
        "effect_id": effect.effect_id,
        "short_id": effect.short_id,
        "session_id": effect.session_id,
        "agent_id": effect.agent_id,
        "tree_id": effect.tree_id,
        "tool": effect.tool,
        "kind": str(effect.kind),
        "state": str(effect.state),
        "in_doubt": effect.is_in_doubt,
        "arguments": to_json(dict(effect.arguments)),
        "identity": to_json(dict(effect.identity)),
        "provider_key": effect.provider_key,
        "attempts": effect.attempts,
        "generation": effect.generation,
        "anchor_id": effect.anchor_id,
        "checkpoint_id": effect.checkpoint_id,
        "result": to_json(effect.result),
        "error": effect.error,
        "approval_id": effect.approval_id,
        "target_id": effect.target_id,
        "undoable": effect.undoable,
        "acknowledged": effect.acknowledged,
        "history": [
            {"what": event.what, "at": format_time(event.at), "by": event.by, "note": event.note}
            for event in effect.history
        ],
    }


def approval_fields(approval: Approval) -> dict[str, Any]:
    decision = approval.decision
    return {
        "approval_id": approval.approval_id,
        "short_id": approval.short_id,
        "session_id": approval.session_id,
        "status": str(approval.status),
        "gate": str(approval.gate),
        "tool": approval.call.tool,
        "kind": approval.call.kind,
        "arguments": to_json(dict(approval.call.arguments)),
        "identity": to_json(dict(approval.call.identity)),
        "approvers": approval.approvers,
        "summary": approval.summary,
        "checkpoint_id": approval.checkpoint_id,
        "requested_at": format_time(approval.requested_at),
        "expires_at": format_time(approval.expires_at),
        "decision": None
        if decision is None
        else {
            "answer": str(decision.answer),
            "by": decision.by,
            "at": format_time(decision.at),
            "note": decision.note,
            "arguments": None if decision.arguments is None else to_json(dict(decision.arguments)),
        },
        "used_by": approval.used_by,
        "ended_at": format_time(approval.ended_at) if approval.ended_at else None,
    }
