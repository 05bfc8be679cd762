"""Hostile SQLite files: a store that was changed by other means than holdfast."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from holdfast import SyncClient

PAGE = 4096
INDEX_LEAF = 10


def make_store(path: Path, saves: int = 5) -> None:
    """A store with one session `s`, whose list is long enough to be stored in runs."""
    with SyncClient.sqlite(path, durability="fast") as client:
        for number in range(saves):
            client.save("a", session_id="s", execution_state={"m": ["x" * 900] * (10 + number)})


def change(path: Path, statements: Sequence[str]) -> None:
    """Carries out SQL as another program, with every freedom."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def share_pages(path: Path, table: str, levels: int = 12) -> None:
    """Make a tree of pages, of a table or an index, in which each page is reached by 50 ways or more on each level."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        [root] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    data = bytearray(path.read_bytes())
    leaf = bytes(data[(root - 1) * PAGE : root * PAGE])
    interior = _interior_of_index if leaf[0] == INDEX_LEAF else _interior_of_table
    data += leaf
    for _ in range(levels):
        data += interior(len(data) // PAGE, leaf)
    data[(root - 1) * PAGE : root * PAGE] = interior(len(data) // PAGE, leaf)
    data[28:32] = struct.pack(">I", len(data) // PAGE)
    data[92:96] = data[24:28]
    path.write_bytes(data)


def _interior_of_table(child: int, leaf: bytes) -> bytes:
    return _interior(5, child, [bytes((number % 127 + 1,)) for number in range(300)])


def _interior_of_index(child: int, leaf: bytes) -> bytes:
    [start] = struct.unpack_from(">H", leaf, 8)  # of its first cell: the size of an entry, and the entry
    return _interior(2, child, [leaf[start : start + 1 + leaf[start]]] * 50)


def _interior(kind: int, child: int, keys: list[bytes]) -> bytes:
    """A page whose children are all the same page."""
    cells = [struct.pack(">I", child) + key for key in keys]
    pointers = [PAGE - len(cells[0]) * (number + 1) for number in range(len(cells))]
    header = struct.pack(">BHHHBI", kind, 0, len(cells), pointers[-1], 0, child)
    page = header + b"".join(struct.pack(">H", pointer) for pointer in pointers)
    return page.ljust(pointers[-1], b"\0") + b"".join(reversed(cells))
