"""`holdfast gc`: removes what nothing needs any more."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.reports import CollectionReport, Stats


@click.command(short_help="Remove what no checkpoint needs any more.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@store_option
@json_option
def gc(dry_run: bool, store: str | None, as_json: bool) -> None:
    """End what has outlived its time to live, and remove what no live checkpoint needs. Safe beside running agents.

    An expiry can be undone until gc has run (`holdfast expire --undo`).
    """
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        before = client.stats()
        report = client.gc(dry_run=dry_run)
        after = None if dry_run else client.stats()
    sizes = {
        "bytes_before": _content(before),
        "bytes_after": _content(after) if after else max(_content(before) - report.bytes_freed, 0),
        "store_bytes_before": before.stored_bytes,
        "store_bytes_after": after.stored_bytes if after else None,
    }
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({**asdict(report), **sizes})
        return
    _print(report, _content(before), _content(after) if after else None)


def _content(stats: Stats) -> int:
    """Without the store's own overhead, which shrinks when the store finds it worthwhile."""
    return stats.record_bytes + stats.run_bytes + stats.blob_bytes + stats.row_bytes


def _print(report: CollectionReport, before: int, after: int | None) -> None:
    from holdfast.cli.printable import byte_count

    would = "would remove" if report.dry_run else "removed"
    click.echo(
        f"{would} {report.records} records, {report.runs} runs and {report.blobs} blobs, "
        f"and {'trim' if report.dry_run else 'trimmed'} {report.runs_trimmed} runs"
    )
    if report.expired_by_ttl:
        said = "have outlived" if report.dry_run else "had outlived"
        click.echo(f"{report.expired_by_ttl} checkpoints {said} their time to live")
    if after is None:
        click.echo(f"about {byte_count(report.bytes_freed)} of {byte_count(before)} would be freed")
        click.echo("nothing was removed: leave out --dry-run to do it", err=True)
    else:
        click.echo(f"{byte_count(before)} before, {byte_count(after)} after")
