"""Databases and directories given to importers, in which a row or a file is odd: that one is
reported, the rest is taken."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import limited
import ormsgpack
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from sqlite_attacks import share_pages

pytestmark = pytest.mark.slow  # each starts a process
RECURSIVE = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"


def langgraph_database(path: Path) -> None:
    """Five checkpoints of two threads, with writes."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        for thread, count in (("one", 3), ("two", 2)):
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            for number in range(count):
                checkpoint = {
                    "v": 4, "id": f"1f0{number:05x}-0000-6000-8000-000000000000", "ts": "2026-01-01T00:00:00+00:00",
                    "channel_values": {"n": number}, "channel_versions": {"n": f"{number:032}.0"}, "versions_seen": {},
                }  # fmt: skip
                config = saver.put(config, checkpoint, {"step": number}, {"n": f"{number:032}.0"})
                saver.put_writes(config, [("n", number)], f"task {number}")


ODD_ROWS = {  # what is done to a row of the first thread, and how many checkpoints are taken then
    "text as a blob": ("UPDATE checkpoints SET checkpoint = 'text' WHERE rowid = 2", 4),
    "a float": ("UPDATE checkpoints SET checkpoint = 1.5 WHERE rowid = 2", 4),
    "a huge number": ("UPDATE checkpoints SET checkpoint = 5000000000, type = 'bytes' WHERE rowid = 2", 4),
    "no value": ("UPDATE checkpoints SET checkpoint = NULL WHERE rowid = 2", 4),
    "no type": ("UPDATE checkpoints SET type = NULL WHERE rowid = 2", 4),
    "a blob as a type": ("UPDATE checkpoints SET type = x'ff' WHERE rowid = 2", 4),
    "a blob as a thread": ("UPDATE checkpoints SET thread_id = x'00ff' WHERE rowid = 2", 4),
    "a thread that is no UTF-8": ("UPDATE checkpoints SET thread_id = CAST(x'ff41' AS TEXT) WHERE rowid = 2", 4),
    "an id that is no UTF-8": ("UPDATE checkpoints SET checkpoint_id = CAST(x'eda080' AS TEXT) WHERE rowid = 2", 4),
    "an empty id": ("UPDATE checkpoints SET checkpoint_id = '' WHERE rowid = 2", 4),
    "a blob as a parent": ("UPDATE checkpoints SET parent_checkpoint_id = x'00' WHERE rowid = 2", 4),
    "metadata that is no text": ("UPDATE checkpoints SET metadata = 7 WHERE rowid = 2", 4),
    "metadata with an odd object": (
        'UPDATE checkpoints SET metadata = \'{"a": {"lc": [], "type": "constructor", "id": ["x"]}}\' WHERE rowid = 2',
        5,
    ),
    "deep metadata": (f"UPDATE checkpoints SET metadata = '{'[' * 100_000}' WHERE rowid = 2", 4),
    "a write that is text": ("UPDATE writes SET value = 'text' WHERE rowid = 2", 4),
    "a write with an odd index": ("UPDATE writes SET idx = 'x' WHERE rowid = 2", 4),
    "a write with an odd channel": ("UPDATE writes SET channel = x'00' WHERE rowid = 2", 4),
    "a write with an odd task": ("UPDATE writes SET task_id = 'x' || CAST(x'ff' AS TEXT) WHERE rowid = 2", None),
    "channels that are no map": (None, 4),
}  # fmt: skip


def test_an_odd_row_of_langgraph_is_reported_and_passed_over(tmp_path: Path) -> None:
    said = {}
    for number, (name, (statement, _)) in enumerate(ODD_ROWS.items()):
        path = tmp_path / f"{number}.db"
        langgraph_database(path)
        with closing(sqlite3.connect(path)) as connection:
            if statement is None:
                odd = {
                    "v": 1,
                    "id": "1f000001-0000-6000-8000-000000000000",
                    "channel_values": 7,
                    "channel_versions": [1],
                }
                connection.execute("UPDATE checkpoints SET checkpoint = ? WHERE rowid = 2", (ormsgpack.packb(odd),))
            else:
                connection.execute(statement)
            connection.commit()
        said[name] = path
    reports = limited.run("import_many.py", *said.values(), memory=3 << 29, seconds=200)
    for (name, (_, taken)), report in zip(ODD_ROWS.items(), reports, strict=True):
        assert "error" not in report, (name, report)
        if taken is not None:
            assert report["imported"] == taken, (name, report)
            assert len(report["skipped"]) == 5 - taken, (name, report)
        else:
            assert report["imported"] + len(report["skipped"]) == 5, (name, report)


VIEWS = {
    "checkpoints": f"CREATE VIEW checkpoints AS {RECURSIVE} SELECT x AS thread_id, '' AS checkpoint_ns, x AS "
    "checkpoint_id, "
    "NULL AS parent_checkpoint_id, 'msgpack' AS type, x'80' AS checkpoint, x'80' AS metadata FROM n",
    "writes": f"CREATE VIEW writes AS {RECURSIVE} SELECT x AS thread_id, '' AS checkpoint_ns, x AS "
    "checkpoint_id, 't' AS task_id, "
    "1 AS idx, 'c' AS channel, 'msgpack' AS type, x'80' AS value FROM n",
}


def test_a_view_in_place_of_a_table_is_refused(tmp_path: Path) -> None:
    """In any spelling: SQLite finds `Checkpoints` by the name `checkpoints`, too."""
    for table, view in VIEWS.items():
        for name in (table, table.capitalize()):
            path = tmp_path / f"{name} for {table}.db"
            langgraph_database(path)
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(f"DROP TABLE {table}")
                connection.execute(view.replace(f"VIEW {table}", f"VIEW {name}"))
                connection.commit()
    for said in limited.run("import_many.py", *tmp_path.glob("*.db"), memory=3 << 29):
        assert said["error"].startswith("UsageError")
        assert "view" in said["error"]


def test_a_view_in_place_of_checkpnts_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            f"CREATE VIEW checkpoints AS {RECURSIVE} SELECT x AS rowid, x AS checkpoint_id, x AS "
            "agent_id, x AS session_id, "
            "x AS parent_id, x AS created_at_ms, x AS expires_at_ms, x AS payload FROM n"
        )
        connection.commit()
    assert "view" in limited.run("hostile_databases.py", "checkpnt", path)["error"]


def test_pages_that_are_reached_in_many_ways_end_an_import(tmp_path: Path) -> None:
    """A table lists its rows again and again, for hours: the time is bounded by the file's size, and so is memory."""
    theirs = tmp_path / "theirs.db"
    langgraph_database(theirs)
    share_pages(theirs, "sqlite_autoindex_checkpoints_1")
    [said] = limited.run("import_many.py", theirs, seconds=60)
    assert said["error"].startswith("StoreError")
    assert "a file of its size" in said["error"]
    other = tmp_path / "other.db"
    columns = "checkpoint_id, agent_id, session_id, parent_id, created_at_ms, expires_at_ms, payload"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute(f"CREATE TABLE checkpoints ({columns})")
        for number in range(6):
            row = (f"c{number}", "a", f"s{number}", None, number, None, ormsgpack.packb(checkpnt_row(number)))
            connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.commit()
    share_pages(other, "checkpoints")
    said = limited.run("hostile_databases.py", "checkpnt", other)
    assert said["imported"] == 6
    assert said["skipped"] == ["database: the database is damaged after row 6: its rows begin again"]


def checkpnt_row(number: int, **changed: Any) -> dict[str, Any]:
    said = {
        "schema_version": "1.0", "checkpoint_id": f"c{number}", "agent_id": "a", "session_id": f"s{number}",
        "parent_id": None,
        "framework": "custom", "step_index": 0, "execution_state": {"n": number}, "agent_context": {}, "metadata": {},
        "created_at": "2026-01-01T00:00:00+00:00", "checksum": "x",
    }  # fmt: skip
    return {**said, **changed}


ODD_CHECKPNT: list[Any] = [
    ormsgpack.packb(checkpnt_row(1, created_at="0001-01-01T00:00:00+14:00")),
    ormsgpack.packb(checkpnt_row(1, created_at="9999-12-31T23:59:59-14:00")),
    ormsgpack.packb(checkpnt_row(1, metadata=[["a", 1]])),
    ormsgpack.packb(checkpnt_row(1, metadata={"": 1})),
    ormsgpack.packb(checkpnt_row(1, execution_state=7)),
    ormsgpack.packb(checkpnt_row(1, agent_context=[1])),
    ormsgpack.packb(checkpnt_row(1, ttl_seconds=1e400)),
    ormsgpack.packb(checkpnt_row(1, ttl_seconds="x", framework={}, step_index=-1)),
    ormsgpack.packb({1: 2}, option=ormsgpack.OPT_NON_STR_KEYS),
    b"\x91" * 1000, b"", "text", 1.5, None, 7,
]  # fmt: skip


def test_an_odd_row_of_checkpnt_is_reported_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    columns = "checkpoint_id, agent_id, session_id, parent_id, created_at_ms, expires_at_ms, payload"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE checkpoints ({columns})")
        for number, payload in enumerate([*ODD_CHECKPNT, ormsgpack.packb(checkpnt_row(99))]):
            named = 99 if number == len(ODD_CHECKPNT) else 1
            row = (f"c{named}", "a", f"s{named}", None, number, None, payload)
            connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        odd_places: list[Any] = [("c2", b"a", "s", None, 1, None, b""), ("c3", "a", "s", None, "x", None, b"")]
        odd_places += [("c4", "a", "s", None, 2**62, float("inf"), b""), ("c5", "a", 7, 1.5, 1, None, b"")]
        connection.executemany("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", odd_places)
        connection.commit()
    said = limited.run("hostile_databases.py", "checkpnt", path)
    assert said.get("imported", 0) >= 1, said
    assert len(said["skipped"]) >= len(ODD_CHECKPNT) - 3


ODD_FILES: dict[str, bytes] = {
    "deep": b"[" * 200_000,
    "deep maps": b'{"a":' * 200_000,
    "number": b"7",
    "nothing": b"",
    "no text": b"\xff\xfe\x00",
    "huge number": b'{"step": ' + b"9" * 10_000 + b"}",
    "surrogate": b'{"agentId": "\\ud800", "step": 1}',
    "odd types": b'{"agentId": {}, "step": [], "timestamp": 1}',
    "not a number": b'{"step": NaN, "agentId": null}',
}


def test_an_odd_file_of_providerprotocol_is_reported_and_passed_over(tmp_path: Path) -> None:
    for name, content in ODD_FILES.items():
        for file in ("checkpoint.json", "metadata.json"):
            folder = tmp_path / "theirs" / f"{name} {file}"
            folder.mkdir(parents=True)
            (folder / "checkpoint.json").write_text(json.dumps({"step": 1, "agentId": "a"}))
            (folder / file).write_bytes(content)
    good = tmp_path / "theirs" / "good"
    good.mkdir()
    (good / "checkpoint.json").write_text(json.dumps({"step": 1, "agentId": "a"}))
    said = limited.run("hostile_databases.py", "providerprotocol", tmp_path / "theirs")
    assert said.get("imported", 0) + len(said.get("skipped", ())) == 2 * len(ODD_FILES) + 1, said
    assert said["imported"] > len(ODD_FILES)
