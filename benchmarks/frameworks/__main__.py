"""Agents of frameworks with `resumable`, beside the framework alone and with its own store: `python -m
benchmarks.frameworks [--turns N] [--only pydantic_ai,autogen] [--results DIR]`.

One module per framework; a new module is measured without further ado.

Runs in an environment that has the frameworks (`make bench-frameworks`); those that are missing are left out. A turn
has three steps: the model calls a tool, the tool answers 3.5 KB, the model answers 1.5 KB. Models and tools are
functions, so all of the CPU is the framework's and ours. CPU is that of the whole process, worker threads included,
over the last turns. The overhead of a step is that of `resumable` over the framework alone, divided by the three
steps of a turn: it has its share of what a turn costs at its beginning and end. Bytes are those of all files after
closing.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import time
import warnings
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import Take, chance, prose
from benchmarks.tables import table

QUIET = {  # no telemetry while it is measured
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}
STEPS = 3  # of a turn
LAST = 20  # turns whose CPU is measured
GOAL_MS, GOAL_BYTES = 5.0, 1.5
FRAMEWORKS = sorted(
    one.stem for one in Path(__file__).parent.glob("*.py") if one.stem not in ("__init__", "__main__", "workload")
)


async def talk(take: Take, turns: int) -> float:
    """Take all turns; return the CPU milliseconds of one turn at the end."""
    chance.seed(7)
    for number in range(turns):
        if number == turns - LAST:
            gc.collect()
            started = time.process_time()
        await take(f"{number} {prose(200)}")
    return 1000 * (time.process_time() - started) / LAST


def size_of(where: Path) -> int:
    return sum(one.stat().st_size for one in where.rglob("*") if one.is_file())


def measure(name: str, turns: int, where: Path) -> dict[str, Any]:
    from holdfast import Client, SyncClient

    contender = import_module(f"benchmarks.frameworks.{name}")
    own, store = where / "own", where / "store"
    own.mkdir()
    store.mkdir()
    alone = asyncio.run(talk(contender.run_alone(None), turns))
    with_own = asyncio.run(talk(contender.run_alone(own), turns))

    async def awaited() -> tuple[float, int]:
        async with Client.sqlite(store / "store.db") as client:
            spent = await talk(contender.run_resumable(client), turns)
            return spent, transcript_of(await client.latest("s"))

    def blocking() -> tuple[float, int]:
        with SyncClient.sqlite(store / "store.db") as client:
            spent = asyncio.run(talk(contender.run_resumable(client), turns))
            return spent, transcript_of(client.latest("s"))

    with_ours, transcript = blocking() if contender.IS_BLOCKING else asyncio.run(awaited())
    return {
        "framework": name,
        "version": metadata.version(contender.DISTRIBUTION),
        "turns": turns,
        "cpu_ms_of_turn": {"alone": alone, "own store": with_own, "resumable": with_ours},
        "overhead_ms_of_step": (with_ours - alone) / STEPS,
        "transcript_bytes": transcript,
        "bytes": {"own store": size_of(own), "resumable": size_of(store)},
        "own_store": (contender.run_alone.__doc__ or "").strip(),
    }


def transcript_of(checkpoint: Any) -> int:
    state = {key: value for key, value in checkpoint.execution_state.items() if key != "turn"}
    return len(json.dumps(state, default=str, ensure_ascii=False).encode())


def describe(results: list[dict[str, Any]]) -> str:
    rows = []
    for one in results:
        cpu, size, whole = one["cpu_ms_of_turn"], one["bytes"], one["transcript_bytes"]
        rows.append(
            [
                f"{one['framework']} {one['version']}",
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
    return "\n".join(table([*head, "resumable"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frameworks")
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument(
        "--only", metavar="A,B,…", default=",".join(FRAMEWORKS), help=f"some of {', '.join(FRAMEWORKS)}"
    )
    parser.add_argument("--results", type=Path, help="directory for frameworks.json")
    given = parser.parse_args()
    if given.turns <= LAST:
        parser.error(f"--turns must be more than {LAST}, over which CPU is measured")
    os.environ.update(QUIET)
    warnings.simplefilter("ignore")  # of the frameworks, about themselves
    results = []
    for name in given.only.split(","):
        if name not in FRAMEWORKS:
            parser.error(f"{name!r} is none of {', '.join(FRAMEWORKS)}")
        if not _is_here(name):
            print(f"{name}: not installed here, left out", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="holdfast-frameworks-") as where:
            results.append(measure(name, given.turns, Path(where)))
        print(f"{name}: measured", file=sys.stderr, flush=True)
    print(describe(results))
    print(f"goals: overhead of a step at most {GOAL_MS} ms, bytes at most {GOAL_BYTES} times the transcript")
    if given.results is not None:
        given.results.mkdir(parents=True, exist_ok=True)
        (given.results / "frameworks.json").write_text(json.dumps(results, indent=1))


def _is_here(name: str) -> bool:
    try:
        metadata.version(import_module(f"benchmarks.frameworks.{name}").DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
