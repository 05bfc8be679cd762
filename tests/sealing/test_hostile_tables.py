"""Any cell of a sealed SQLite store is changed, a row deleted or doubled: exact, or refused by name."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sealed_world import FOREIGN, Refused, World, build
from stores import RING, Store

from holdfast import HoldfastError, SyncClient

pytestmark = pytest.mark.slow
CHANGES = 1500 if "HOLDFAST_SOAK" in os.environ else 100
EXACT = ("restore", "latest", "timeline", "file", "difference")  # messages can be hidden, names, too
Cell = Any


def other_value(draw: random.Random, value: Cell, others: list[Cell]) -> Cell:
    """Another value for a cell: a bit flipped, another row's, nothing, or one of another type."""
    if draw.random() < 0.3:
        return draw.choice([None, 1.5, "text", b"blob", 0, -1, 2**62, -(2**62)])
    if draw.random() < 0.3:
        return draw.choice(others)
    if isinstance(value, int):
        return draw.choice([value + 1, value - 1, value ^ (1 << draw.randrange(60))])
    if isinstance(value, bytes) and value:
        changed = bytearray(value)
        changed[draw.randrange(len(value))] ^= 1 << draw.randrange(8)
        return bytes(changed)
    return f"{value}x"


def change(draw: random.Random, path: Path) -> str | None:
    """Change one thing in the tables; return what, or None if SQLite refuses it."""
    database = sqlite3.connect(path)
    try:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = draw.choice([name for name in tables if not name.startswith("sqlite_")])
        columns = [column[1] for column in database.execute(f"PRAGMA table_info({table})")]
        rows = database.execute(f"SELECT * FROM {table}").fetchall()
        if not rows:
            return None
        row, at = draw.choice(rows), draw.randrange(len(columns))
        value = other_value(draw, row[at], [other[at] for other in rows])
        found = " AND ".join(f"{name} IS ?" for name in columns)
        how = draw.choice(["change", "change", "change", "delete", "double"])
        if how == "delete":
            database.execute(f"DELETE FROM {table} WHERE {found}", row)
        elif how == "double":
            marks = ",".join("?" * len(columns))
            database.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", [*row[:at], value, *row[at + 1 :]])
        else:
            database.execute(f"UPDATE OR REPLACE {table} SET {columns[at]} = ? WHERE {found}", (value, *row))
        database.commit()
    except sqlite3.Error:
        return None
    finally:
        database.close()
    return f"{how} {table}.{columns[at]}: {value!r:.60}"


@pytest.fixture
def original(tmp_path: Path) -> Iterator[tuple[Path, World]]:
    store = Store("sqlite", tmp_path / "original")
    store.is_sealed = True
    world = build(store, tmp_path / "work")
    store.close()
    path = store.where / "store.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    yield path, world


def test_what_is_changed_in_any_table_is_refused_or_exact(original: tuple[Path, World], tmp_path: Path):
    path, world = original
    draw = random.Random(11)
    with SyncClient.sqlite(path, keys=RING) as client:
        known = world.ask(client)
    where = tmp_path / "changed"
    refused = 0
    for _ in range(CHANGES):
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir()
        copy = where / "store.db"
        shutil.copy(path, copy)
        what = change(draw, copy)
        if what is None:
            continue
        try:
            with SyncClient.sqlite(copy, keys=RING, durability="fast") as client:
                answers = world.ask(client)
        except HoldfastError:
            refused += 1
            continue
        for question, answer in answers.items():
            assert not str(answer).startswith(FOREIGN), (what, question, answer)
            if question.startswith(EXACT) and not what.startswith("delete"):
                is_gone = answer in ("None", [])  # a session whose row of a head is not found under its name
                assert answer == known[question] or isinstance(answer, Refused) or is_gone, (what, question)
        refused += any(isinstance(answer, Refused) for answer in answers.values())
    assert refused > CHANGES / 20
