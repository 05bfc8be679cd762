"""`holdfast doctor`: checks of the store and its environment."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import click

from holdfast.cli.directory_config import UntrustedError, find_configuration
from holdfast.cli.option_words import rephrase_error
from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import StoreLocation, StoreNotFoundError, locate
from holdfast.cli.terminal.sanitize import escape, escape_lines, format_bytes
from holdfast.cli.terminal.table import print_table
from holdfast.errors import HoldfastError

OK, WARN, FAIL = "ok", "warn", "fail"
LIBRARIES = ("ormsgpack", "zstandard", "click", "rich")
LITTLE_SPACE = 500_000_000
LARGE_WAL = 100_000_000
LONGEST_FINDING = 1000  # characters: the advice of an error stands at its end


@dataclass(frozen=True, slots=True)
class HealthCheck:
    name: str
    status: str
    found: str
    advice: str = ""


def run_checks(named: str | None) -> tuple[list[HealthCheck], int]:
    """Return the checks, and the exit code that they lead to."""
    checks = [*_installation(), *_trust()]
    exit_code = 0
    try:
        location = locate(named)
    except UntrustedError as error:
        is_repeated = any(check.advice == str(error) for check in checks)
        advice = "" if is_repeated else str(error)
        return [*checks, HealthCheck("store", FAIL, "not opened: it needs trust", advice)], error.exit_code
    except StoreNotFoundError as error:
        problem, _, next_steps = str(error).partition("\n\n")
        return [*checks, HealthCheck("store", FAIL, problem, next_steps)], error.exit_code
    checks += _files(location)
    try:
        checks += _contents(location)
    except HoldfastError as error:
        checks.append(HealthCheck("open", FAIL, rephrase_error(error, None)))
        exit_code = error.exit_code
    if exit_code == 0 and any(check.status == FAIL for check in checks):
        exit_code = 1
    return checks, exit_code


def _installation() -> Iterator[HealthCheck]:
    import sqlite3

    from holdfast import __version__

    yield HealthCheck("holdfast", OK, __version__)
    yield HealthCheck("python", OK, f"{platform.python_version()} ({sys.executable})")
    yield HealthCheck("system", OK, platform.platform())
    for library in LIBRARIES:
        try:
            yield HealthCheck(library, OK, metadata.version(library))
        except metadata.PackageNotFoundError:
            yield HealthCheck(library, FAIL, "not installed", f"pip install {library}")
    yield HealthCheck("sqlite", OK, sqlite3.sqlite_version)


def _trust() -> Iterator[HealthCheck]:
    """Check the needs of the nearest configuration; lack of trust is a failure only where it is used."""
    try:
        configuration = find_configuration()
    except HoldfastError as error:
        yield HealthCheck("configuration", WARN, str(error))
        return
    if configuration is None:
        return
    yield HealthCheck("configuration", OK, str(configuration.directory))
    state = configuration.state()
    if not configuration.wants:
        yield HealthCheck("trust", OK, "not needed")
    elif state.is_trusted and state.record is not None:
        yield HealthCheck("trust", OK, f"trusted since {state.record.trusted_at}")
    else:
        yield HealthCheck(
            "trust", WARN, "not trusted" if state.record is None else "changed since it was trusted", state.refusal()
        )


def _files(location: StoreLocation) -> Iterator[HealthCheck]:
    yield HealthCheck("store", OK, str(location))
    yield HealthCheck("found by", OK, location.how)
    path = location.path
    if path is None:
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    open_to_others = bool(mode & 0o077)
    yield HealthCheck(
        "mode",
        WARN if open_to_others else OK,
        f"{mode:04o}",
        f"other users can get at it: chmod {'700' if path.is_dir() else '600'} {path}" if open_to_others else "",
    )
    # SQLite makes its -wal and -shm next to the file, so the directory counts, too.
    directory = path if path.is_dir() else path.parent.absolute()
    writable = os.access(path, os.W_OK) and os.access(directory, os.W_OK)
    yield HealthCheck(
        "writable",
        OK if writable else FAIL,
        "yes" if writable else "no",
        "" if writable else f"saving will fail: let this user write to {path} and {directory}",
    )
    free = shutil.disk_usage(directory).free
    yield HealthCheck(
        "free space",
        OK if free >= LITTLE_SPACE else WARN,
        format_bytes(free),
        "" if free >= LITTLE_SPACE else "a full disk makes saves fail (what was saved stays): free some space",
    )
    if location.kind == "sqlite":
        yield _write_ahead_log(path)


def _write_ahead_log(path: Path) -> HealthCheck:
    log = Path(f"{path}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size <= LARGE_WAL:
        return HealthCheck("wal", OK, format_bytes(size))
    return HealthCheck(
        "wal",
        WARN,
        format_bytes(size),
        "a reader that stays open for long keeps the log from being folded into the file",
    )


def _contents(location: StoreLocation) -> Iterator[HealthCheck]:
    from holdfast.backends.bridge.step import run_inline

    with location.open() as client:
        yield from (HealthCheck(*finding) for finding in run_inline(client._ctx.backend.examine()))
        stats = client.stats()
    yield HealthCheck("backend", OK, stats.backend)
    # Each client that writes chooses; the store itself does not remember.
    yield HealthCheck("durability", OK, f"{stats.durability} unless a client asked for another")
    yield HealthCheck("sessions", OK, str(stats.sessions))
    yield HealthCheck(
        "checkpoints", OK, str(stats.checkpoints) + (f", {stats.expired} expired" if stats.expired else "")
    )
    yield HealthCheck(
        "size", OK, f"{format_bytes(stats.stored_bytes)} for {format_bytes(stats.logical_bytes)} of states"
    )


@click.command(short_help="Check the installation and the store.")
@common_options
@click.pass_context
def doctor(ctx: click.Context, store: str | None, as_json: bool) -> None:
    """Check the installation and the store: its location, how it was found, and whether it is writable.

    Each check is ok, warn or fail. Exits with 1 if one fails (3: no store, 5: damage). `holdfast verify` checks the
    store's contents.
    """
    checks, exit_code = run_checks(store)
    if as_json:
        print_json({"ok": exit_code == 0, "checks": [asdict(check) for check in checks]})
    else:
        print_table(
            ("check", "", "found"),
            [(check.name, check.status, escape(check.found, LONGEST_FINDING)) for check in checks],
        )
        for check in checks:
            if check.advice:
                click.echo(f"{check.name}: {escape_lines(check.advice)}", err=True)
        if exit_code and not any(check.status == FAIL for check in checks):
            click.echo("holdfast: not everything could be checked", err=True)
    ctx.exit(exit_code)
