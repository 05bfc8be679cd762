"""The directory that a command about files works on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.config import has_stated_store, read_workspace_options, require_own_directory
from holdfast.cli.fork_records import find_fork_record
from holdfast.cli.store_location import DIRECTORY
from holdfast.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient
    from holdfast.model.snapshot import Snapshot
    from holdfast.workspace.api import SyncWorkspace

Command = TypeVar("Command", bound=Callable[..., Any])


def directory_option(command: Command) -> Command:
    return click.option(
        "--dir",
        "-C",
        "directory",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False),
        help="Directory.  [default: the nearest one from here upward with a .holdfast/, else this one]",
    )(command)


def admission_options(command: Command) -> Command:
    """Add the options that include the parts of imported files that are left out by default."""
    for name, action in (("set-id", "Set set-id and sticky bits"), ("git", "Write repositories (.git and the like)")):
        command = click.option(f"--include-{name}", is_flag=True, help=f"{action}, also of imported snapshots.")(
            command
        )
    return command


def find_directory(given: str | None) -> Path:
    """Return the directory to work on: the one that has the store in it, as with git, or names it."""
    if given is not None:
        return Path(given)
    cwd = Path.cwd()
    found = next((parent for parent in (cwd, *cwd.parents) if _has_a_store(parent)), cwd)
    require_own_directory(found)
    return found


def _has_a_store(directory: Path) -> bool:
    return (directory / DIRECTORY).is_dir() or has_stated_store(directory) or find_fork_record(directory) is not None


def check_workspace_root(directory: str | Path) -> Path:
    """Return the directory's real path, after a check of the path and its settings.

    Call it before a store is made for the directory: a store in the home directory would be found
    from everywhere below. The library refuses the home directory of the user database; a user at a
    command line may have another one.
    """
    from holdfast.workspace.limits import checked_root

    root = checked_root(directory)
    try:
        home = Path.home().resolve()
    except RuntimeError:  # an unknown user
        home = None
    if home is not None and (root == home or root in home.parents):
        raise UsageError(
            f"{str(root)!r:.120} is or contains the home directory: it can't be a workspace. "
            "Name the project's directory"
        )
    read_workspace_options(root)
    return root


def make_workspace(client: SyncClient, directory: str | Path, **options: Any) -> SyncWorkspace:
    """Return the workspace of a directory, as its `holdfast.toml` wants it."""
    root = check_workspace_root(directory)
    return client.workspace(root, **{**read_workspace_options(root), **options})


def find_workspace(client: SyncClient, given: str | None) -> SyncWorkspace:
    return make_workspace(client, find_directory(given))


def open_workspace(client: SyncClient, given: str | None) -> SyncWorkspace:
    """Return the workspace of that directory. An interrupted restore of it is reported at once."""
    workspace = find_workspace(client, given)
    interrupted = workspace.interrupted()
    if interrupted is not None:
        click.echo(
            f"holdfast: a restore of {workspace.path} was cut off at "
            f"{interrupted.started_at:%Y-%m-%d %H:%M:%S} UTC and "
            "is half done: `holdfast restore --resume` finishes it, `holdfast restore --rollback` puts everything back",
            err=True,
        )
    return workspace


def try_workspace(
    client: SyncClient, given: str | None, find: Callable[..., SyncWorkspace] = open_workspace
) -> SyncWorkspace | None:
    """Return the workspace that `find` finds; None if no directory was given and this one can't be one."""
    try:
        return find(client, given)
    except UsageError:
        if given is not None:
            raise
        return None


def forked_from(workspace: SyncWorkspace) -> Snapshot | None:
    """Return the files that `holdfast fork` made a directory from, if that is all that is known of it."""
    record = find_fork_record(workspace.path)
    if record is None or workspace.is_known():
        return None
    try:
        return workspace.snapshot_at(record.checkpoint)
    except HoldfastError:  # expired, or of another store
        return None
