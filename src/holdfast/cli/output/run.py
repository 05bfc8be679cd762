"""A checkpoint's run as shown: how much it has recorded, and the state of its sub-agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.terminal.sanitize import escape, format_name
from holdfast.model.run_policy import SubagentTrace

if TYPE_CHECKING:
    pass


def print_run(context: dict[str, Any], traces: Sequence[SubagentTrace], width: int) -> None:
    from holdfast.format.state.run_journal import EFFECT, FAILED, STEP, from_context

    _, journal, _ = from_context(context, "the checkpoint")
    counted = Counter((record.kind, record.status) for record in journal)
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
    for trace in traces:
        calls = len(trace.tool_calls)
        words = [
            "completed" if trace.success else f"failed: {escape(trace.error or '', width)}",
            f"{calls} call{'' if calls == 1 else 's'}",
            *(f"{count} {escape(unit, 20)}" for unit, count in trace.usage.items()),
        ]
        click.echo(f"  {format_name(trace.subagent_type):<20} {', '.join(words)}")
