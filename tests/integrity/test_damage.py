"""Damage larger than a byte (R12): swapped, moved, deleted and truncated parts. `verify` names what is concerned, the
rest stays readable, and a wrong value is never returned.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from examples import examples
from small_store import EXPIRED, SmallStore, build, folder_in_memory

from holdfast.errors import CorruptError, HoldfastError

WITH_THE_LONG_LIST = {"long", "longer", "fork", "branch", "handoff"}


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_in_memory() as made:
        yield made


def sql(store: SmallStore, statement: str, *values: object) -> list[tuple]:
    connection = sqlite3.connect(store.path, isolation_level=None)
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def record_id(store: SmallStore, name: str) -> bytes:
    return bytes.fromhex(store.knowledge.ids[name].replace("-", ""))


def record_files(store: SmallStore, name: str) -> list[Path]:
    """Both names of a record's file."""
    [by_id] = (store.path / "records").rglob(f"{record_id(store, name).hex()}.record")
    number = by_id.stat().st_ino
    return [by_id, *(path for path in (store.path / "sessions").rglob("*.record") if path.stat().st_ino == number)]


def swap_contents(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


# -- the damages: each does it, for each backend -----------------------------------------------------------------------


def swap_records(store: SmallStore) -> None:
    if store.kind == "sqlite":
        one, other = record_id(store, "plan"), record_id(store, "after")
        [(first,)] = sql(store, "SELECT data FROM record WHERE id = ?", one)
        [(second,)] = sql(store, "SELECT data FROM record WHERE id = ?", other)
        sql(store, "UPDATE record SET data = ? WHERE id = ?", second, one)
        sql(store, "UPDATE record SET data = ? WHERE id = ?", first, other)
    else:
        swap_contents(record_files(store, "plan")[0], record_files(store, "after")[0])


def _sealed_and_another_run(store: SmallStore) -> tuple:
    if store.kind == "sqlite":
        first, *_, last = sql(store, "SELECT k, length, data FROM run ORDER BY length DESC, k")
        return first, last
    runs = sorted((store.path / "logs").rglob("*.run"), key=lambda run: -int(run.stem.partition("-")[2]))
    return runs[0], runs[-1]


def swap_runs(store: SmallStore) -> None:
    one, other = _sealed_and_another_run(store)
    if store.kind == "sqlite":
        sql(store, "UPDATE run SET data = ? WHERE k = ?", other[2], one[0])
        sql(store, "UPDATE run SET data = ? WHERE k = ?", one[2], other[0])
    else:
        swap_contents(one, other)


def delete_run(store: SmallStore) -> None:
    run, _ = _sealed_and_another_run(store)
    if store.kind == "sqlite":
        sql(store, "DELETE FROM run WHERE k = ?", run[0])
    else:
        run.unlink()


def misplace_run(store: SmallStore) -> None:
    """The last run of the long list says that it is in the middle of what another one holds."""
    if store.kind == "sqlite":
        [(key,)] = sql(store, "SELECT k FROM run WHERE k & 0xFFFFFFF = 12")
        sql(store, "UPDATE run SET k = ? WHERE k = ?", key - 4, key)
    else:
        [run] = (run for run in (store.path / "logs").rglob("*.run") if int(run.stem.partition("-")[0]) == 12)
        run.rename(run.with_name(run.name.replace("12-", "08-", 1)))


def delete_blobs(store: SmallStore) -> None:
    if store.kind == "sqlite":
        assert sql(store, "SELECT count(*) FROM blob") == [(2,)]
        sql(store, "DELETE FROM blob")
    else:
        blobs = [file for file in (store.path / "blobs").rglob("*") if file.is_file()]
        assert len(blobs) == 2
        for blob in blobs:
            blob.unlink()


def swap_blobs(store: SmallStore) -> None:
    if store.kind == "sqlite":
        [(one, first), (other, second)] = sql(store, "SELECT hash, data FROM blob")
        sql(store, "UPDATE blob SET data = ? WHERE hash = ?", second, one)
        sql(store, "UPDATE blob SET data = ? WHERE hash = ?", first, other)
    else:
        swap_contents(*(file for file in (store.path / "blobs").rglob("*") if file.is_file()))


def delete_record(store: SmallStore) -> None:
    if store.kind == "sqlite":
        sql(store, "DELETE FROM record WHERE id = ?", record_id(store, "branch"))
    else:
        for file in record_files(store, "branch"):
            file.unlink()


def truncate_record(store: SmallStore) -> None:
    if store.kind == "sqlite":
        sql(store, "UPDATE record SET data = substr(data, 1, 100) WHERE id = ?", record_id(store, "tasks"))
    else:
        file = record_files(store, "tasks")[0]
        file.write_bytes(file.read_bytes()[:-40])


def damage_tombstone(store: SmallStore) -> None:
    """What stands in an expired checkpoint's place must not turn into something that can be restored."""
    if store.kind == "sqlite":
        expired = record_id(store, "expired")
        [(data,)] = sql(store, "SELECT data FROM record WHERE id = ?", expired)
        sql(store, "UPDATE record SET data = ? WHERE id = ?", b"HF\x00" + data[3:], expired)
    else:
        file = record_files(store, "expired")[0]
        file.write_bytes(file.read_bytes().replace(b"HF\x01", b"HF\x00"))


@pytest.mark.parametrize(
    ("damage", "concerned"),
    [
        (swap_records, {"plan", "after"}),
        (swap_runs, WITH_THE_LONG_LIST),
        (delete_run, WITH_THE_LONG_LIST),
        (misplace_run, {"longer", "handoff"}),
        (delete_blobs, {"long", "fork"}),
        (swap_blobs, {"long", "fork"}),
        (truncate_record, {"tasks"}),
        (damage_tombstone, {"expired"}),
    ],
)
@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_damage_is_named_and_the_rest_stays_readable(
    kind: str, damage: Callable[[SmallStore], None], concerned: set[str], folder: Path
):
    store = build(kind, folder, dense=False)
    damage(store)
    found, _ = store.contradictions()
    assert not found
    ids = store.knowledge.ids
    with store.client() as client:
        for name, id_ in ids.items():
            if name in {*concerned, *EXPIRED}:
                with pytest.raises(HoldfastError):
                    client.restore(id_)
            else:
                assert client.restore(id_).checkpoint_id == id_
        assert client.verify().affected == {ids[name] for name in concerned}
        saved = client.save("new", execution_state={"goes": "on"}, session_id="another")
        assert client.restore(saved).execution_state == {"goes": "on"}


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_a_deleted_record_that_a_session_stands_at_is_named(kind: str, folder: Path):
    """Nobody knows what a record was that is gone. The head that points to it does."""
    store = build(kind, folder, dense=False)
    delete_record(store)
    with store.client() as client:
        with pytest.raises(HoldfastError):
            client.restore(store.knowledge.ids["branch"])
        assert any("side" in problem.message for problem in client.verify().problems)
        assert client.restore(store.knowledge.ids["fork"]).session_id == "side"


def lose_graves(store: SmallStore) -> None:
    if store.kind == "sqlite":
        sql(store, "DELETE FROM row WHERE space = 'graves'")
    else:
        for file in (store.path / "rows" / "graves").rglob("*.row"):
            file.unlink()


def damage_graves(store: SmallStore) -> None:
    if store.kind == "sqlite":
        [(key, value), *_] = sql(store, "SELECT key, value FROM row WHERE space = 'graves' ORDER BY length(value) DESC")
        sql(store, "UPDATE row SET value = ? WHERE key = ?", value[:-9] + bytes([value[-9] ^ 4]) + value[-8:], key)
    else:
        file = max((store.path / "rows" / "graves").rglob("*.row"), key=lambda file: file.stat().st_size)
        value = file.read_bytes()
        file.write_bytes(value[:-9] + bytes([value[-9] ^ 4]) + value[-8:])


@pytest.mark.parametrize("damage", [lose_graves, damage_graves])
@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_lost_or_damaged_graves_are_noticed_and_what_lives_stays_readable(
    kind: str, damage: Callable[[SmallStore], None], folder: Path
):
    store = build(kind, folder, dense=False)
    damage(store)
    found, _ = store.contradictions()
    assert not found
    with store.client() as client:
        problems = client.verify().problems
        assert any("1 of the 7 checkpoints of session 'main' are missing" in problem.message for problem in problems)
        with pytest.raises(CorruptError):
            client.timeline(session_id="main")
        with pytest.raises(HoldfastError):
            client.restore(store.knowledge.ids["buried"])
        for name in set(store.knowledge.ids) - {*EXPIRED}:
            assert client.restore(store.knowledge.ids[name])


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_a_record_moved_to_another_session_is_named(kind: str, folder: Path):
    """It still restores, as what it is; no timeline shows it as what it is not."""
    store = build(kind, folder, dense=False)
    moved = store.knowledge.ids["after"]
    if kind == "sqlite":
        sql(
            store,
            "UPDATE record SET session = (SELECT n FROM session WHERE id = ?), sequence = 99 WHERE id = ?",
            b"side",
            record_id(store, "after"),
        )
    else:
        _, in_session = record_files(store, "after")
        in_session.rename(store.path / "sessions" / "side" / "0000000099.record")
    with store.client() as client:
        with contextlib.suppress(HoldfastError):
            assert client.restore(moved).session_id == "main"
        with pytest.raises(HoldfastError):
            client.timeline(session_id="side")
        assert moved in {problem.checkpoint_id for problem in client.verify().problems}
        for name in set(store.knowledge.ids) - {"after", *EXPIRED}:
            assert client.restore(store.knowledge.ids[name])


@pytest.mark.parametrize("kind", ["sqlite", "files"])
@pytest.mark.slow
def test_a_truncated_file_is_never_taken_for_whole(kind: str, folder: Path):
    """Every file at several lengths: the rest of a full disk, or of an interrupted copy."""
    store = build(kind, folder, dense=False)
    for file in store.files():
        intact = file.read_bytes()
        for length in sorted({0, 1, len(intact) // 3, len(intact) // 2, len(intact) - 1, *range(0, len(intact), 4096)}):
            with file.open("r+b") as opened:
                opened.truncate(length)
            found, _ = store.contradictions()
            if length:  # an empty SQLite file is a new store: nothing is in it, which is an answer
                assert not found, f"{file.relative_to(folder)} cut to {length}: {found}"
            with file.open("r+b") as opened:
                opened.write(intact)
                opened.truncate()
            for beside in ("-wal", "-shm", "-journal"):
                file.with_name(file.name + beside).unlink(missing_ok=True)
    assert store.contradictions() == ([], len(EXPIRED))


def test_a_lost_sector_is_never_taken_for_data(folder: Path):
    """512 bytes of the SQLite file are zero, or those of another place: what a broken disk leaves.
    `make test` loses each of them in turn."""
    store = build("sqlite", folder, dense=True)
    intact = store.path.read_bytes()
    sectors = [intact[at : at + 512] for at in range(0, len(intact), 512)]
    for number in range(0, len(sectors), len(sectors) // examples(len(sectors), least=1)):
        for lost in (bytes(512), sectors[(number + 7) % len(sectors)]):
            store.path.write_bytes(b"".join([*sectors[:number], lost, *sectors[number + 1 :]]))
            found, _ = store.contradictions()
            assert not found, f"sector {number}: {found}"
            for beside in ("-wal", "-shm", "-journal"):
                store.path.with_name(store.path.name + beside).unlink(missing_ok=True)
