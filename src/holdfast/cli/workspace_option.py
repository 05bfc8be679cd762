"""Which directory a command about files is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.settings import stated_store
from holdfast.cli.store_location import DIRECTORY

if TYPE_CHECKING:
    from holdfast.sync_client import SyncClient
    from holdfast.workspace.workspace import SyncWorkspace

Command = TypeVar("Command", bound=Callable[..., Any])


def directory_option(command: Command) -> Command:
    return click.option(
        "--dir",
        "-C",
        "directory",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False),
        help="The directory. Without it: the nearest one from here upward that has a .holdfast/, else this one.",
    )(command)


def chosen_directory(given: str | None) -> Path:
    """The directory that is meant: the one that has the store in it, as with git, or names it."""
    if given is not None:
        return Path(given)
    here = Path.cwd()
    return next((one for one in (here, *here.parents) if _has_a_store(one)), here)


def _has_a_store(directory: Path) -> bool:
    return (directory / DIRECTORY).is_dir() or stated_store(directory) is not None


def open_workspace(client: SyncClient, given: str | None) -> SyncWorkspace:
    """The workspace of that directory. A restore of it that was cut off is said at once."""
    workspace = client.workspace(chosen_directory(given))
    interrupted = workspace.interrupted()
    if interrupted is not None:
        click.echo(
            f"holdfast: a restore of {workspace.path} was cut off at {interrupted.started_at:%Y-%m-%d %H:%M:%S} UTC and "
            "is half done: `holdfast restore --resume` finishes it, `holdfast restore --rollback` puts everything back",
            err=True,
        )
    return workspace
