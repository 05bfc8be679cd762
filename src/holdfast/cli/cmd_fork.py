"""`holdfast fork`: a second directory as it was at a checkpoint, and a session that goes on from there."""

from __future__ import annotations

import click

from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option


@click.command(short_help="Make a second directory as it was at a checkpoint.")
@click.argument("ref")
@click.argument("place", metavar="DIR", type=click.Path())
@click.option(
    "--session", metavar="NAME", help="The name of the session that goes on from there; one is made without it."
)
@directory_option
@store_option
@json_option
def fork(ref: str, place: str, session: str | None, directory: str | None, store: str | None, as_json: bool) -> None:
    """Make a second directory as it was at a checkpoint, and a session that goes on from there.

    REF is an id, the last 8 or more digits of one, a tag, or a session, which stands for its head. DIR must not be there
    yet, or be empty. The files are shared with the first directory where the file system can do that.
    """
    from holdfast.cli.refs import id_of_ref
    from holdfast.cli.store_location import open_store
    from holdfast.cli.workspace_option import open_workspace

    with open_store(store) as client:
        forked = open_workspace(client, directory).fork(id_of_ref(client, ref), place, session_id=session)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json(
            {
                "directory": str(forked.directory),
                "session_id": forked.session_id,
                "checkpoint_id": forked.checkpoint_id,
                "paths": forked.paths,
                "copied": forked.copied,
            }
        )
    else:
        click.echo(f"{forked.directory}: {forked.paths} paths, session {forked.session_id}")
