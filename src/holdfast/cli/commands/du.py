"""`holdfast du`: disk usage of the store."""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.damaged import EXIT_CORRUPT, print_damaged
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.pager import page_output
from holdfast.cli.terminal.progress import progress_bar
from holdfast.cli.terminal.sanitize import format_bytes, format_identifier
from holdfast.cli.terminal.table import print_table
from holdfast.json_form.tree import damaged_fields
from holdfast.model.listing import DamagedCheckpoint
from holdfast.model.reports import StoreUsage

BAR = 10  # columns


@click.command(short_help="Show disk usage by session and kind.")
@click.argument("session", required=False)
@common_options
@click.pass_context
def du(ctx: click.Context, session: str | None, store: str | None, as_json: bool) -> None:
    """Show disk usage by session and kind; with SESSION, of that session only.

    ALONE is the space freed if the session were removed, SHARED the space shared with others, such as forks. Kinds
    are states, files of snapshots, records of checkpoints, indexes (with the store's overhead), and garbage, which
    `holdfast gc` removes. Damaged checkpoints are listed at the end; then the exit code is 5.
    """
    from holdfast.backends.bridge.step import run_inline
    from holdfast.operations import disk_usage

    damaged: list[DamagedCheckpoint] = []
    with open_store(store) as client, progress_bar("reading records") as progress:
        usage = run_inline(disk_usage.du(client._ctx, session, progress=progress, damaged=damaged))
    if as_json:
        print_json(
            {**asdict(usage), "parts": usage.parts, "damaged": [damaged_fields(checkpoint) for checkpoint in damaged]}
        )
    else:
        with page_output():
            _print(usage, kinds=session is None)
        if session is None and usage.unused_bytes and not damaged:
            click.echo(f"`holdfast gc` would free about {format_bytes(usage.unused_bytes)}", err=True)
    if damaged:
        print_damaged(damaged)
        ctx.exit(EXIT_CORRUPT)


def _print(usage: StoreUsage, *, kinds: bool) -> None:
    total = usage.total_bytes
    if usage.sessions:
        print_table(
            ("session", "checkpoints", "alone", "shared", "of all", ""),
            [
                (
                    format_identifier(session.session_id),
                    str(session.checkpoints),
                    format_bytes(session.exclusive_bytes),
                    format_bytes(session.shared_bytes),
                    *_part(session.exclusive_bytes + session.shared_bytes, total),
                )
                for session in usage.sessions
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
