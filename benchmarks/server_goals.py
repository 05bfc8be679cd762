"""The goals that were set for the backends on servers."""

from collections.abc import Iterator

from benchmarks.goals import Goal, Results, Verdict

LANGGRAPH = ("langgraph_postgres", "langgraph_postgres_pool")


def verdicts(results: Results) -> list[Verdict]:
    return [goal.judge(results) for goal in (*_redis_goals(), *_postgres_goals())]


def _redis_goals() -> Iterator[Goal]:
    yield Goal(
        "Redis, one writer: median save of a 1 KB state over a raw SET of the same bytes",
        "B",
        lambda results: _of(results, 1, "holdfast_redis")["p50_ms"] / _of(results, 1, "raw_set")["p50_ms"],
        2.5,
    )
    for writers, times in ((1, 2), (32, 5)):
        yield Goal(
            f"Redis, {_writers(writers)}: saves per second over checkpnt's on Redis",
            "B",
            lambda results, writers=writers: (
                _rate(results, writers, "holdfast_redis") / _rate(results, writers, "checkpnt_redis")
            ),
            times,
            at_least=True,
        )
    yield Goal(
        "Redis: median restore of a 10 KB state on loopback, verified",
        "R",
        lambda results: results["R"]["contenders"]["holdfast_redis"]["restore"]["p50_ms"],
        1.0,
        unit="ms",
    )
    yield Goal(
        "Redis: memory of all keys after 1,000 steps over the final state's compact JSON",
        "A",
        lambda results: results["A"]["1000"]["contenders"]["holdfast_redis"]["bytes_over_final_json"],
        2.0,
    )


def _postgres_goals() -> Iterator[Goal]:
    for writers, times in ((1, 1), (32, 8)):
        yield Goal(
            f"PostgreSQL, {_writers(writers)}: saves per second over langgraph-postgres's, both with "
            "`await` (the faster of one connection and a pool)",
            "B",
            lambda results, writers=writers: (
                _rate(results, writers, "holdfast_postgres") / max(_rate(results, writers, peer) for peer in LANGGRAPH)
            ),
            times,
            at_least=True,
        )
    yield Goal(
        "PostgreSQL, one writer without an event loop: saves per second of `SyncClient` over "
        "langgraph's PostgresSaver's",
        "B",
        lambda results: _rate(results, 1, "holdfast_postgres_sync") / _rate(results, 1, "langgraph_postgres_sync"),
        1,
        at_least=True,
    )
    yield Goal(
        "PostgreSQL: bytes of tables and indexes after 1,000 steps over the final state's compact JSON",
        "A",
        lambda results: results["A"]["1000"]["contenders"]["holdfast_postgres"]["bytes_over_final_json"],
        2.5,
    )


def _of(results: Results, writers: int, key: str) -> Results:
    return results["B"][str(writers)]["contenders"][key]


def _rate(results: Results, writers: int, key: str) -> float:
    return _of(results, writers, key)["median_turn_saves_per_second"]


def _writers(number: int) -> str:
    return "one writer" if number == 1 else f"{number} writers"
