"""`holdfast pin`: keeps checkpoints, whatever a time to live or a policy says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.holds import Pin


@click.command(short_help="Keep a checkpoint, or list what is pinned.")
@click.argument("ref", required=False)
@click.option("--note", metavar="TEXT", help="Why it is kept.")
@click.option("--remove", is_flag=True, help="Unpin it: it can be expired again.")
@store_option
@json_option
def pin(ref: str | None, note: str | None, remove: bool, store: str | None, as_json: bool) -> None:
    """Keep the checkpoint REF until it is unpinned: it can't be expired, no policy chooses it, and its time to live does
    not end it. Without REF, list what is pinned.

    REF is an id, the last 8 or more digits of one, a tag, or a session, which stands for its head.
    """
    from holdfast.cli.refs import id_of_ref
    from holdfast.cli.store_location import open_store

    if (remove or note is not None) and ref is None:
        raise click.UsageError("which checkpoint? Give a REF")
    if remove and note is not None:
        raise click.UsageError("--remove takes no --note")
    with open_store(store) as client:
        if ref is None:
            _list(client.pins(), as_json=as_json)
            return
        id_ = id_of_ref(client, ref)
        if remove:
            removed = client.unpin(id_)
            fields: dict[str, Any] = {"checkpoint_id": id_, "removed": removed}
            words = f"unpinned {id_}" if removed else f"{id_} was not pinned"
            if removed:
                from holdfast.cli.operation_output import say_how_to_undo

                say_how_to_undo(client, "unpin")
        else:
            fields = pin_fields(client.pin(id_, note))
            words = f"pinned {id_}"
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json(fields)
    else:
        click.echo(words)
        if not remove:
            click.echo(f"undo: holdfast pin --remove {id_[-8:]}", err=True)


def pin_fields(found: Pin) -> dict[str, Any]:
    from holdfast.cli.json_output import moment

    return {
        "checkpoint_id": found.checkpoint_id,
        "session_id": found.session_id,
        "pinned_at": moment(found.pinned_at),
        "note": found.note,
    }


def _list(found: list[Pin], *, as_json: bool) -> None:
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"pins": [pin_fields(one) for one in found]})
    elif found:
        from holdfast.cli.printable import name
        from holdfast.cli.tables import print_table

        print_table(
            ("checkpoint", "session", "pinned (UTC)", "note"),
            [
                (one.checkpoint_id, name(one.session_id), f"{one.pinned_at:%Y-%m-%d %H:%M:%S}", name(one.note))
                for one in found
            ],
            shrinks=("session", "note"),
        )
    else:
        click.echo("nothing is pinned here", err=True)
