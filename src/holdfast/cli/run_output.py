"""What a checkpoint holds of the run that made it: how much it has recorded, and what became of its sub-agents."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.json_output import moment, shown
from holdfast.cli.printable import name, printable
from holdfast.model.runs import JOURNAL_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.runs import SubagentTrace
    from holdfast.sync_client import SyncClient


def traces_of(client: SyncClient, checkpoint: Checkpoint) -> Sequence[SubagentTrace] | None:
    """None if no run made the checkpoint, or if its journal can't be read here: all else can still be shown."""
    from holdfast.errors import HoldfastError

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
        "prompt": shown(trace.prompt),
        "started_at": moment(trace.started_at),
        "ended_at": moment(trace.ended_at),
        "success": trace.success,
        "result": shown(trace.result),
        "error": trace.error,
        "usage": shown(dict(trace.usage)),
        "tool_calls": [
            {
                "name": one.name,
                "started_at": moment(one.started_at),
                "ended_at": moment(one.ended_at),
                "failed": one.failed,
                "error": one.error,
                "effect_id": one.effect_id,
            }
            for one in trace.tool_calls
        ],
    }


def print_run(context: dict[str, Any], traces: Sequence[SubagentTrace], width: int) -> None:
    from holdfast.objects.journal import EFFECT, FAILED, STEP, from_context

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
            "completed" if one.success else f"failed: {printable(one.error or '', width)}",
            f"{calls} call{'' if calls == 1 else 's'}",
            *(f"{count} {printable(what, 20)}" for what, count in one.usage.items()),
        ]
        click.echo(f"  {name(one.subagent_type):<20} {', '.join(words)}")
