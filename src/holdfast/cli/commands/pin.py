"""`holdfast pin`: keep checkpoints, whatever a time to live or a policy says."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.output.listing import Column, print_listing
from holdfast.cli.output.operation import print_how_to_undo
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import format_identifier, format_name, format_utc
from holdfast.json_form.checkpoint import pin_fields
from holdfast.model.pin import Pin


@click.command(short_help="Pin a checkpoint, or list pins.")
@click.argument("ref", required=False)
@click.option("--note", metavar="TEXT", help="Reason for the pin.")
@click.option("--remove", is_flag=True, help="Unpin it.")
@common_options
def pin(ref: str | None, note: str | None, remove: bool, store: str | None, as_json: bool) -> None:
    """Pin the checkpoint REF, or list pins.

    Until it is unpinned, it cannot expire by command, policy or TTL. REF is an id, its last 8 or
    more digits, a tag, or a session (its head).
    """
    if (remove or note is not None) and ref is None:
        raise click.UsageError("which checkpoint? Give a REF")
    if remove and note is not None:
        raise click.UsageError("--remove takes no --note")
    with open_store(store) as client:
        if ref is None:
            nothing = "nothing is pinned here"
            print_listing("pins", client.pins(), pin_fields, COLUMNS, nothing=nothing, as_json=as_json)
            return
        id_ = client.resolve(ref)
        if remove:
            removed = client.unpin(id_)
            fields: dict[str, Any] = {"checkpoint_id": id_, "removed": removed}
            words = f"unpinned {id_}" if removed else f"{id_} was not pinned"
            if removed:
                print_how_to_undo(client, "unpin")
        else:
            fields = pin_fields(client.pin(id_, note))
            words = f"pinned {id_}"
    if as_json:
        print_json(fields)
    else:
        click.echo(words)
        if not remove:
            click.echo(f"undo: holdfast pin --remove {id_[-8:]}", err=True)


COLUMNS: tuple[Column[Pin], ...] = (
    Column("checkpoint", lambda item: item.checkpoint_id),
    Column("session", lambda item: format_identifier(item.session_id), "whole"),
    Column("pinned (UTC)", lambda item: format_utc(item.pinned_at)),
    Column("note", lambda item: format_name(item.note), "shrinks"),
)
