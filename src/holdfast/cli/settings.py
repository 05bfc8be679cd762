"""`holdfast.toml`, or `[tool.holdfast]` in pyproject.toml: what a project says about its store. Only the command line reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.cli.printable import printable
from holdfast.errors import UsageError

FILE, PROJECT_FILE = "holdfast.toml", "pyproject.toml"
KNOWN = ("store",)


def stated_store(directory: Path) -> tuple[str, Path] | None:
    """The store that the files of a directory name, as a path or a URL that is good from anywhere, and the file that says
    so; None if none does."""
    for file in (directory / FILE, directory / PROJECT_FILE):
        table = _table(file)
        if table is None:
            continue
        unknown = [name for name in table if name not in KNOWN]
        if unknown:
            raise UsageError(
                f"{file} has a setting {printable(unknown[0], 60)!r} that is not known: there is {', '.join(KNOWN)}"
            )
        store = table.get("store")
        if store is None:
            continue
        if not isinstance(store, str) or not store:
            raise UsageError(f'{file}: store must be a path or a URL, such as store = ".holdfast/store.db"')
        return _from(directory, store), file
    return None


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
