"""The figures of `make bench-workspace` as a page, and whether they reach the goals."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import pages, plot
from benchmarks.goals import Goal, Verdict
from benchmarks.tables import number, table
from benchmarks.workspace.contenders import Borg, Holdfast, Restic, TunedGit, Watching

DOINGS = ("first", "no change", "one file", "100 files", "restore of 100", "full restore")
SIZES = (("bytes", "on disk, MB", 1e6), ("bytes, one file", "per snapshot of one changed file, KB", 1e3))
IN_KERNEL, SYNC_AFTER = "full restore, in the kernel", "full restore, sync after it"
JUDGED = "100k"
# What, of whom, over whom, at most.
GOALS = (
    ("no change", Holdfast.name, TunedGit.name, 1.0),
    ("one file", Holdfast.name, TunedGit.name, 1.0),
    ("no change", Watching.name, TunedGit.name, 0.05),
    ("one file", Watching.name, TunedGit.name, 0.05),
    ("first", Holdfast.name, TunedGit.name, 0.5),
    ("restore of 100", Holdfast.name, TunedGit.name, 1.0),
    ("full restore", Holdfast.name, TunedGit.name, 0.5),
    ("bytes", Holdfast.name, TunedGit.name, 0.5),
    ("bytes, one file", Holdfast.name, TunedGit.name, 0.1),
    ("no change", Holdfast.name, Restic.name, 0.1),
    ("no change", Holdfast.name, Borg.name, 0.1),
)


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    """Times twice, by wall and by CPU: git and restic use several threads."""
    judged = results["trees"].get(JUDGED, {"costs": {}, "event loop": {}})
    goals = []
    for what, who, whom, limit in GOALS:
        ways = [(None, "")] if what.startswith("bytes") else [(0, ", wall"), (1, ", CPU")]
        goals += [
            Goal(f"{what}{words}: {who} over {whom}", JUDGED, _ratio(what, who, whom, at), limit) for at, words in ways
        ]
    goals.append(
        Goal("event loop late beside snapshots, 99 %", JUDGED, lambda found: found["event loop"]["p99"], 5, unit="ms")
    )
    return [goal.judge(judged) for goal in goals]


def _ratio(what: str, who: str, whom: str, at: int | None) -> Callable[[dict[str, Any]], float]:
    def measure(found: dict[str, Any]) -> float:
        ours, theirs = found["costs"][who][what], found["costs"][whom][what]
        if at is None:
            return statistics.median(ours) / statistics.median(theirs)
        return _median(ours, at) / _median(theirs, at)

    return measure


def command(workload: str) -> str:
    return f"python -m benchmarks.workspace.run --trees {workload}"


def page(results: dict[str, Any], names: Sequence[str]) -> str:
    tools = ", ".join(results["environment"]["tools"].values())
    lines = [
        *pages.head(
            "Workspaces beside shadow git, restic and borg",
            results,
            software=tools,
            not_worth_quoting=JUDGED not in names,
        ),
        (
            f"Medians of {results['rounds']} rounds, of more where it is quick. What is measured and how: "
            "`benchmarks/workspace`. A restore of"
        ),
        "holdfast's begins with a safety snapshot and ends with a look at what was written; the others' do neither.",
        "",
        *_syncs(results.get("syncs", {})),
    ]
    if JUDGED in names and "event loop" in results["trees"][JUDGED]:
        lines += [
            "![Snapshots and restores](workspace.png)",
            "",
            f"## Goals, at {JUDGED} files",
            "",
            *pages.goals(verdicts(results), command),
        ]
    for name in names:
        lines += [*_tree(name, results["trees"][name]), ""]
    return "\n".join(lines)


def _syncs(found: dict[str, Any]) -> Iterator[str]:
    if not found:
        return
    yield (
        "A snapshot of holdfast's is on the disk when it returns, a small one by one sync; git syncs "
        "nothing. What a bare sync of 4 KB takes:"
    )
    yield ""
    ways = ("at the end", "over")
    rows = [[kind, *(number(of_this[way]) for way in ways)] for kind, of_this in found.items()]
    yield from table(["bare sync, ms", "at the end of a file", "over what it has"], rows)
    yield ""


def draw(results: dict[str, Any], file: Path) -> None:
    costs = results["trees"][JUDGED]["costs"]
    plot.bars(
        {
            f"{doing}, wall ms": {
                who: 1000 * _median(of_this[doing], 0)
                for who, of_this in costs.items()
                if "first" in of_this and doing in of_this
            }
            for doing in ("no change", "one file", "full restore")
        },
        f"A directory of {JUDGED} files",
        file,
        log=True,
    )


def _tree(name: str, found: dict[str, Any]) -> Iterator[str]:
    costs = {who: of_this for who, of_this in found["costs"].items() if "first" in of_this}
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
    yield from _full_restores(found["costs"])
    if (late := found.get("event loop")) is None:
        return
    yield ""
    yield (
        f"An event loop beside ten snapshots was late by {late['p50']} ms (median), {late['p99']} ms (99 %), "
        f"{late['max']} ms (most){_alone(late.get('alone'))}."
    )


def _alone(late: dict[str, float] | None) -> str:
    if late is None:
        return ""
    return (
        f"; beside nothing, in turn with that, by {late['p50']}, {late['p99']} and {late['max']} ms: medians of rounds"
    )


def _full_restores(costs: dict[str, Any]) -> Iterator[str]:
    """What a full restore consists of, and the floor under it."""
    asked = {who: of_this for who, of_this in costs.items() if SYNC_AFTER in of_this}
    if not asked:
        return
    yield ""
    yield (
        "Full restores, beside a process that has everything in memory and only makes the files, or "
        "unpacks and hashes them, too (`bare.py`):"
    )
    yield (
        "floors, not contenders. Neither reads a store, plans, looks at what is there or was written, "
        "keeps a journal, or syncs."
    )
    yield (
        'holdfast\'s are on the disk when they return; "sync" is what anybody waits for who wants the '
        "same of the others."
    )
    yield ""
    rows = []
    for who, of_this in asked.items():
        wall, cpu = (_median(of_this["full restore"], at) for at in (0, 1))
        sync, in_kernel = statistics.median(of_this[SYNC_AFTER]), statistics.median(of_this[IN_KERNEL])
        rows.append([who, *(number(1000 * taken) for taken in (cpu, in_kernel, wall, sync, wall + sync))])
    yield from table(["full restore, ms", "CPU", "of it in the kernel", "wall", "sync", "wall and sync"], rows)


def _median(costs: list[Any], at: int) -> float:
    return float(statistics.median(cost[at] for cost in costs))
