"""Commands on a large store: `python -m benchmarks.large_store [--sessions 1000] [--checkpoints 100] [--results DIR]`.

A SQLite file with 100,000 checkpoints in 1,000 sessions, each a conversation that grows by a
message a step; some forks, tags and handoffs among them. Each command is a process of its own, as a
person calls it: wall time from its start to its end, medians of runs in turn, the store's file in
the page cache. CPU time stands beside it: it is what is left on a busy machine.
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment, pages
from benchmarks.goals import Goal, Verdict
from benchmarks.subprocesses import ROOT
from benchmarks.tables import number, table
from holdfast import Client, SyncClient

PACKAGES = ("holdfast", "click", "rich", "ormsgpack", "zstandard")
AT_ONCE = 250  # sessions that are saved to at the same time
ROUNDS = 5
GOAL_SECONDS, GOAL_HELP_SECONDS = 0.5, 0.15
JUDGED = (
    "sessions",
    "timeline",
    "timeline SESSION",
    "timeline SESSION --graph",
    "show SESSION",
    "show ID",
    "status",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--checkpoints", type=int, default=100, help="of each session")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as stores:
        results: dict[str, Any] = {"environment": environment.describe(Path(stores), PACKAGES)}
        path = Path(stores) / "large.db"
        began = time.monotonic()
        short_id = asyncio.run(build(path, given.sessions, given.checkpoints))
        results["store"] = {
            "sessions": given.sessions,
            "checkpoints": given.sessions * given.checkpoints,
            "bytes": path.stat().st_size,
            "built_in_seconds": time.monotonic() - began,
        }
        results["commands"] = measured(path, short_id, given.rounds)
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "cli.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    page = "\n".join(_page(results)) + "\n"
    (given.results / "cli.md").write_text(page, "utf-8")
    print(page)


async def build(path: Path, sessions: int, checkpoints: int) -> str:
    """Saves to many sessions at once, so that their commits are shared. Returns the end of one checkpoint's id."""
    async with Client.sqlite(path, durability="fast") as client:
        for start in range(0, sessions, AT_ONCE):
            names = [f"run-{number:05d}" for number in range(start, min(start + AT_ONCE, sessions))]
            await asyncio.gather(*(_fill(client, name, checkpoints) for name in names))
    with SyncClient.sqlite(path) as client:
        for number in range(0, sessions, 50):
            entries = client.timeline(session_id=f"run-{number:05d}", limit=None)
            client.fork(entries[len(entries) // 2].checkpoint_id, session_id=f"run-{number:05d}-again")
            client.tag(f"good-{number}", entries[-1].checkpoint_id)
            client.handoff(entries[0].checkpoint_id, target_agent_id="reviewer")
        return entries[-1].short_id


async def _fill(client: Client, name: str, checkpoints: int) -> None:
    for step in range(checkpoints):
        said = f"step {step} of {name}: " + "what was found, and what follows from it. " * 3
        await client.save(
            f"agent-{int(name[-5:]) % 7}",
            execution_state={"plan": {"at": step}, **({} if step else {"messages": []})},
            session_id=name,
            step_name=("plan", "search", "edit", "test")[step % 4],
            append={"messages": [{"role": "assistant", "content": said}]} if step else None,
        )


def commands(short_id: str) -> dict[str, list[str]]:
    last = "run-00050"
    return {
        "--help": ["--help"],
        "sessions": ["sessions"],
        "sessions -n 20": ["sessions", "-n", "20"],
        "timeline": ["timeline"],
        "timeline SESSION": ["timeline", last],
        "timeline SESSION --graph": ["timeline", last, "--graph"],
        "show SESSION": ["show", last],
        "show ID": ["show", short_id],
        "show SESSION@{step}": ["show", f"{last}@{{3}}"],
        "show SESSION --search": ["show", last, "--search", "step 7 of"],
        "diff SESSION@~9 SESSION": ["diff", f"{last}@~9", last],
        "status": ["status", "--dir", "."],
        "runs": ["runs"],
        "tag": ["tag"],
        "inbox AGENT": ["inbox", "reviewer"],
        "du SESSION": ["du", last],
        "du": ["du"],
    }


def measured(path: Path, short_id: str, rounds: int) -> dict[str, dict[str, float]]:
    taken: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as empty:
        for _ in range(rounds):
            for name, args in commands(short_id).items():
                taken.setdefault(name, []).append(_run(["--store", str(path), *args], empty))
    return {
        name: {
            "seconds": statistics.median(wall for wall, _ in runs),
            "cpu_seconds": statistics.median(cpu for _, cpu in runs),
        }
        for name, runs in taken.items()
    }


def _run(args: Sequence[str], directory: str) -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *args], cwd=directory, capture_output=True, text=True, check=False
    )
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"holdfast {' '.join(args)}: {done.stderr}")
    return wall, (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    def seconds(name: str) -> Goal:
        limit = GOAL_HELP_SECONDS if name == "--help" else GOAL_SECONDS
        return Goal(
            f"`holdfast {name}`", "large_store", lambda found: found["commands"][name]["seconds"], limit, unit="s"
        )

    return [seconds(name).judge(results) for name in ("--help", *JUDGED)]


def command(workload: str) -> str:
    return f"python -m benchmarks.{workload}"


def _page(results: dict[str, Any]) -> list[str]:
    store = results["store"]
    rows = [
        [f"`holdfast {name}`", number(of["seconds"] * 1000), number(of["cpu_seconds"] * 1000)]
        for name, of in results["commands"].items()
    ]
    software = f"SQLite {results['environment']['sqlite']}"
    whole = store["checkpoints"] >= 100_000
    return [
        *pages.head("Commands on a large store", results, software=software, not_worth_quoting=not whole),
        f"{store['checkpoints']:,} checkpoints in {store['sessions']:,} sessions, {store['bytes'] / 1e6:.0f} MB.",
        (
            f"It was built in {store['built_in_seconds']:.0f} s. Each command is a new process: Python's "
            "own start is part of it."
        ),
        "",
        "## Goals",
        "",
        (
            "What has to read every record shows progress on a terminal instead: `du`, `export`, "
            "`import`, `copy`, `migrate`."
        ),
        "",
        *pages.goals(verdicts(results), command),
        "## Figures",
        "",
        *table(["", "ms", "CPU ms"], rows),
    ]


if __name__ == "__main__":
    main()
