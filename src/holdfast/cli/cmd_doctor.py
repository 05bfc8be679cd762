"""`holdfast doctor`: is everything as it should be around the store?"""

from __future__ import annotations

import click

from holdfast.cli.options import json_option, store_option


@click.command(short_help="Check the installation and the store around it.")
@store_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, store: str | None, as_json: bool) -> None:
    """Check the installation, and the store: where it is, how it was found, whether it can be written.

    Each check is ok, warn or fail; a failed one exits with 1 (no store: 3, damaged: 5). `holdfast verify` checks
    what is in the store.
    """
    from holdfast.cli.checks import FAIL, all_checks

    checks, exit_code = all_checks(store)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"ok": exit_code == 0, "checks": [check.fields() for check in checks]})
    else:
        from holdfast.cli.printable import printable, printable_lines
        from holdfast.cli.tables import print_table

        print_table(
            ("check", "", "found"), [(check.name, check.status, printable(check.found, 200)) for check in checks]
        )
        for check in checks:
            if check.advice:
                click.echo(f"{check.name}: {printable_lines(check.advice)}", err=True)
        if exit_code and not any(check.status == FAIL for check in checks):
            click.echo("holdfast: not everything could be checked", err=True)
    ctx.exit(exit_code)
