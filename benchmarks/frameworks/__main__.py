"""Agents of frameworks with `resumable`, beside the framework alone and with its own store: `python -m
benchmarks.frameworks [--turns N] [--texts 0.1] [--only pydantic_ai,autogen] [--results DIR]`.

One module per framework; a new module is measured without further ado.

Runs in an environment that has the frameworks (`make bench-frameworks`); those that are missing are left out. A turn
has three steps: the model calls a tool, the tool answers 3.5 KB, the model answers 1.5 KB; `--texts` makes both
shorter. Models and tools are functions, so all of the CPU is the framework's and ours. CPU is that of the whole
process, worker threads included: the median of five windows of 20 turns, the last ones. The contenders take their
turns alternately, so a busy machine meets all of them alike. The overhead of a step is the median of what `resumable`
takes more than the framework alone, divided by the three steps of a turn: it has its share of what a turn costs at
its beginning and end. Bytes are those of all files after closing.
"""

import argparse
import asyncio
import gc
import json
import logging
import operator
import os
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.frameworks import report
from benchmarks.frameworks.report import STEPS, TURNS, WINDOW, WINDOWS
from benchmarks.frameworks.workload import Take, chance, prose, shorten

QUIET = {  # no telemetry while it is measured
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}
OTHERS = ("__init__", "__main__", "report", "workload")
FRAMEWORKS = sorted(one.stem for one in Path(__file__).parent.glob("*.py") if one.stem not in OTHERS)


async def talk(takes: Mapping[str, Take], turns: int) -> dict[str, list[float]]:
    """Take all turns, of each contender in turn; return their CPU milliseconds of a turn in each window at the end.

    So what else the machine does meets all of them alike.
    """
    chance.seed(7)
    spent: dict[str, list[float]] = {name: [] for name in takes}
    for number in range(turns):
        left = turns - number
        if left <= WINDOW * WINDOWS and left % WINDOW == 0:
            gc.collect()
            for windows in spent.values():
                windows.append(0.0)
        for name, take in takes.items():
            prompt = f"{number} {prose(200)}"
            began = time.process_time()
            await take(prompt)
            if spent[name]:
                spent[name][-1] += 1000 * (time.process_time() - began) / WINDOW
    return spent


def size_of(where: Path) -> int:
    return sum(one.stat().st_size for one in where.rglob("*") if one.is_file())


def measure(name: str, turns: int, where: Path) -> dict[str, Any]:
    from holdfast import Client, SyncClient

    contender = import_module(f"benchmarks.frameworks.{name}")
    own, store = where / "own", where / "store"
    own.mkdir()
    store.mkdir()
    takes = {"alone": contender.run_alone(None), "own store": contender.run_alone(own)}

    async def awaited() -> tuple[dict[str, list[float]], int]:
        async with Client.sqlite(store / "store.db") as client:
            spent = await talk({**takes, "resumable": contender.run_resumable(client)}, turns)
            return spent, transcript_of(await client.latest("s"))

    def blocking() -> tuple[dict[str, list[float]], int]:
        with SyncClient.sqlite(store / "store.db") as client:
            spent = asyncio.run(talk({**takes, "resumable": contender.run_resumable(client)}, turns))
            return spent, transcript_of(client.latest("s"))

    spent, transcript = blocking() if contender.IS_BLOCKING else asyncio.run(awaited())
    more = map(operator.sub, spent["resumable"], spent["alone"])
    return {
        "version": metadata.version(contender.DISTRIBUTION),
        "turns": turns,
        "cpu_ms_of_turn": {one: statistics.median(windows) for one, windows in spent.items()},
        "overhead_ms_of_step": statistics.median(more) / STEPS,
        "transcript_bytes": transcript,
        "bytes": {"own store": size_of(own), "resumable": size_of(store)},
        "own_store": (contender.run_alone.__doc__ or "").strip(),
    }


def transcript_of(checkpoint: Any) -> int:
    state = {key: value for key, value in checkpoint.execution_state.items() if key != "turn"}
    return len(json.dumps(state, default=str, ensure_ascii=False).encode())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frameworks")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--texts", type=float, default=1.0, help="length of all texts; 0.1 makes a tenth of them")
    parser.add_argument(
        "--only", metavar="A,B,…", default=",".join(FRAMEWORKS), help=f"some of {', '.join(FRAMEWORKS)}"
    )
    parser.add_argument("--results", type=Path, help="directory for frameworks.json and frameworks.md")
    given = parser.parse_args()
    if given.turns <= WINDOW * WINDOWS:
        parser.error(f"--turns must be more than {WINDOW * WINDOWS}, over which CPU is measured")
    unknown = [name for name in given.only.split(",") if name not in FRAMEWORKS]
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join(FRAMEWORKS)}")
    os.environ.update(QUIET)
    warnings.simplefilter("ignore")  # of the frameworks, about themselves
    logging.disable()  # likewise
    shorten(given.texts)
    found: dict[str, Any] = {}
    failed: list[str] = []
    for name in given.only.split(","):
        if not _is_here(name):
            print(f"{name}: not installed here, left out", file=sys.stderr)
            continue
        try:
            with tempfile.TemporaryDirectory(prefix="holdfast-frameworks-") as where:
                machine = environment.describe(Path(where), ("holdfast", "ormsgpack", "zstandard"))
                found[name] = {**measure(name, given.turns, Path(where)), "environment": machine}
        except Exception:  # the others are measured all the same
            traceback.print_exc()
            failed.append(name)
            continue
        print(f"{name}: measured", file=sys.stderr, flush=True)
        if given.results is not None:
            report.add(given.results, found, texts=given.texts)
    print("\n".join(report.figures(found)))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _is_here(name: str) -> bool:
    try:
        metadata.version(import_module(f"benchmarks.frameworks.{name}").DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
