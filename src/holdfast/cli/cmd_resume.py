"""`holdfast resume`: a run's program, started again where its session stands."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.options import json_option, store_option


@click.command(short_help="Go on with a run: start its program where its session stands.")
@click.argument("session")
@click.argument("program", metavar="MODULE:NAME")
@store_option
@json_option
def resume(session: str, program: str, store: str | None, as_json: bool) -> None:
    """Go on with a run that has stopped: its program is started, what it has recorded is served, and it goes on from there.

    MODULE:NAME is a function that is given the run, as `with client.run(...) as run:` has it. The module is looked for from
    here, too. What the program prints goes to stderr.

    Exits with 4 if another process is at work on it, and with 6 if it waits for an approval.
    """
    import contextlib
    import inspect
    import sys

    from holdfast.cli.programs import program_named

    with contextlib.redirect_stdout(sys.stderr):
        function = program_named(program)
        if inspect.iscoroutinefunction(function):
            import asyncio

            fields = asyncio.run(_awaited(store, session, function))
        else:
            fields = _run(store, session, function)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json(fields)
    else:
        click.echo(f"{fields['session_id']} stands at {fields['checkpoint_id']}")


def _run(store: str | None, session: str, function: Any) -> dict[str, Any]:
    from holdfast.cli.store_location import open_store

    with open_store(store, registered=True) as client:
        found = _known(session, client.session(session))
        with client.run(session, agent_id=found.agent_id, wait=0) as run:
            result = function(run)
        return _fields(found, client.session(session), result)


async def _awaited(store: str | None, session: str, function: Any) -> dict[str, Any]:
    from holdfast.cli.programs import open_awaited

    async with open_awaited(store) as client:
        found = _known(session, await client.session(session))
        async with client.run(session, agent_id=found.agent_id, wait=0) as run:
            result = await function(run)
        return _fields(found, await client.session(session), result)


def _known(session: str, found: Any) -> Any:
    from holdfast.errors import CheckpointNotFoundError

    if found is None:
        raise CheckpointNotFoundError(
            f"there is no session {session!r:.60} here. `holdfast runs` lists the runs that are"
        )
    return found


def _fields(before: Any, after: Any, result: Any) -> dict[str, Any]:
    from holdfast.cli.json_output import shown

    return {
        "session_id": after.session_id,
        "resumed_from": before.head.checkpoint_id,
        "checkpoint_id": after.head.checkpoint_id,
        "result": shown(result),
    }
