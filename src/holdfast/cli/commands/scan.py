"""`holdfast scan`: the paths of stored values that look like secrets."""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.options import common_options, make_not_found_error
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.progress import progress_bar
from holdfast.cli.terminal.sanitize import escape, format_identifier
from holdfast.codec.redaction_rules import by_path, by_pattern
from holdfast.codec.secret_types import RedactionRule
from holdfast.model.ids import short
from holdfast.model.reports import ScanReport

EXIT_FOUND = 1


@click.command(short_help="List the paths of stored secrets, never the values.")
@click.argument("session", required=False)
@click.option(
    "--path", "paths", metavar="PATH", multiple=True, help="Values at this path, which may have wildcards. Repeatable."
)
@click.option("--pattern", "patterns", metavar="REGEX", multiple=True, help="Texts with a match. Repeatable.")
@click.option("--all", "every", is_flag=True, help="Search every checkpoint, not only heads.")
@common_options
@click.pass_context
def scan(
    ctx: click.Context,
    session: str | None,
    paths: tuple[str, ...],
    patterns: tuple[str, ...],
    every: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """List the paths of stored secrets in the heads of all sessions, or of SESSION.

    Values are never printed.
    Without --path and --pattern, searches for tokens of well-known providers and for names that secrets often have.
    Searches state, context, metadata, recorded results, and the ledger of effects. Changes nothing.

    Exits with 1 if anything is found.
    """
    rules: list[RedactionRule] = list(by_path(*paths)) if paths else []
    rules += [by_pattern(pattern, label=pattern) for pattern in patterns]
    with open_store(store) as client, progress_bar("searching") as progress:
        report = client.scan(rules or None, session, every=every, progress=progress)
    if session is not None and not report.checked:
        raise make_not_found_error(session)
    if as_json:
        print_json(
            {
                "ok": report.ok,
                "checked": report.checked,
                "findings": [
                    {**asdict(finding), "checkpoint_id": finding.checkpoint_id or None} for finding in report.findings
                ],
            }
        )
    else:
        _print(report)
    if not report.ok:
        ctx.exit(EXIT_FOUND)


def _print(report: ScanReport) -> None:
    for finding in report.findings:
        id_ = short(finding.checkpoint_id) if finding.checkpoint_id else "?"
        where = escape(finding.path)
        click.echo(
            f"{format_identifier(finding.session_id)}  {id_}  {where}  ({escape(finding.type)}; {escape(finding.rule)})"
        )
    click.echo(f"searched {report.checked} checkpoints: {len(report.findings)} values are met by rules")
    if not report.ok:
        click.echo(
            "holdfast: give the client of your program rules that leave them out of what it saves next. To remove "
            "those that are stored, expire their checkpoints and run `holdfast gc`; and replace the secrets",
            err=True,
        )
