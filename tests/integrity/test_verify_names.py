"""verify names what is damaged, each thing once, with the checkpoints that can't be restored exactly, and no others."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import HoldfastError, SyncClient

WORDS = [str(number) for number in range(900)]
SPACES = ("head", "session", "pin", "tag", "operation")


def text(seed: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=150))


def opened(kind: str, where: Path) -> SyncClient:
    return SyncClient.sqlite(where / "store.db") if kind == "sqlite" else SyncClient.files(where / "store")


@pytest.fixture(scope="module", params=["sqlite", "files"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, list[str]]:
    """A store with two sessions, a fork, files, a pin and a tag; its kind, place and checkpoints."""
    where = tmp_path_factory.mktemp(request.param)
    project = where / "project"
    project.mkdir()
    made = []
    with opened(request.param, where) as client:
        messages: list[str] = []
        for step in range(8):
            messages += [text(step * 10 + number) for number in range(4)]
            (project / "same.txt").write_text(text(1))
            (project / f"{step}.txt").write_text(text(500 + step))
            state = {"m": messages, "big": text(1000 + step // 3) * 30, "x": [text(2000 + step)]}
            made.append(client.save("a", session_id="s", execution_state=state, workspace=project))
        made.append(client.save("a", session_id="other", execution_state={"m": [text(7000 + n) for n in range(20)]}))
        made.append(client.fork(made[3], "fork").checkpoint_id)
        made.append(client.save("a", session_id="fork", execution_state={"m": [*messages[:16], text(99)]}))
        client.pin(made[2])
        client.tag("good", made[4])
    if request.param == "sqlite":
        with sqlite3.connect(where / "store.db") as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
    return request.param, where, made


def damages(kind: str, where: Path) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """What can be damaged: a name, and how."""
    if kind == "sqlite":
        database = sqlite3.connect(where / "store.db")
        for table, key, column in (("record", "n", "data"), ("run", "k", "data"), ("blob", "n", "data")):
            for (one,) in database.execute(f"SELECT {key} FROM {table}"):
                yield f"{table} {one}", lambda place, of=(table, key, column, one): flip_cell(place, *of)
        for space in SPACES:
            yield f"row {space}", lambda place, space=space: flip_cell(place, "row", "space", "value", space)
        database.close()
        return
    for file in sorted((where / "store").rglob("*")):
        path = file.relative_to(where)
        if file.is_file() and path.parts[1] in ("records", "logs", "blobs", "rows") and path.parts[2] != "logs":
            yield str(path), lambda place, path=path: flip_file(place / path)


def flip_cell(where: Path, table: str, key: str, column: str, one: object) -> None:
    with sqlite3.connect(where / "store.db") as database:
        [data] = database.execute(f"SELECT {column} FROM {table} WHERE {key} = ? LIMIT 1", (one,)).fetchone()
        flipped = bytes((*data[: len(data) // 2], data[len(data) // 2] ^ 0x55, *data[len(data) // 2 + 1 :]))
        database.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (flipped, data))
    database.close()


def flip_file(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x55
    file.chmod(0o600)
    file.write_bytes(data)


def unrestorable(client: SyncClient, where: Path, made: list[str]) -> set[str]:
    found = set()
    for id_ in made:
        try:
            if client.restore(id_).workspace is not None:
                workspace = client.workspace(where / "project")
                for entry in workspace.entries(id_):
                    if entry.kind == "file":
                        workspace.content(entry)
        except HoldfastError:
            found.add(id_)
    return found


@pytest.mark.slow
def test_each_damage_is_named_once_with_what_it_affects(original: tuple[str, Path, list[str]], tmp_path: Path) -> None:
    kind, where, made = original
    fork = made[9]  # whose files are those of what it was forked from
    every = list(damages(kind, where))
    assert len(every) > 30
    for number, (name, damage) in enumerate(every[:: 3 if kind == "files" else 2]):
        place = tmp_path / str(number)
        shutil.copytree(where, place)
        damage(place)
        with opened(kind, place) as client:
            report = client.verify()
            assert len(report.problems) == 1, (name, report.problems)
            assert report.affected - {fork} == unrestorable(client, place, made) - {fork}, (name, report.problems)
            assert "run `verify`" not in report.problems[0].message.lower()
        shutil.rmtree(place)


def test_the_child_of_a_damaged_record_is_whole(tmp_path: Path) -> None:
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        first, second = (client.save("a", session_id="s", execution_state={"n": number}) for number in range(2))
        client.pin(first)
    flip_cell(tmp_path, "record", "n", "data", 1)
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        report = client.verify()
        assert [problem.affected for problem in report.problems] == [(first,)]
        assert report.ended_chains == 1
        assert client.restore(second).execution_state == {"n": 1}


def test_a_damaged_parent_of_another_session_is_named_for_what_it_is(tmp_path: Path) -> None:
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        first = client.save("a", session_id="s", execution_state={"n": 1})
        client.save("a", session_id="t", parent_id=first, execution_state={"n": 2})
    flip_cell(tmp_path, "record", "n", "data", 1)
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        assert client.verify("t").affected == {first}
