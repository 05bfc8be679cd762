"""servers.md: the goals for the backends on servers and whether they are reached, then every figure."""

from collections.abc import Iterator
from typing import Any

from benchmarks import pages
from benchmarks.server_goals import verdicts
from benchmarks.tables import number, table

TITLES = {
    "holdfast_redis": "**holdfast on Redis**",
    "holdfast_redis_declared": "**holdfast on Redis, declared append**",
    "checkpnt_redis": "checkpnt on Redis",
    "raw_set": "raw SET of the same bytes",
    "holdfast_postgres": "**holdfast on PostgreSQL**",
    "holdfast_postgres_declared": "**holdfast on PostgreSQL, declared append**",
    "holdfast_postgres_sync": "**holdfast on PostgreSQL, SyncClient**",
    "langgraph_postgres": "langgraph-postgres, one connection",
    "langgraph_postgres_pool": "langgraph-postgres, pool of 8",
    "langgraph_postgres_sync": "langgraph-postgres, PostgresSaver (no event loop)",
    "raw_insert": "bare INSERT of the same bytes, one connection",
    "raw_insert_sync": "bare INSERT of the same bytes, no event loop",
    "holdfast": "**holdfast on SQLite**",
}


def markdown(results: dict[str, Any]) -> str:
    sections = {"A": _growing, "B": _throughput, "R": _restore, "S": _sessions}
    figures = [line for name, lines in sections.items() if name in results for line in (*lines(results[name]), "")]
    return "\n".join([*_head(results), *_goals(results), *figures])


def command(workload: str) -> str:
    return f"python -m benchmarks.servers --only {workload}"


def _head(results: dict[str, Any]) -> Iterator[str]:
    software = results["environment"]["servers"]
    yield from pages.head("Results on servers", results, software=software, not_worth_quoting=results["quick"])
    yield (
        "Servers and clients share these CPUs. What is measured, and what to bear in mind, is in "
        "[README.md](../README.md#on-servers)."
    )
    yield ""
    yield "![Save time and bytes by step](servers.png)"
    yield ""


def _goals(results: dict[str, Any]) -> Iterator[str]:
    yield "## Goals"
    yield ""
    yield from pages.goals(verdicts(results), command)


def _growing(section: dict[str, Any]) -> Iterator[str]:
    yield "## A: a conversation that grows by one step per save"
    for steps, size in section.items():
        final = size["final_json_bytes"]
        yield ""
        yield f"### {int(steps):,} steps (final state {final / 1e6:.2f} MB of compact JSON; rounds: {size['rounds']})"
        yield ""
        yield from table(
            ["", "save p50 ms", "p99", "CPU", "all saves s", "MB kept", "over final JSON", "latest ms", "random ms",
             "timeline of 20 ms", "server"],
            [
                [
                    TITLES[key],
                    *(number(one["save_at_end"][name]) for name in ("p50_ms", "p99_ms", "cpu_p50_ms")),
                    number(one["all_saves_seconds"]),
                    number(one["bytes_on_disk"] / 1e6),
                    number(one["bytes_over_final_json"]),
                    *(number(one[name]["p50_ms"]) for name in ("restore_latest", "restore_random", "timeline")),
                    one["durability"],
                ]
                for key, one in _in_order(size)
            ],
        )  # fmt: skip


def _throughput(section: dict[str, Any]) -> Iterator[str]:
    yield "## B: saves of a 1 KB state"
    for writers, part in section.items():
        yield ""
        yield (
            f"### {writers} writer{'s' if writers != '1' else ''}, {part['saves']:,} saves each in "
            f"{part['turns']} turns"
        )
        yield ""
        yield from table(
            ["", "saves/s (median turn)", "p10 ms", "p50", "p99", "client CPU µs/save", "server CPU µs/save",
             "requests/save", "bytes logged/save", "server"],
            [
                [
                    TITLES[key],
                    number(one["median_turn_saves_per_second"]),
                    *(number(one[name]) for name in ("p10_ms", "p50_ms", "p99_ms")),
                    number(one["cpu_us_per_save"]),
                    number(one["server_cpu_us_per_save"]),
                    number(one["requests_per_save"]),
                    number(one["bytes_logged_per_save"]),
                    one["durability"],
                ]
                for key, one in _in_order(part)
            ],
        )  # fmt: skip
    yield ""
    yield (
        "A request is a command that arrived at Redis (commands within a script count), or a "
        "transaction of PostgreSQL. "
        "What is logged is the append-only file, or the WAL."
    )


def _restore(section: dict[str, Any]) -> Iterator[str]:
    yield f"## R: restoring a state of {section['json_bytes'] / 1000:.1f} KB of JSON, of {section['steps']} steps"
    yield ""
    yield from table(
        ["", "p50 ms", "p99 ms", "CPU ms"],
        [
            [TITLES[key], *(number(one["restore"][name]) for name in ("p50_ms", "p99_ms", "cpu_p50_ms"))]
            for key, one in _in_order(section)
        ],
    )


def _sessions(section: dict[str, Any]) -> Iterator[str]:
    yield (
        f"## S: {section['sessions']:,} sessions of {section['steps']} steps, {section['at_once']} at a time "
        f"(a session's last state: {section['final_json_bytes'] / 1000:.1f} KB of JSON)"
    )
    yield ""
    yield from table(
        ["", "saves/s", "client CPU µs/save", "server CPU µs/save", "bytes/session", "over final JSON",
         "bytes logged/session"],
        [
            [
                TITLES[key],
                number(one["saves_per_second"]),
                number(one["client_cpu_us_per_save"]),
                number(one["server_cpu_us_per_save"]) if "server_cpu_us_per_save" in one else "",
                number(one["bytes_per_session"]),
                number(one["bytes_per_session"] / section["final_json_bytes"]),
                number(one["bytes_logged_per_session"]) if "bytes_logged_per_session" in one else "",
            ]
            for key, one in section.items()
            if isinstance(one, dict)
        ],
    )  # fmt: skip


def _in_order(part: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(key, part["contenders"][key]) for key in TITLES if key in part["contenders"]]
