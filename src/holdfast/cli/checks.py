"""The checks of `holdfast doctor`. They look, and change nothing."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.printable import byte_count
from holdfast.cli.store_location import StoreLocation, StoreNotFoundError, locate
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Iterator

OK, WARN, FAIL = "ok", "warn", "fail"
LIBRARIES = ("ormsgpack", "zstandard", "click", "rich")
LITTLE_SPACE = 500_000_000
LARGE_WAL = 100_000_000


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: str
    found: str
    advice: str = ""

    def fields(self) -> dict[str, Any]:
        return asdict(self)


def all_checks(named: str | None) -> tuple[list[Check], int]:
    """The checks, and the exit code that they lead to."""
    checks = list(_installation())
    exit_code = 0
    try:
        location = locate(named)
    except StoreNotFoundError as error:
        what, _, next_steps = str(error).partition("\n\n")
        return [*checks, Check("store", FAIL, what, next_steps)], error.exit_code
    checks += _files(location)
    try:
        checks += _contents(location)
    except HoldfastError as error:
        checks.append(Check("open", FAIL, str(error)))
        exit_code = error.exit_code
    if exit_code == 0 and any(check.status == FAIL for check in checks):
        exit_code = 1
    return checks, exit_code


def _installation() -> Iterator[Check]:
    import sqlite3

    from holdfast import __version__

    yield Check("holdfast", OK, __version__)
    yield Check("python", OK, f"{platform.python_version()} ({sys.executable})")
    yield Check("system", OK, platform.platform())
    for library in LIBRARIES:
        try:
            yield Check(library, OK, metadata.version(library))
        except metadata.PackageNotFoundError:
            yield Check(library, FAIL, "not installed", f"pip install {library}")
    yield Check("sqlite", OK, sqlite3.sqlite_version)


def _files(location: StoreLocation) -> Iterator[Check]:
    yield Check("store", OK, str(location))
    yield Check("found by", OK, location.how)
    path = location.path
    if path is None:
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    open_to_others = bool(mode & 0o077)
    yield Check(
        "mode",
        WARN if open_to_others else OK,
        f"{mode:04o}",
        f"other users can get at it: chmod {'700' if path.is_dir() else '600'} {path}" if open_to_others else "",
    )
    # SQLite makes its -wal and -shm beside the file, so the directory counts, too.
    directory = path if path.is_dir() else path.parent.absolute()
    writable = os.access(path, os.W_OK) and os.access(directory, os.W_OK)
    yield Check(
        "writable",
        OK if writable else FAIL,
        "yes" if writable else "no",
        "" if writable else f"saving will fail: let this user write to {path} and {directory}",
    )
    free = shutil.disk_usage(directory).free
    yield Check(
        "free space",
        OK if free >= LITTLE_SPACE else WARN,
        byte_count(free),
        "" if free >= LITTLE_SPACE else "a full disk makes saves fail (what was saved stays): free some space",
    )
    if location.kind == "sqlite":
        yield _write_ahead_log(path)


def _write_ahead_log(path: Path) -> Check:
    log = Path(f"{path}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size <= LARGE_WAL:
        return Check("wal", OK, byte_count(size))
    return Check(
        "wal", WARN, byte_count(size), "a reader that stays open for long keeps the log from being folded into the file"
    )


def _contents(location: StoreLocation) -> Iterator[Check]:
    with location.open() as client:
        stats = client.stats()
    yield Check("backend", OK, stats.backend)
    # Each client that writes chooses; the store itself does not remember.
    yield Check("durability", OK, f"{stats.durability} unless a client asked for another")
    yield Check("sessions", OK, str(stats.sessions))
    yield Check("checkpoints", OK, str(stats.checkpoints) + (f", {stats.expired} expired" if stats.expired else ""))
    yield Check("size", OK, f"{byte_count(stats.stored_bytes)} for {byte_count(stats.logical_bytes)} of states")
