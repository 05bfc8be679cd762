"""`holdfast tag`: names for checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.output.listing import Column, print_listing
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape, format_identifier, format_utc
from holdfast.errors import CheckpointNotFoundError
from holdfast.json_form.checkpoint import tag_fields
from holdfast.model.pin import Tag

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient


@click.command(short_help="Tag a checkpoint, or list tags.")
@click.argument("name", required=False)
@click.argument("ref", required=False)
@click.option("--force", is_flag=True, help="Move the tag from another checkpoint.")
@click.option("--delete", is_flag=True, help="Delete the tag; its checkpoint stays.")
@common_options
def tag(name: str | None, ref: str | None, force: bool, delete: bool, store: str | None, as_json: bool) -> None:
    """Tag the checkpoint REF with NAME, or list tags.

    Commands accept the tag instead of an id, and a tagged checkpoint is kept like a pinned one. REF
    is an id, its last 8 or more digits, a tag, or a session (its head).
    """
    if delete and (name is None or ref is not None):
        raise click.UsageError("--delete takes the NAME alone")
    if name is not None and ref is None and not delete:
        raise click.UsageError("which checkpoint? Give a REF after the name")
    with open_store(store) as client:
        if name is None:
            print_listing("tags", client.tags(), tag_fields, COLUMNS, nothing="no tags here yet", as_json=as_json)
            return
        if delete:
            _delete(client, name, as_json=as_json)
            return
        before = client.tagged(name)
        made = client.tag(name, client.resolve(str(ref)), force=force)
    if as_json:
        print_json(tag_fields(made))
        return
    click.echo(f"tagged {made.checkpoint_id}")
    shown = escape(name, 60)
    if before is None:
        click.echo(f"undo: holdfast tag --delete {shown!r}", err=True)
    elif before.checkpoint_id != made.checkpoint_id:
        click.echo(f"undo: holdfast tag --force {shown!r} {before.checkpoint_id[-8:]}", err=True)


def _delete(client: SyncClient, name: str, *, as_json: bool) -> None:
    before = client.tagged(name)
    shown = escape(name, 60)
    if not client.untag(name):
        raise CheckpointNotFoundError(f"there is no tag {shown!r} here. `holdfast tag` lists those that are there")
    if as_json:
        print_json({"name": name, "removed": True})
        return
    click.echo(f"removed the tag {shown!r}")
    if before is not None:
        click.echo(f"undo: holdfast tag {shown!r} {before.checkpoint_id[-8:]}", err=True)


COLUMNS: tuple[Column[Tag], ...] = (
    Column("tag", lambda item: format_identifier(item.name), "whole"),
    Column("checkpoint", lambda item: item.checkpoint_id),
    Column("tagged (UTC)", lambda item: format_utc(item.tagged_at)),
)
