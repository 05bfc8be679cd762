"""`holdfast trust`: allow a directory's configuration the settings that need trust."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click

from holdfast.cli.directory_config import Configuration, find_configuration, format_want, read_configuration
from holdfast.cli.options import confirm, json_option, yes_option
from holdfast.cli.output.json import print_json
from holdfast.cli.output.listing import print_result
from holdfast.cli.store_location import without_password
from holdfast.cli.terminal.sanitize import escape
from holdfast.cli.terminal.table import print_table
from holdfast.cli.trust_records import TrustRecord, read_records, remove_record, write_record
from holdfast.errors import HoldfastError, UsageError


@click.command(short_help="Trust a directory's configuration, or list trusted ones.")
@click.argument("directory", metavar="[DIR]", required=False)
@click.option("--list", "listing", is_flag=True, help="List trusted directories.")
@click.option("--revoke", is_flag=True, help="Revoke trust in DIR.")
@yes_option
@json_option
def trust(directory: str | None, listing: bool, revoke: bool, yes: bool, as_json: bool) -> None:
    """Trust the configuration of DIR, after showing what needs trust.

    The configuration is holdfast.toml, [tool.holdfast] in pyproject.toml, and .holdfast/. Without DIR, it is that of
    the nearest directory from here upward.

    Without trust, a configuration may choose a store within its own directory and exclude more files. A URL, a path
    outside, or rules that include more need trust. It is recorded in your user configuration, and ends when the
    configuration changes.
    """
    if listing:
        if directory is not None or revoke:
            raise click.UsageError("--list goes alone: it takes neither DIR nor --revoke")
        _list(as_json=as_json)
    elif revoke:
        _revoke(directory, as_json=as_json)
    else:
        _trust(_choose_configuration(directory), yes=yes, as_json=as_json)


def _choose_configuration(given: str | None) -> Configuration:
    if given is None:
        return find_configuration() or read_configuration(Path.cwd())
    if not Path(given).is_dir():
        raise UsageError(f"{given!r:.200} is no directory: name the one that has the configuration")
    return read_configuration(Path(given))


def _trust(configuration: Configuration, *, yes: bool, as_json: bool) -> None:
    shown = escape(str(configuration.directory))
    wants = [
        {"setting": want.setting, "value": without_password(want.value), "why": want.why}
        for want in configuration.wants
    ]

    def print_state(text: str, *, trusted: bool, changed: bool) -> None:
        fields = {"directory": str(configuration.directory), "trusted": trusted, "changed": changed, "wants": wants}
        print_result(fields, f"{shown} {text}", as_json=as_json)

    if not wants:
        print_state("asks for nothing that needs trust", trusted=False, changed=False)
        return
    if configuration.state().is_trusted:
        print_state("is trusted already", trusted=True, changed=False)
        return
    click.echo(f"{shown} asks for:", err=True)
    for want in configuration.wants:
        click.echo(f"  {format_want(want)}", err=True)
    if not confirm("trust it?", yes=yes):
        return
    write_record(configuration.directory, configuration.digest)  # as shown, whatever the files say now
    print_state("is trusted until its configuration changes", trusted=True, changed=True)
    click.echo(f"undo: holdfast trust --revoke {shlex.quote(shown)}", err=True)


def _revoke(directory: str | None, *, as_json: bool) -> None:
    # One that is named may be gone by now, or hold a file that can't be read.
    real = _choose_configuration(None).directory if directory is None else Path(os.path.realpath(directory))
    was_trusted = remove_record(real)
    word = "is trusted no longer" if was_trusted else "was not trusted: nothing to do"
    fields = {"directory": str(real), "trusted": False, "changed": was_trusted}
    print_result(fields, f"{escape(str(real))} {word}", as_json=as_json)


def _list(*, as_json: bool) -> None:
    found = [(record, _describe_standing(record)) for record in read_records()]
    if as_json:
        fields: list[dict[str, Any]] = [
            {"directory": record.directory, "trusted_at": record.trusted_at, "status": standing}
            for record, standing in found
        ]
        print_json({"directories": fields})
    elif found:
        rows = [(escape(record.directory), record.trusted_at, standing) for record, standing in found]
        print_table(("directory", "trusted at", "status"), rows, whole=("directory",))
    else:
        click.echo("no directory is trusted", err=True)


def _describe_standing(record: TrustRecord) -> str:
    """Return whether a record still counts: its directory may be gone, or its configuration another one."""
    directory = Path(record.directory)
    if not directory.is_dir():
        return "gone"
    try:
        configuration = read_configuration(directory)
    except HoldfastError:
        return "changed"
    return "trusted" if configuration.digest == record.digest else "changed"
