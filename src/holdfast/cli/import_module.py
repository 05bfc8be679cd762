"""Modules of the user's own, named on the command line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from holdfast.errors import HoldfastError


class ImportFailedError(HoldfastError):
    """A module that was named on the command line raised while it was imported."""


def import_module(module: str, param: str = "--import") -> None:
    """Imports what the user has named on the command line; nothing that is stored names a module."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise _make_module_error(module, param)
    cwd = str(Path.cwd())
    if cwd not in sys.path:
        sys.path.insert(0, cwd)
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise _make_module_error(module, param) from error
        raise ImportFailedError(
            f"the module {module} raised {error!r:.300} when it was imported. `python -c 'import {module}'` shows where"
        ) from error


def _make_module_error(module: str, param: str) -> click.BadParameter:
    hint = ". A module is named without .py, with dots for slashes" if module.endswith(".py") else ""
    return click.BadParameter(
        f"there is no module {module!r:.100} here or among what is installed{hint}", param_hint=param
    )
