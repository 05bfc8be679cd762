"""`holdfast du`: disk usage of the store."""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.pager import paged
from holdfast.cli.terminal.progress import progress_bar
from holdfast.cli.terminal.sanitize import format_bytes, format_identifier
from holdfast.cli.terminal.table import print_table
from holdfast.model.reports import StoreUsage

BAR = 10  # columns


@click.command(short_help="Show disk usage by session and kind.")
@click.argument("session", required=False)
@common_options
def du(session: str | None, store: str | None, as_json: bool) -> None:
    """Show disk usage by session and kind; with SESSION, of that session only.

    ALONE is the space freed if the session were removed, SHARED the space shared with others, such as forks. Kinds
    are states, files of snapshots, records of checkpoints, indexes (with the store's overhead), and garbage, which
    `holdfast gc` removes.
    """
    with open_store(store) as client, progress_bar("reading records") as progress:
        usage = client.du(session, progress=progress)
    if as_json:
        print_json({**asdict(usage), "parts": usage.parts})
    else:
        with paged():
            _print(usage, kinds=session is None)
        if session is None and usage.unused_bytes:
            click.echo(f"`holdfast gc` would free about {format_bytes(usage.unused_bytes)}", err=True)


def _print(usage: StoreUsage, *, kinds: bool) -> None:
    total = usage.total_bytes
    if usage.sessions:
        print_table(
            ("session", "checkpoints", "alone", "shared", "of all", ""),
            [
                (
                    format_identifier(one.session_id),
                    str(one.checkpoints),
                    format_bytes(one.exclusive_bytes),
                    format_bytes(one.shared_bytes),
                    *_part(one.exclusive_bytes + one.shared_bytes, total),
                )
                for one in usage.sessions
            ],
            right=("checkpoints", "alone", "shared", "of all"),
            whole=("session",),
        )
    if not kinds:
        return
    if usage.sessions:
        click.echo()
    print_table(
        ("kind", "bytes", "of all", ""),
        [(kind, format_bytes(size), *_part(size, total)) for kind, size in {**usage.parts, "total": total}.items()],
        right=("bytes", "of all"),
    )


def _part(size: int, total: int) -> tuple[str, str]:
    part = size / total if total else 0.0
    return f"{part:.0%}", "█" * round(part * BAR)
