"""`make bench-workspace`: snapshots of a directory beside shadow git, restic and borg, interleaved.

    python -m benchmarks.workspace.run [--trees 2k 20k 100k] [--rounds 5] [--keep]

Every round does the same to the directory for all, and lets each take its snapshot. Figures are medians of CPU and wall time
in milliseconds; the ratios are to tuned git.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.subprocesses import ROOT
from benchmarks.workspace import trees
from benchmarks.workspace.contenders import Contender, TunedGit, allocated, installed, measured
from holdfast import Client

RESULTS = ROOT / "benchmarks" / "results" / "workspace.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", nargs="+", choices=trees.SIZES, default=list(trees.SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--where", type=Path, default=None, help="a directory to work in, kept")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/workspace.json")
    given = parser.parse_args()
    where = given.where or Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        results: dict[str, Any] = {"environment": environment.describe(where), "trees": {}}
        for name in given.trees:
            root = trees.make(name, where / "trees", where / "downloads")
            results["trees"][name] = tree(root, where / "stores", given.rounds)
            show(name, results["trees"][name])
        if given.write:
            RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    finally:
        if given.where is None:
            shutil.rmtree(where, ignore_errors=True)


def tree(root: Path, stores: Path, rounds: int) -> dict[str, Any]:
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    chosen = random.Random(1)
    costs: dict[str, dict[str, list[Any]]] = {}
    contenders: list[Contender] = []
    for number, kind in enumerate(installed()):
        store = stores / f"{root.name}-{number}"
        shutil.rmtree(store, ignore_errors=True)
        contender = kind(root, store)
        contender.open()
        contenders.append(contender)
        costs[contender.name] = {}
    try:
        for contender in contenders:
            of_this = costs[contender.name]
            of_this["first"] = [measured(contender.snapshot)]
            of_this["bytes"] = [settled(contender)]
        for doing, count in (("no change", 0), ("one file", 1), ("100 files", 100)):
            before = {contender.name: settled(contender) for contender in contenders}
            for _ in range(rounds):
                for path in chosen.sample(files, count):
                    with path.open("ab") as file:
                        file.write(b"# changed\n")
                chosen.shuffle(contenders)
                for contender in contenders:
                    costs[contender.name].setdefault(doing, []).append(measured(contender.snapshot))
            for contender in contenders:
                grown = settled(contender) - before[contender.name]
                costs[contender.name][f"bytes, {doing}"] = [grown / rounds]
    finally:
        for contender in contenders:
            contender.close()
    return {
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "costs": costs,
        "event loop": asyncio.run(lateness(root, stores / f"{root.name}-loop")),
    }


def settled(contender: Contender) -> int:
    """What it takes on disk when nobody has it open; it is ready to go on then."""
    contender.close()
    size = allocated(contender.store)
    contender.reopen()
    return size


async def lateness(root: Path, store: Path) -> dict[str, float]:
    """By how many milliseconds an event loop is late beside snapshots: a task that wants to wake every millisecond."""
    shutil.rmtree(store, ignore_errors=True)
    late: list[float] = []

    async def tick() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append(1000 * (time.perf_counter() - start - 0.001))

    async with Client.sqlite(store / "store.db") as client:
        workspace = client.workspace(root, default_excludes=False)
        await workspace.snapshot()
        ticking = asyncio.create_task(tick())
        for _ in range(10):
            await workspace.snapshot()
        ticking.cancel()
    ordered = sorted(late)
    return {
        "p50": round(statistics.median(ordered), 2),
        "p99": round(ordered[int(len(ordered) * 0.99)], 2),
        "max": round(ordered[-1], 2),
    }


def show(name: str, found: dict[str, Any]) -> None:
    costs = found["costs"]
    print(
        f"\n{name}: {found['files']:,} files, {found['bytes'] / 1e6:.0f} MB; event loop late by {found['event loop']} ms"
    )
    doings = ("first", "no change", "one file", "100 files")
    print(
        f"{'':20}" + "".join(f"{doing + ', CPU ms (wall)':>30}" for doing in doings) + f"{'MB':>12}{'B, one file':>14}"
    )
    tuned = {doing: _median(costs[TunedGit.name][doing], 1) for doing in doings}
    for who, of_this in costs.items():
        cells = "".join(
            f"{1000 * _median(of_this[doing], 1):>12.1f} ({1000 * _median(of_this[doing], 0):.0f}) "
            f"{_median(of_this[doing], 1) / max(tuned[doing], 1e-9):>6.3f}x".rjust(30)
            for doing in doings
        )
        size, per_file = of_this["bytes"][0] / 1e6, statistics.median(of_this["bytes, one file"])
        print(f"{who:20}{cells}{size:>12.1f}{per_file:>14.0f}")


def _median(costs: list[Any], at: int) -> float:
    return statistics.median(cost[at] for cost in costs)


if __name__ == "__main__":
    main()
