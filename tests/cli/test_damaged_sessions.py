"""One damaged checkpoint hides no other: the command line lists what is intact, says what is not, and exits with 5."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import CorruptError, SyncClient
from holdfast.model.ids import short

COUNT = 5


@pytest.fixture
def saved(tmp_path: Path) -> list[str]:
    """The ids of a session's checkpoints, from the first to the last; a fork of the second goes another way."""
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        ids = [client.save("a", session_id="s", execution_state={"n": n}, step_name=f"n{n}") for n in range(COUNT)]
        client.fork(ids[1], session_id="fork")
    return ids


def change(tmp_path: Path, statement: str, id_: str) -> None:
    with closing(sqlite3.connect(tmp_path / ".holdfast" / "store.db")) as connection:
        connection.create_function("flipped", 1, lambda data: bytes((*data[:-9], data[-9] ^ 1, *data[-8:])))
        assert connection.execute(statement, (bytes.fromhex(id_.replace("-", "")),)).rowcount == 1
        connection.commit()


def damage(tmp_path: Path, id_: str) -> None:
    change(tmp_path, "UPDATE record SET data = flipped(data) WHERE id = ?", id_)


@pytest.mark.parametrize("number", range(COUNT))
def test_the_others_are_listed_and_it_is_marked(run, saved: list[str], tmp_path: Path, number: int):
    damage(tmp_path, saved[number])
    result = run("timeline", "s")
    assert result.exit_code == 5
    lines = result.stdout.splitlines()[1:]
    assert [line for line in lines if "damaged" in line] == [lines[COUNT - 1 - number]]
    for id_, line in zip(saved, reversed(lines), strict=True):
        assert short(id_) in line
        assert "after" not in line
    assert "head" in lines[0]
    assert f"checkpoint {saved[number]}, number {number + 1} of session s:" in result.stderr
    assert "can be restored by their ids" in result.stderr
    for id_ in saved:
        assert run("show", id_).exit_code == (5 if id_ == saved[number] else 0)


def test_as_json(run, saved: list[str], tmp_path: Path):
    assert json.loads(run("timeline", "s", "--json").stdout)["damaged"] == []
    damage(tmp_path, saved[2])
    result = run("timeline", "s", "--json")
    assert result.exit_code == 5
    told = json.loads(result.stdout)
    assert [one["checkpoint_id"] for one in told["checkpoints"]] == [saved[4], saved[3], saved[1], saved[0]]
    [one] = told["damaged"]
    assert (one["checkpoint_id"], one["session_id"], one["sequence"]) == (saved[2], "s", 3)
    assert "CRC" in one["message"]


def test_disk_usage_is_that_of_the_others(run, saved: list[str], tmp_path: Path):
    whole = json.loads(run("du", "--json").stdout)
    damage(tmp_path, saved[2])
    result = run("du", "--json")
    assert result.exit_code == 5
    told = json.loads(result.stdout)
    assert [one["checkpoint_id"] for one in told["damaged"]] == [saved[2]]
    assert told["total_bytes"] == whole["total_bytes"] == sum(told["parts"].values())
    checkpoints = {one["session_id"]: one["checkpoints"] for one in told["sessions"]}
    assert checkpoints == {"s": COUNT - 1, "fork": 1}
    shown = run("du")
    assert shown.exit_code == 5
    assert f"checkpoint {saved[2]}, number 3 of session s:" in shown.stderr
    assert "would free" not in shown.stderr
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client, pytest.raises(CorruptError):
        client.du()  # a program gets no figures with holes


@pytest.mark.parametrize("number", range(COUNT))
def test_as_a_drawing(run, saved: list[str], tmp_path: Path, number: int):
    damage(tmp_path, saved[number])
    result = run("timeline", "s", "--graph")
    assert result.exit_code == 5
    assert all((short(id_) in result.stdout) == (id_ != saved[number]) for id_ in saved)
    assert "head of fork" in result.stdout
    assert f"checkpoint {saved[number]}, number {number + 1}" in result.stderr
    told = json.loads(run("timeline", "s", "--graph", "--json").stdout)
    assert [one["checkpoint_id"] for one in told["damaged"]] == [saved[number]]
    assert told["heads"]["s"] == saved[-1]


def test_one_that_is_gone_is_told_by_its_number(run, saved: list[str], tmp_path: Path):
    change(tmp_path, "DELETE FROM record WHERE id = ?", saved[2])
    result = run("timeline", "s")
    assert result.exit_code == 5
    assert [short(id_) in result.stdout for id_ in saved] == [True, True, False, True, True]
    assert "missing, number 3" in result.stdout
    assert "number 3 of session s: it is missing" in result.stderr


def test_a_number_and_an_agent_choose_among_what_is_intact(run, saved: list[str], tmp_path: Path):
    damage(tmp_path, saved[3])
    told = json.loads(run("timeline", "s", "-n", "2", "--json").stdout)
    assert [one["checkpoint_id"] for one in told["checkpoints"]] == [saved[4], saved[2]]
    assert json.loads(run("timeline", "s", "--agent", "b", "--json").stdout)["checkpoints"] == []
    assert run("timeline", "s", "-n", "1").exit_code == 0  # nothing of what was asked for is damaged


def test_a_library_is_given_no_list_with_holes(saved: list[str], tmp_path: Path):
    damage(tmp_path, saved[2])
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        with pytest.raises(CorruptError):
            client.timeline(session_id="s")
        with pytest.raises(CorruptError):
            client.tree("s")


@pytest.mark.parametrize(("ref", "number"), [("s@", 4), ("s@~1", 3), ("s@-", 3), ("s@{3}", 3), ("s@{n4}", 4)])
def test_what_is_newer_than_the_damage_is_found_by_its_place(run, saved: list[str], tmp_path: Path, ref, number):
    damage(tmp_path, saved[2])
    assert json.loads(run("show", ref, "--json").stdout)["checkpoint_id"] == saved[number]


@pytest.mark.parametrize("ref", ["s@~2", "s@~3", "s@{1}", "s@{n0}", "s@{2000-01-01}"])
def test_a_place_beyond_the_damage_is_refused_with_a_way_around_it(run, saved: list[str], tmp_path: Path, ref):
    damage(tmp_path, saved[2])
    result = run("show", ref)
    assert result.exit_code == 5
    assert saved[2] in result.stderr
    assert "followed for 2 checkpoints" in result.stderr
    assert "by its id: `holdfast timeline` lists those that are intact" in result.stderr
