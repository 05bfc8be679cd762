"""A conversation of many turns, taken by every saver in turn: bytes, puts, and what reading it takes at its end."""

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.langgraph.graphs import CONFIG, contents, take_turn
from benchmarks.langgraph.savers import ON_FILES, ON_POSTGRES, Contender
from benchmarks.measure import Samples, milliseconds, settle, shuffled

PUTS_PER_TURN = 3
LAST_TURNS = 20
HISTORY = 20
READS = 5
CURVE_POINTS = 60


def run(turns: int, stores: Path, new_database: Callable[[str], str] | None) -> dict[str, Any]:
    contenders = _opened(turns, stores, new_database)
    spent = dict.fromkeys((one.key for one in contenders), 0.0)
    order = random.Random(7)
    try:
        for turn in range(turns):
            for one in shuffled(contenders, order):
                began = time.perf_counter()
                take_turn(one.graph, turn, turns)
                spent[one.key] += time.perf_counter() - began
            if turn % 100 == 99:
                print(f"{'':>10}  turn {turn + 1:,}: {sum(spent.values()):.0f} s", flush=True)
        reads = _read(contenders, order)
        figures = {
            one.key: {
                "title": one.title,
                "store": one.store,
                "durability": one.durability(),
                "put_at_end": one.puts.last(LAST_TURNS * PUTS_PER_TURN).summary(),
                "put_curve": _curve(one.puts),
                "turns_s": round(spent[one.key], 2),
                **reads[one.key],
            }
            for one in contenders
        }
    finally:
        for one in contenders:
            one.close()
    for one in contenders:
        figures[one.key]["bytes"] = one.bytes_on_disk()
    return figures


def _opened(turns: int, stores: Path, new_database: Callable[[str], str] | None) -> list[Contender]:
    opened: list[Contender] = []
    for kind in ON_FILES:
        directory = stores / kind.key
        directory.mkdir(parents=True)
        opened.append(kind(directory, turns))
    if new_database is not None:
        opened += [kind(new_database(kind.key), turns) for kind in ON_POSTGRES]
    return opened


def _read(contenders: list[Contender], order: random.Random) -> dict[str, dict[str, Any]]:
    """What reading takes; and whoever gives back something else than the others is no contender."""
    latest = {one.key: Samples() for one in contenders}
    history = {one.key: Samples() for one in contenders}
    seen: set[str] = set()
    for _ in range(READS):
        for one in shuffled(contenders, order):
            settle()
            done = latest[one.key].start()
            state = one.graph.get_state(CONFIG)
            done()
            seen.add(repr(contents(state)))
            settle()
            done = history[one.key].start()
            states = list(one.graph.get_state_history(CONFIG, limit=HISTORY))
            done()
            seen.add(repr(contents(states[0])))
            assert len(states) == min(HISTORY, PUTS_PER_TURN * len(state.values["messages"]) // 2)
    if len(seen) != 1:
        raise AssertionError("the savers don't agree about the conversation")
    return {
        one.key: {"get_state": latest[one.key].summary(), "history_of_20": history[one.key].summary()}
        for one in contenders
    }


def _curve(puts: Samples) -> list[tuple[int, float]]:
    """Turn and median milliseconds of the puts around it."""
    turns = len(puts.wall) // PUTS_PER_TURN
    step = max(1, turns // CURVE_POINTS)
    points = []
    for turn in range(0, turns - step + 1, step):
        around = puts.wall[PUTS_PER_TURN * turn : PUTS_PER_TURN * (turn + step)]
        points.append((turn + step, milliseconds(statistics.median(around))))
    return points
