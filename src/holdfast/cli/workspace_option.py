"""Which directory a command about files is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.settings import stated_store, workspace_options
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


def refuse_what_is_no_workspace(directory: str | Path) -> Path:
    """The directory, by its real name. To be called before a store is made for it: one in the home directory would be found from
    everywhere below. The library refuses the home directory of the user database; who is at a command line may have another one."""
    from holdfast.errors import UsageError
    from holdfast.workspace.guards import checked_root

    root = checked_root(directory)
    try:
        home = Path.home().resolve()
    except RuntimeError:  # a user whom nobody knows
        home = None
    if home is not None and (root == home or root in home.parents):
        raise UsageError(
            f"{str(root)!r:.120} is or contains the home directory: it can't be a workspace. Name the project's directory"
        )
    return root


def workspace_in(client: SyncClient, directory: str | Path, **options: Any) -> SyncWorkspace:
    """The workspace of a directory, as its `holdfast.toml` wants it."""
    root = refuse_what_is_no_workspace(directory)
    return client.workspace(root, **{**workspace_options(root), **options})


def chosen_workspace(client: SyncClient, given: str | None) -> SyncWorkspace:
    return workspace_in(client, chosen_directory(given))


def open_workspace(client: SyncClient, given: str | None) -> SyncWorkspace:
    """The workspace of that directory. A restore of it that was cut off is said at once."""
    workspace = chosen_workspace(client, given)
    interrupted = workspace.interrupted()
    if interrupted is not None:
        click.echo(
            f"holdfast: a restore of {workspace.path} was cut off at {interrupted.started_at:%Y-%m-%d %H:%M:%S} UTC and "
            "is half done: `holdfast restore --resume` finishes it, `holdfast restore --rollback` puts everything back",
            err=True,
        )
    return workspace
