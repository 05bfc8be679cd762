"""`holdfast fork`: a session that goes on from a checkpoint, with other values in its state, and its files beside the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option

if TYPE_CHECKING:
    from holdfast.model.workspace import Forked

SHOWN = 20


@click.command(short_help="Go another way from a checkpoint: a session, an edit, a directory.")
@click.argument("ref")
@click.argument("place", metavar="[DIR]", type=click.Path(), required=False)
@click.option(
    "--session",
    "--name",
    "session",
    metavar="NAME",
    help="The name of the session that goes on from there; one is made without it.",
)
@click.option(
    "--set",
    "assignments",
    metavar="PATH=VALUE",
    multiple=True,
    help="Another value in the state of the fork; as often as needed. VALUE is JSON; what is none is a text.",
)
@click.option(
    "--strict", is_flag=True, help="Refuse if effects stay done, or other agents went on, unless acknowledged."
)
@click.option("--acknowledge", metavar="ID", multiple=True, help="An effect or handoff that may stay. Can be repeated.")
@directory_option
@store_option
@json_option
def fork(
    ref: str,
    place: str | None,
    session: str | None,
    assignments: tuple[str, ...],
    strict: bool,
    acknowledge: tuple[str, ...],
    directory: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Make a session that goes on from a checkpoint. Nothing is copied, and the first session stays as it is.

    REF is an id, the last 8 or more digits of one, a tag, or a session, which stands for its head, or a place in these:
    SESSION@-, SESSION@~3, SESSION@{step}. PATH is as in `holdfast show --path`: messages.-1.content; or a JSON
    Pointer, /messages/0/content. What it names must be there; +PATH may be new, and messages.- is the place after the last.

    With DIR, which must not be there yet or be empty, the files of the checkpoint are put there, shared with the first
    directory where the file system can do that.
    """
    from holdfast.cli.json_input import assignment
    from holdfast.cli.left_behind import acknowledged, refused_in_options, say_left_behind
    from holdfast.cli.progress import progress_bar
    from holdfast.cli.refs import id_of_ref
    from holdfast.cli.store_location import locate, open_store
    from holdfast.cli.workspace_option import open_workspace

    if place is not None and (strict or acknowledge):
        raise click.UsageError("--strict and --acknowledge are for a fork without a directory: make that first")
    edits = dict(assignment(text) for text in assignments)
    made: Forked | None = None
    location = locate(store).path
    with open_store(store) as client, refused_in_options():
        source = id_of_ref(client, ref)
        if place is None:
            may_stay = acknowledged(client, acknowledge)
            forked = client.fork(source, session, set=edits or None, strict=strict, acknowledge=may_stay)
        else:
            workspace = open_workspace(client, directory)
            with progress_bar("forking") as progress:
                made = workspace.fork(source, place, session_id=session, set=edits or None, progress=progress)
            assert made.report is not None  # a checkpoint was forked
            forked = made.report
    name, id_ = forked.session_id, forked.checkpoint_id
    changed = made.files_changed if made else ()
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json(
            {
                "directory": str(made.directory) if made else None,
                "session_id": name,
                "checkpoint_id": id_,
                "paths": made.paths if made else 0,
                "copied": made.copied if made else 0,
                "source_id": source,
                "effects": [one.effect_id for one in forked.effects],
                "unknown": [one.effect_id for one in forked.unknown],
                "consumers": [one.handoff_id for one in forked.consumers],
                "files_changed": [path.decode("utf-8", "surrogateescape") for path in changed],
            }
        )
        return
    from holdfast.cli.printable import printable
    from holdfast.cli.workspaces import counted

    if made is not None:
        click.echo(f"{made.directory}: {counted(made.paths, 'path')}, session {printable(name)}")
    else:
        click.echo(f"session {printable(name)} at {id_}")
    say_left_behind(forked)
    for path in changed[:SHOWN]:
        shown = printable(path.decode("utf-8", "backslashreplace"))
        click.echo(f"  changed here since the last snapshot, so not in the fork: {shown}", err=True)
    if len(changed) > SHOWN:
        click.echo(f"  … and {len(changed) - SHOWN} more", err=True)
    if made is not None:
        import shlex

        if location is not None:
            click.echo(f"its store is this one: in there, --store {shlex.quote(str(location))}", err=True)
        click.echo(f"bring it back: holdfast adopt {shlex.quote(name)} {shlex.quote(str(made.directory))}", err=True)
    if edits:
        click.echo(f"see what is other: holdfast diff {source[-8:]} {id_[-8:]}", err=True)
