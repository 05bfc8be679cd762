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

    ALONE is what would be freed if the session went, SHARED what it needs together with others, such as its forks.
    """
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        usage = client.du(session)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json(asdict(usage))
    else:
        _print(usage, kinds=session is None)


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
    by_kind = {
        "records": usage.record_bytes,
        "runs": usage.run_bytes,
        "blobs": usage.blob_bytes,
        "rows": usage.row_bytes,
        "tombstones": usage.tombstone_bytes,
        "overhead": usage.overhead_bytes,
        "total": total,
    }
    print_table(
        ("kind", "bytes", "of all", ""),
        [(kind, byte_count(size), *_part(size, total)) for kind, size in by_kind.items()],
        right=("bytes", "of all"),
    )
    if usage.unused_bytes:
        click.echo(f"`holdfast gc` would free about {byte_count(usage.unused_bytes)}", err=True)


def _part(size: int, total: int) -> tuple[str, str]:
    part = size / total if total else 0.0
    return f"{part:.0%}", "█" * round(part * BAR)
