"""Who decides, and why: what `approve` and `reject` take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def deciding_options(command: Command) -> Command:
    by = click.option("--by", metavar="NAME", help="Who decides; without it, the user of this machine.")
    note = click.option("--note", metavar="TEXT", help="Why, for those who asked.")
    return by(note(command))


def who(given: str | None) -> str:
    import getpass

    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError) as error:  # a container without a user of that number
        raise click.UsageError("nobody knows who you are here: say it with --by NAME") from error
