"""results.md: the goals and whether they are reached, then every figure, with the command that reproduces it."""

from collections.abc import Iterator
from typing import Any

from benchmarks import pages
from benchmarks.goals import verdicts
from benchmarks.tables import number as _number
from benchmarks.tables import table as _table

TITLES = {
    "holdfast": "**holdfast**",
    "holdfast_declared": "**holdfast, declared append**",
    "holdfast_sync": "**holdfast, SyncClient**",
    "langgraph": "langgraph-sqlite",
    "langgraph_delta": "langgraph-sqlite, DeltaChannel",
    "checkpnt": "checkpnt",
    "bare_sqlite3": "bare sqlite3 insert + commit",
    "bare_sqlite3_hop": "the same from an event loop, in a thread",
}


def markdown(results: dict[str, Any]) -> str:
    return "\n".join([*_head(results), *_goals(results), *_figures(results), ""])


def command(workload: str) -> str:
    return f"python -m benchmarks.run --only {workload}"


def _head(results: dict[str, Any]) -> Iterator[str]:
    software = f"SQLite {results['environment']['sqlite']}"
    yield from pages.head("Results", results, software=software, not_worth_quoting=results["quick"])
    yield (
        "All stores on SQLite, WAL, `synchronous=FULL`. What is measured, and what to bear in mind, is in "
        "[README.md](../README.md)."
    )
    yield ""
    yield "![Save time and bytes on disk by step](results.png)"
    yield ""


def _goals(results: dict[str, Any]) -> Iterator[str]:
    yield "## Goals"
    yield ""
    yield from pages.goals(verdicts(results), command)


def _figures(results: dict[str, Any]) -> Iterator[str]:
    sections = {
        "A": _growing,
        "B": _throughput,
        "H": _history,
        "cold": _cold,
        "memory": _memory,
        "fork": _fork,
        "import": _imports,
        "cli": _command_line,
    }
    for name, section in sections.items():
        if name in results:
            yield from section(results[name])
            yield ""
            yield f"`{command(name)}`"
            yield ""


def _growing(section: dict[str, Any]) -> Iterator[str]:
    yield "## A: a conversation that grows by one step per save"
    for steps, size in section.items():
        final = size["final_json_bytes"]
        yield ""
        yield f"### {int(steps):,} steps (final state {final / 1e6:.2f} MB of compact JSON; rounds: {size['rounds']})"
        if size["left_out"]:
            yield ""
            yield f"Left out for want of disk space: {', '.join(size['left_out'])}."
        yield ""
        yield from _table(
            [
                "",
                "save p50 ms",
                "p99",
                "CPU",
                "all saves s",
                "MB on disk",
                "over final JSON",
                "latest ms",
                "random ms",
                "timeline of 20 ms",
                "durability",
            ],
            [
                [
                    TITLES[key],
                    *(_number(one["save_at_end"][name]) for name in ("p50_ms", "p99_ms", "cpu_p50_ms")),
                    _number(one["all_saves_seconds"]),
                    _number(one["bytes_on_disk"] / 1e6),
                    _number(one["bytes_over_final_json"]),
                    *(_number(one[name]["p50_ms"]) for name in ("restore_latest", "restore_random", "timeline")),
                    one["durability"],
                ]
                for key, one in _in_order(size)
            ],
        )


def _throughput(section: dict[str, Any]) -> Iterator[str]:
    yield "## B: saves of a 1 KB state"
    for writers, part in section.items():
        yield ""
        yield f"### {writers} writer{'s' if writers != '1' else ''}, {part['saves']:,} saves"
        yield ""
        yield from _table(
            ["", "saves/s", "p10 ms", "p50 ms", "p99 ms", "CPU µs/save", "durability"],
            [
                [
                    TITLES[key],
                    *(
                        _number(one[name])
                        for name in ("saves_per_second", "p10_ms", "p50_ms", "p99_ms", "cpu_us_per_save")
                    ),
                    one["durability"],
                ]
                for key, one in _in_order(part)
            ],
        )


def _history(section: dict[str, Any]) -> Iterator[str]:
    yield "## H: one more step on a long history"
    for part in section.values():
        yield ""
        yield f"### {part['history_json_bytes'] / 1e6:.1f} MB"
        yield ""
        yield from _table(
            ["", "first save ms", "save p50 ms", "p99", "CPU", "restore ms", "restore CPU"],
            [
                [
                    TITLES[key],
                    _number(one["first_save"]["p50_ms"]),
                    *(_number(one["save"][name]) for name in ("p50_ms", "p99_ms", "cpu_p50_ms")),
                    *(_number(one["restore"][name]) for name in ("p50_ms", "cpu_p50_ms")),
                ]
                for key, one in _in_order(part)
            ],
        )


COLD_TITLES = {
    "undeclared": "**undeclared**",
    "declared": "**declared**",
    "undeclared_beside": "undeclared, beside another process",
    "declared_beside": "declared, beside another process",
    "floor": "bare sqlite3, the least of a save",
}


def _cold(section: dict[str, Any]) -> Iterator[str]:
    yield "## Cold start: a session of 1 MB that the process has not seen"
    yield ""
    figures = {
        "first_ms": "first save of the process ms",
        "first_cpu_ms": "CPU",
        "warm_ms": "warm save ms",
        "warm_cpu_ms": "CPU",
        "first_over_warm": "first/warm",
        "other_session_ms": "other session, warm process ms",
        "other_session_over_warm": "other/warm",
        "processes": "processes",
    }
    yield from _table(
        ["", *figures.values()],
        [
            [title, *(_number(section[way][name]) if name in section[way] else "" for name in figures)]
            for way, title in COLD_TITLES.items()
            if way in section
        ],
    )


def _memory(section: dict[str, Any]) -> Iterator[str]:
    yield f"## Memory: one append to each of {section['sessions']:,} sessions of 1 MB, twice round"
    yield ""
    yield from _table(
        ["", "before MiB", "peak growth, round 1", "round 2", "growth at the end", "`cache_bytes`, the cap"],
        [
            [
                way,
                _number(part["before_mib"]),
                *(_number(peak) for peak in part["peak_growth_mib_by_round"]),
                _number(part["growth_at_end_mib"]),
                _number(section["cap_mib"]),
            ]
            for way, part in section.items()
            if isinstance(part, dict)
        ],
    )


def _fork(section: dict[str, Any]) -> Iterator[str]:
    yield "## Fork"
    yield ""
    yield from _table(
        ["steps before the fork", "p50 ms", "p99 ms", "CPU ms", "bytes per fork"],
        [
            [
                steps,
                *(_number(part["fork"][name]) for name in ("p50_ms", "p99_ms", "cpu_p50_ms")),
                str(part["bytes_per_fork"]),
            ]
            for steps, part in section.items()
        ],
    )


def _imports(section: dict[str, Any]) -> Iterator[str]:
    yield "## Import"
    yield ""
    yield from _table(
        ["program", "CPU ms, whole process"],
        [[name.replace("_", " "), _number(value)] for name, value in section["cpu_ms"].items()],
    )
    yield ""
    yield f"Unwanted modules: {', '.join(section['unwanted_modules']) or 'none'}."


def _command_line(section: dict[str, Any]) -> Iterator[str]:
    yield "## Command line"
    yield ""
    if "skipped" in section:
        yield f"Not measured: {section['skipped']}."
        return
    yield from _table(
        [f"on {section['checkpoints']:,} checkpoints", "wall s"],
        [[f"`holdfast {command}`", _number(value)] for command, value in section["seconds"].items()],
    )


def _in_order(part: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(key, part["contenders"][key]) for key in TITLES if key in part["contenders"]]
