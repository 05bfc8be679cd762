"""The layout of a store's directory: paths of its files, and back. `files/__init__.py` describes it."""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.backends.files.file_names import is_name, name_of
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
FEEDS = "feeds"
POSITIONS_IN_A_FOLDER = 1000  # of a feed

RECORD_END = ".record"
SEGMENT_END = ".run"
ROW_END = ".row"

_STORE_NAME = "_store"
_STAGED_FILE = re.compile(f"{STAGED}/(?:0|[1-9][0-9]*)")
ID_BYTES = 16
HASH_BYTES = 32


class SegmentName(NamedTuple):
    first: int
    length: int
    path: str

    @property
    def end(self) -> int:
        return self.first + self.length


def staged_path(number: int) -> str:
    return f"{STAGED}/{number}"


def record_path(id_: bytes) -> str:
    digits = id_.hex()
    return f"{RECORDS}/{digits[-2:]}/{digits}{RECORD_END}"


def session_folder(session: bytes) -> str:
    return f"{SESSIONS}/{name_of(session)}"


def session_path(session: bytes, sequence: int) -> str:
    return f"{session_folder(session)}/{sequence:010d}{RECORD_END}"


def feed_folder(feed: bytes, position: int | None = None) -> str:
    """Return the folder of a feed, or its part that has a position."""
    folder = f"{FEEDS}/{name_of(feed)}"
    return folder if position is None else f"{folder}/{position // POSITIONS_IN_A_FOLDER:010d}"


def feed_path(feed: bytes, position: int, id_: bytes) -> str:
    return f"{feed_folder(feed, position)}/{position:013d}-{id_.hex()}{RECORD_END}"


def feed_entry_in(name: str) -> tuple[int, bytes] | None:
    """Return the position and id in the name of a feed's entry."""
    digits, dash, rest = name.partition("-")
    position, id_ = number_in(digits), bytes_in(rest, RECORD_END)
    return None if not dash or position is None or id_ is None or len(id_) != ID_BYTES else (position, id_)


def log_folder(log: int) -> str:
    return f"{LOGS}/{log:010d}"


def run_path(log: int, first: int, length: int) -> str:
    return f"{log_folder(log)}/{first:010d}-{length}{SEGMENT_END}"


def blob_path(hash_: bytes) -> str:
    digits = hash_.hex()
    return f"{BLOBS}/{digits[:2]}/{digits}"


def space_folder(space: str) -> str:
    return f"{ROWS}/{name_of(space.encode())}"


def tree_folder(space: str, tree: bytes) -> str:
    return f"{space_folder(space)}/{_STORE_NAME if tree == STORE else tree.hex()}"


def row_path(key: RowKey) -> str:
    return f"{tree_folder(key.space, key.tree)}/{name_of(key.key)}{ROW_END}"


# Files that can't be ours (`.DS_Store`, a backup of an editor) are ignored.


def number_in(name: str, end: str = "") -> int | None:
    """Return the number in the name of a log's folder or a session's record."""
    digits = name.removesuffix(end)
    return int(digits) if name.endswith(end) and digits.isascii() and digits.isdigit() else None


def bytes_in(name: str, end: str = "") -> bytes | None:
    """Return the id or hash in the name of a file."""
    try:
        return bytes.fromhex(name.removesuffix(end)) if name.endswith(end) else None
    except ValueError:
        return None


def tree_in(name: str) -> bytes | None:
    return STORE if name == _STORE_NAME else bytes_in(name)


def run_in(folder: str, name: str) -> SegmentName | None:
    first, dash, rest = name.partition("-")
    begin, length = number_in(first), number_in(rest, SEGMENT_END)
    if not dash or begin is None or length is None:
        return None
    return SegmentName(begin, length, f"{folder}/{name}")


# The names in a journal are data. A name that the functions above can't have made is not ours.


def is_staged_path(path: str) -> bool:
    """Return whether `staged_path` can have made this path."""
    return _STAGED_FILE.fullmatch(path) is not None


def is_blob_path(path: str) -> bool:
    """Return whether `blob_path` can have made this path."""
    hash_ = bytes_in(path.rpartition("/")[2])
    return hash_ is not None and len(hash_) == HASH_BYTES and blob_path(hash_) == path


def is_content_path(path: str) -> bool:
    """Return whether a commit can have a file at this path: one that a function above has made."""
    kind, *rest = path.split("/")
    match kind, rest:
        case "records", [_, name]:
            id_ = bytes_in(name, RECORD_END)
            return id_ is not None and len(id_) == ID_BYTES and record_path(id_) == path
        case "sessions", [session, name]:
            sequence = number_in(name, RECORD_END)
            return is_name(session) and sequence is not None and name == f"{sequence:010d}{RECORD_END}"
        case "logs", [folder, name]:
            log, segment = number_in(folder), run_in(folder, name)
            return log is not None and segment is not None and run_path(log, segment.first, segment.length) == path
        case "blobs", [_, _]:
            return is_blob_path(path)
        case "feeds", [feed, folder, name]:
            entry = feed_entry_in(name)
            return entry is not None and is_name(feed) and _is_feed_entry(folder, name, *entry)
        case "rows", [space, folder, name]:
            tree = tree_in(folder)
            of_tree = tree is not None and folder == (_STORE_NAME if tree == STORE else tree.hex())
            return is_name(space) and of_tree and name.endswith(ROW_END) and is_name(name.removesuffix(ROW_END))
    return False


def _is_feed_entry(folder: str, name: str, position: int, id_: bytes) -> bool:
    return feed_path(b"", position, id_).split("/")[2:] == [folder, name]
