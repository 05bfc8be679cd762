"""`holdfast expire`: ends checkpoints, and undoes that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.confirmation import confirmed, yes_option
from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.model.checkpoint import Checkpoint
    from holdfast.sync_client import SyncClient


@click.command(short_help="End checkpoints: they can no longer be restored.")
@click.argument("refs", metavar="REF...", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Bring expired checkpoints back, if gc has not run since.")
@click.option("--dry-run", is_flag=True, help="Say what would go and how much that frees, and do nothing.")
@yes_option
@store_option
@json_option
def expire(refs: tuple[str, ...], undo: bool, dry_run: bool, yes: bool, store: str | None, as_json: bool) -> None:
    """End checkpoints: they can no longer be restored. What descends from them stays whole.

    REF is an id, the last 8 or more digits of one, a tag, or a session, which stands for its head. What is pinned or
    tagged is refused. Until `holdfast gc` has run, --undo brings them back.
    """
    from holdfast.cli.refs import id_of_ref
    from holdfast.cli.store_location import open_store

    if undo and dry_run:
        raise click.UsageError("--dry-run says what would go, --undo brings back: give one")
    with open_store(store) as client:
        wanted = list(dict.fromkeys(id_of_ref(client, ref) for ref in refs))
        if undo:
            back = [id_ for id_ in wanted if client.unexpire(id_)]
            _say(back, "brought back", "restored", as_json=as_json)
            return
        listed = [client.get(id_) for id_ in wanted]
        _refuse_held(client, listed)
        _show(client, listed)
        if dry_run:
            _say_freed(wanted, client.freed_by(wanted), as_json=as_json)
            return
        if not confirmed(f"expire {len(listed)} checkpoints?", yes=yes):
            return
        gone = [id_ for id_ in wanted if client.expire(id_)]
    _say(gone, "expired", "expired", as_json=as_json)
    if gone:
        short = " ".join(id_[-8:] for id_ in gone)
        click.echo(f"undo, until `holdfast gc` has run: holdfast expire --undo {short}", err=True)


def _say_freed(wanted: Sequence[str], freed: int, *, as_json: bool) -> None:
    from holdfast.cli.json_output import print_json
    from holdfast.cli.printable import byte_count

    if as_json:
        print_json({"dry_run": True, "would_expire": list(wanted), "bytes_freed": freed})
    else:
        click.echo(f"would expire {len(wanted)}; `holdfast gc` would free about {byte_count(freed)} of them")


def _refuse_held(client: SyncClient, listed: Sequence[Checkpoint]) -> None:
    """Before anything is done: so that nothing is done half."""
    from holdfast.cli.printable import printable
    from holdfast.errors import ConflictError

    wanted = {entry.checkpoint_id for entry in listed}
    kept = [f"{pin.checkpoint_id} is pinned" for pin in client.pins() if pin.checkpoint_id in wanted]
    kept += [
        f"{tag.checkpoint_id} is tagged {printable(tag.name, 60)!r}"
        for tag in client.tags()
        if tag.checkpoint_id in wanted
    ]
    if kept:
        raise ConflictError(
            f"nothing was expired: {', '.join(kept)}. `holdfast pin --remove REF` and `holdfast tag --delete NAME` let go"
        )


def _show(client: SyncClient, listed: Sequence[Checkpoint]) -> None:
    from holdfast.cli.printable import name

    heads = {session.head.checkpoint_id: session.session_id for session in client.sessions()}
    for entry in listed:
        step = "" if entry.step_index is None else f" step {entry.step_index}"
        head = heads.get(entry.checkpoint_id)
        moves = f"  (head of {name(head)}, which goes to the nearest one before)" if head is not None else ""
        click.echo(
            f"  {entry.short_id}  {name(entry.session_id)}{step} {name(entry.step_name)}{moves}".rstrip(), err=True
        )


def _say(done: Sequence[str], word: str, field: str, *, as_json: bool) -> None:
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({field: list(done)})
    else:
        for id_ in done:
            click.echo(f"{word} {id_}")
