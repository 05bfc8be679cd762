"""`holdfast migrate --check`: check that stored states resume with the present code."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict

import click

from holdfast.cli.import_module import import_module
from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.progress import progress_bar
from holdfast.cli.terminal.sanitize import escape, format_identifier
from holdfast.errors import CheckpointNotFoundError
from holdfast.model.ids import short
from holdfast.model.reports import MigrationReport
from holdfast.model.state_migration import default_migrations

EXIT_WOULD_NOT_RESUME = 1


@click.command(short_help="Check that stored sessions resume with your code.")
@click.option("--check", is_flag=True, help="Restore and migrate without writing, and list failures.")
@click.option(
    "--import",
    "modules",
    metavar="MODULE",
    multiple=True,
    help="Import this module first (also from here) to register its migrations and types. Repeatable.",
)
@click.option("--session", metavar="S", help="Check only this session.")
@click.option("--agent", metavar="A", help="Check only checkpoints that this agent saved or was handed.")
@click.option("--all", "every", is_flag=True, help="Check every checkpoint, not only heads.")
@common_options
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
    """Check that every session resumes with the migrations and types of your code.

    States are migrated at each restore, and the next save stores the new version; stored data is never rewritten.
    This command only checks, for example before a deployment.

    Exits with 1 if a session would not resume: a migration is missing or fails, the state is newer, a type is not
    registered, or the data is damaged.
    """
    if not check:
        raise click.UsageError(
            "there is nothing to carry out: states are migrated when they are restored, and what is stored is never "
            "rewritten. `holdfast migrate --check --import MODULE` says what would not resume with your code"
        )
    # The user's modules and migrations may print: stdout is for the report.
    with contextlib.redirect_stdout(sys.stderr):
        for module in modules:
            import_module(module)
        with open_store(store, registered=True) as client, progress_bar("checking") as progress:
            report = client.check_migrations(session, agent, every=every, progress=progress)
    if session is not None and not report.checked:
        raise CheckpointNotFoundError(
            f"there is no session {escape(session, 200)!r} to resume here, or not of this agent. `holdfast sessions` "
            "lists what is there"
        )
    if as_json:
        _print_json(report)
    else:
        _print(report, "checkpoints" if every else "sessions")
    if not default_migrations and not modules:
        click.echo("no migrations are registered: name the module that has yours with --import MODULE", err=True)
    if not report.ok:
        ctx.exit(EXIT_WOULD_NOT_RESUME)


def _print(report: MigrationReport, unit: str) -> None:
    for problem in report.problems:
        id_ = short(problem.checkpoint_id) if problem.checkpoint_id else "?"
        click.echo(f"{format_identifier(problem.session_id)}  {id_}  {problem.reason}: {escape(problem.message)}")
    failed = len(report.problems)
    after = f" ({report.migrating} of them migrated)" if report.migrating else ""
    click.echo(f"checked {report.checked} {unit}: {report.checked - failed} would resume{after}, {failed} would not")


def _print_json(report: MigrationReport) -> None:
    unread = {"checkpoint_id": "", "agent_id": "", "state_version": 0}
    problems = [
        {name: None if unread.get(name) == value else value for name, value in asdict(problem).items()}
        for problem in report.problems
    ]
    print_json({"ok": report.ok, "checked": report.checked, "migrating": report.migrating, "problems": problems})
