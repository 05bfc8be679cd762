"""The settings of a directory for commands; refused if they need trust that the directory lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.cli.config_file import LIMITS, TAKING_IN
from holdfast.cli.directory_config import read_configuration
from holdfast.cli.terminal.sanitize import escape
from holdfast.cli.trust_needs import NeedScope
from holdfast.errors import UsageError


def get_stated_store(directory: Path) -> tuple[str, Path] | None:
    """Return the store that a directory's files name, as an absolute path or a URL, and the naming file.

    Return None if no file names one.
    """
    configuration = read_configuration(directory)
    if configuration.store is None or configuration.store_file is None:
        return None
    configuration.require_trust(NeedScope.FILE, NeedScope.STORE)
    return configuration.store, configuration.store_file


def get_stated_keys(directory: Path) -> Path | None:
    """Return the key file that a directory's files name; None if they name none.

    It must be outside the directory: a copy, a clone or an update of a directory brings every file in it.
    """
    configuration = read_configuration(directory)
    if configuration.keys is None:
        return None
    configuration.require_trust(NeedScope.FILE, NeedScope.KEYS)
    if configuration.keys.is_relative_to(configuration.directory):
        raise UsageError(
            f"the key file {escape(str(configuration.keys), 200)} is within the directory that names it: everyone who "
            'gets a copy of the directory would have the keys. Move it out, such as to keys = "~/keys.toml"'
        )
    return configuration.keys


def require_own_store(directory: Path) -> None:
    """Raise `UntrustedError` if the `.holdfast/` of a directory is a link out of it, or another user's."""
    read_configuration(directory).require_trust(NeedScope.FOUND)


def has_stated_store(directory: Path) -> bool:
    """Return whether the files of a directory name a store, which makes it the working one."""
    return read_configuration(directory).store is not None


def require_own_directory(directory: Path) -> None:
    """Raise `UntrustedError` if another user has made this the directory that is worked in."""
    read_configuration(directory).require_trust(NeedScope.FILE, NeedScope.FOUND)


def read_workspace_options(directory: Path) -> dict[str, Any]:
    """Return the `[workspace]` settings of the directory, as arguments of `client.workspace`."""
    configuration = read_configuration(directory)
    stated = configuration.workspace
    if stated:
        configuration.require_trust(NeedScope.FILE, NeedScope.WORKSPACE)
    limits = {name: value for name, value in stated.items() if name in LIMITS}
    options: dict[str, Any] = {name: value for name, value in stated.items() if name in TAKING_IN}
    if limits:
        from holdfast.workspace.limits import WorkspaceLimits

        options["limits"] = WorkspaceLimits(**limits)
    return options
