"""The server of `holdfast ui` on a large store: `python -m benchmarks.ui_server [--checkpoints N] [--sessions N]`.

A SQLite file with a tree of 100,000 checkpoints in forks, 10,000 sessions, and a state of 10 MB.
The server is a process of its own; requests come over a socket. The first page of the tree is
asked of a fresh server; each other figure is the median of requests for different places. CPU time
of the server stands beside it: it is what is left on a busy machine. Memory is the peak of the
whole run.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks import environment, pages
from benchmarks.goals import Goal, Verdict
from benchmarks.subprocesses import ROOT
from benchmarks.tables import number, table
from holdfast import SyncClient

FORKS = 0.005
LINES_AT_ONCE = 8  # forks that are saved to beside the main line
STATE_BYTES = 10_000_000
ROUNDS = 7
PACKAGES = ("holdfast", "starlette", "uvicorn", "httpx", "ormsgpack", "zstandard")
GOALS = {"first rows": 0.7, "jump": 0.15, "open a 10 MB state": 1.0}  # seconds
GOAL_MEMORY = 150  # MB


def build(path: Path, checkpoints: int, sessions: int) -> str:
    """Make the store, and return the id of its tree."""
    rng = random.Random(1)
    with SyncClient.sqlite(path, durability="fast") as client:
        lines, made = ["main"], [client.save("agent", execution_state={"step": 0}, session_id="main")]
        while len(made) < checkpoints:
            if rng.random() < FORKS:
                report = client.fork(rng.choice(made[-2000:]), f"fork-{len(lines)}")
                lines.append(report.session_id)
                made.append(report.checkpoint_id)
                continue
            line = lines[0] if rng.random() < 0.6 else rng.choice(lines[-LINES_AT_ONCE:])
            name = rng.choice(("plan", "search", "write", "test"))
            made.append(client.save("agent", execution_state={"step": len(made)}, session_id=line, step_name=name))
        for n in range(max(sessions - len(lines) - 1, 0)):
            client.save("agent", execution_state={"n": n}, session_id=f"session-{n:05}")
        client.save("agent", execution_state={"rows": _rows(rng)}, session_id="large state")
        return client.get(made[0]).tree_id


def _rows(rng: random.Random) -> list[dict[str, Any]]:
    return [{"id": n, "text": rng.randbytes(450).hex()} for n in range(STATE_BYTES // 1000)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--store", type=Path, help="a store that --build made")
    parser.add_argument("--build", type=Path, help="only make the store")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    if given.build:
        build(given.build, given.checkpoints, given.sessions)
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        results: dict[str, Any] = {"environment": environment.describe(Path(directory), PACKAGES)}
        path = given.store or Path(directory, "large.db")
        if given.store is None:
            build(path, given.checkpoints, given.sessions)
        results |= {"checkpoints": given.checkpoints, "sessions": given.sessions, **measure(path)}
    results["seconds"] = time.monotonic() - began
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "ui_server.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    page = "\n".join(_page(results)) + "\n"
    (given.results / "ui_server.md").write_text(page, "utf-8")
    print(page)
    missed = [one.figure for one in verdicts(results) if not one.reached]
    if missed:
        sys.exit(f"goals missed: {', '.join(missed)}")


def measure(path: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        token = Path(directory, "token")
        command = [sys.executable, "-m", "holdfast", "ui", str(path), "--no-open", "--json", "--token-file", str(token)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=directory) as process:
            assert process.stdout is not None
            lines: list[str] = []
            while not lines or lines[-1] != "}\n":
                lines.append(process.stdout.readline())
            said = json.loads("".join(lines))
            headers = {"authorization": f"Bearer {token.read_text().strip()}"}
            try:
                with httpx.Client(base_url=f"{said['origin']}/api/v1", headers=headers, timeout=300) as http:
                    seconds = _ask(http, process.pid)
                peak = _peak(process.pid)
            finally:
                process.terminate()
    return {"requests": seconds, "peak_bytes": peak, "store_bytes": path.stat().st_size}


def _ask(http: httpx.Client, pid: int) -> dict[str, tuple[float, float]]:
    def timed(path: str) -> tuple[float, float]:
        wall, cpu = time.perf_counter(), _cpu(pid)
        answer = http.get(path)
        answer.raise_for_status()
        return time.perf_counter() - wall, _cpu(pid) - cpu

    def median(path: Callable[[int], str], rounds: int = ROUNDS) -> tuple[float, float]:
        found = [timed(path(n)) for n in range(rounds)]
        return statistics.median(one[0] for one in found), statistics.median(one[1] for one in found)

    http.get("/openapi.json").raise_for_status()  # the server's own imports are done
    tree = http.get("/sessions/main").json()["tree_id"]
    seconds = {"first rows": timed(f"/trees/{tree}/graph?offset=0")}
    total = http.get(f"/trees/{tree}/graph?offset=0&limit=1").json()["total"]
    seconds["whole layout"] = timed(f"/trees/{tree}/graph?offset={total - 100}")
    places = random.Random(2).sample(range(total), ROUNDS)
    seconds["jump"] = median(lambda n: f"/trees/{tree}/graph?offset={places[n]}")
    seconds["first page of sessions"] = timed("/sessions?limit=100")
    seconds["page of sessions"] = median(lambda n: f"/sessions?limit=100&offset={n * 1000}")
    seconds["search sessions"] = median(lambda n: f"/sessions?q=session-0{n}")
    seconds["open a 10 MB state"] = timed("/checkpoints/large%20state/state")
    seconds["a part of it"] = median(lambda n: f"/checkpoints/large%20state/state?path=rows.{n * 100}")
    listed = http.get("/sessions/main/timeline?limit=20").json()["checkpoints"]
    ids = [one["checkpoint_id"] for one in listed]
    seconds["checkpoint"] = median(lambda n: f"/checkpoints/{ids[n]}")
    seconds["a place on the line"] = median(lambda n: f"/checkpoints/main@~{n + 3}")
    seconds["a place far up the line"] = timed(f"/checkpoints/main@~{total // 5}")
    seconds["page of a timeline"] = median(lambda n: f"/sessions/main/timeline?before={(n + 1) * total // 20}")
    seconds["diff with the parent"] = median(lambda n: f"/diff?b={ids[n]}")
    seconds["status"] = median(lambda _: "/status")
    seconds["disk usage"] = timed("/du")
    return seconds


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    def wall(name: str) -> Callable[[dict[str, Any]], float]:
        return lambda given: float(given["requests"][name][0])

    found = [Goal(name, "server", wall(name), limit, unit="s") for name, limit in GOALS.items()]
    found.append(Goal("peak memory", "server", lambda given: given["peak_bytes"] / 1e6, GOAL_MEMORY, unit="MB"))
    return [one.judge(results) for one in found]


def command(_workload: str) -> str:
    return "python -m benchmarks.ui_server"


def _page(results: dict[str, Any]) -> Iterator[str]:
    yield from pages.head(
        "The server of the web page",
        results,
        software=f"SQLite {results['environment']['sqlite']}",
        not_worth_quoting=results["checkpoints"] < 100_000,
    )
    yield (
        f"A store of {results['store_bytes'] / 1e6:.0f} MB: {results['checkpoints']:,} checkpoints in one tree, "
        f"{results['sessions']:,} sessions, and a state of {STATE_BYTES / 1e6:.0f} MB. The server is a process of its "
        "own."
    )
    yield ""
    yield "## Goals"
    yield ""
    yield from pages.goals(verdicts(results), command)
    yield "## Requests"
    yield ""
    rows = [(name, number(wall * 1000), number(cpu * 1000)) for name, (wall, cpu) in results["requests"].items()]
    yield from table(("request", "wall ms", "CPU ms"), rows)


if __name__ == "__main__":
    main()
