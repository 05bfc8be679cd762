"""`holdfast gc`: garbage collection."""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import format_bytes
from holdfast.model.reports import CollectionReport, Stats


@click.command(short_help="Collect garbage: remove data that no checkpoint needs.")
@click.option("--dry-run", is_flag=True, help="Only report what would be removed.")
@common_options
def gc(dry_run: bool, store: str | None, as_json: bool) -> None:
    """Expire checkpoints whose TTL passed, and remove data that no live checkpoint needs.

    It is safe while agents run. After gc, `holdfast expire --undo` is no longer possible.
    """
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
        print_json({**asdict(report), **sizes})
        return
    _print(report, _content(before), _content(after) if after else None)


def _content(stats: Stats) -> int:
    """Return the size without the store's own overhead, which shrinks when the store finds it worthwhile."""
    return stats.record_bytes + stats.segment_bytes + stats.blob_bytes + stats.row_bytes


def _print(report: CollectionReport, before: int, after: int | None) -> None:
    would = "would remove" if report.dry_run else "removed"
    click.echo(
        f"{would} {report.records} records, {report.segments} segments and {report.blobs} blobs, "
        f"and {'trim' if report.dry_run else 'trimmed'} {report.segments_trimmed} segments"
    )
    if report.expired_by_ttl:
        verb = "have outlived" if report.dry_run else "had outlived"
        click.echo(f"{report.expired_by_ttl} checkpoints {verb} their time to live")
    if after is None:
        click.echo(f"about {format_bytes(report.bytes_freed)} of {format_bytes(before)} would be freed")
        click.echo("nothing was removed: leave out --dry-run to do it", err=True)
    else:
        click.echo(f"{format_bytes(before)} before, {format_bytes(after)} after")
