"""The configuration of one directory: `holdfast.toml`, and `[tool.holdfast]` in pyproject.toml.

Only the command line reads them. The files may be an attacker's: only regular files of a bounded
size are read, and every setting is checked before it is used.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cli.terminal.sanitize import escape
from holdfast.errors import UsageError

FILE, PROJECT_FILE = "holdfast.toml", "pyproject.toml"
KNOWN = ("store", "keys", "workspace")
# The settings for the directory's snapshots, with their types.
TAKING_IN: dict[str, type] = {"include_git": bool, "gitignore": bool, "default_excludes": bool, "secrets": str}
LIMITS: dict[str, type] = {
    "max_files": int, "max_bytes": int, "max_file_bytes": int, "max_seconds": int, "min_free_bytes": int,
}  # fmt: skip
LARGEST = 64 * 1024  # of holdfast.toml
LARGEST_PROJECT = 1024 * 1024  # of a pyproject.toml
# A key of so many parts says nothing, and tomllib takes quadratic time for it: 25 s for one of 64
# KB.
_PART = rb"""(?>[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*+"""
_DEEP_KEY = re.compile(rb"(?<![A-Za-z0-9_-])(?:%b\.[ \t]*+){100}" % _PART)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that says something about holdfast: its settings, and the bytes that say them."""

    path: Path
    table: dict[str, Any]
    content: bytes

    @property
    def store(self) -> str | None:
        return self.table.get("store")

    @property
    def keys(self) -> str | None:
        return self.table.get("keys")

    @property
    def workspace(self) -> dict[str, Any] | None:
        return self.table.get("workspace")


def read_config_files(directory: Path) -> tuple[ConfigFile, ...]:
    """Return the files of a directory that have settings, checked, in order of precedence."""
    files = (_read(directory / FILE), _read(directory / PROJECT_FILE))
    return tuple(file for file in files if file is not None and file.table)


def _read(path: Path) -> ConfigFile | None:
    is_ours = path.name == FILE
    content = _bytes(path, is_ours=is_ours)
    if content is None:
        return None
    import tomllib

    try:
        read = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, a number of a million digits, nested too deep
        raise UsageError(f"{path} can't be read: {error}. Mend it, or move it away") from error
    if not is_ours:
        tool = read.get("tool")
        table = tool.get("holdfast") if isinstance(tool, dict) else None
        if not isinstance(table, dict):
            return None
        import json

        # The rest of a pyproject.toml changes often, and says nothing about holdfast.
        read, content = table, json.dumps(table, sort_keys=True, default=str).encode("ascii")
    _check(path, read)
    return ConfigFile(path, read, content)


def _bytes(path: Path, *, is_ours: bool) -> bytes | None:
    """Return the contents; None if there is no such file, or if it does not concern us."""
    try:
        found = path.stat()  # before it is opened: opening a device or a FIFO may wait, or do something
        if stat.S_ISDIR(found.st_mode):
            return None
        if not stat.S_ISREG(found.st_mode):
            if not is_ours:
                return None
            raise UsageError(f"{path} is no regular file: it is not read. Move it away")
        largest = LARGEST if is_ours else LARGEST_PROJECT
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            content = file.read(largest + 1)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:  # a link to itself, a disk that fails
        raise UsageError(f"{path} can't be read: {error.strerror}. Mend it, or move it away") from error
    if not is_ours and b"tool.holdfast" not in content:  # as almost always: then it is not read as TOML
        return None
    if len(content) > largest:
        raise UsageError(f"{path} has more than {largest:,} bytes: it is not read. Make it smaller, or move it away")
    if _DEEP_KEY.search(content):
        raise UsageError(f"{path} has a key of more than 100 parts: it is not read. Mend it, or move it away")
    return content


def _check(path: Path, table: dict[str, Any]) -> None:
    from holdfast.workspace.limits import SECRETS

    _refuse_unknown(path, table, KNOWN)
    store, workspace = table.get("store", "."), table.get("workspace", {})
    if not isinstance(store, str) or not store or "\0" in store:
        raise UsageError(f'{path}: store must be a path or a URL, such as store = ".holdfast/store.db"')
    keys = table.get("keys", "/")
    if not isinstance(keys, str) or not keys or "\0" in keys or not keys.startswith(("/", "~")):
        raise UsageError(f'{path}: keys must be the full path of a key file, such as keys = "~/keys.toml"')
    if not isinstance(workspace, dict):
        raise UsageError(f"{path}: workspace is a table: [workspace], with {', '.join((*TAKING_IN, *LIMITS))}")
    _refuse_unknown(path, workspace, (*TAKING_IN, *LIMITS))
    for name, value in workspace.items():
        wanted = TAKING_IN.get(name) or LIMITS[name]
        if type(value) is not wanted:
            words = {bool: "true or false", str: "a text", int: "a whole number"}
            raise UsageError(f"{path}: {name} must be {words[wanted]}")
    if workspace.get("secrets", "keep") not in SECRETS:
        raise UsageError(f"{path}: secrets must be one of {', '.join(SECRETS)}")


def _refuse_unknown(path: Path, table: dict[str, Any], known: Sequence[str]) -> None:
    unknown = [name for name in table if name not in known]
    if unknown:
        raise UsageError(
            f"{path} has a setting {escape(unknown[0], 60)!r} that is not known: there is {', '.join(known)}"
        )
