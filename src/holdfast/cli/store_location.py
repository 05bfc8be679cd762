"""The location of the store: given, from HOLDFAST_URL, or found by walking up.

A directory names a store (holdfast.toml, pyproject.toml), has one (.holdfast/) or was made by
`holdfast fork`. A lookup never makes a store; a save may.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from holdfast.backends.local_path import refuse_links
from holdfast.cli.terminal.sanitize import escape
from holdfast.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient

VARIABLE = "HOLDFAST_URL"
DIRECTORY = ".holdfast"
SQLITE_NAME = "store.db"  # within DIRECTORY, as `Client.sqlite()` makes it
FILES_NAME = "store"  # within DIRECTORY, as `Client.files()` makes it
FILES_MARK = "holdfast.json"  # this file makes a directory a store of files

BEGIN = """\
To see what holdfast does:  holdfast demo
To begin a store here:      holdfast init"""


class StoreNotFoundError(HoldfastError):
    """There is no store where one was looked for."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """An existing store: `path` for our own kinds, `url` for those of other packages; `how` it was found.

    It was found from `directory`, unless the user named it: then that directory may name its key file.
    """

    kind: str  # "sqlite", "files" or "url"
    how: str
    path: Path | None = None
    url: str | None = None
    directory: Path | None = None

    def __str__(self) -> str:
        return str(self.path) if self.path is not None else without_password(str(self.url))

    def file_size(self) -> int | None:
        """Return the size of its files, if that is known without opening the store."""
        if self.kind != "sqlite" or self.path is None:
            return None
        files = (Path(f"{self.path}{suffix}") for suffix in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def open(self, *, registered: bool = False, make: bool = False, with_keys: bool = True) -> SyncClient:
        """Open a client that shows any state as it is stored.

        With `registered`, it has this process's types and migrations. Whether a store is behind a
        URL shows at the first call: with `make`, that may make one. The keys of a sealed store are
        where `key_options` finds them; `with_keys=False` opens it without.
        """
        from holdfast.client.sync import SyncClient
        from holdfast.json_form.unregistered import AnyTypes
        from holdfast.model.state_migration import Migrations

        types, migrations = (None, None) if registered else (AnyTypes(), Migrations())
        keys = key_options(self.directory) if with_keys else {}
        if self.path is None:
            is_postgres = str(self.url).startswith(("postgresql:", "postgres:"))
            options: dict[str, Any] = {"make": make} if is_postgres else {}
            return SyncClient.open(str(self.url), types=types, migrations=migrations, **options, **keys)
        if self.kind == "files":
            return SyncClient.files(self.path, types=types, migrations=migrations, **keys)
        if not make:
            _refuse_empty(self.path, self.how)  # opening it would make a store
        return SyncClient.sqlite(self.path, types=types, migrations=migrations, **keys)


def without_password(url: str) -> str:
    """Return the URL as it may be shown."""
    return re.sub(r"(?<=[?&]password=)[^&]*", "***", re.sub(r"(?<=://)([^:@/?]*):[^@/?]*(?=@)", r"\1:***", url))


def key_options(directory: Path | None) -> dict[str, Any]:
    """Return the options of a client for the keys that the environment or the directory names."""
    from holdfast.sealing.key_ring import KeyRing, keys_from_environment

    keys, is_required = keys_from_environment()
    if keys is None and directory is not None:
        from holdfast.cli.config import get_stated_keys

        file = get_stated_keys(directory)
        keys = None if file is None else KeyRing.from_file(file)
    return {"keys": keys, "require_keys": is_required}


def open_store(named: str | None, *, registered: bool = False, with_keys: bool = True) -> SyncClient:
    return locate(named).open(registered=registered, with_keys=with_keys)


def open_or_make_store(named: str | None, *, with_keys: bool = True, directory: Path | None = None) -> SyncClient:
    """Open the store that a command saves to.

    If there is none yet, make one at the given path or URL, else `.holdfast/store.db` here. A
    directory that holds something else is not made one. The files of `directory` may name its keys.
    """
    try:
        return locate(named).open(make=True, with_keys=with_keys)
    except StoreNotFoundError:
        text, _, stated_in = _find_name(named)
        if not text:
            _require_own_store(Path.cwd())
            text, stated_in = DIRECTORY, Path.cwd()
        place = Path(text).expanduser()
        if place.is_dir() and place.name != DIRECTORY:
            raise
    from holdfast.client.sync import SyncClient

    keys = key_options(directory or stated_in) if with_keys else {}
    if "://" in text:
        return SyncClient.open(text, **keys)
    is_directory = place.name == DIRECTORY or text.endswith("/")
    return SyncClient.sqlite(place / SQLITE_NAME if is_directory else place, **keys)


def make_store(named: str | None) -> tuple[StoreLocation, bool | None]:
    """Return the store at that path or URL, else in `.holdfast/` here, and whether it was made now.

    None is for stores on a server, where a check would itself create the store.
    """
    if named is None:
        _require_own_store(Path.cwd())
    found: StoreLocation | None = None
    with contextlib.suppress(StoreNotFoundError):
        found = _locate_from_here() if named is None else locate(named)
    text = str(Path.cwd() / DIRECTORY / SQLITE_NAME) if named is None else named
    cwd = Path.cwd() if named is None else None
    with open_or_make_store(text, directory=cwd) if found is None else found.open(make=True) as client:
        client.session_ids(limit=1)  # the first call makes a missing store
    if found is None:
        return locate(text), True
    return found, None if found.path is None else False


def locate(named: str | None) -> StoreLocation:
    """Return the store that a command works on. Raise `StoreNotFoundError` if there is none."""
    text, how, stated_in = _find_name(named)
    if text:
        try:
            return replace(_locate_named(text, how), directory=stated_in)
        except HoldfastError:
            raise
        except (OSError, ValueError) as error:  # too long, not allowed, with a NUL in it
            why = getattr(error, "strerror", None) or error
            raise StoreNotFoundError(f"there can be no store at {escape(text, 200)} ({how}): {why}") from error
    cwd = Path.cwd()
    for directory in (cwd, *cwd.parents):
        found = _locate_within(directory / DIRECTORY, f"found from {cwd} upward")
        if found is not None:
            _require_own_store(directory)
            return replace(found, directory=directory)
    raise StoreNotFoundError(
        f"no store found: there is no {DIRECTORY}/ in {cwd} or above it, no holdfast.toml that names "
        f"one, {VARIABLE} is not set, and no --store was given.\n\n{BEGIN}"
    )


def _require_own_store(directory: Path) -> None:
    from holdfast.cli.config import require_own_store

    require_own_store(directory)


def _locate_from_here() -> StoreLocation | None:
    found = _locate_within(Path.cwd() / DIRECTORY, "here")
    return None if found is None else replace(found, directory=Path.cwd())


def _find_name(named: str | None) -> tuple[str | None, str, Path | None]:
    """Return the path or URL of the store, or None, its source and the directory that names it.

    The nearest directory decides.

    In it, a file that names a store comes before an existing store, and the record of a fork before
    both, unless a store exists.
    """
    if named is not None:
        return named, "--store", None
    if text := os.environ.get(VARIABLE):
        return text, VARIABLE, None
    from holdfast.cli.config import get_stated_store
    from holdfast.cli.fork_records import find_fork_record

    cwd = Path.cwd()
    for directory in (cwd, *cwd.parents):
        has_own = _locate_within(directory / DIRECTORY, "") is not None
        recorded = None if has_own else find_fork_record(directory)
        if recorded is not None:  # the user's own record: the files of a fork describe the directory they came from
            return recorded.store, "as `holdfast fork` recorded", directory
        stated = get_stated_store(directory)
        if stated is not None:
            return stated[0], str(stated[1]), directory
        if has_own:
            break
    return None, "", None


def _locate_named(text: str, how: str) -> StoreLocation:
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _locate_at(Path(text).expanduser(), how)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return _sqlite(Path(rest[1:]), how)
    if scheme == "file" and rest.startswith("/"):
        return _files(Path(unquote(rest)), how)
    if scheme == "memory":
        raise UsageError(f"{text} ({how}) is gone with the process that made it: there is nothing to look at")
    return StoreLocation("url", how, url=text)


def _locate_at(path: Path, how: str) -> StoreLocation:
    if not path.is_dir():
        return _sqlite(path, how)
    found = _locate_within(path, how, root=path) or _locate_within(path / DIRECTORY, how, root=path)
    return found if found is not None else _files(path, how)


def _locate_within(directory: Path, how: str, *, root: Path | None = None) -> StoreLocation | None:
    """Return the store in `.holdfast/`.

    Below a directory that the user named (`root`), it must not be a link. One that was found by
    walking up may be: if it leads out of its directory, it needs trust (`_require_own_store`).
    """
    if (directory / SQLITE_NAME).is_file():
        found = StoreLocation("sqlite", how, directory / SQLITE_NAME)
    elif (directory / FILES_NAME / FILES_MARK).is_file():
        found = StoreLocation("files", how, directory / FILES_NAME)
    else:
        return None
    assert found.path is not None
    if root is not None:
        refuse_links(root, *found.path.relative_to(root).parts)
    return found


def _sqlite(path: Path, how: str) -> StoreLocation:
    if not path.is_file():
        raise StoreNotFoundError(f"there is no store at {path} ({how}): no such file.\n\n{BEGIN}")
    _refuse_empty(path, how)
    return StoreLocation("sqlite", how, path)


def _refuse_empty(path: Path, how: str) -> None:
    if path.stat().st_size == 0:
        raise StoreNotFoundError(f"there is no store at {path} ({how}): the file is empty.\n\n{BEGIN}")


def _files(path: Path, how: str) -> StoreLocation:
    if not (path / FILES_MARK).is_file():
        why = f"it has no {FILES_MARK}" if path.is_dir() else "no such directory"
        raise StoreNotFoundError(f"there is no store at {path} ({how}): {why}.\n\n{BEGIN}")
    return StoreLocation("files", how, path)
