"""docs/format.md is true: a reader that knows nothing but it reads what the library wrote, and its example is real."""

import ast
import contextlib
import random
import sqlite3
import subprocess
import sys
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import format_example
import pytest

from holdfast import CheckpointExpiredError, SyncClient
from holdfast.codec import ext_codes
from holdfast.codec.registry import TypeRegistry

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import read_store  # noqa: E402 - found by the path above

VALUES = {
    "plain": [None, True, -1, 2**63, 1.5, float("inf"), "text", b"bytes", [], {}],
    "big": [2**64, -(2**63) - 1, 2**200],
    "surrogate": "\ud800 alone",
    "bytearray": bytearray(b"x"),
    "tuple": (1, (2, [3])),
    ("any", 1): {1: "one", None: "none", (1, 2): {"nested": {3: 4}}},
    "sets": [{1, 2, 3}, {"a"}, {(2,)}, frozenset({b"x"})],  # of mixed ones, repr's order is not that of equality
    "moments": [
        datetime(2026, 1, 2, 3, 4, 5, 6),
        datetime(2026, 1, 2, tzinfo=UTC),
        datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-3, microseconds=5))),
        datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=1), "here")),
        date(2026, 1, 2),
        time(3, 4, 5, 6, tzinfo=UTC),
        timedelta(-1, 2, 3),
    ],
    "numbers": [Decimal("1.50"), Fraction(1, 3), 1 + 2j],
    "uuid": uuid.UUID(int=5),
}


def same(read: object, expected: object) -> bool:
    """Equal, with the same types; repr tells types, zones and folds apart."""
    return repr(read) == repr(expected) and read == expected


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_the_reader_needs_nothing_of_holdfast():
    tree = ast.parse((DOCS / "read_store.py").read_text("utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    assert imported - set(sys.stdlib_module_names) == {"ormsgpack", "zstandard"}


def test_every_type_is_read(path):
    with SyncClient.sqlite(path) as client:
        id_ = client.save(
            "agent \udfff",
            execution_state=VALUES,
            context={"k": 1},
            session_id="s\ud800",
            note=(1, 2),
            tasks=[{"id": 1}],
        )
        checkpoint = client.restore(id_)
    header, state, context = read_store.restore(path, id_)
    assert same(state, VALUES)
    assert same(context, {"k": 1})
    assert (header["agent"], header["session"], header["meta"]) == ("agent \udfff", "s\ud800", {"note": (1, 2)})
    assert (header["at"], header["seq"], header["tasks"]) == (
        int(checkpoint.created_at.timestamp() * 1_000_000), 1, [{"id": 1}],
    )  # fmt: skip


def test_a_registered_object_is_read_as_its_name_and_parts(path):
    @dataclass
    class Invoice:
        number: str

    types = TypeRegistry()
    types.register(Invoice, "invoice")
    with SyncClient.sqlite(path, types=types) as client:
        id_ = client.save("a", execution_state={"i": Invoice("7")})
    assert read_store.restore(path, id_)[1] == {"i": ("invoice", {"number": "7"})}


def test_long_lists_blobs_forks_edits_and_sealed_runs_are_read(path):
    choose = random.Random(7)
    states = {}
    with SyncClient.sqlite(path, durability="fast") as client:
        state = {"messages": [], "context": {"files": ["x" * 300] * 20}, "text": "", "n": 0}
        session = "main"
        for step in range(120):
            state["messages"].append({"n": step, "text": "word " * choose.randrange(400)})
            state["n"] = step
            if step % 10 == 3:
                state["messages"][choose.randrange(len(state["messages"]))] = {"edited": step}
                state["text"] = "é" * 5000 + str(step)
            if step % 25 == 24:
                session = client.fork(choose.choice(list(states))).session_id
                state = client.latest(session_id=session).execution_state
            id_ = client.save("a", execution_state=state, context={"raw": b"\0" * 5000}, session_id=session)
            states[id_] = repr(state)
        buried = {id_: client.get(id_) for id_ in [*list(states)[:7], *list(states)[30:60:3]]}
        for id_ in buried:
            client.expire(id_)
        client.gc()
        expired = list(states)[10]
        client.expire(expired)
        for id_ in (*buried, expired):
            with pytest.raises(CheckpointExpiredError):
                client.restore(id_)
    with pytest.raises(AssertionError, match="tombstone"):
        read_store.restore(path, expired)
    for id_, entry in buried.items():
        parent = uuid.UUID(entry.parent_id).bytes if entry.parent_id else None
        with contextlib.closing(sqlite3.connect(path)) as store:
            session, sequence, of, when, why = read_store.grave(store, uuid.UUID(id_).bytes)
        assert (session, sequence, of, why) == (entry.session_id, entry.sequence, parent, "expired by hand")
        assert abs(when - entry.created_at.timestamp() * 1000) < 600_000
        with pytest.raises(AssertionError, match=r"its grave: .*expired by hand"):
            read_store.restore(path, id_)
    with pytest.raises(AssertionError, match="its grave: None"):
        read_store.restore(path, str(uuid.uuid4()))
    for id_ in (*buried, expired):
        del states[id_]
    for id_, expected in states.items():
        _, state, context = read_store.restore(path, id_)
        assert (repr(state), context) == (expected, {"raw": b"\0" * 5000})


def test_the_script_prints_a_checkpoint(path):
    with SyncClient.sqlite(path) as client:
        id_ = client.save("writer", execution_state={"draft": 1})
    done = subprocess.run(
        [sys.executable, DOCS / "read_store.py", path, id_], capture_output=True, text=True, timeout=240, check=True
    )
    assert "{'draft': 1}" in done.stdout


def test_the_example_is_what_the_library_writes():
    text = format_example.DOCUMENT.read_text("utf-8")
    assert text == format_example.written(text), "run `python tests/support/format_example.py`"


def test_every_code_is_in_the_table():
    codes = {
        value for name, value in vars(ext_codes).items() if name.isupper() and isinstance(value, int) and value < 100
    }
    codes.discard(ext_codes.PACK_OPTIONS)
    text = format_example.DOCUMENT.read_text("utf-8")
    table = {
        int(code)
        for line in text.splitlines()
        for code in line.split("|")[1:2]
        for code in code.split(",")
        if code.strip().isdigit()
    }
    assert table == codes


def test_the_columns_that_the_page_names_are_there(tmp_path):
    import sqlite3

    format_example.make_store(tmp_path / "store.db")
    database = sqlite3.connect(tmp_path / "store.db")
    for table, columns in {
        "session": "n id", "deleted": "n", "run": "k length data", "blob": "n hash written_at_us data",
        "row": "space key tree version value", "checkpoint": "session_id sequence step_name created_at",
    }.items():  # fmt: skip
        found = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
        assert found == set(columns.split()) if table != "checkpoint" else found > set(columns.split())
    assert database.execute("PRAGMA application_id").fetchone() == (0x686F6C64,)
    assert database.execute("PRAGMA user_version").fetchone() == (6,)
    database.close()
