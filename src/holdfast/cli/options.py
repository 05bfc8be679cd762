"""What every command takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def _or_of_the_group(ctx: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    """`holdfast --store X timeline` and `holdfast timeline --store X` are the same."""
    return given if given is not None else ctx.find_root().params.get("store")


def store_option(command: Command) -> Command:
    return click.option(
        "--store",
        metavar="URL|PATH",
        callback=_or_of_the_group,
        help="The store. Without it: HOLDFAST_URL, else the nearest .holdfast/ from here upward.",
    )(command)


def json_option(command: Command) -> Command:
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON, with the fields that docs/json-output.md names."
    )(command)
