"""`holdfast replay`: a session's program run once more from a checkpoint, on a fork."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.replay import ReplayReport


@click.command(short_help="Run a session's program once more from a checkpoint, on a fork.")
@click.argument("session")
@click.argument("program", metavar="MODULE:NAME")
@click.option("--from", "from_", metavar="REF", help="The checkpoint to go on from; without it, all is replayed.")
@click.option(
    "--mode",
    type=click.Choice(["recorded", "live", "mixed"]),
    default="recorded",
    help="Serve what was recorded and call nothing; call everything; or serve as long as steps are asked the same as then. "
    "The first is what happens without it.",
)
@click.option("--live", "live", metavar="STEP", multiple=True, help="Call this step in any case; as often as needed.")
@click.option(
    "--set",
    "assignments",
    metavar="PATH=VALUE",
    multiple=True,
    help="Another value in the state, as in `holdfast fork`.",
)
@click.option("--name", metavar="SESSION", help="The name of the fork; one is made without it.")
@click.option(
    "--on-repeat",
    type=click.Choice(["replay", "block", "again", "compensate"]),
    help="What becomes of effects that were carried out already, where the program does not say so.",
)
@store_option
@json_option
def replay(
    session: str,
    program: str,
    from_: str | None,
    mode: str,
    live: tuple[str, ...],
    assignments: tuple[str, ...],
    name: str | None,
    on_repeat: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Run the program of SESSION once more from a checkpoint, on a fork. The session itself stays as it is.

    MODULE:NAME is a function that is given the run, as `with client.run(...) as run:` has it, or a LangGraph graph that
    was compiled with a HoldfastSaver. The module is looked for from here, too. Effects that were carried out are not
    repeated unless the program or --on-repeat says so.

    Exits with 0 if the program came to its end.
    """
    from holdfast.cli.json_input import assignment
    from holdfast.cli.programs import program_named
    from holdfast.cli.store_location import open_store

    options: dict[str, Any] = {
        "from_": from_,
        "mode": mode,
        "steps": dict.fromkeys(live, "live"),
        "set": dict(assignment(text) for text in assignments) or None,
        "name": name,
        "on_repeat": on_repeat,
    }
    found = program_named(program)
    if inspect.iscoroutinefunction(found):
        import asyncio

        report = asyncio.run(_awaited(store, session, found, options))
    else:
        with open_store(store, registered=True) as client:
            report = client.replay(session, found, **options)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json(_fields(report))
    else:
        from holdfast.cli.printable import printable_lines

        click.echo(printable_lines(report.text()))
        click.echo(f"compare: holdfast compare {session} {report.session_id}", err=True)
    if report.error is not None:
        click.get_current_context().exit(getattr(report.error, "exit_code", 1))


async def _awaited(store: str | None, session: str, program: Any, options: dict[str, Any]) -> ReplayReport:
    from holdfast.cli.programs import open_awaited

    async with open_awaited(store) as client:
        return await client.replay(session, program, **options)


def _fields(report: ReplayReport) -> dict[str, Any]:
    from holdfast.cli.diff_output import edit_fields
    from holdfast.cli.json_output import shown

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
                "result": shown(step.result),
                "edits": [edit_fields(edit) for edit in step.edits],
                "note": step.note,
            }
            for step in report.steps
        ],
        "counts": report.counts(),
        "result": shown(report.result),
        "error": None if report.error is None else f"{type(report.error).__name__}: {report.error}",
    }
