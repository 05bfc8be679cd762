"""Options, arguments and confirmations that commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.output.error import remember_json
from holdfast.cli.terminal.sanitize import escape
from holdfast.errors import CheckpointNotFoundError, UsageError
from holdfast.model import ids
from holdfast.model.lease import LeaseTerms

if TYPE_CHECKING:
    pass

Command = TypeVar("Command", bound=Callable[..., Any])
Row = TypeVar("Row")


def _merge_with_group(ctx: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    """Merge the option of the group: `holdfast --store X timeline` is `holdfast timeline --store X`."""
    return given if given is not None else ctx.find_root().params.get("store")


def store_option(command: Command) -> Command:
    return click.option(
        "--store",
        metavar="URL|PATH",
        callback=_merge_with_group,
        help="Store to use.  [default: HOLDFAST_URL, else the nearest holdfast.toml or .holdfast/ upward]",
    )(command)


def json_option(command: Command) -> Command:
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,
        callback=remember_json,
        help="Print JSON; docs/json-output.md lists the fields.",
    )(command)


def common_options(command: Command) -> Command:
    """Add `--store` and `--json`, which nearly every command has."""
    return store_option(json_option(command))


def raw_option(command: Command) -> Command:
    return click.option(
        "--raw", is_flag=True, help="Show everything of LangGraph's checkpoints, with channel versions."
    )(command)


yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
plan_option = click.option("--dry-run", is_flag=True, help="Only show the plan.")
limit_option = click.option(
    "--limit", "-n", default=50, show_default=True, type=click.IntRange(min=0), help="Number to list; 0 for all."
)


def overwrite_options(since: str) -> Callable[[Command], Command]:
    """Add `--keep-user` and `--force`: what to do with files that the user has changed."""
    keep = click.option("--keep-user", is_flag=True, help=f"Keep files changed since{since}.")
    force = click.option("--force", is_flag=True, help=f"Overwrite files changed since{since}.")
    return lambda command: keep(force(command))


def strict_options(command: Command) -> Command:
    """Add `--strict` and `--acknowledge`: what a rollback or a fork leaves behind."""
    strict = click.option(
        "--strict",
        is_flag=True,
        help="Refuse if effects stay done, or other agents took up handoffs, unless acknowledged.",
    )
    acknowledge = click.option(
        "--acknowledge", metavar="ID", multiple=True, help="Accept this effect or handoff; repeatable."
    )
    return strict(acknowledge(command))


def confirm(question: str, *, yes: bool) -> bool:
    """Return whether to continue; without a terminal to ask on, refuse and name --yes."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("nothing was done: this is no terminal to ask for confirmation. Add --yes to do it")
    return click.confirm(question, err=True)


def find_by_id(found: Iterable[Row], id_of: Callable[[Row], str], ref: str, kind: str) -> Row:
    """Return the only one of `found` whose id is `ref`, or ends with it (8 or more digits).

    `kind` is "approval" or "effect": there is a command that lists them.
    """
    digits = ref.replace("-", "").lower()
    like = [item for item in found if id_of(item).replace("-", "").endswith(digits)] if ids.is_like_id(ref) else []
    if len(like) > 1:
        every = ", ".join(map(id_of, like))
        raise UsageError(f"{ref} is the end of more than one id: {every}. Give more digits, or the whole id")
    if not like:
        raise CheckpointNotFoundError(
            f"there is no {kind} {escape(ref, 60)!r} here. One is named by its id or by the last "
            f"{ids.SHORT_ID_LENGTH} or more digits of it; `holdfast {kind}s` lists them"
        )
    return like[0]


def make_not_found_error(session: str) -> CheckpointNotFoundError:
    """Return the error for a session that the store does not have."""
    return CheckpointNotFoundError(
        f"there is no session {escape(session, 200)!r} here. `holdfast sessions` lists what is there"
    )


def token_option(*, required: bool = False) -> Callable[[Command], Command]:
    return click.option("--token", metavar="T", type=int, required=required, help="Token printed by `holdfast claim`.")


def make_lease_terms(session_id: str, token: int | None) -> LeaseTerms | None:
    """Return the lease of that token. The store compares only the token; the rest is not known here."""
    return None if token is None else LeaseTerms(session_id, "", 0.0, token, 0)
