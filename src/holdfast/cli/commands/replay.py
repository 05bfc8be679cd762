"""`holdfast replay`: run a session's program again from a checkpoint, on a fork."""

from __future__ import annotations

import inspect
from typing import Any

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape_lines
from holdfast.cli.user_program import load_program, open_async_client
from holdfast.json_form.difference import edit_fields
from holdfast.json_form.input import parse_assignment
from holdfast.json_form.values import to_json
from holdfast.model.replay import ReplayReport


@click.command(short_help="Run a session's program again, on a fork.")
@click.argument("session")
@click.argument("program", metavar="MODULE:NAME")
@click.option("--from", "from_", metavar="REF", help="Start at this checkpoint.  [default: replay everything]")
@click.option(
    "--mode",
    type=click.Choice(["recorded", "live", "mixed"]),
    default="recorded",
    help="Serve recorded results only; call every step; or serve until the first difference.  [default: recorded]",
)
@click.option("--live", "live", metavar="STEP", multiple=True, help="Always call this step; repeatable.")
@click.option(
    "--set", "assignments", metavar="PATH=VALUE", multiple=True, help="Set a value in the state, as in `holdfast fork`."
)
@click.option("--name", metavar="SESSION", help="Name of the fork.  [default: SESSION-replay-N]")
@click.option(
    "--on-repeat",
    type=click.Choice(["replay", "block", "again", "compensate"]),
    help="How to treat effects already carried out, unless the program says so.",
)
@common_options
def replay(
    session: str,
    program: str,
    live: tuple[str, ...],
    assignments: tuple[str, ...],
    store: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run the program of SESSION again from a checkpoint, on a fork. The session itself does not change.

    MODULE:NAME is a function that takes the run of `with client.run(...) as run:`, or a LangGraph graph compiled
    with a HoldfastSaver. For an agent of another framework, the function takes turns of
    `resumable(agent, session_id=run.session_id)`. The module may be in the current directory. Effects that were
    carried out are not repeated unless the program or --on-repeat says so.

    Exits with 0 if the program finished.
    """
    options["steps"] = dict.fromkeys(live, "live")
    options["set"] = dict(parse_assignment(text) for text in assignments) or None
    found = load_program(program)
    if inspect.iscoroutinefunction(found):
        import asyncio

        report = asyncio.run(_await_replay(store, session, found, options))
    else:
        with open_store(store, registered=True) as client:
            report = client.replay(session, found, **options)
    if as_json:
        print_json(_fields(report))
    else:
        click.echo(escape_lines(report.text()))
        click.echo(f"compare: holdfast compare {session} {report.session_id}", err=True)
    if report.error is not None:
        click.get_current_context().exit(getattr(report.error, "exit_code", 1))


async def _await_replay(store: str | None, session: str, program: Any, options: dict[str, Any]) -> ReplayReport:
    async with open_async_client(store) as client:
        return await client.replay(session, program, **options)


def _fields(report: ReplayReport) -> dict[str, Any]:
    return {
        "session_id": report.session_id,
        "source_session": report.source_session,
        "from_id": report.from_id,
        "checkpoint_id": report.checkpoint_id,
        "mode": report.mode,
        "steps": [
            {
                "name": step.name,
                "kind": step.kind,
                "source": step.source,
                "failed": step.failed,
                "same": step.same,
                "result": to_json(step.result),
                "edits": [edit_fields(edit) for edit in step.edits],
                "note": step.note,
            }
            for step in report.steps
        ],
        "counts": report.counts(),
        "result": to_json(report.result),
        "error": None if report.error is None else f"{type(report.error).__name__}: {report.error}",
    }
