"""`holdfast.toml`, or `[tool.holdfast]` in pyproject.toml: what a project says about its store. Only the command line reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.cli.printable import printable
from holdfast.errors import UsageError

FILE, PROJECT_FILE = "holdfast.toml", "pyproject.toml"
KNOWN = ("store", "workspace")
# What can be said about the directory's snapshots, and of which type it is.
TAKING_IN: dict[str, type] = {"include_git": bool, "gitignore": bool, "default_excludes": bool, "secrets": str}
LIMITS: dict[str, type] = {
    "max_files": int, "max_bytes": int, "max_file_bytes": int, "max_seconds": int, "min_free_bytes": int,
}  # fmt: skip


def stated_store(directory: Path) -> tuple[str, Path] | None:
    """The store that the files of a directory name, as a path or a URL that is good from anywhere, and the file that says
    so; None if none does."""
    for file, table in _tables(directory):
        store = table.get("store")
        if store is None:
            continue
        if not isinstance(store, str) or not store:
            raise UsageError(f'{file}: store must be a path or a URL, such as store = ".holdfast/store.db"')
        return _from(directory, store), file
    return None


def workspace_options(directory: Path) -> dict[str, Any]:
    """What `[workspace]` says about snapshots of the directory, as `client.workspace` takes it."""
    for file, table in _tables(directory):
        stated = table.get("workspace")
        if stated is None:
            continue
        if not isinstance(stated, dict):
            raise UsageError(f"{file}: workspace is a table: [workspace], with {', '.join((*TAKING_IN, *LIMITS))}")
        _refuse_unknown(file, stated, (*TAKING_IN, *LIMITS))
        for name, value in stated.items():
            wanted = TAKING_IN.get(name) or LIMITS[name]
            if type(value) is not wanted:
                words = {bool: "true or false", str: "a text", int: "a whole number"}
                raise UsageError(f"{file}: {name} must be {words[wanted]}")
        limits = {name: value for name, value in stated.items() if name in LIMITS}
        options: dict[str, Any] = {name: value for name, value in stated.items() if name in TAKING_IN}
        if limits:
            from holdfast.workspace.guards import Limits

            options["limits"] = Limits(**limits)
        return options
    return {}


def _tables(directory: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for file in (directory / FILE, directory / PROJECT_FILE):
        table = _table(file)
        if table is not None:
            _refuse_unknown(file, table, KNOWN)
            yield file, table


def _refuse_unknown(file: Path, table: dict[str, Any], known: Sequence[str]) -> None:
    unknown = [name for name in table if name not in known]
    if unknown:
        raise UsageError(
            f"{file} has a setting {printable(unknown[0], 60)!r} that is not known: there is {', '.join(known)}"
        )


def _table(file: Path) -> dict[str, Any] | None:
    try:
        text = file.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError):
        return None
    is_ours = file.name == FILE
    if not is_ours and b"tool.holdfast" not in text:  # as almost always: then it is not read as TOML
        return None
    import tomllib

    try:
        read = tomllib.loads(text.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} can't be read: {error}") from error
    table = read if is_ours else read.get("tool", {}).get("holdfast")
    return table if isinstance(table, dict) else None


def _from(directory: Path, store: str) -> str:
    """A relative path is meant from where the file is."""
    scheme, separator, rest = store.partition("://")
    if not separator:
        return str(directory / Path(store).expanduser())
    if scheme == "sqlite" and rest.startswith("/") and not rest.startswith("//"):
        return f"sqlite:///{directory / rest[1:]}"
    return store
