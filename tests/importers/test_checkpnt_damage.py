"""Rows that can't be read are named with their reason; all others are imported. Nothing of the source is touched."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest
from checkpnt_sources import Filler

from holdfast import CheckpointNotFoundError, HoldfastError, UsageError


@pytest.fixture
def five(source):
    """A source of five rows in one session."""

    async def fill(their: Filler) -> None:
        for n in range(5):
            await their.save("s", {"n": n, "text": "x" * 3000}, step_index=n)

    source.fill(fill)
    return source


def check_that_the_rest_is_imported(client, source, report, reason: str, rows=(3,)) -> None:
    assert [remark.where for remark in report.skipped] == [f"row {row}" for row in rows]
    for remark in report.skipped:
        assert reason in remark.message
    assert report.imported == 5 - len(rows)
    for row, (id_, state) in enumerate(source.states.items(), 1):
        if row not in rows:
            assert client.restore(id_).execution_state == state


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("payload = x'c1'", "MessagePack"),
        ("payload = x''", "MessagePack"),
        ("payload = substr(payload, 1, 200)", "MessagePack"),
        ("payload = x'93010203'", "not a map"),
        ("payload = x'80'", "has no framework"),
        ("payload = 'text'", "not bytes"),
        ("checkpoint_id = NULL", "checkpoint_id is None"),
        ("checkpoint_id = 'other'", "another checkpoint"),
        ("session_id = x'00'", "session_id is b'"),
        ("agent_id = CAST(zeroblob(70000) AS TEXT)", "70000 characters"),
        ("created_at_ms = 'noon'", "created_at_ms is 'noon'"),
        ("parent_id = x'01'", "parent_id is b'"),
        ("expires_at_ms = 'never'", "expires_at_ms is 'never'"),
    ],
)
def test_a_row_that_can_not_be_read_is_named_with_its_reason(quick, five, change, reason):
    five.change(f"UPDATE checkpoints SET {change} WHERE rowid = 3")
    check_that_the_rest_is_imported(quick, five, quick.import_checkpnt(five.path), reason)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"schema_version": "2.0"}, "schema_version is '2.0'"),
        ({"created_at": "noon"}, "created_at is 'noon'"),
        ({"created_at": None}, "created_at is None"),
        ({"metadata": [1]}, "metadata"),
    ],
)
def test_a_payload_that_is_no_whole_checkpoint_is_named_with_its_reason(quick, five, changed, reason):
    five.change_payload([*five.states][2], lambda payload: payload.update(changed))
    check_that_the_rest_is_imported(quick, five, quick.import_checkpnt(five.path), reason)


def test_a_swapped_payload_is_found(quick, five):
    ids = [*five.states]
    connection = sqlite3.connect(five.path)
    payloads = dict(connection.execute("SELECT checkpoint_id, payload FROM checkpoints"))
    connection.close()
    for row, payload in ((ids[1], payloads[ids[3]]), (ids[3], payloads[ids[1]])):
        five.change("UPDATE checkpoints SET payload = ? WHERE checkpoint_id = ?", payload, row)
    check_that_the_rest_is_imported(quick, five, quick.import_checkpnt(five.path), "another checkpoint", rows=(2, 4))


@pytest.mark.parametrize(
    ("changed", "warning"),
    [
        ({"framework": "mine"}, "framework"),
        ({"step_index": -1}, "step_index"),
        ({"ttl_seconds": 1e15}, "ttl_seconds"),
        ({"step_name": 7}, "step_name"),
    ],
)
def test_a_value_that_is_not_allowed_here_goes_to_the_metadata(quick, five, changed, warning):
    id_ = [*five.states][2]
    five.change_payload(id_, lambda payload: payload.update(changed))
    report = quick.import_checkpnt(five.path)
    assert (report.imported, report.skipped) == (5, ())
    [remark] = report.warnings
    assert (remark.where, remark.checkpoint_id) == ("row 3", id_)
    assert warning in remark.message
    assert quick.get(id_).metadata == {f"checkpnt_{name}": value for name, value in changed.items()}


def test_a_state_that_was_changed_is_imported_and_marked(quick, five):
    id_ = [*five.states][2]
    five.change_payload(id_, lambda payload: payload["execution_state"].update(n="changed"))
    report = quick.import_checkpnt(five.path)
    assert (report.imported, report.recovered, [remark.where for remark in report.warnings]) == (5, 1, ["row 3"])
    assert quick.get(id_).metadata == {"checkpnt_checksum": "mismatch"}
    assert quick.restore(id_).execution_state["n"] == "changed"


def test_columns_that_contradict_the_payload_are_reported(quick, five):
    five.change("UPDATE checkpoints SET session_id = 'moved' WHERE rowid = 3")
    report = quick.import_checkpnt(five.path)
    [remark] = report.warnings
    assert "'moved'" in remark.message
    assert quick.get([*five.states][2]).session_id == "moved"


def test_text_that_is_no_utf8_is_kept(quick, five):
    five.change(
        "UPDATE checkpoints SET step_name = CAST(x'ff' AS TEXT), agent_id = CAST(x'61ff' AS TEXT) WHERE rowid = 3"
    )
    report = quick.import_checkpnt(five.path)
    assert report.imported == 5
    assert quick.get([*five.states][2]).agent_id == "a\udcff"


def test_a_damaged_page_costs_only_the_rows_on_it(quick, source):
    async def fill(their: Filler) -> None:
        for n in range(200):
            await their.save("s", {"n": n, "text": "x" * 300}, step_index=n)

    source.fill(fill)
    size = 4096
    pages = source.path.stat().st_size // size
    with source.path.open("r+b") as file:
        file.seek(pages // 2 * size)
        file.write(b"\xff" * size)
    report = quick.import_checkpnt(source.path)
    assert report.skipped
    assert 150 < report.imported < 200
    for entry in quick.timeline(session_id="s", limit=None):
        assert quick.restore(entry.checkpoint_id).execution_state == source.states[entry.checkpoint_id]


# -- sources that are no databases of checkpnt -------------------------------------------------------------------------


def test_a_file_that_is_not_there(quick, tmp_path):
    with pytest.raises(CheckpointNotFoundError, match="no such file"):
        quick.import_checkpnt(tmp_path / "nothing.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to be looked at" * 100])
def test_a_file_that_is_no_database(quick, tmp_path, content):
    (tmp_path / "text.db").write_bytes(content)
    with pytest.raises(UsageError, match="is no"):
        quick.import_checkpnt(tmp_path / "text.db")
    assert [file.name for file in tmp_path.iterdir()] == ["text.db"]


@pytest.mark.parametrize("schema", ["CREATE TABLE other (x)", "CREATE TABLE checkpoints (checkpoint_id, payload)"])
def test_a_database_of_another_program(quick, tmp_path, schema):
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute(schema)
    with pytest.raises(UsageError, match="no database of checkpnt"):
        quick.import_checkpnt(tmp_path / "other.db")


def test_a_database_in_the_middle_of_a_transaction_is_refused(quick, five):
    five.path.with_name(five.path.name + "-journal").write_bytes(b"x" * 600)
    with pytest.raises(HoldfastError, match="transaction"):
        quick.import_checkpnt(five.path)


# -- the source stays as it is -----------------------------------------------------------------------------------------


def test_a_closed_database_is_untouched(quick, five):
    before = five.fingerprint()
    quick.import_checkpnt(five.path)
    assert five.fingerprint() == before
    assert [*before] == ["checkpnt_local.db"]


@pytest.mark.parametrize("with_shm", [True, False])
def test_what_is_still_in_the_wal_of_a_killed_program_is_read_and_all_is_untouched(quick, five, with_shm, tmp_path):
    async def more(their: Filler) -> None:
        await their.save("s", {"n": "only in the wal"})
        names = [file.name for file in five.path.parent.iterdir()]
        assert "checkpnt_local.db-wal" in names
        shutil.copytree(five.path.parent, tmp_path / "copy")  # as it is while checkpnt has it open

    five.fill(more)
    five.path = tmp_path / "copy" / five.path.name
    if not with_shm:
        os.remove(f"{five.path}-shm")  # noqa: PTH107 - a path with an ending
    before = five.fingerprint()
    assert quick.import_checkpnt(five.path).imported == 6
    assert five.fingerprint() == before
    assert quick.latest(session_id="s").execution_state == {"n": "only in the wal"}


def test_a_database_that_another_process_has_open_is_untouched(quick, five):
    code = f"""
import sqlite3, sys
connection = sqlite3.connect({str(five.path)!r})
connection.execute("PRAGMA wal_autocheckpoint=0")
connection.execute("DELETE FROM checkpoints WHERE step_index = 4")
connection.commit()
print("ready", flush=True)
sys.stdin.read()
connection.execute("SELECT count(*) FROM checkpoints").fetchone()
"""
    writer = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "ready\n"
    before = five.fingerprint()
    assert quick.import_checkpnt(five.path).imported == 4
    assert five.fingerprint() == before
    writer.communicate("", timeout=240)
    assert writer.returncode == 0


def test_a_read_only_directory_will_do(quick, five):
    five.path.chmod(0o400)
    five.path.parent.chmod(0o500)
    try:
        assert quick.import_checkpnt(five.path).imported == 5
    finally:
        five.path.parent.chmod(0o700)
