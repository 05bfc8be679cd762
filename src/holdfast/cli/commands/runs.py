"""`holdfast runs`: runs that work, wait or have stopped."""

from __future__ import annotations

import contextlib
import inspect
import sys
from typing import Any

import click

from holdfast.cli.options import common_options, session_not_found
from holdfast.cli.output.json import checkpoint_fields, format_time, to_json
from holdfast.cli.output.listing import Column, print_listing, print_result
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import format_identifier, format_name, format_number, format_utc
from holdfast.cli.user_program import load_program, open_async_client
from holdfast.model.store_status import RunStatus


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

            fields = asyncio.run(_awaited(store, session, function))
        else:
            fields = _run(store, session, function)
    print_result(fields, f"{fields['session_id']} is at {fields['checkpoint_id']}", as_json=as_json)


def _run(store: str | None, session: str, function: Any) -> dict[str, Any]:
    with open_store(store, registered=True) as client:
        found = _known(session, client.session(session))
        with client.run(session, agent_id=found.agent_id, wait=0) as run:
            result = function(run)
        return _fields(found, client.session(session), result)


async def _awaited(store: str | None, session: str, function: Any) -> dict[str, Any]:
    async with open_async_client(store) as client:
        found = _known(session, await client.session(session))
        async with client.run(session, agent_id=found.agent_id, wait=0) as run:
            result = await function(run)
        return _fields(found, await client.session(session), result)


def _known(session: str, found: Any) -> Any:
    if found is None:
        raise session_not_found(session)
    return found


def _fields(before: Any, after: Any, result: Any) -> dict[str, Any]:
    return {
        "session_id": after.session_id,
        "resumed_from": before.head.checkpoint_id,
        "checkpoint_id": after.head.checkpoint_id,
        "result": to_json(result),
    }


@click.command(short_help="List runs: alive, waiting for approval, stopped.")
@click.option("--alive", is_flag=True, help="List only runs with a live process.")
@click.option("-n", "--limit", "count", metavar="N", type=click.IntRange(min=0), help="List at most N.  [default: all]")
@common_options
def runs(alive: bool, count: int | None, store: str | None, as_json: bool) -> None:
    """List sessions of runs.

    A run is alive while a process holds its session's lease, and waiting while an approval is pending. Otherwise it
    is stopped: it has ended, or resumes when its program starts again.
    """
    with open_store(store) as client:
        found = client.runs(alive=alive)[:count]
    nothing = "no run is alive" if alive else "no runs here yet: `client.run(...)` makes them"
    print_listing("runs", found, run_fields, COLUMNS, nothing=nothing, as_json=as_json)


def run_fields(run: RunStatus) -> dict[str, Any]:
    return {
        "session_id": run.session_id,
        "status": run.status,
        "saves": run.saves,
        "approvals": run.approvals,
        "holder": run.holder,
        "expires_at": format_time(run.expires_at) if run.expires_at else None,
        "head": checkpoint_fields(run.head) if run.head else None,
    }


def _tasks(tasks: Any) -> str:
    """Return how many of a run's tasks are completed; empty if it has none."""
    if not isinstance(tasks, dict):
        return ""
    lists = [one for one in tasks.values() if isinstance(one, dict) and isinstance(one.get("total"), int)]
    return f"{sum(one.get('completed', 0) for one in lists)}/{sum(one['total'] for one in lists)}" if lists else ""


COLUMNS: tuple[Column[RunStatus], ...] = (
    Column("session", lambda one: format_identifier(one.session_id), "whole"),
    Column("status", lambda one: f"{one.status}, {one.approvals} to approve" if one.approvals else one.status),
    Column("step", lambda one: format_number(one.head.step_index if one.head else None), "right"),
    Column("name", lambda one: format_name(one.head.step_name if one.head else None), "shrinks"),
    Column("tasks", lambda one: _tasks(one.head.tasks if one.head else None)),
    Column("saved (UTC)", lambda one: format_utc(one.head.created_at) if one.head else ""),
    Column("by", lambda one: format_name(one.holder), "shrinks"),
)
