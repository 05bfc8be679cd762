"""Where the store is: named; by HOLDFAST_URL; or found by walking up, where a directory names one (holdfast.toml, pyproject.toml)
or has one (.holdfast/). Looking never makes a store; saving may."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from holdfast.cli.printable import printable
from holdfast.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.sync_client import SyncClient

VARIABLE = "HOLDFAST_URL"
DIRECTORY = ".holdfast"
SQLITE_NAME = "store.db"  # within DIRECTORY, as `Client.sqlite()` makes it
FILES_NAME = "store"  # within DIRECTORY, as `Client.files()` makes it
FILES_MARK = "holdfast.json"  # what makes a directory a store of files

BEGIN = """\
To see what holdfast does:  holdfast demo
To begin a store here, in Python:

    from holdfast import SyncClient
    client = SyncClient.sqlite()
    client.save(agent_id="my-agent", session_id="my-run", execution_state={"messages": []})"""


class StoreNotFoundError(HoldfastError):
    """There is no store where one was looked for."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A store that is there: `path` for our own kinds, `url` for those of other packages. `how` says how it was found."""

    kind: str  # "sqlite", "files" or "url"
    how: str
    path: Path | None = None
    url: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.path is not None else without_password(str(self.url))

    def file_size(self) -> int | None:
        """What its files take, if that is known without asking the store."""
        if self.kind != "sqlite" or self.path is None:
            return None
        files = (Path(f"{self.path}{suffix}") for suffix in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def open(self, *, registered: bool = False, make: bool = False) -> SyncClient:
        """A client that shows any state as it is stored; with `registered`, one with this process's types and
        migrations. Whether a store is behind a URL shows at the first call: with `make`, that may make one."""
        from holdfast.cli.unregistered import AnyTypes
        from holdfast.model.migrations import Migrations
        from holdfast.sync_client import SyncClient

        types, migrations = (None, None) if registered else (AnyTypes(), Migrations())
        if self.path is None:
            is_postgres = str(self.url).startswith(("postgresql:", "postgres:"))
            options: dict[str, Any] = {"make": make} if is_postgres else {}
            return SyncClient.open(str(self.url), types=types, migrations=migrations, **options)
        if self.kind == "files":
            return SyncClient.files(self.path, types=types, migrations=migrations)
        return SyncClient.sqlite(self.path, types=types, migrations=migrations)


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    return re.sub(r"(?<=[?&]password=)[^&]*", "***", re.sub(r"(?<=://)([^:@/?]*):[^@/?]*(?=@)", r"\1:***", url))


def open_store(named: str | None, *, registered: bool = False) -> SyncClient:
    return locate(named).open(registered=registered)


def open_or_make_store(named: str | None) -> SyncClient:
    """The store that a command saves to. Where there is none yet: a new one at the path or URL that was named, else
    `.holdfast/store.db` here. A directory that holds something else is not made one."""
    try:
        return locate(named).open(make=True)
    except StoreNotFoundError:
        text = _said(named)[0] or DIRECTORY
        place = Path(text).expanduser()
        if place.is_dir() and place.name != DIRECTORY:
            raise
    from holdfast.sync_client import SyncClient

    if "://" in text:
        return SyncClient.open(text)
    is_directory = place.name == DIRECTORY or text.endswith("/")
    return SyncClient.sqlite(place / SQLITE_NAME if is_directory else place)


def make_store(named: str | None) -> tuple[StoreLocation, bool | None]:
    """The store at that path or URL, else in `.holdfast/` here, made if it is not there yet; and whether it was made. None
    is for those on a server, which can't be asked without making them."""
    found: StoreLocation | None = None
    with contextlib.suppress(StoreNotFoundError):
        found = _within(Path.cwd() / DIRECTORY, "here") if named is None else locate(named)
    text = str(Path.cwd() / DIRECTORY / SQLITE_NAME) if named is None else named
    with open_or_make_store(text) if found is None else found.open(make=True) as client:
        client.session_ids(limit=1)  # the first question makes what is not there
    if found is None:
        return locate(text), True
    return found, None if found.path is None else False


def locate(named: str | None) -> StoreLocation:
    """The store that a command speaks of. Raises `StoreNotFoundError` if there is none."""
    text, how = _said(named)
    if text:
        try:
            return _named(text, how)
        except HoldfastError:
            raise
        except (OSError, ValueError) as error:  # too long, not allowed, with a NUL in it
            why = getattr(error, "strerror", None) or error
            raise StoreNotFoundError(f"there can be no store at {printable(text, 200)} ({how}): {why}") from error
    here = Path.cwd()
    for directory in (here, *here.parents):
        found = _within(directory / DIRECTORY, f"found from {here} upward")
        if found is not None:
            return found
    raise StoreNotFoundError(
        f"no store found: there is no {DIRECTORY}/ in {here} or above it, no holdfast.toml that names one, {VARIABLE} is not "
        f"set, and no --store was given.\n\n{BEGIN}"
    )


def _said(named: str | None) -> tuple[str | None, str]:
    """The path or URL that says where the store is, and who says so: None if nobody does. The nearest directory decides; in it, a
    file that names a store goes before the one that is there."""
    if named is not None:
        return named, "--store"
    if text := os.environ.get(VARIABLE):
        return text, VARIABLE
    from holdfast.cli.settings import stated_store

    here = Path.cwd()
    for directory in (here, *here.parents):
        stated = stated_store(directory)
        if stated is not None:
            return stated[0], str(stated[1])
        if _within(directory / DIRECTORY, "") is not None:
            break
    return None, ""


def _named(text: str, how: str) -> StoreLocation:
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _at(Path(text).expanduser(), how)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return _sqlite(Path(rest[1:]), how)
    if scheme == "file" and rest.startswith("/"):
        return _files(Path(unquote(rest)), how)
    if scheme == "memory":
        raise UsageError(f"{text} ({how}) is gone with the process that made it: there is nothing to look at")
    return StoreLocation("url", how, url=text)


def _at(path: Path, how: str) -> StoreLocation:
    if not path.is_dir():
        return _sqlite(path, how)
    found = _within(path, how) or _within(path / DIRECTORY, how)
    return found if found is not None else _files(path, how)


def _within(directory: Path, how: str) -> StoreLocation | None:
    """The store that `.holdfast/` holds."""
    if (directory / SQLITE_NAME).is_file():
        return StoreLocation("sqlite", how, directory / SQLITE_NAME)
    if (directory / FILES_NAME / FILES_MARK).is_file():
        return StoreLocation("files", how, directory / FILES_NAME)
    return None


def _sqlite(path: Path, how: str) -> StoreLocation:
    if not path.is_file():
        raise StoreNotFoundError(f"there is no store at {path} ({how}): no such file.\n\n{BEGIN}")
    if path.stat().st_size == 0:
        raise StoreNotFoundError(f"there is no store at {path} ({how}): the file is empty.\n\n{BEGIN}")
    return StoreLocation("sqlite", how, path)


def _files(path: Path, how: str) -> StoreLocation:
    if not (path / FILES_MARK).is_file():
        why = f"it has no {FILES_MARK}" if path.is_dir() else "no such directory"
        raise StoreNotFoundError(f"there is no store at {path} ({how}): {why}.\n\n{BEGIN}")
    return StoreLocation("files", how, path)
