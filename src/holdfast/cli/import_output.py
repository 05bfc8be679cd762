"""What the commands that import from other programs share: the store to import to, and how they tell what came of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from holdfast.model.reports import ImportedReport, ImportRemark
    from holdfast.sync_client import SyncClient

EXIT_SKIPPED = 1
SKIPPED_SHOWN = 50

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Read everything and say what would be imported, but save nothing."
)


def import_target(store: str | None, *, dry_run: bool) -> SyncClient:
    """The store to import to. To try it out, none is made."""
    from holdfast.cli.store_location import StoreNotFoundError, open_or_make_store, open_store
    from holdfast.sync_client import SyncClient

    if not dry_run:
        return open_or_make_store(store)
    try:
        return open_store(store)
    except StoreNotFoundError:
        return SyncClient.memory()


def say_imported(report: ImportedReport, *, as_json: bool) -> int:
    """Prints the report; the exit code."""
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"ok": report.ok, **asdict(report)})
    else:
        _say_in_words(report)
    return 0 if report.ok else EXIT_SKIPPED


def _say_in_words(report: ImportedReport) -> None:
    from holdfast.cli.printable import printable

    by_message: dict[str, list[ImportRemark]] = {}
    for remark in report.warnings:
        by_message.setdefault(remark.message, []).append(remark)
    for message, remarks in by_message.items():
        more = f" and {len(remarks) - 1} more" if len(remarks) > 1 else ""
        click.echo(f"warning  {printable(remarks[0].where)}{more}: {printable(message)}")
    for remark in report.skipped[:SKIPPED_SHOWN]:
        id_ = f" ({printable(remark.checkpoint_id, 40)})" if remark.checkpoint_id else ""
        click.echo(f"skipped  {printable(remark.where)}{id_}: {printable(remark.message)}")
    if len(report.skipped) > SKIPPED_SHOWN:
        click.echo(f"skipped  and {len(report.skipped) - SKIPPED_SHOWN} more: --json lists them all")
    said = "would import" if report.dry_run else "imported"
    counts = {
        f"{said} {report.imported} checkpoints of {len(report.sessions)} sessions": True,
        f"{report.recovered} of them could no longer be restored there": report.recovered,
        f"{report.already} were here already": report.already,
        f"{report.expired} have expired": report.expired,
        f"{len(report.warnings)} warnings": report.warnings,
        f"{len(report.skipped)} skipped": report.skipped,
    }
    click.echo(", ".join(text for text, is_said in counts.items() if is_said))
