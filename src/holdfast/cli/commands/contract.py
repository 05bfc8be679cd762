"""`holdfast contract`: list and compare contracts, and check a program's against a lock file."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.cli.atomic_file import replace_file
from holdfast.cli.import_module import import_module
from holdfast.cli.options import common_options, json_option
from holdfast.cli.output.json import print_json
from holdfast.cli.output.listing import Column, print_listing
from holdfast.cli.project_file import refuse_odd_file
from holdfast.cli.store_location import open_store
from holdfast.cli.suggestions import CommandGroup
from holdfast.cli.terminal.sanitize import escape, format_name, format_utc
from holdfast.coordination.contract import DECLARED, accepts
from holdfast.coordination.contract_lock import LockProblem, check_lock, format_lock, read_lock
from holdfast.errors import CheckpointNotFoundError, UsageError
from holdfast.format.rows.contract import split_label
from holdfast.json_form.values import format_time, to_json
from holdfast.model.contract_compatibility import SchemaBreak
from holdfast.model.contract_list import RegisteredContract

LOCK = Path("contracts.lock")
EXIT_BROKEN = 1
MODES = ("backward", "forward", "full")


@click.group(cls=CommandGroup, short_help="List, compare and check contracts.")
def contract() -> None:
    """List and compare the contracts of a store, and check those of a program.

    A contract is a versioned schema of what agents hand over. Each command takes --json.
    """


@contract.command("list", short_help="List the contracts that were used with the store.")
@common_options
def list_(store: str | None, as_json: bool) -> None:
    """List the contracts that were used with the store, by name and version."""
    with open_store(store) as client:
        found = client.contracts()
    columns = [
        Column[RegisteredContract]("contract", lambda item: format_name(item.label)),
        Column[RegisteredContract]("registered", lambda item: format_utc(item.registered_at)),
        Column[RegisteredContract]("hash", lambda item: item.hash[:16]),
    ]
    print_listing("contracts", found, _fields, columns, nothing="no contract was used here yet", as_json=as_json)


@contract.command("show", short_help="Print the schema of a contract.")
@click.argument("label", metavar="NAME[@VERSION]")
@common_options
def show(label: str, store: str | None, as_json: bool) -> None:
    """Print the JSON Schema of a contract that was used with the store; without a version, of the newest."""
    found = _find(store, label)
    if as_json:
        print_json({**_fields(found), "schema": found.schema})
    else:
        click.echo(json.dumps(found.schema, indent=2))


@contract.command("diff", short_help="Say whether two versions can read each other.")
@click.argument("old", metavar="NAME@VERSION")
@click.argument("new", metavar="NAME@VERSION")
@common_options
@click.pass_context
def diff(ctx: click.Context, old: str, new: str, store: str | None, as_json: bool) -> None:
    """Say whether programs with the NEW version read what OLD ones send, and the reverse.

    A break is shown with a value that one sends and the other refuses. Exits with 1 if the new version can't read
    everything of the old one.
    """
    before, after = _find(store, old), _find(store, new)
    backward, forward = accepts(after.schema, before.schema), accepts(before.schema, after.schema)
    if as_json:
        print_json({"old": before.label, "new": after.label, "backward": _break(backward), "forward": _break(forward)})
    else:
        click.echo(f"{after.label} reads {before.label}: {_words(backward)}")
        click.echo(f"{before.label} reads {after.label}: {_words(forward)}")
    if backward is not None:
        ctx.exit(EXIT_BROKEN)


@contract.command("check", short_help="Check a program's contracts against a lock file.")
@click.option(
    "--import", "modules", metavar="MODULE", multiple=True, required=True,
    help="Module that declares the contracts (also from here). Repeatable.",
)  # fmt: skip
@click.option(
    "--lock", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), default=LOCK, show_default=True,
    help="File with the versions that are in use.",
)  # fmt: skip
@click.option("--mode", type=click.Choice(MODES), default="backward", show_default=True, help="Who must read whom.")
@click.option("--update", is_flag=True, help="Add new versions to the lock file if nothing breaks.")
@json_option
@click.pass_context
def check(ctx: click.Context, modules: tuple[str, ...], lock: Path, mode: str, update: bool, as_json: bool) -> None:
    """Check that the contracts of your code fit the versions of the lock file, for CI.

    A version of the lock file must not change. A new version must be able to read all earlier ones (backward), be
    read by them (forward), or both (full). Commit the lock file; no store is needed. Exits with 1 if one breaks.
    """
    with contextlib.redirect_stdout(sys.stderr):
        for module in modules:
            import_module(module)
    declared = list(DECLARED)
    if not declared:
        raise UsageError(f"{', '.join(modules)} declares no contract: holdfast.contract(name, version, type) does")
    locked = read_lock(_read(lock))
    problems = check_lock(declared, locked, mode)
    if update and not problems:
        _write(lock, format_lock(declared, locked))
    if as_json:
        print_json(
            {"ok": not problems, "checked": len(declared), "problems": [_problem(problem) for problem in problems]}
        )
    else:
        _print_problems(problems, len(declared), lock)
    if problems:
        ctx.exit(EXIT_BROKEN)


def _read(lock: Path) -> str:
    try:
        return lock.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{lock} can't be read: {error}") from error


def _write(lock: Path, text: str) -> None:
    refuse_odd_file(lock, lock.parent)
    try:
        replace_file(lock, text)
    except OSError as error:
        raise UsageError(f"{lock} can't be written: {error.strerror}") from error


def _find(store: str | None, label: str) -> RegisteredContract:
    name, version = split_label(label) or (label, None)
    with open_store(store) as client:
        found = [item for item in client.contracts() if item.name == name and version in (None, item.version)]
    if not found:
        raise CheckpointNotFoundError(
            f"there is no contract {escape(label, 200)!r} in this store. `holdfast contract list` lists those that are"
        )
    return found[-1]


def _fields(item: RegisteredContract) -> dict[str, Any]:
    return {
        "name": item.name,
        "version": item.version,
        "hash": item.hash,
        "registered_at": format_time(item.registered_at),
    }


def _break(found: SchemaBreak | None) -> dict[str, Any]:
    if found is None:
        return {"ok": True}
    witness = {"witness": to_json(found.witness)} if found.is_proven else {}
    return {"ok": False, "path": found.path, "reason": found.reason, "proven": found.is_proven, **witness}


def _words(found: SchemaBreak | None) -> str:
    return "yes" if found is None else f"no, {escape(str(found))}"


def _problem(problem: LockProblem) -> dict[str, Any]:
    return {"contract": problem.label, "message": problem.message}


def _print_problems(problems: Sequence[LockProblem], checked: int, lock: Path) -> None:
    for problem in problems:
        click.echo(f"{problem.label}  {escape(problem.message)}")
    click.echo(f"checked {checked} versions of contracts against {lock}: {len(problems)} problems")
