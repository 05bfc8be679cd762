"""Fills the figures of docs/operations.md from results/servers.json: `python -m
benchmarks.operations_figures [--check]`."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.subprocesses import ROOT
from benchmarks.tables import number, table

DOCUMENT = ROOT / "docs" / "operations.md"
RESULTS = ROOT / "benchmarks" / "results" / "servers.json"
LOCAL_RESULTS = RESULTS.with_name("results.json")
SESSIONS_PER_HOUR = 100_000
HEADROOM = 3
PEAK = 3
Results = dict[str, Any]


def after(directory: Path) -> None:
    """When results were written to that directory: if they are those that the document quotes, it does so."""
    if directory == RESULTS.parent:
        DOCUMENT.write_text(filled(DOCUMENT.read_text("utf-8"), json.loads(RESULTS.read_text("utf-8"))), "utf-8")


def main() -> None:
    text = DOCUMENT.read_text("utf-8")
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    new = filled(text, results)
    if "--check" in sys.argv:
        sys.exit(
            0 if new == text else f"{DOCUMENT.name} has other figures than {RESULTS.name}: run this without --check"
        )
    DOCUMENT.write_text(new, "utf-8")


def filled(text: str, results: Results) -> str:
    """The document with what stands between its markers made anew."""
    for name, lines in BLOCKS.items():
        begin, end = f"<!-- figures: {name} -->", f"<!-- end: {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        try:
            block = "\n".join(lines(results))
        except KeyError:
            block = "Not measured yet: `make bench-servers`, then `python -m benchmarks.operations_figures`."
        text = f"{before}{begin}\n\n{block}\n\n{end}{after}"
    return text


def _origin(results: Results) -> Iterator[str]:
    machine = results["environment"]
    quick = " (a quick run: not worth quoting)" if results["quick"] else ""
    yield (
        f"Measured {machine['date'][:10]} at commit `{machine['commit']}`{quick}: {machine['servers']}, Python "
        f"{machine['python']}, {machine['cpus']} CPUs ({machine['cpu']}) that clients and servers share, load "
        f"{machine['load_average_at_start'][0]} at the start."
    )


def _sizes(results: Results) -> Iterator[str]:
    part, long = results["S"], results["A"]["1000"]
    local = json.loads(LOCAL_RESULTS.read_text("utf-8"))["A"]["1000"]["contenders"]
    steps, final = part["steps"], part["final_json_bytes"]
    rows = []
    for name, key, of_long in (
        ("SQLite", "holdfast", local),
        ("PostgreSQL", "holdfast_postgres", long["contenders"]),
        ("Redis", "holdfast_redis", long["contenders"]),
    ):
        one, kept = part[key], of_long[key]["bytes_on_disk"]
        rows.append(
            [
                name,
                number(one["bytes_per_session"]),
                number(one["bytes_per_session"] / steps),
                f"{one['bytes_per_session'] / final:.2f}",
                number(kept),
                number(kept / 1000),
                f"{kept / long['final_json_bytes']:.2f}",
            ]
        )
    yield from table(
        [
            "",
            f"bytes per session of {steps} steps",
            "per step",
            f"over its last state ({final / 1000:.1f} KB of JSON)",
            "bytes per session of 1,000 steps",
            "per step",
            f"over its last state ({long['final_json_bytes'] / 1e6:.2f} MB)",
        ],
        rows,
    )


def _rates(results: Results) -> Iterator[str]:
    part = results["B"]
    rows = []
    for name, key in (("PostgreSQL", "holdfast_postgres"), ("Redis", "holdfast_redis")):
        one, many = (part[writers]["contenders"][key] for writers in ("1", "32"))
        rows.append(
            [
                name,
                number(one["p50_ms"]),
                number(one["median_turn_saves_per_second"]),
                number(many["median_turn_saves_per_second"]),
                number(many["cpu_us_per_save"]),
                number(many["server_cpu_us_per_save"]),
                number(many["bytes_logged_per_save"]),
            ]
        )
    yield from table(
        [
            "",
            "one writer: ms per save",
            "saves/s",
            "32 sessions at once in one process: saves/s",
            "client CPU µs/save",
            "server CPU µs/save",
            "bytes logged/save",
        ],
        rows,
    )


def _arithmetic(results: Results) -> Iterator[str]:
    part = results["S"]
    one = part["holdfast_postgres"]
    steps = part["steps"]
    saves = SESSIONS_PER_HOUR * steps / 3600
    client, server = one["client_cpu_us_per_save"], one["server_cpu_us_per_save"]
    kept = one["bytes_per_session"] * SESSIONS_PER_HOUR
    logged = one["bytes_logged_per_session"] * SESSIONS_PER_HOUR
    vacuum = one["vacuum_seconds"] / part["sessions"] * SESSIONS_PER_HOUR
    peak = saves * PEAK
    yield from table(
        ["", "arithmetic", "result"],
        [
            ["saves", f"{SESSIONS_PER_HOUR:,} × {steps} ÷ 3,600 s", f"{saves:,.0f} per second"],
            ["saves at the peak", f"× {PEAK}", f"{peak:,.0f} per second"],
            [
                "transactions",
                f"× {one['requests_per_save']:.2f} per save (32 sessions at a time share them)",
                f"{saves * one['requests_per_save']:,.0f} per second",
            ],
            ["CPU of the server", f"× {server:,.0f} µs",
             (f"{saves * server / 1e6:.2f} cores, " f"{peak * server / 1e6:.2f} at the peak")],
            ["CPU of all workers", f"× {client:,.0f} µs",
             (f"{saves * client / 1e6:.2f} cores, " f"{peak * client / 1e6:.2f} at the peak")],
            ["what is kept", f"× {one['bytes_per_session']:,} bytes per session",
             f"{kept / 1e9:.2f} GB per hour, {kept * 24 / 1e9:,.0f} GB per day"],
            ["WAL", f"× {one['bytes_logged_per_session']:,} bytes per session",
             f"{logged / 1e9:.2f} GB per hour, {logged / 3600 / 1e6:.1f} MB/s"],
            ["WAL of letting go",
             f"× {one['collect_bytes_logged_per_session']:,} bytes per session, for all but its last step",
             f"{one['collect_bytes_logged_per_session'] * SESSIONS_PER_HOUR / 1e9:.2f} GB per hour"],
            ["dead rows", f"× {one['dead_rows_per_session']:,} per session",
             f"{one['dead_rows_per_session'] * SESSIONS_PER_HOUR / 1e6:.1f} million per hour"],
            ["vacuum of an hour's work", f"{one['vacuum_seconds']:.2f} s for {part['sessions']:,} sessions",
             f"{vacuum:,.0f} s per hour"],
        ],
    )  # fmt: skip
    yield ""
    cores = max(1, -(-int(peak * server / 1e6 * HEADROOM * 100) // 100))
    yield (
        f"With {HEADROOM} times what the peak needs, {cores} core{'s' if cores > 1 else ''} for "
        "PostgreSQL. One process with 32 "
        f"sessions at once made {one['saves_per_second']:,.0f} saves per second on the machine above, "
        "so the peak is the work of "
        f"{max(1, -(-int(peak) // int(one['saves_per_second'])))} such processes."
    )


BLOCKS: dict[str, Callable[[Results], Iterator[str]]] = {
    "origin": _origin,
    "sizes": _sizes,
    "rates": _rates,
    "arithmetic": _arithmetic,
}


if __name__ == "__main__":
    main()
