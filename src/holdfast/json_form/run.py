"""Runs and the traces of their sub-agents as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.json_form.checkpoint import checkpoint_fields
from holdfast.json_form.values import format_time, to_json
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.run_policy import JOURNAL_KEY, SubagentTrace
from holdfast.model.run_status import RunStatus

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient


def run_fields(run: RunStatus) -> dict[str, Any]:
    return {**status_fields(run), "head": checkpoint_fields(run.head) if run.head else None}


def status_fields(run: RunStatus) -> dict[str, Any]:
    """Return the fields of a run without its head."""
    failure, progress = run.failure, run.progress
    return {
        "session_id": run.session_id,
        "status": str(run.status),
        "saves": run.saves,
        "approvals": run.approvals,
        "holder": run.holder,
        "expires_at": _time(run.expires_at),
        "since": _time(run.since),
        "waits": [{"kind": wait.kind, "targets": list(wait.targets), "until": _time(wait.until)} for wait in run.waits],
        "in_doubt": list(run.in_doubt),
        "failure": None
        if failure is None
        else {
            "error_type": failure.error_type,
            "message": failure.message,
            "step": failure.step,
            "traceback": failure.traceback,
        },
        "attempts": run.attempts,
        "result": to_json(run.result),
        "function": run.function,
        "version": run.version,
        "due": _time(run.due),
        "progress": None
        if progress is None
        else {"done": progress.done, "total": progress.total, "note": progress.note, "at": format_time(progress.at)},
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)


def read_traces(client: SyncClient, checkpoint: Checkpoint) -> Sequence[SubagentTrace] | None:
    """Return the sub-agents' traces; None if no run made the checkpoint, or its journal is unreadable.

    Everything else can still be shown.
    """
    if not isinstance(checkpoint.agent_context, dict) or JOURNAL_KEY not in checkpoint.agent_context:
        return None
    try:
        return client.traces(checkpoint.checkpoint_id)
    except HoldfastError:
        return None


def trace_fields(trace: SubagentTrace) -> dict[str, Any]:
    return {
        "subagent_id": trace.subagent_id,
        "subagent_type": trace.subagent_type,
        "parent_tool_call_id": trace.parent_tool_call_id,
        "prompt": to_json(trace.prompt),
        "started_at": format_time(trace.started_at),
        "ended_at": format_time(trace.ended_at),
        "success": trace.success,
        "result": to_json(trace.result),
        "error": trace.error,
        "usage": to_json(dict(trace.usage)),
        "tool_calls": [
            {
                "name": tool_call.name,
                "started_at": format_time(tool_call.started_at),
                "ended_at": format_time(tool_call.ended_at),
                "failed": tool_call.failed,
                "error": tool_call.error,
                "effect_id": tool_call.effect_id,
            }
            for tool_call in trace.tool_calls
        ],
    }
