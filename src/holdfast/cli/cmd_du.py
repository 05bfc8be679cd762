"""`holdfast du`: what takes how much."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.reports import StoreUsage

BAR = 10  # columns


@click.command(short_help="Show what takes how much.")
@click.argument("session", required=False)
@store_option
@json_option
def du(session: str | None, store: str | None, as_json: bool) -> None:
    """Show what takes how much, by session and by kind; with SESSION, of that one alone.

    ALONE is what would be freed if the session went, SHARED what it needs together with others, such as its forks. Kinds
    are states, files of snapshots, the records of checkpoints, indexes (with all that the store needs for itself), and
    garbage, which `holdfast gc` removes.
    """
    from holdfast.cli.pager import paged
    from holdfast.cli.printable import byte_count
    from holdfast.cli.progress import progress_bar
    from holdfast.cli.store_location import open_store

    with open_store(store) as client, progress_bar("reading records") as progress:
        usage = client.du(session, progress=progress)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({**asdict(usage), "parts": usage.parts})
    else:
        with paged():
            _print(usage, kinds=session is None)
        if session is None and usage.unused_bytes:
            click.echo(f"`holdfast gc` would free about {byte_count(usage.unused_bytes)}", err=True)


def _print(usage: StoreUsage, *, kinds: bool) -> None:
    from holdfast.cli.printable import byte_count, name
    from holdfast.cli.tables import print_table

    total = usage.total_bytes
    if usage.sessions:
        print_table(
            ("session", "checkpoints", "alone", "shared", "of all", ""),
            [
                (
                    name(one.session_id),
                    str(one.checkpoints),
                    byte_count(one.exclusive_bytes),
                    byte_count(one.shared_bytes),
                    *_part(one.exclusive_bytes + one.shared_bytes, total),
                )
                for one in usage.sessions
            ],
            right=("checkpoints", "alone", "shared", "of all"),
            shrinks=("session",),
        )
    if not kinds:
        return
    if usage.sessions:
        click.echo()
    print_table(
        ("kind", "bytes", "of all", ""),
        [(kind, byte_count(size), *_part(size, total)) for kind, size in {**usage.parts, "total": total}.items()],
        right=("bytes", "of all"),
    )


def _part(size: int, total: int) -> tuple[str, str]:
    part = size / total if total else 0.0
    return f"{part:.0%}", "█" * round(part * BAR)
