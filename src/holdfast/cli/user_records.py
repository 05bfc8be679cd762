"""Small files of the user's own, in `$XDG_CONFIG_HOME/holdfast/`, else `~/.config/holdfast/`.

There is one for each directory with a record, named by the SHA-256 of the directory's real path.
Each is written whole or not at all, so two writers never mix in one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.cli.atomic_file import replace_file
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LARGEST = 64 * 1024
Record = TypeVar("Record", bound="DataclassInstance")


class NoHomeError(HoldfastError):
    """There is no place for the user's own configuration."""


def get_directory(name: str) -> Path:
    """Return the directory for one kind of records."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(configured):  # noqa: PTH117 - by the specification, a relative one is passed over
        base = Path(configured)
    else:
        try:
            base = Path.home() / ".config"
        except RuntimeError as error:
            raise NoHomeError(f"there is no home directory to keep {name} in: set HOME or XDG_CONFIG_HOME") from error
    return base / "holdfast" / name


def get_file(name: str, directory: Path) -> Path:
    """Return the file about a directory, given by its real path."""
    return get_directory(name) / f"{hashlib.sha256(os.fsencode(directory)).hexdigest()}.json"


def read_fields(file: Path) -> dict[str, Any] | None:
    """Return what a file says. Only a regular file counts that no other user may write."""
    try:
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as opened:  # noqa: PTH123 - of a descriptor
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o022 or not _is_own(found.st_uid):
                return None
            fields = json.loads(opened.read(LARGEST))
    except (OSError, ValueError):
        return None
    return fields if isinstance(fields, dict) else None


def read_record(kind: type[Record], file: Path) -> Record | None:
    """Return the dataclass that a file holds; None if there is none, or a field has another type."""
    fields = read_fields(file) or {}
    types = {field.name: field.type for field in dataclasses.fields(kind)}
    same = fields.keys() == types.keys() and all(type(fields[name]).__name__ == types[name] for name in types)
    return kind(**fields) if same else None


def write_fields(file: Path, fields: dict[str, Any]) -> None:
    """Write a file whole; raise `HoldfastError` if that is not possible."""
    try:
        for parent in (file.parent.parent, file.parent):
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, json.dumps(fields, indent=2), new_mode=0o600)
    except OSError as error:
        raise HoldfastError(
            f"{file} can't be written ({error.strerror}): nothing was changed. Let this user write to {file.parent}, "
            "or set XDG_CONFIG_HOME"
        ) from error


def _is_own(uid: int) -> bool:
    return not hasattr(os, "geteuid") or uid in (os.geteuid(), 0)
