"""The history of delta channels: the ten cases that LangGraph's suite will have, and what pruning leaves of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph_savers import checkpoint, config, saver_on
from stores import Store

from holdfast.langgraph import HoldfastSaver


@pytest.fixture
def saver(store: Store) -> HoldfastSaver:
    return saver_on(store)


def chain(saver: HoldfastSaver, *steps: tuple[dict[str, Any], list[tuple[str, Any]]]) -> list[Any]:
    """Checkpoints one after the other, each with its channels and the writes that follow it; their configs."""
    where, made = config(), []
    for number, (values, writes) in enumerate(steps):
        about: Any = {"source": "loop", "step": number, "counters_since_delta_snapshot": {"ch": [number, number]}}
        where = saver.put(where, checkpoint(f"{number:04}", **values), about, {})
        if writes:
            saver.put_writes(where, writes, f"task-{number}")
        made.append(where)
    return made


def history(saver: HoldfastSaver, where: Any, *channels: str) -> Any:
    found = saver.get_delta_channel_history(config=where, channels=channels)
    assert asyncio.run(saver.aget_delta_channel_history(config=where, channels=channels)) == found
    return found


def written(entry: Any) -> list[Any]:
    return [value for _, _, value in entry["writes"]]


def test_writes_are_oldest_first(saver: HoldfastSaver) -> None:
    made = chain(saver, ({}, [("ch", 1)]), ({}, [("ch", 2), ("ch", 3)]), ({}, []))
    assert written(history(saver, made[2], "ch")["ch"]) == [1, 2, 3]


def test_the_seed_is_the_nearest_snapshot(saver: HoldfastSaver) -> None:
    made = chain(
        saver,
        ({"ch": _DeltaSnapshot(["far"])}, [("ch", 1)]),
        ({"ch": _DeltaSnapshot(["near"])}, [("ch", 2)]),
        ({}, [("ch", 3)]),
        ({}, []),
    )
    found = history(saver, made[3], "ch")["ch"]
    assert found["seed"] == _DeltaSnapshot(["near"])
    assert type(found["seed"]) is _DeltaSnapshot
    assert written(found) == [2, 3]


def test_the_targets_own_writes_are_left_out(saver: HoldfastSaver) -> None:
    made = chain(saver, ({}, [("ch", 1)]), ({}, [("ch", "pending")]))
    assert written(history(saver, made[1], "ch")["ch"]) == [1]


def test_several_channels_in_one_walk(saver: HoldfastSaver) -> None:
    made = chain(saver, ({"b": 0}, [("a", 1), ("b", 2)]), ({"a": 9}, [("b", 3), ("a", 4)]), ({}, []))
    found = history(saver, made[2], "a", "b")
    assert (found["a"]["seed"], written(found["a"])) == (9, [4])
    assert (found["b"]["seed"], written(found["b"])) == (0, [2, 3])


def test_no_channels_give_nothing(saver: HoldfastSaver) -> None:
    made = chain(saver, ({}, [("ch", 1)]), ({}, []))
    assert history(saver, made[1]) == {}


def test_without_a_snapshot_the_walk_ends_at_the_root(saver: HoldfastSaver) -> None:
    made = chain(saver, ({}, [("ch", 1)]), ({}, []))
    assert "seed" not in history(saver, made[1], "ch")["ch"]
    assert history(saver, config("nobody"), "ch") == {"ch": {"writes": []}}


def test_a_plain_value_is_a_seed(saver: HoldfastSaver) -> None:
    made = chain(saver, ({"ch": ["plain"]}, []), ({}, [("ch", 1)]), ({}, []))
    found = history(saver, made[2], "ch")["ch"]
    assert (found["seed"], written(found)) == (["plain"], [1])


def test_the_writes_of_the_seeds_own_checkpoint_are_replayed(saver: HoldfastSaver) -> None:
    made = chain(saver, ({"ch": [0]}, [("ch", 1)]), ({}, []))
    found = history(saver, made[1], "ch")["ch"]
    assert (found["seed"], written(found)) == ([0], [1])


@pytest.mark.parametrize("path", ["~pull, 01", ""])
def test_writes_of_parallel_tasks_are_in_the_order_of_their_paths(saver: HoldfastSaver, path: str) -> None:
    """Not in that of the tasks' ids, nor of their arrival; what the graph was given has no path, and is first."""
    made = chain(saver, ({"ch": _DeltaSnapshot([])}, []), ({}, []), ({}, []))
    saver.put_writes(made[1], [("ch", "second")], "00000000-0000-0000-0000-000000000000", "~pull, 02")
    saver.put_writes(made[1], [("ch", "first")], "ffffffff-ffff-ffff-ffff-ffffffffffff", path)
    assert written(history(saver, made[2], "ch")["ch"]) == ["first", "second"]


def test_only_ancestors_count(saver: HoldfastSaver) -> None:
    made = chain(saver, ({}, [("ch", "root")]), ({}, [("ch", "left")]))
    right = saver.put(made[0], checkpoint("0009"), {"source": "fork", "step": 1}, {})
    assert written(history(saver, right, "ch")["ch"]) == ["root"]


def test_pruning_keeps_what_a_delta_channel_is_made_from(saver: HoldfastSaver) -> None:
    made = chain(
        saver, ({}, [("ch", 0)]), ({"ch": _DeltaSnapshot([0])}, [("ch", 1)]), ({}, [("ch", 2)]), ({}, [("ch", 3)])
    )
    before = history(saver, made[3], "ch")
    saver.prune(["t"], strategy="keep_latest")
    assert [found.checkpoint["id"] for found in saver.list(config())] == ["0003", "0002", "0001"]
    assert history(saver, made[3], "ch") == before
