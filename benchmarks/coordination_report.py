"""The page of `benchmarks.coordination`: its goals, and tables of all figures."""

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import pages
from benchmarks.goals import Goal, Verdict
from benchmarks.tables import number, table

STORES = ("sqlite", "postgres", "redis")
BATCHES = (1, 16)
STORE_GOALS: dict[str, list[tuple[str, tuple[str, ...], float, str]]] = {
    "sqlite": [
        ("a message alone over an insert with a commit", ("publish over a plain queue",), 2, "times"),
        ("wake-up, same client", ("wake-up p50 ms", "same client"), 1, "ms"),
        ("wake-up, another client", ("wake-up p50 ms", "another client"), 60, "ms"),
    ],
    "postgres": [
        ("a message alone over an insert with a commit", ("publish over a plain queue",), 5, "times"),
        ("longest of four publishers", ("processes", "longest publication ms"), 100, "ms"),
        ("wake-up, same client", ("wake-up p50 ms", "same client"), 1, "ms"),
        ("wake-up, another client", ("wake-up p50 ms", "another client"), 5, "ms"),
    ],
    "redis": [
        ("a message alone by `Client` over an awaited `XADD`", ("awaited publish over a plain queue",), 3, "times"),
        ("a message alone by `SyncClient` over `XADD`", ("publish over a plain queue",), 6, "times"),
        ("longest of four publishers", ("processes", "longest publication ms"), 100, "ms"),
        ("wake-up, same client", ("wake-up p50 ms", "same client"), 1, "ms"),
        ("wake-up, another client", ("wake-up p50 ms", "another client"), 5, "ms"),
    ],
}
ALL_GOALS = [
    ("a save with a message over the save", ("save and publish over save",), 1.3, "times"),
    ("commits per message, batch 1", ("commits per message", "batch 1"), 2.2, ""),
    ("commits per message, batch 16", ("commits per message", "batch 16"), 1.2, ""),
    ("idle: reads per second", ("idle", "reads per second"), 1, ""),
    ("idle: CPU", ("idle", "CPU %"), 0.2, "%"),
    ("first message of a quiet topic", ("quiet topic ms",), 10, "ms"),
]
LEAST_GOALS = [("four publishers to one topic over four savers", ("processes", "publishing over saving"), 0.8, "times")]


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    found = [
        Goal(f"{store}: {figure}", store, _figure(("stores", store, *path)), limit, unit=unit)
        for store in STORES
        for figure, path, limit, unit in (*ALL_GOALS, *STORE_GOALS[store])
    ]
    found += [
        Goal(f"{store}: {figure}", store, _figure(("stores", store, *path)), limit, at_least=True, unit=unit)
        for store in STORES
        for figure, path, limit, unit in LEAST_GOALS
    ]
    found += [
        Goal(f"files: wake-up, {who}", "sqlite", _figure(("files: wake-up p50 ms", who)), limit, unit="ms")
        for who, limit in (("same client", 1), ("another client", 60))
    ]
    over_streams = _figure(("stores", "redis", "consuming over a plain queue"))
    found += [
        Goal("redis: consuming over `XREADGROUP` and `XACK`", "redis", over_streams, 0.15, at_least=True),
        Goal("a contract's value of 0.4 KB", "sqlite", _figure(("validation_us", "0.4 KB")), 8, unit="µs"),
        Goal("a contract's value of 10 KB", "sqlite", _figure(("validation_us", "10 KB")), 250, unit="µs"),
    ]
    return [one.judge(results) for one in found]


def _figure(path: tuple[str, ...]) -> Callable[[dict[str, Any]], float]:
    def find(results: dict[str, Any]) -> float:
        found: Any = results
        for name in path:
            found = found[name]
        return float(found)

    return find


def command(store: str) -> str:
    return f"python -m benchmarks.coordination --only {store}"


def write_page(results: dict[str, Any]) -> Iterator[str]:
    software = f"SQLite {results['environment']['sqlite']}"
    yield from pages.head(
        "Topics beside plain queues", results, software=software, not_worth_quoting=results["messages"] < 200
    )
    yield "Ratios of medians; rounds take turns. A consumer of ours saves its state, too."
    yield ""
    yield "## Goals"
    yield ""
    yield from pages.goals(verdicts(results), command)
    yield "## Latencies"
    yield ""
    stores = results["stores"]
    names = list(dict.fromkeys(name for found in stores.values() for name in found["p50_ms"]))
    rows = [[store, *(_number_of(found["p50_ms"], name) for name in names)] for store, found in stores.items()]
    yield from table(["p50 in ms", *names], rows)
    yield ""
    yield "A bare commit is the floor on Redis: one call of a script that writes as many keys and bytes as a message"
    yield "does, after one comparison. It checks neither rights nor kinds of keys. A bare call is given as much, and"
    yield "does nothing. `XADD` writes one key."
    yield ""
    for found in stores.values():
        if "floors" in found:
            with_save, alone, awaited = map(number, found["floors"].values())
            yield f"A bare commit takes {alone} times as long as `XADD`, {awaited} times if both are awaited. A save,"
            yield f"and what a bare commit takes more than a bare call, take {with_save} times as long as the save: so"
            yield "much does the server add for a message, before a client encodes it."
            yield ""
    yield "## Consumers and processes"
    yield ""
    figures = ("published per second", "saved per second", "longest publication ms", "longest save ms")
    rows = [
        [
            store,
            *map(number, found["consumed per second"].values()),
            *(_number_of(found["taken plainly per second"], f"batch {batch}") for batch in BATCHES),
            number(found["consuming over a plain queue"]),
            *(number(found["processes"][name]) for name in figures),
        ]
        for store, found in stores.items()
    ]
    consumed = ["consumed/s, batch 1", "batch 16", "taken plainly, 1", "16", "batch 1 over a plain queue"]
    yield from table(["", *consumed, "4 processes: published/s", "saved/s", "longest publication, ms", "save"], rows)


def _number_of(figures: dict[str, float], name: str) -> str:
    return number(figures[name]) if name in figures else ""
