"""`holdfast runs`: who is at work, what waits, what has stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.overview import RunStatus


@click.command(short_help="List the runs: alive, waiting for approval, stopped.")
@click.option("--alive", is_flag=True, help="Only those that a process is at work on.")
@click.option("-n", "count", metavar="N", type=click.IntRange(min=0), help="At most N; without it, all.")
@store_option
@json_option
def runs(alive: bool, count: int | None, store: str | None, as_json: bool) -> None:
    """List the sessions that runs are or were at work on.

    A run is alive while a process holds its session's lease; it waits if an approval is pending; else it has stopped: it
    has ended, or goes on where it was when its program is started again.
    """
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        found = client.runs(alive=alive)[:count]
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"runs": [run_fields(run) for run in found]})
    elif found:
        _print(found)
    else:
        click.echo("no run is alive" if alive else "no runs here yet: `client.run(...)` makes them", err=True)


def run_fields(run: RunStatus) -> dict[str, Any]:
    from holdfast.cli.json_output import checkpoint_fields, moment

    return {
        "session_id": run.session_id,
        "status": run.status,
        "saves": run.saves,
        "approvals": run.approvals,
        "holder": run.holder,
        "expires_at": moment(run.expires_at) if run.expires_at else None,
        "head": checkpoint_fields(run.head) if run.head else None,
    }


def _print(found: list[RunStatus]) -> None:
    from holdfast.cli.pager import paged
    from holdfast.cli.printable import name
    from holdfast.cli.tables import print_table

    with paged():
        print_table(
            ("session", "status", "step", "name", "tasks", "saved (UTC)", "by"),
            [
                (
                    name(run.session_id),
                    run.status if not run.approvals else f"{run.status}, {run.approvals} to approve",
                    "" if run.head is None or run.head.step_index is None else str(run.head.step_index),
                    name(run.head.step_name if run.head else None),
                    _tasks(run.head.tasks if run.head else None),
                    f"{run.head.created_at:%Y-%m-%d %H:%M:%S}" if run.head else "",
                    name(run.holder),
                )
                for run in found
            ],
            right=("step",),
            shrinks=("session", "name", "by"),
        )


def _tasks(tasks: Any) -> str:
    """How many of all its tasks are completed, where a run made them."""
    if not isinstance(tasks, dict):
        return ""
    lists = [one for one in tasks.values() if isinstance(one, dict) and isinstance(one.get("total"), int)]
    return f"{sum(one.get('completed', 0) for one in lists)}/{sum(one['total'] for one in lists)}" if lists else ""
