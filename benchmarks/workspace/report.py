"""The figures of `make bench-workspace` as a page, and whether they reach the goals."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.tables import number, table
from benchmarks.workspace.contenders import Borg, Holdfast, Restic, TunedGit, Watching

DOINGS = ("first", "no change", "one file", "100 files", "restore of 100", "full restore")
SIZES = (("bytes", "on disk, MB", 1e6), ("bytes, one file", "per snapshot of one changed file, KB", 1e3))
JUDGED = "100k"
# What, of whom, over whom, at most.
GOALS = (
    ("no change", Holdfast.name, TunedGit.name, 1.35),
    ("one file", Holdfast.name, TunedGit.name, 0.8),
    ("no change", Watching.name, TunedGit.name, 0.01),
    ("one file", Watching.name, TunedGit.name, 0.01),
    ("first", Holdfast.name, TunedGit.name, 0.5),
    ("restore of 100", Holdfast.name, TunedGit.name, 1.0),
    ("full restore", Holdfast.name, TunedGit.name, 0.5),
    ("bytes", Holdfast.name, TunedGit.name, 0.5),
    ("bytes, one file", Holdfast.name, TunedGit.name, 0.1),
    ("no change", Holdfast.name, Restic.name, 0.1),
    ("no change", Holdfast.name, Borg.name, 0.1),
)
LATE_GOAL_MS = 5.0


def page(results: dict[str, Any], names: Sequence[str]) -> str:
    about = results["environment"]
    lines = [
        "# Workspaces beside shadow git, restic and borg",
        "",
        f"{results['rounds']} rounds, on {about['date']}, commit {about['commit']}, {about['filesystem']}; "
        + ", ".join(about["tools"].values())
        + ".",
        "Medians. What is measured and how: `benchmarks/workspace`. A restore of holdfast's begins with a safety snapshot and ends",
        "with a look at what was written; the others' do neither.",
    ]
    for name in names:
        lines += ["", *_tree(name, results["trees"][name])]
    if JUDGED in names:
        lines += ["", f"## Goals, at {JUDGED} files", "", *_verdicts(results["trees"][JUDGED])]
    return "\n".join(lines) + "\n"


def _tree(name: str, found: dict[str, Any]) -> Iterator[str]:
    costs = found["costs"]
    yield f"## {name}: {found['files']:,} files, {found['bytes'] / 1e6:,.0f} MB"
    for at, what in ((1, "CPU"), (0, "wall")):
        yield ""
        rows = [
            [who, *(number(1000 * _median(of_this[doing], at)) if doing in of_this else "" for doing in DOINGS)]
            for who, of_this in costs.items()
        ]
        yield from table([f"{what}, ms", *DOINGS], rows)
    yield ""
    rows = [
        [who, *(number(statistics.median(of_this[key]) / unit) if key in of_this else "" for key, _, unit in SIZES)]
        for who, of_this in costs.items()
    ]
    yield from table(["allocated", *(words for _, words, _ in SIZES)], rows)
    late = found["event loop"]
    yield ""
    yield (
        f"An event loop beside ten snapshots was late by {late['p50']} ms (median), {late['p99']} ms (99 %), "
        f"{late['max']} ms (most)."
    )


def _verdicts(found: dict[str, Any]) -> Iterator[str]:
    costs = found["costs"]
    rows = []
    for what, who, whom, limit in GOALS:
        ours, theirs = costs.get(who, {}).get(what), costs.get(whom, {}).get(what)
        if not ours or not theirs:
            rows.append([f"{what}: {who} over {whom}", f"≤ {limit}", "not measured", "", ""])
        elif what.startswith("bytes"):
            share = statistics.median(ours) / statistics.median(theirs)
            rows.append([f"{what}: {who} over {whom}", f"≤ {limit}", number(share), "", _met(share <= limit)])
        else:
            cpu, wall = (_median(ours, at) / _median(theirs, at) for at in (1, 0))
            told = _met(cpu <= limit) if (cpu <= limit) == (wall <= limit) else "by CPU" if cpu <= limit else "by wall"
            rows.append([f"{what}: {who} over {whom}", f"≤ {limit}", number(cpu), number(wall), told])
    late = found["event loop"]["p99"]
    rows.append(["event loop late, 99 %", f"≤ {LATE_GOAL_MS:g} ms", "", f"{late} ms", _met(late <= LATE_GOAL_MS)])
    yield from table(["figure", "goal", "by CPU", "by wall", ""], rows)


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def _median(costs: list[Any], at: int) -> float:
    return float(statistics.median(cost[at] for cost in costs))
