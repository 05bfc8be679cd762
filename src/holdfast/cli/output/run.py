"""A checkpoint's run as shown: how much it has recorded, and the state of its sub-agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output.json import format_time, to_json
from holdfast.cli.terminal.sanitize import escape, format_name
from holdfast.errors import HoldfastError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.run_policy import JOURNAL_KEY, SubagentTrace

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient


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
                "name": one.name,
                "started_at": format_time(one.started_at),
                "ended_at": format_time(one.ended_at),
                "failed": one.failed,
                "error": one.error,
                "effect_id": one.effect_id,
            }
            for one in trace.tool_calls
        ],
    }


def print_run(context: dict[str, Any], traces: Sequence[SubagentTrace], width: int) -> None:
    from holdfast.format.state.run_journal import EFFECT, FAILED, STEP, from_context

    _, journal, _ = from_context(context, "the checkpoint")
    counted = Counter((one.kind, one.status) for one in journal)
    parts = []
    for kind in (STEP, EFFECT):
        every = sum(count for (of, _), count in counted.items() if of == kind)
        failed = counted[kind, FAILED]
        if every:
            parts.append(f"{every} {kind}{'' if every == 1 else 's'}{f' ({failed} failed)' if failed else ''}")
    click.echo(f"{'run':<12}{', '.join(parts) or 'nothing'} recorded")
    if not traces:
        return
    click.echo(f"{'sub-agents':<12}{len(traces)}")
    for one in traces:
        calls = len(one.tool_calls)
        words = [
            "completed" if one.success else f"failed: {escape(one.error or '', width)}",
            f"{calls} call{'' if calls == 1 else 's'}",
            *(f"{count} {escape(what, 20)}" for what, count in one.usage.items()),
        ]
        click.echo(f"  {format_name(one.subagent_type):<20} {', '.join(words)}")
