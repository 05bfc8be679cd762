"""`holdfast import langgraph-sqlite` and `langgraph-postgres`: the threads of LangGraph's own savers."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from holdfast.cli.import_output import dry_run_option, import_target, say_imported
from holdfast.cli.options import json_option, store_option

allow_option = click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="MODULE:CLASS",
    help="A class of yours that the state holds. Its module is imported, from here. May be given several times.",
)


@click.command(name="langgraph-sqlite", short_help="From a database of LangGraph's SqliteSaver.")
@click.argument("file", type=click.Path(path_type=Path))
@allow_option
@dry_run_option
@store_option
@json_option
@click.pass_context
def langgraph_sqlite(
    ctx: click.Context, file: Path, allowed: tuple[str, ...], dry_run: bool, store: str | None, as_json: bool
) -> None:
    """Import FILE, the SQLite database of LangGraph's SqliteSaver or AsyncSqliteSaver.

    All threads and namespaces come with their checkpoints, ids, parents, metadata and pending writes; each is read back
    and compared. Graphs go on from there with HoldfastSaver. Nothing that is stored is executed. Exits with 1 if anything
    was skipped.
    """
    from holdfast.cli.progress import progress_bar
    from holdfast.langgraph import import_sqlite

    classes = _classes(allowed)
    with import_target(store, dry_run=dry_run) as client, progress_bar("importing") as progress:
        report = import_sqlite(client, file, allow=classes, dry_run=dry_run, progress=progress)
    ctx.exit(say_imported(report, as_json=as_json))


@click.command(name="langgraph-postgres", short_help="From a database of LangGraph's PostgresSaver.")
@click.argument("dsn")
@allow_option
@dry_run_option
@store_option
@json_option
@click.pass_context
def langgraph_postgres(
    ctx: click.Context, dsn: str, allowed: tuple[str, ...], dry_run: bool, store: str | None, as_json: bool
) -> None:
    """Import from DSN, the PostgreSQL database of LangGraph's PostgresSaver or AsyncPostgresSaver.

    As langgraph-sqlite does. The database is read in one transaction that may not write.
    """
    from holdfast.cli.progress import progress_bar
    from holdfast.langgraph import import_postgres

    classes = _classes(allowed)
    with import_target(store, dry_run=dry_run) as client, progress_bar("importing") as progress:
        report = import_postgres(client, dsn, allow=classes, dry_run=dry_run, progress=progress)
    ctx.exit(say_imported(report, as_json=as_json))


def _classes(names: tuple[str, ...]) -> list[type[Any]]:
    """The classes that were named on the command line: by whoever typed it, so they may be imported."""
    found: list[type[Any]] = []
    if names and "" not in sys.path:
        sys.path.insert(0, "")
    for name in names:
        module, _, qualname = name.partition(":")
        try:
            cls: Any = importlib.import_module(module)
            for part in qualname.split("."):
                cls = getattr(cls, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise click.BadParameter(f"{name!r} can't be imported: {error}", param_hint="--allow") from error
        if not isinstance(cls, type):
            raise click.BadParameter(f"{name!r} is no class", param_hint="--allow")
        found.append(cls)
    return found
