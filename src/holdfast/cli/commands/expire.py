"""`holdfast expire`: expire checkpoints, and undo that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import common_options, confirm, yes_option
from holdfast.cli.output.json import print_json
from holdfast.cli.output.listing import print_result
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape, format_bytes, format_identifier, format_name
from holdfast.errors import ConflictError
from holdfast.model.checkpoint import Checkpoint

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient


@click.command(short_help="Expire checkpoints: they can no longer be restored.")
@click.argument("refs", metavar="REF...", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Make expired checkpoints live again, before gc.")
@click.option("--dry-run", is_flag=True, help="Only report what would expire, and its size.")
@yes_option
@common_options
def expire(refs: tuple[str, ...], undo: bool, dry_run: bool, yes: bool, store: str | None, as_json: bool) -> None:
    """Expire checkpoints: they can no longer be restored. Their descendants stay complete.

    REF is an id, its last 8 or more digits, a tag, or a session (its head). Pinned and tagged checkpoints are
    refused. Until `holdfast gc` runs, --undo makes them live again.
    """
    if undo and dry_run:
        raise click.UsageError("--dry-run says what would go, --undo brings back: give one")
    with open_store(store) as client:
        wanted = list(dict.fromkeys(client.resolve(ref) for ref in refs))
        if undo:
            back = [id_ for id_ in wanted if client.unexpire(id_)]
            _print_done(back, "brought back", "restored", as_json=as_json)
            return
        listed = [client.get(id_) for id_ in wanted]
        _refuse_held(client, listed)
        _print_listed(client, listed)
        if dry_run:
            _print_freed(wanted, client.freed_by(wanted), as_json=as_json)
            return
        if not confirm(f"expire {len(listed)} checkpoints?", yes=yes):
            return
        gone = [id_ for id_ in wanted if client.expire(id_)]
    _print_done(gone, "expired", "expired", as_json=as_json)
    if gone:
        short = " ".join(id_[-8:] for id_ in gone)
        click.echo(f"undo, until `holdfast gc` has run: holdfast expire --undo {short}", err=True)


def _print_freed(wanted: Sequence[str], freed: int, *, as_json: bool) -> None:
    fields = {"dry_run": True, "would_expire": list(wanted), "bytes_freed": freed}
    text = f"would expire {len(wanted)}; `holdfast gc` would free about {format_bytes(freed)} of them"
    print_result(fields, text, as_json=as_json)


def _refuse_held(client: SyncClient, listed: Sequence[Checkpoint]) -> None:
    """Refuse held checkpoints before anything is done, so that nothing is done by half."""
    wanted = {entry.checkpoint_id for entry in listed}
    kept = [f"{pin.checkpoint_id} is pinned" for pin in client.pins() if pin.checkpoint_id in wanted]
    kept += [
        f"{tag.checkpoint_id} is tagged {escape(tag.name, 60)!r}"
        for tag in client.tags()
        if tag.checkpoint_id in wanted
    ]
    if kept:
        raise ConflictError(
            f"nothing was expired: {', '.join(kept)}. `holdfast pin --remove REF` and `holdfast tag "
            "--delete NAME` let go"
        )


def _print_listed(client: SyncClient, listed: Sequence[Checkpoint]) -> None:
    heads = {session.head.checkpoint_id: session.session_id for session in client.sessions()}
    for entry in listed:
        step = "" if entry.step_index is None else f" step {entry.step_index}"
        head = heads.get(entry.checkpoint_id)
        moves = "" if head is None else f"  (head of {format_identifier(head)}, which goes to the nearest one before)"
        session, name = format_identifier(entry.session_id), format_name(entry.step_name)
        click.echo(f"  {entry.short_id}  {session}{step} {name}{moves}".rstrip(), err=True)


def _print_done(done: Sequence[str], word: str, field: str, *, as_json: bool) -> None:
    if as_json:
        print_json({field: list(done)})
    else:
        for id_ in done:
            click.echo(f"{word} {id_}")
