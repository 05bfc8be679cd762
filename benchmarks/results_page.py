"""RESULTS.md: what every benchmark found at its last whole run, from the files in results/."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import (
    before_after,
    contention,
    coordination_report,
    differences,
    fast_paths,
    goals,
    growth,
    large_store,
    pages,
    report,
    runs,
    server_goals,
    server_report,
    ui_page,
    ui_server,
    work,
)
from benchmarks.frameworks import report as frameworks_report
from benchmarks.goals import Verdict
from benchmarks.langgraph import report as langgraph_report
from benchmarks.tables import table
from benchmarks.workspace import report as workspace_report

Results = dict[str, Any]


@dataclass(frozen=True)
class Benchmark:
    name: str
    title: str
    target: str
    """Of the Makefile."""
    command: tuple[str, ...]
    """What `python -m` is given; empty for one that needs an environment of its own."""
    stem: str
    """Of its files in results/: the figures as JSON, a page of all of them, a plot if there is one."""
    verdicts: Callable[[Results], list[Verdict]] | None = None
    reproduce: Callable[[str], str] | None = None
    """The command that measures the figures of a workload again; where there are verdicts."""


BENCHMARKS = (
    Benchmark("engine", "The engine on SQLite", "bench", ("benchmarks.run",), "results", goals.verdicts,
              report.command),
    Benchmark(
        "servers", "Redis and PostgreSQL", "bench-servers", ("benchmarks.servers",), "servers",
        server_goals.verdicts, server_report.command,
    ),
    Benchmark(
        "langgraph", "LangGraph", "bench-langgraph", ("benchmarks.langgraph.run",), "langgraph",
        langgraph_report.verdicts, langgraph_report.command,
    ),
    Benchmark("runs", "Runs", "bench-runs", ("benchmarks.runs",), "runs", runs.verdicts, runs.command),
    Benchmark("work", "Workers", "bench-work", ("benchmarks.work",), "work", work.verdicts, work.command),
    Benchmark("effects", "Effects carried out twice", "bench-runs", ("benchmarks.effects",), "effects"),
    Benchmark(
        "differences", "Differences", "bench-differences", ("benchmarks.differences",), "differences",
        differences.verdicts, differences.command,
    ),
    Benchmark("cli", "Commands on a large store", "bench-cli", ("benchmarks.large_store",), "cli", large_store.verdicts,
              large_store.command),
    Benchmark(
        "contention", "Many writers of one session", "bench-contention", ("benchmarks.contention",), "contention",
        contention.verdicts, contention.command,
    ),
    Benchmark(
        "coordination", "Topics", "bench-coordination", ("benchmarks.coordination",), "coordination",
        coordination_report.verdicts, coordination_report.command,
    ),
    Benchmark(
        "fast_paths", "Fast paths", "bench-fast-paths", ("benchmarks.fast_paths",), "fast_paths", fast_paths.verdicts,
        fast_paths.command,
    ),
    Benchmark("sealed", "Sealed stores", "bench-sealed", ("benchmarks.sealed",), "sealed"),
    Benchmark("growth", "Growth", "bench-growth", ("benchmarks.growth",), "growth", growth.verdicts, growth.command),
    Benchmark(
        "ui-server", "The server of the web page", "bench-ui", ("benchmarks.ui_server",), "ui_server",
        ui_server.verdicts, ui_server.command,
    ),
    Benchmark(
        "ui-page", "The web page in Chromium", "bench-ui", ("benchmarks.ui_page",), "ui_page", ui_page.verdicts,
        ui_page.command,
    ),
    Benchmark(
        "workspace", "Workspaces", "bench-workspace", ("benchmarks.workspace.run",), "workspace",
        workspace_report.verdicts, workspace_report.command,
    ),
    Benchmark(
        "frameworks", "Agent frameworks", "bench-frameworks", (), "frameworks", frameworks_report.verdicts,
        frameworks_report.command,
    ),
)  # fmt: skip


def markdown(directory: Path) -> str:
    files = [(one, directory / f"{one.stem}.json") for one in BENCHMARKS]
    found = [(one, json.loads(file.read_text("utf-8"))) for one, file in files if file.exists()]
    sections = [line for one, results in found for line in _section(one, results, directory)]
    judged = [(one.title, one.stem, one.verdicts) for one in BENCHMARKS if one.verdicts is not None]
    compared = before_after.section(judged, directory)
    return "\n".join([*_head(), *_machines(found), *_versions(found), *sections, *compared])


def _head() -> Iterator[str]:
    yield "# Results"
    yield ""
    yield (
        "`make bench-all` runs every benchmark and writes this page. `python -m benchmarks.all --page` "
        "writes it from existing results. [README.md](README.md) describes workloads and method, and how "
        "to interpret the figures. Ratios compare contenders that took turns in one run on one machine; "
        "absolute times belong to that machine."
    )
    yield ""


def _machines(found: list[tuple[Benchmark, Results]]) -> Iterator[str]:
    yield "## Measured with"
    yield ""
    rows = []
    for one, results in found:
        machine = results["environment"]
        rows.append(
            [
                f"[{one.title}](results/{one.stem}.md)",
                f"`make {one.target}`",
                machine["date"][:16].replace("T", " "),
                f"`{machine['commit']}`{' and changes' if machine['uncommitted_changes'] else ''}",
                f"{machine['cpus']} × {machine['cpu']}",
                f"Linux {machine['kernel']}, {machine['filesystem']}",
                f"{machine['python']}",
                str(machine["load_average_at_start"][0]),
            ]
        )
    yield from table(["", "command", "date (UTC)", "commit", "CPUs", "system", "Python", "load at the start"], rows)
    yield ""


def _versions(found: list[tuple[Benchmark, Results]]) -> Iterator[str]:
    versions: dict[str, set[str]] = {}
    for _, results in found:
        machine = results["environment"]
        versions.setdefault("SQLite", set()).add(machine["sqlite"])
        for server in filter(None, str(machine.get("servers", "")).split(", ")):
            name, _, version = server.rpartition(" ")
            versions.setdefault(name, set()).add(version)
        for name, version in machine["packages"].items():
            versions.setdefault(name, set()).add(version)
    yield (
        "Versions: "
        + ", ".join(
            f"{name} {' and '.join(sorted(of))}"
            for name, of in sorted(versions.items(), key=lambda item: item[0].lower())
        )
        + "."
    )
    yield ""


def _section(one: Benchmark, results: Results, directory: Path) -> Iterator[str]:
    yield f"## {one.title}"
    yield ""
    if one.verdicts is not None and one.reproduce is not None:
        yield from pages.goals(one.verdicts(results), one.reproduce)
    else:
        yield from _tables(directory / f"{one.stem}.md")
        yield f"`python -m {' '.join(one.command)}`"
        yield ""
    if (directory / f"{one.stem}.png").exists():
        yield f"![{one.title}](results/{one.stem}.png)"
        yield ""
    yield f"Every figure: [results/{one.stem}.md](results/{one.stem}.md), [as JSON](results/{one.stem}.json)."
    yield ""


def _tables(page: Path) -> Iterator[str]:
    """Of a page without goals, whose tables are all there is to say."""
    for line in page.read_text("utf-8").splitlines():
        if line.startswith("|"):
            yield line
    yield ""
