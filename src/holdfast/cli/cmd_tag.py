"""`holdfast tag`: names for checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.holds import Tag
    from holdfast.sync_client import SyncClient


@click.command(short_help="Name a checkpoint, or list the names.")
@click.argument("name", required=False)
@click.argument("ref", required=False)
@click.option("--force", is_flag=True, help="Move the name, if it stands elsewhere.")
@click.option("--delete", is_flag=True, help="Remove the name; its checkpoint stays.")
@store_option
@json_option
def tag(name: str | None, ref: str | None, force: bool, delete: bool, store: str | None, as_json: bool) -> None:
    """Give the checkpoint REF a name. Commands take the name wherever they take an id, and what has a name is kept like
    what is pinned. Without NAME and REF, list the names.

    REF is an id, the last 8 or more digits of one, a tag, or a session, which stands for its head.
    """
    from holdfast.cli.refs import id_of_ref
    from holdfast.cli.store_location import open_store

    if delete and (name is None or ref is not None):
        raise click.UsageError("--delete takes the NAME alone")
    if name is not None and ref is None and not delete:
        raise click.UsageError("which checkpoint? Give a REF after the name")
    with open_store(store) as client:
        if name is None:
            _list(client.tags(), as_json=as_json)
            return
        if delete:
            _delete(client, name, as_json=as_json)
            return
        before = client.tagged(name)
        made = client.tag(name, id_of_ref(client, str(ref)), force=force)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json(tag_fields(made))
        return
    from holdfast.cli.printable import printable

    click.echo(f"tagged {made.checkpoint_id}")
    shown = printable(name, 60)
    if before is None:
        click.echo(f"undo: holdfast tag --delete {shown!r}", err=True)
    elif before.checkpoint_id != made.checkpoint_id:
        click.echo(f"undo: holdfast tag --force {shown!r} {before.checkpoint_id[-8:]}", err=True)


def tag_fields(found: Tag) -> dict[str, Any]:
    from holdfast.cli.json_output import moment

    return {"name": found.name, "checkpoint_id": found.checkpoint_id, "tagged_at": moment(found.tagged_at)}


def _delete(client: SyncClient, name: str, *, as_json: bool) -> None:
    from holdfast.cli.printable import printable
    from holdfast.errors import CheckpointNotFoundError

    before = client.tagged(name)
    shown = printable(name, 60)
    if not client.untag(name):
        raise CheckpointNotFoundError(f"there is no tag {shown!r} here. `holdfast tag` lists those that are there")
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"name": name, "removed": True})
        return
    click.echo(f"removed the tag {shown!r}")
    if before is not None:
        click.echo(f"undo: holdfast tag {shown!r} {before.checkpoint_id[-8:]}", err=True)


def _list(found: list[Tag], *, as_json: bool) -> None:
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"tags": [tag_fields(one) for one in found]})
    elif found:
        from holdfast.cli.printable import name
        from holdfast.cli.tables import print_table

        print_table(
            ("tag", "checkpoint", "tagged (UTC)"),
            [(name(one.name), one.checkpoint_id, f"{one.tagged_at:%Y-%m-%d %H:%M:%S}") for one in found],
            shrinks=("tag",),
        )
    else:
        click.echo("no tags here yet", err=True)
