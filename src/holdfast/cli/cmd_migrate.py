"""`holdfast migrate --check`: would what is stored resume with the code that is here?"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, store_option
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.model.reports import MigrationReport

EXIT_WOULD_NOT_RESUME = 1


class ImportFailedError(HoldfastError):
    """A module that was named on the command line raised while it was imported."""


@click.command(short_help="Check that what is stored would resume with your code.")
@click.option("--check", is_flag=True, help="Restore and migrate, without writing, and say what would not resume.")
@click.option(
    "--import",
    "modules",
    metavar="MODULE",
    multiple=True,
    help="Import this module first (from here, too), so that its migrations and types are registered. Repeatable.",
)
@click.option("--session", metavar="S", help="Only this session.")
@click.option("--agent", metavar="A", help="Only checkpoints that this agent made or was handed.")
@click.option("--all", "every", is_flag=True, help="Every checkpoint, not only those that sessions stand at.")
@store_option
@json_option
@click.pass_context
def migrate(
    ctx: click.Context,
    check: bool,
    modules: tuple[str, ...],
    session: str | None,
    agent: str | None,
    every: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Check that every session would resume with the migrations and types of your code.

    States are migrated each time they are restored, and stored in the new version by the next save: nothing that is
    stored is ever rewritten. So this command only checks, before a deployment for instance.

    Exits with 1 if something would not resume: a migration is missing or fails, the state is of a newer version, holds
    objects of a type that is not registered, or is damaged.
    """
    if not check:
        raise click.UsageError(
            "there is nothing to carry out: states are migrated when they are restored, and what is stored is never "
            "rewritten. `holdfast migrate --check --import MODULE` says what would not resume with your code"
        )
    from holdfast.cli.printable import printable
    from holdfast.cli.progress import progress_bar
    from holdfast.cli.store_location import open_store
    from holdfast.errors import CheckpointNotFoundError
    from holdfast.model.migrations import default_migrations

    # The user's modules and migrations may print: stdout is for the report.
    with contextlib.redirect_stdout(sys.stderr):
        for module in modules:
            _import(module)
        with open_store(store, registered=True) as client, progress_bar("checking") as progress:
            report = client.check_migrations(session, agent, every=every, progress=progress)
    if session is not None and not report.checked:
        raise CheckpointNotFoundError(
            f"there is no session {printable(session, 60)!r} to resume here, or not of this agent. `holdfast sessions` "
            "lists what is there"
        )
    if as_json:
        _print_json(report)
    else:
        _print(report, "checkpoints" if every else "sessions")
    if not default_migrations:
        click.echo("no migrations are registered: name the module that has yours with --import MODULE", err=True)
    if not report.ok:
        ctx.exit(EXIT_WOULD_NOT_RESUME)


def _import(module: str) -> None:
    """Imports what the user has named on the command line; nothing that is stored names a module."""
    import importlib
    from pathlib import Path

    if not all(part.isidentifier() for part in module.split(".")):
        raise _no_module(module)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise _no_module(module) from error
        raise ImportFailedError(
            f"the module {module} raised {error!r:.300} when it was imported. `python -c 'import {module}'` shows where"
        ) from error


def _no_module(module: str) -> click.BadParameter:
    hint = ". A module is named without .py, with dots for slashes" if module.endswith(".py") else ""
    return click.BadParameter(
        f"there is no module {module!r:.100} here or among what is installed{hint}", param_hint="--import"
    )


def _print(report: MigrationReport, what: str) -> None:
    from holdfast.cli.printable import name, printable
    from holdfast.model.ids import short

    for problem in report.problems:
        id_ = short(problem.checkpoint_id) if problem.checkpoint_id else "?"
        click.echo(f"{name(problem.session_id)}  {id_}  {problem.reason}: {printable(problem.message)}")
    failed = len(report.problems)
    after = f" ({report.migrating} of them migrated)" if report.migrating else ""
    click.echo(f"checked {report.checked} {what}: {report.checked - failed} would resume{after}, {failed} would not")


def _print_json(report: MigrationReport) -> None:
    from holdfast.cli.json_output import print_json

    print_json(
        {
            "ok": report.ok,
            "checked": report.checked,
            "migrating": report.migrating,
            "problems": [
                {
                    "session_id": problem.session_id,
                    "checkpoint_id": problem.checkpoint_id or None,
                    "agent_id": problem.agent_id or None,
                    "state_version": problem.state_version or None,
                    "reason": problem.reason,
                    "message": problem.message,
                }
                for problem in report.problems
            ],
        }
    )
