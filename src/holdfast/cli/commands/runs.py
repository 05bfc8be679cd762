"""`holdfast runs` and `holdfast resume`: the runs of a store, and one that continues."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Sequence
from typing import Any

import click

from holdfast.cli.options import common_options, make_not_found_error
from holdfast.cli.output.listing import Column, print_listing, print_result
from holdfast.cli.output.run_status import format_progress, format_status
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import format_identifier, format_name, format_number, format_utc
from holdfast.cli.user_program import load_program, open_async_client
from holdfast.json_form.run import run_fields
from holdfast.json_form.values import to_json
from holdfast.model.run_status import UNFINISHED, RunState, RunStatus


@click.command(short_help="Resume a run: start its program at the session's head.")
@click.argument("session")
@click.argument("program", metavar="MODULE:NAME")
@common_options
def resume(session: str, program: str, store: str | None, as_json: bool) -> None:
    """Resume a stopped run: start its program, serve recorded results, and continue after them.

    MODULE:NAME is a function that takes the run of `with client.run(...) as run:`. The module may be in the current
    directory. Output of the program goes to stderr.

    Exits with 4 if another process runs it, and with 6 if it waits for approval.
    """
    with contextlib.redirect_stdout(sys.stderr):
        function = load_program(program)
        if inspect.iscoroutinefunction(function):
            import asyncio

            fields = asyncio.run(_await_run(store, session, function))
        else:
            fields = _run(store, session, function)
    print_result(fields, f"{fields['session_id']} is at {fields['checkpoint_id']}", as_json=as_json)


def _run(store: str | None, session: str, function: Any) -> dict[str, Any]:
    with open_store(store, registered=True) as client:
        found = _check_found(session, client.session(session))
        with client.run(session, agent_id=found.agent_id, wait=0) as run:
            result = run.result = function(run)
        return _fields(found, client.session(session), result)


async def _await_run(store: str | None, session: str, function: Any) -> dict[str, Any]:
    async with open_async_client(store) as client:
        found = _check_found(session, await client.session(session))
        async with client.run(session, agent_id=found.agent_id, wait=0) as run:
            result = run.result = await function(run)
        return _fields(found, await client.session(session), result)


def _check_found(session: str, found: Any) -> Any:
    if found is None:
        raise make_not_found_error(session)
    return found


def _fields(before: Any, after: Any, result: Any) -> dict[str, Any]:
    return {
        "session_id": after.session_id,
        "resumed_from": before.head.checkpoint_id,
        "checkpoint_id": after.head.checkpoint_id,
        "result": to_json(result),
    }


@click.command(short_help="List runs and their status.")
@click.argument("sessions", metavar="[SESSION]...", nargs=-1)
@click.option("--alive", is_flag=True, help="List only runs with a live process.")
@click.option("--failed", is_flag=True, help="List failed runs.")
@click.option("--waiting", is_flag=True, help="List runs that wait: for an approval, a time, a worker.")
@click.option("--unfinished", is_flag=True, help="List runs that have not ended.")
@click.option("--exit-code", is_flag=True, help="Exit with 1, 4 or 6 if a listed run needs attention.")
@click.option("-n", "--limit", "count", metavar="N", type=click.IntRange(min=0), help="List at most N.  [default: all]")
@common_options
@click.pass_context
def runs(
    ctx: click.Context,
    sessions: tuple[str, ...],
    alive: bool,
    failed: bool,
    waiting: bool,
    unfinished: bool,
    exit_code: bool,
    count: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """List runs, or those of the SESSIONs given, with their status.

    A run is running, waiting, in doubt about an effect, interrupted, failed, completed or cancelled. An interrupted
    one resumes when its program starts again, or a worker takes it. A session that was leased by no run is stopped.

    With --exit-code, exits with 1 if a listed run has failed, else with 4 if one is in doubt or interrupted, else
    with 6 if one waits for approval.
    """
    wanted = {
        *((RunState.FAILED,) if failed else ()),
        *((RunState.WAITING,) if waiting else ()),
        *(UNFINISHED if unfinished else ()),
    }
    with open_store(store) as client:
        if sessions:
            known = [_check_found(session, client.run_status(session)) for session in sessions]
            found = [item for item in known if not wanted or item.status in wanted]
        else:
            found = client.runs(alive=alive, status=sorted(wanted) or None)
    found = found[:count]
    nothing = "no run is alive" if alive else "no such run" if wanted else NO_RUNS
    print_listing("runs", found, run_fields, COLUMNS, nothing=nothing, as_json=as_json)
    if exit_code:
        ctx.exit(_exit_code(found))


NO_RUNS = "no runs here yet: `client.run(...)` makes them"


def _exit_code(found: Sequence[RunStatus]) -> int:
    states = {run_status.status for run_status in found}
    if RunState.FAILED in states:
        return 1
    if states & {RunState.IN_DOUBT, RunState.INTERRUPTED}:
        return 4
    return 6 if any(wait.kind == "approval" for run_status in found for wait in run_status.waits) else 0


def _tasks(tasks: Any) -> str:
    """Return how many of a run's tasks are completed; empty if it has none."""
    if not isinstance(tasks, dict):
        return ""
    lists = [task for task in tasks.values() if isinstance(task, dict) and isinstance(task.get("total"), int)]
    return (
        f"{sum(list_.get('completed', 0) for list_ in lists)}/{sum(list_['total'] for list_ in lists)}" if lists else ""
    )


COLUMNS: tuple[Column[RunStatus], ...] = (
    Column("session", lambda status: format_identifier(status.session_id), "whole"),
    Column("status", format_status, "shrinks"),
    Column("step", lambda status: format_number(status.head.step_index if status.head else None), "right"),
    Column("name", lambda status: format_name(status.head.step_name if status.head else None), "shrinks"),
    Column("tasks", lambda status: _tasks(status.head.tasks if status.head else None)),
    Column("progress", lambda status: format_progress(status.progress)),
    Column("saved (UTC)", lambda status: format_utc(status.head.created_at) if status.head else ""),
    Column("by", lambda status: format_name(status.holder), "shrinks"),
)
