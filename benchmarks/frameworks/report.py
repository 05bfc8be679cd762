"""The page of what `resumable` costs in each framework, and whether it reaches the goals."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.goals import Goal, Verdict
from benchmarks.tables import table

TURNS = 300
STEPS = 3  # of a turn
WINDOW, WINDOWS = 20, 5  # turns whose CPU is measured together, and how many times
GOAL_MS, GOAL_BYTES = 5.0, 1.5
STEM = "frameworks"


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    return [one.judge(results) for name in sorted(results["frameworks"]) for one in _goals(name)]


def command(workload: str) -> str:
    return f"python -m benchmarks.frameworks --only {workload}"


def add(directory: Path, found: Mapping[str, Any], *, texts: float) -> None:
    """Write the results of a run beside those of frameworks that other environments have; and the page."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{STEM}.json"
    before = json.loads(file.read_text("utf-8")) if file.exists() else {}
    known = before.get("frameworks", {}) if before.get("texts") == texts else {}
    last = list(found.values())[-1]
    results = {"environment": last["environment"], "texts": texts, "frameworks": {**known, **found}}
    file.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    (directory / f"{STEM}.md").write_text("\n".join(_page(results)), "utf-8")


def figures(found: Mapping[str, Any]) -> Iterator[str]:
    rows = []
    for name, one in sorted(found.items()):
        cpu, size, whole = one["cpu_ms_of_turn"], one["bytes"], one["transcript_bytes"]
        rows.append(
            [
                f"{name} {one['version']}",
                f"{cpu['alone']:.1f}",
                f"{cpu['own store']:.1f}",
                f"{cpu['resumable']:.1f}",
                f"{one['overhead_ms_of_step']:.1f}",
                f"{whole / 1000:,.0f}",
                f"{size['own store'] / 1000:,.0f}" if size["own store"] else "none",
                f"{size['resumable'] / 1000:,.0f} ({size['resumable'] / whole:.2f})",
            ]
        )
    head = ["CPU ms of a turn:", "alone", "own store", "resumable", "overhead of a step", "KB: transcript", "own store"]
    yield from table([*head, "resumable"], rows)


def _goals(name: str) -> Iterator[Goal]:
    def of(measure: Callable[[dict[str, Any]], float]) -> Callable[[dict[str, Any]], float]:
        return lambda results: measure(results["frameworks"][name])

    yield Goal(
        f"{name}: CPU of a step that `resumable` adds at {TURNS} turns",
        name,
        of(lambda one: one["overhead_ms_of_step"]),
        GOAL_MS,
        unit="ms",
    )
    yield Goal(
        f"{name}: bytes after {TURNS} turns, of the final transcript",
        name,
        of(lambda one: one["bytes"]["resumable"] / one["transcript_bytes"]),
        GOAL_BYTES,
    )


def _page(results: dict[str, Any]) -> Iterator[str]:
    found = results["frameworks"]
    turns = min(one["turns"] for one in found.values())
    is_quick = turns < TURNS or results["texts"] != 1
    software = f"SQLite {results['environment']['sqlite']}"
    yield from pages.head("Agent frameworks", results, software=software, not_worth_quoting=is_quick)
    yield (
        f"An agent of each framework takes {turns} turns of {STEPS} steps, alone, with the framework's own store, and "
        f"with `resumable` on SQLite, alternately. CPU is the median of the last {WINDOWS} windows of {WINDOW} turns. "
        "Bytes are those of the store's files after closing; the transcript is the final state as JSON."
    )
    yield ""
    yield "## Goals"
    yield ""
    yield from pages.goals(verdicts(results), command)
    yield "## Figures"
    yield ""
    yield from figures(found)
    yield ""
    yield "## When and where"
    yield ""
    rows = []
    for name, one in sorted(found.items()):
        machine = one["environment"]
        changed = " and changes" if machine["uncommitted_changes"] else ""
        load = str(machine["load_average_at_start"][0])
        rows.append(
            [name, machine["date"][:16].replace("T", " "), f"`{machine['commit']}`{changed}", load, one["own_store"]]
        )
    yield from table(["framework", "date (UTC)", "commit", "load at the start", "own store"], rows)
