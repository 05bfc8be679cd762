"""Where things are: paths within the store's directory, and back. `files/__init__.py` tells it in prose."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.backends.files.names import name_of
from holdfast.backends.port import STORE, RowKey

FORMAT = 1

ABOUT = "holdfast.json"
LOCK = "lock"
JOURNAL = "journal"
STAGED = "staged"
ORDER = "order"

RECORDS = "records"
SESSIONS = "sessions"
LOGS = "logs"
BLOBS = "blobs"
ROWS = "rows"
CONTENT = (RECORDS, SESSIONS, LOGS, BLOBS, ROWS)

RECORD_END = ".record"
RUN_END = ".run"
ROW_END = ".row"

_STORE_NAME = "_store"


class RunName(NamedTuple):
    first: int
    length: int
    path: str

    @property
    def end(self) -> int:
        return self.first + self.length


def record_path(id_: bytes) -> str:
    digits = id_.hex()
    return f"{RECORDS}/{digits[-2:]}/{digits}{RECORD_END}"


def session_folder(session: bytes) -> str:
    return f"{SESSIONS}/{name_of(session)}"


def session_path(session: bytes, sequence: int) -> str:
    return f"{session_folder(session)}/{sequence:010d}{RECORD_END}"


def log_folder(log: int) -> str:
    return f"{LOGS}/{log:010d}"


def run_path(log: int, first: int, length: int) -> str:
    return f"{log_folder(log)}/{first:010d}-{length}{RUN_END}"


def blob_path(hash_: bytes) -> str:
    digits = hash_.hex()
    return f"{BLOBS}/{digits[:2]}/{digits}"


def space_folder(space: str) -> str:
    return f"{ROWS}/{name_of(space.encode())}"


def tree_folder(space: str, tree: bytes) -> str:
    return f"{space_folder(space)}/{_STORE_NAME if tree == STORE else tree.hex()}"


def row_path(key: RowKey) -> str:
    return f"{tree_folder(key.space, key.tree)}/{name_of(key.key)}{ROW_END}"


# What is in a directory and can't be one of ours (`.DS_Store`, a backup of an editor) is not ours, and passed over.


def number_in(name: str, end: str = "") -> int | None:
    """The number that a log's folder or a session's record is named by."""
    digits = name.removesuffix(end)
    return int(digits) if name.endswith(end) and digits.isascii() and digits.isdigit() else None


def bytes_in(name: str, end: str = "") -> bytes | None:
    """The id or hash that a file is named by."""
    try:
        return bytes.fromhex(name.removesuffix(end)) if name.endswith(end) else None
    except ValueError:
        return None


def tree_in(name: str) -> bytes | None:
    return STORE if name == _STORE_NAME else bytes_in(name)


def run_in(folder: str, name: str) -> RunName | None:
    first, dash, rest = name.partition("-")
    begin, length = number_in(first), number_in(rest, RUN_END)
    if not dash or begin is None or length is None:
        return None
    return RunName(begin, length, f"{folder}/{name}")
