"""`make bench-workspace`: snapshots and restores of a directory beside shadow git, restic and borg,
interleaved.

    python -m benchmarks.workspace.run [--trees 2k 20k 100k] [--rounds 5] [--on ext4|ext4-nojournal|xfs|here]
        [--full-restores] [--where DIR] [--results DIR]

Elsewhere than on ext4 with a journal, which is what mkfs makes, the page is another one.
`--full-restores` asks for nothing but what a full restore takes, and git and us only: `--on xfs
--trees 100k --full-restores` takes some minutes.

Every round does the same to the directory for all, and lets each take its snapshot, or restore it,
once what was written before is on the disk: who syncs would wait for what those before have left,
and git's index alone is 9 MB. restic and borg are asked in fewer rounds, and only for what the
goals are about: they take seconds each time. What is quick is done more often. Nothing is deleted
before the end, and each tree has a new file system to itself where one can be made (`filesystem.py`
says why).
"""

import argparse
import asyncio
import gc
import importlib.util
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.subprocesses import ROOT
from benchmarks.workspace import bare, filesystem, report, syncs, trees
from benchmarks.workspace.contenders import (
    Contender,
    Git,
    Holdfast,
    TunedGit,
    Watching,
    allocated,
    installed,
    kernel_time,
    measured,
)
from holdfast import Client
from holdfast.workspace import dirfd

RESULTS = ROOT / "benchmarks" / "results"
SLOW_ROUNDS = 2
FULL_ROUNDS = 3
FIRST_ROUNDS = 3
LATE_ROUNDS = 5
QUICK_ROUNDS = 15  # at least, of what takes less than a second
SIZED_ROUNDS = 32  # at least, of snapshots of one file: what one takes on disk is what they take together
Costs = dict[str, dict[str, list[Any]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", nargs="+", choices=trees.SIZES, default=list(trees.SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--on", choices=(*filesystem.KINDS, filesystem.HERE), default="ext4", help="a new file system")
    parser.add_argument("--full-restores", action="store_true", help="nothing but first snapshots and full restores")
    parser.add_argument("--where", type=Path, default=None, help="a directory to work in, kept")
    parser.add_argument("--results", type=Path, default=None, help="where workspace.json and workspace.md go")
    given = parser.parse_args()
    where = given.where or Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    used: list[Path] = []
    try:
        where.mkdir(parents=True, exist_ok=True)
        results: dict[str, Any] = {"rounds": given.rounds, "trees": {}, "syncs": syncs.measure(where)}
        for name in given.trees:
            with filesystem.fresh(given.on, where) as place:
                if "environment" not in results:
                    described = environment.describe(place, ("holdfast", "ormsgpack", "zstandard"))
                    results["environment"] = described | tools()
                root = trees.make(name, place / "trees", where / "downloads")
                stores = Path(tempfile.mkdtemp(prefix="stores-", dir=place))
                used.append(stores)
                results["trees"][name] = tree(root, stores, given.rounds, full_restores=given.full_restores)
            print(report.page(results, [name]), flush=True)
        whole = given.rounds >= 5 and (set(given.trees) == set(trees.SIZES) or given.full_restores)
        directory = given.results or (RESULTS if whole else RESULTS / "partial")
        directory.mkdir(parents=True, exist_ok=True)
        page = (
            "workspace"
            + (f"-{given.on}" if given.on != "ext4" else "")
            + ("-full-restores" if given.full_restores else "")
        )
        (directory / f"{page}.json").write_text(json.dumps(results, indent=1) + "\n")
        (directory / f"{page}.md").write_text(report.page(results, given.trees))
        if report.JUDGED in given.trees and not given.full_restores and importlib.util.find_spec("matplotlib"):
            report.draw(results, directory / f"{page}.png")
    finally:
        for directory in used if given.where is not None else [where]:
            shutil.rmtree(directory, ignore_errors=True)


def tools() -> dict[str, str]:
    """The versions of what is compared with."""
    found = {}
    for tool, flag in (("git", "--version"), ("restic", "version"), ("borg", "--version")):
        if shutil.which(tool):
            said = subprocess.run([tool, flag], capture_output=True, text=True, check=False).stdout
            found[tool] = said.splitlines()[0] if said else "?"
        else:
            found[tool] = "not installed"
    return {"tools": found}


def tree(root: Path, stores: Path, rounds: int, *, full_restores: bool = False) -> dict[str, Any]:
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    chosen = random.Random(1)
    contenders: list[Contender] = []
    kinds = [Git, TunedGit, Holdfast] if full_restores else installed()
    for number, kind in enumerate(kinds):
        store = stores / f"{root.name}-{number}"
        contender = kind(root, store)
        contender.open()
        contenders.append(contender)
    costs: Costs = {contender.name: {} for contender in contenders}
    size = sum(path.stat().st_size for path in files)
    try:
        for contender in contenders:
            quieted()
            costs[contender.name]["first"] = [measured(contender.snapshot)]
            costs[contender.name]["bytes"] = [settled(contender)[0]]
        firsts([one for one in contenders if not one.is_slow], costs, stores)
        if not full_restores:
            snapshots(contenders, costs, files, chosen, rounds)
            in_place([one for one in contenders if not one.is_slow], costs, chosen.sample(files, 100), rounds)
        anew([one for one in contenders if not isinstance(one, Watching)], costs, stores / f"{root.name}-anew")
    finally:
        for contender in contenders:
            contender.close()
    found = {"files": len(files), "bytes": size, "costs": costs}
    if full_restores:
        return found
    return found | {"event loop": asyncio.run(lateness(root, stores / f"{root.name}-loop"))}


def firsts(contenders: list[Contender], costs: Costs, stores: Path) -> None:
    """First snapshots once more, each into a store of its own."""
    for number in range(1, FIRST_ROUNDS):
        for contender in shuffled(contenders, random.Random(number)):
            another = type(contender)(contender.root, stores / f"first-{number}-{contender.name}")
            another.open()
            quieted()
            costs[contender.name]["first"].append(measured(another.snapshot))
            another.close()


def snapshots(contenders: list[Contender], costs: Costs, files: list[Path], chosen: random.Random, rounds: int) -> None:
    """Snapshots of a directory that did not change, in which one file did, in which 100 did."""
    quick, sized = max(rounds, QUICK_ROUNDS), max(rounds, SIZED_ROUNDS)
    for doing, count, times in (("no change", 0, quick), ("one file", 1, sized), ("100 files", 100, rounds)):
        asked = [one for one in contenders if not (one.is_slow and count > 1)]
        before = {contender.name: settled(contender)[1] for contender in asked}
        for number in range(times):
            for path in chosen.sample(files, count):
                change(path)
            for contender in shuffled(asked, chosen):
                if number < SLOW_ROUNDS or not contender.is_slow:
                    costs[contender.name].setdefault(doing, []).append(measured(contender.snapshot))
        for contender in asked:
            taken = len(costs[contender.name][doing])
            costs[contender.name][f"bytes, {doing}"] = [(settled(contender)[1] - before[contender.name]) / taken]


def in_place(contenders: list[Contender], costs: Costs, edited: list[Path], rounds: int) -> None:
    """100 changes are taken back: 80 edits, 10 deletions, 10 new files. Each sees them in a snapshot before."""
    was = {path: path.read_bytes() for path in edited}
    for number in range(rounds):
        for contender in shuffled(contenders, random.Random(number)):
            base = contender.snapshot()
            for path in edited[:80]:
                change(path)
            for path in edited[80:90]:
                path.unlink()
            for path in edited[90:]:
                path.with_name(f"{path.name}.new").write_bytes(b"new\n")
            contender.snapshot()
            costs[contender.name].setdefault("restore of 100", []).append(
                measured(lambda contender=contender, base=base: contender.restore(base))
            )
            assert all(path.read_bytes() == data for path, data in was.items()), f"{contender.name}: not as it was"


def anew(contenders: list[Contender], costs: Costs, directory: Path) -> None:
    """Everything, into an empty directory, another one each time; and what it takes to have it on
    the disk then. Beside them the floor."""
    names = {contender.name: contender.snapshot() for contender in contenders}
    floors: list[Contender] = [kind(contenders[0].root, directory) for kind in bare.FLOORS]
    costs.update({floor.name: {} for floor in floors})
    for number in range(FULL_ROUNDS):
        for contender in shuffled([*contenders, *floors], random.Random(number)):
            if contender.is_slow and number:
                continue
            place = directory / f"{number}-{contender.name}"
            place.mkdir(parents=True)
            quieted()
            if isinstance(contender, bare.Bare):
                cost, in_kernel = contender.made(place)
            else:
                before = kernel_time()
                cost = measured(
                    lambda contender=contender, place=place: contender.restore_into(names[contender.name], place)
                )
                in_kernel = kernel_time() - before
            noted = {"full restore": cost, report.IN_KERNEL: in_kernel, report.SYNC_AFTER: synced(place)}
            for what, taken in noted.items():
                costs[contender.name].setdefault(what, []).append(taken)
            made = sum(len(names_) for _, _, names_ in os.walk(place))
            there = sum(len(names_) for _, _, names_ in os.walk(contender.root))
            assert made == there, f"{contender.name}: {made} files of {there}"


def synced(place: Path) -> float:
    """How long it takes until all that is on the file system of a directory is on the disk."""
    root = dirfd.open_root(place)
    try:
        return measured(lambda: dirfd.sync_file_system(root))[0]
    finally:
        os.close(root)


def change(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"# changed\n")


def shuffled(contenders: list[Contender], chosen: random.Random) -> Iterator[Contender]:
    order = list(contenders)
    chosen.shuffle(order)
    for contender in order:
        quieted()
        yield contender


def quieted() -> None:
    """What others have written is on the disk, and no business of who comes next."""
    gc.collect()
    os.sync()


def settled(contender: Contender) -> tuple[int, int]:
    """What it takes on disk when nobody has it open, and what of that is in use; it is ready to go on then."""
    contender.close()
    size = allocated(contender.store)
    used = size - contender.unused()
    contender.reopen()
    return size, used


async def lateness(root: Path, store: Path) -> dict[str, Any]:
    """By how many milliseconds an event loop is late beside ten snapshots, and beside nothing for
    as long: a task that wants to wake every millisecond. Each is the median of several rounds in
    turn: a machine that others use, too, is late by itself now and then."""
    beside: list[dict[str, float]] = []
    alone: list[dict[str, float]] = []
    async with Client.sqlite(store / "store.db") as client:
        workspace = client.workspace(root, default_excludes=False)
        await workspace.snapshot()
        for _ in range(LATE_ROUNDS):
            start = time.perf_counter()
            beside.append(await _late(workspace.snapshot, 10))
            took = time.perf_counter() - start
            alone.append(await _late(lambda took=took: asyncio.sleep(took), 1))
    found: dict[str, Any] = _medians(beside)
    return found | {"alone": _medians(alone)}


async def _late(call: Callable[[], Awaitable[object]], times: int) -> dict[str, float]:
    late: list[float] = []

    async def tick() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append(1000 * (time.perf_counter() - start - 0.001))

    ticking = asyncio.create_task(tick())
    for _ in range(times):
        await call()
    ticking.cancel()
    ordered = sorted(late)
    return {"p50": statistics.median(ordered), "p99": ordered[int(len(ordered) * 0.99)], "max": ordered[-1]}


def _medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(one[name] for one in found), 2) for name in found[0]}


if __name__ == "__main__":
    main()
