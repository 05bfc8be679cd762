"""Limits of a snapshot: its size and time, free space, and directories that are refused."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.errors import UsageError

Secrets = Literal["keep", "skip", "refuse"]
SECRETS = ("keep", "skip", "refuse")
STORE_DIRECTORY = ".holdfast"
TEMPORARY = b".holdfast-"  # how the names of a restore's temporary files begin; its token and a number follow
MAX_DEPTH = 400  # directories within each other: a walk has all of them open at once
# How things are opened. Where a system has no such flag, `checked_root` refuses before anything is.
NO_MORE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # these errors are about us, not about the file
NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
DIRECTORY_FLAGS: int = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
FILE_FLAGS: int = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | NO_FOLLOW | getattr(os, "O_NONBLOCK", 0)

_PATTERNS = (
    ".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "id_rsa", "id_dsa", "id_ecdsa",
    "id_ed25519", ".netrc", ".pypirc", ".npmrc", ".git-credentials", "credentials.json", "*.kdbx",
)  # fmt: skip
_SECRET = re.compile("|".join(map(fnmatch.translate, _PATTERNS)))
_TEMPORARY = re.compile(re.escape(TEMPORARY) + rb"[0-9a-f]{12}-([0-9]+|at-work)")
_NO_SECRET = re.compile(r"\.env\.(example|sample|template|dist|defaults)\Z")


def is_secret(name: bytes) -> bool:
    """Return whether a file's name says that it holds a key or a password."""
    text = os.fsdecode(name)
    return _SECRET.match(text) is not None and not _NO_SECRET.match(text)


def is_temporary(name: bytes) -> bool:
    """Return whether a name is one that restores give to what they have not yet put in its place."""
    return name.startswith(TEMPORARY) and _TEMPORARY.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class WorkspaceLimits:
    """The size limits of a snapshot.

    Beyond them no snapshot is taken, and the checkpoint says why. Nor does a restore or a fork
    write more (`max_files` paths, `max_bytes`, `max_file_bytes`).
    """

    max_files: int = 500_000
    max_bytes: int = 20 * 1024**3
    max_file_bytes: int = 4 * 1024**3
    max_seconds: float = 600.0
    min_free_bytes: int = 512 * 1024**2  # to be left on the disk of the store


class OverBudgetError(Exception):
    """A signal: the snapshot is not taken. Its message says why."""


class Budget:
    """The limits of one snapshot while it is taken."""

    def __init__(self, limits: WorkspaceLimits) -> None:
        self._limits = limits
        self._deadline = time.monotonic() + limits.max_seconds

    def check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise OverBudgetError(f"it took longer than {self._limits.max_seconds:g} s (max_seconds)")

    def check_totals(self, files: int, size: int) -> None:
        if files > self._limits.max_files:
            raise OverBudgetError(f"there are more than {self._limits.max_files:,} files (max_files)")
        if size > self._limits.max_bytes:
            raise OverBudgetError(f"the files have more than {self._limits.max_bytes:,} bytes (max_bytes)")

    def check_file(self, path: bytes, size: int) -> None:
        self.check_time()
        if size > self._limits.max_file_bytes:
            raise OverBudgetError(
                f"{os.fsdecode(path)!r:.80} has {size:,} bytes, more than {self._limits.max_file_bytes:,} "
                "(max_file_bytes)"
            )


def check_free_space(store: Path | None, limits: WorkspaceLimits) -> None:
    """Refuse to fill the disk that the store is on."""
    free = None if store is None else _free_at(store)
    if free is not None and free < limits.min_free_bytes:
        raise OverBudgetError(
            f"the disk of the store has {free:,} bytes left, fewer than {limits.min_free_bytes:,} (min_free_bytes)"
        )


def _free_at(store: Path) -> int | None:
    """Return the free space of the disk that has this place, or will have it."""
    try:
        found = os.statvfs(store)
    except (FileNotFoundError, NotADirectoryError):
        return None if store == store.parent else _free_at(store.parent)
    return found.f_bavail * found.f_frsize


def checked_root(path: str | os.PathLike[str]) -> Path:
    """Return the directory's real path; refuse a directory that no user wants in a snapshot."""
    if os.open not in os.supports_dir_fd:
        raise UsageError("workspaces need descriptors of directories, which this system (Windows, most likely) has not")
    home = _home()
    given = Path(path)
    root = given.resolve()
    if not root.is_dir():
        raise UsageError(f"{str(given)!r:.120} is no directory: a workspace is one that exists")
    if root == Path(root.anchor):
        raise UsageError("the root of the file system can't be a workspace: name the directory that the agent works in")
    if home is not None and (root == home or root in home.parents):
        raise UsageError(
            f"{str(root)!r:.120} is or contains the home directory: it can't be a workspace. Name the project's "
            "directory"
        )
    return root


def refuse_if_gone(root: Path) -> None:
    """Raise if the directory of an open workspace is not there any more."""
    if not root.is_dir():
        raise UsageError(
            f"the workspace {str(root)!r:.120} is not there any more. Make the directory again, empty, to restore its "
            "files"
        )


def _home() -> Path | None:
    """Return the user's home directory, from the user database: the library reads no environment."""
    try:
        import pwd
    except ImportError:
        return None
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()
    except KeyError:
        return None


def list_store_paths(root: Path, store: Path | None) -> frozenset[bytes]:
    """Return the paths below the root that belong to the store.

    The store is in a `.holdfast` directory, which is left out, or outside: a snapshot that holds
    its own store would grow with each one taken.
    """
    never = {os.fsencode(STORE_DIRECTORY)}
    for real in _places(store) if store is not None else ():
        if real.is_relative_to(root):
            parts = real.relative_to(root).parts
            if STORE_DIRECTORY not in parts[:-1]:
                raise UsageError(
                    f"the store {str(store)!r:.120} is inside the workspace {str(root)!r:.120}: a snapshot would hold "
                    f"its own store. Keep the store in a directory named {STORE_DIRECTORY!r}, which is left out, or "
                    "elsewhere"
                )
            never.add(os.fsencode("/".join(parts[: parts.index(STORE_DIRECTORY) + 1])))
    return frozenset(never)


def _places(store: Path) -> set[Path]:
    """Return the places of a store's files.

    Stat caches are next to its name; its data is written where a symlink leads.
    """
    return {store.parent.resolve() / store.name, store.resolve()}
