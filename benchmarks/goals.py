"""The goals that were set, and whether a set of results reaches them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Results = dict[str, Any]

PEERS = {
    "checkpnt": "checkpnt",
    "langgraph": "langgraph-sqlite",
    "langgraph_delta": "LangGraph's DeltaChannel",
    "bare_sqlite3": "bare sqlite3",
}


@dataclass(frozen=True)
class Verdict:
    figure: str
    goal: str
    measured: str
    reached: bool | None
    """None if this run did not measure it."""
    workload: str


@dataclass(frozen=True)
class Goal:
    figure: str
    workload: str
    measure: Callable[[Results], float]
    limit: float
    at_least: bool = False
    unit: str = "times"

    def judge(self, results: Results) -> Verdict:
        goal = f"{'≥' if self.at_least else '≤'} {self._words(self.limit)}"
        try:
            value = self.measure(results)
        except KeyError:
            return Verdict(self.figure, goal, "not measured", None, self.workload)
        reached = value >= self.limit if self.at_least else value <= self.limit
        return Verdict(self.figure, goal, self._words(value), reached, self.workload)

    def _words(self, value: float) -> str:
        return f"{value:.3g} {self.unit}".strip()


def verdicts(results: Results) -> list[Verdict]:
    return [goal.judge(results) for goal in _goals()]


def _goals() -> Iterator[Goal]:
    yield from _growing_goals()
    yield from _history_goals()
    yield from _process_goals()
    yield from _throughput_goals()
    yield from _reading_goals()
    yield from _import_goals()


def _growing_goals() -> Iterator[Goal]:
    for steps in (1000, 3000):
        for key, words in (("holdfast", "undeclared"), ("holdfast_declared", "declared")):
            yield Goal(
                f"bytes on disk after {steps:,} steps over the final state's compact JSON ({words})",
                "A",
                lambda results, steps=steps, key=key: _growing(results, steps, key)["bytes_over_final_json"],
                1.3,
            )
    for steps, peer, share in (
        (1000, "langgraph", 2),
        (1000, "checkpnt", 10),
        (3000, "langgraph", 4),
        (3000, "checkpnt", 15),
    ):
        yield Goal(
            f"median save at step {steps:,} over {PEERS[peer]}'s (goal 1/{share})",
            "A",
            lambda results, steps=steps, peer=peer: _ratio(results, _growing_of(steps), peer, "save_at_end", "p50_ms"),
            1 / share,
        )


def _history_goals() -> Iterator[Goal]:
    for peer, limit, words in (("langgraph", 1 / 20, " (goal 1/20)"), ("langgraph_delta", 1.0, "")):
        yield Goal(
            f"median save, declared append, at 10 MB of history over {PEERS[peer]}'s{words}",
            "H",
            lambda results, peer=peer: _ratio(
                results, _history_of(10_000_000), peer, "save", "p50_ms", ours="holdfast_declared"
            ),
            limit,
        )


def _process_goals() -> Iterator[Goal]:
    for way in ("undeclared", "declared"):
        yield Goal(
            f"first save of a new process into a session of 1 MB over a warm one ({way})",
            "cold",
            lambda results, way=way: results["cold"][way]["first_over_warm"],
            2.0,
        )
    for way in ("undeclared", "declared"):
        yield Goal(
            f"peak growth of a process that serves 1,000 sessions of 1 MB ({way})",
            "memory",
            lambda results, way=way: _memory(results)[way]["peak_growth_mib"],
            64,
            unit="MiB",
        )


def _throughput_goals() -> Iterator[Goal]:
    yield Goal(
        "one writer, `SyncClient`: median save over a bare sqlite3 insert and commit at FULL",
        "B",
        lambda results: _ratio(results, _throughput_of(1), "bare_sqlite3", "p50_ms", ours="holdfast_sync"),
        2.0,
    )
    yield Goal(
        "one writer, `Client` (its thread and the event loop included): median save over a bare "
        "sqlite3 insert and commit at FULL",
        "B",
        lambda results: _ratio(results, _throughput_of(1), "bare_sqlite3", "p50_ms"),
        2.0,
    )
    for peer, times in (("langgraph", 3), ("checkpnt", 1)):
        yield Goal(
            f"32 writers: saves per second over {PEERS[peer]}'s",
            "B",
            lambda results, peer=peer: _ratio(results, _throughput_of(32), peer, "saves_per_second"),
            times,
            at_least=True,
        )


def _reading_goals() -> Iterator[Goal]:
    for words, workload, chosen, operation in (
        ("at step 1,000", "A", _growing_of(1000), "restore_latest"),
        ("at step 3,000", "A", _growing_of(3000), "restore_latest"),
        ("at 1 MB", "H", _history_of(1_000_000), "restore"),
        ("at 10 MB", "H", _history_of(10_000_000), "restore"),
    ):
        for peer, limit, goal in (("langgraph", 2, " (unverified)"), ("checkpnt", 1 / 3, " (goal 1/3)")):
            yield Goal(
                f"verified restore {words} over {PEERS[peer]}'s{goal}",
                workload,
                lambda results, chosen=chosen, peer=peer, operation=operation: _ratio(
                    results, chosen, peer, operation, "p50_ms"
                ),
                limit,
            )
    yield Goal(
        "timeline of 20 at step 1,000 over langgraph-sqlite's (goal 1/100)",
        "A",
        lambda results: _ratio(results, _growing_of(1000), "langgraph", "timeline", "p50_ms"),
        1 / 100,
    )
    yield Goal(
        "fork at step 3,000 over fork at step 100 (goal O(1): at most half as much again)",
        "fork",
        lambda results: results["fork"]["3000"]["fork"]["p50_ms"] / results["fork"]["100"]["fork"]["p50_ms"],
        1.5,
    )


def _import_goals() -> Iterator[Goal]:
    yield Goal(
        "CPU of `import holdfast` over `import asyncio`",
        "import",
        lambda results: results["import"]["over_asyncio_ms"],
        40,
        unit="ms",
    )
    yield Goal(
        "framework, driver, CLI or web libraries that `import holdfast` imports",
        "import",
        lambda results: len(results["import"]["unwanted_modules"]),
        0,
        unit="",
    )
    yield Goal(
        "`holdfast timeline` on a store of 3,000 checkpoints",
        "cli",
        lambda results: _command_line(results)["seconds"]["timeline"],
        0.3,
        unit="s",
    )


def _growing_of(steps: int) -> Callable[[Results], Results]:
    return lambda results: results["A"][str(steps)]["contenders"]


def _history_of(size: int) -> Callable[[Results], Results]:
    return lambda results: results["H"][str(size)]["contenders"]


def _throughput_of(writers: int) -> Callable[[Results], Results]:
    return lambda results: results["B"][str(writers)]["contenders"]


def _growing(results: Results, steps: int, key: str) -> Results:
    return _growing_of(steps)(results)[key]


def _memory(results: Results) -> Results:
    """Only a run with all thousand sessions can say anything about the cap."""
    if results["memory"]["sessions"] < 1000:
        raise KeyError("sessions")
    return results["memory"]


def _command_line(results: Results) -> Results:
    if results["cli"].get("checkpoints", 0) < 3000:
        raise KeyError("checkpoints")
    return results["cli"]


def _ratio(
    results: Results, chosen: Callable[[Results], Results], peer: str, *path: str, ours: str = "holdfast"
) -> float:
    contenders = chosen(results)
    return _at(contenders[ours], path) / _at(contenders[peer], path)


def _at(value: Any, path: tuple[str, ...]) -> float:
    for name in path:
        value = value[name]
    return value
