"""Steps of a run beside DBOS's, and bare commits of sqlite3: `python -m benchmarks.runs [--steps N] [--rounds N] [--results DIR]`.

Each contender works in a process of its own, for as many steps, on the same disk, and they take turns. CPU is that of the
whole process while it makes its steps, worker threads included. All are durable after every step: WAL and synchronous=FULL
for holdfast and sqlite3, a rollback journal at SQLite's default, FULL, for DBOS, as it sets it up itself.
"""

import argparse
import importlib.util
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import environment, pages, plot
from benchmarks.goals import Goal, Verdict
from benchmarks.tables import number, table

HERE = Path(__file__).resolve().parent
RESULT = {"text": "what a step came to: " + "kelp " * 30, "numbers": list(range(10))}
CONTENDERS = ("holdfast step", "holdfast effect", "DBOS step", "bare sqlite3 commit", "bare sqlite3, a step's rows")
WARM_UP = 1_000  # until a WAL has been checkpointed for the first time it grows, and a commit that makes a file longer costs more


# -- one contender, in this process ----------------------------------------------------------------------------------


def holdfast_steps(where: Path, steps: int) -> tuple[float, float]:
    from holdfast import SyncClient

    with SyncClient.sqlite(where / "store.db") as client, client.run("bench", agent_id="a") as run:
        for n in range(WARM_UP):
            run.step(f"warm {n}", lambda: RESULT)
        return timed(lambda: [run.step(f"step {n}", lambda: RESULT) for n in range(steps)])


def holdfast_effects(where: Path, steps: int) -> tuple[float, float]:
    from holdfast import SyncClient

    def work(n: int) -> Any:
        return RESULT

    with SyncClient.sqlite(where / "store.db") as client, client.run("bench", agent_id="a") as run:
        for n in range(WARM_UP):
            run.effect("warm", work, n)
        return timed(lambda: [run.effect("work", work, n) for n in range(steps)])


def dbos_steps(where: Path, steps: int) -> tuple[float, float]:
    import logging

    from dbos import DBOS

    logging.disable(logging.WARNING)
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{where}/dbos.sqlite"})
    taken: list[tuple[float, float]] = []

    @DBOS.step()
    def step(n: int) -> Any:
        return RESULT

    @DBOS.workflow()
    def workflow() -> int:
        for n in range(WARM_UP):
            step(n)
        taken.append(timed(lambda: [step(n) for n in range(steps)]))
        return steps

    DBOS.launch()
    workflow()
    DBOS.destroy()
    return taken[0]


def bare_commits(where: Path, steps: int) -> tuple[float, float]:
    connection = sqlite3.connect(where / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE step (n INTEGER PRIMARY KEY, data BLOB)")
    data = json.dumps(RESULT).encode()

    def commit(n: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO step VALUES (?, ?)", (n, data))
        connection.execute("COMMIT")

    for n in range(WARM_UP):
        commit(-1 - n)
    taken = timed(lambda: [commit(n) for n in range(steps)])
    connection.close()
    return taken


def bare_rows(where: Path, steps: int) -> tuple[float, float]:
    """Rows like those of a step, into the same tables, by nothing but sqlite3: the least that keeping them takes."""
    from holdfast import SyncClient

    with SyncClient.sqlite(where / "store.db") as client, client.run("bench", agent_id="a") as run:
        for n in range(WARM_UP):
            run.step(f"warm {n}", lambda: RESULT)
    connection = sqlite3.connect(where / "store.db", isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    k, length, data = connection.execute("SELECT * FROM run ORDER BY k DESC LIMIT 1").fetchone()
    record = connection.execute("SELECT * FROM record ORDER BY n DESC LIMIT 1").fetchone()
    key = connection.execute("SELECT space, key, tree, value FROM row WHERE space = 'head'").fetchone()
    put_record = f"INSERT INTO record VALUES ({', '.join('?' * len(record))})"

    def commit(n: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO run VALUES (?, ?, ?)", (k + n * length, length, data))
        connection.execute(put_record, (record[0] + n, *record[1:]))
        connection.execute(
            "UPDATE row SET version = ?, value = ? WHERE space = ? AND key = ? AND tree = ?", (n, key[3], *key[:3])
        )
        connection.execute("COMMIT")

    for n in range(1, WARM_UP + 1):
        commit(n)
    taken = timed(lambda: [commit(WARM_UP + n) for n in range(1, steps + 1)])
    connection.close()
    return taken


def timed(work: Any) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - cpu


WORK = dict(zip(CONTENDERS, (holdfast_steps, holdfast_effects, dbos_steps, bare_commits, bare_rows), strict=True))


# -- all of them, in turn --------------------------------------------------------------------------------------------


def measure(steps: int, rounds: int, stores: Path, contenders: tuple[str, ...]) -> dict[str, Any]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in random.sample(contenders, len(contenders)):
            with tempfile.TemporaryDirectory(dir=stores) as folder:
                done = subprocess.run(
                    [sys.executable, "-m", "benchmarks.runs", "--one", name, "--steps", str(steps), "--stores", folder],
                    capture_output=True,
                    text=True,
                    cwd=HERE.parent,
                    check=False,
                )
            if done.returncode:
                raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
            seconds, cpu = json.loads(done.stdout.splitlines()[-1])
            taken[name].append((seconds / steps, cpu / steps))
            print(f"{name:>20}  {1e6 * cpu / steps:8.0f} µs CPU  {steps / seconds:8.0f} /s", flush=True)
    return {
        name: {
            "cpu_us": 1e6 * statistics.median(cpu for _, cpu in of_name),
            "per_second": 1 / statistics.median(seconds for seconds, _ in of_name),
        }
        for name, of_name in taken.items()
    }


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    figures = results["figures"]
    goals = (
        Goal(
            "CPU of a step over that of DBOS's",
            "runs",
            lambda _: figures["holdfast step"]["cpu_us"] / figures["DBOS step"]["cpu_us"],
            1 / 3,
        ),
        Goal(
            "steps per second over bare commits of sqlite3 at FULL",
            "runs",
            lambda _: figures["holdfast step"]["per_second"] / figures["bare sqlite3 commit"]["per_second"],
            0.7,
            at_least=True,
        ),
    )
    return [goal.judge(results) for goal in goals]


def command(workload: str) -> str:
    return f"python -m benchmarks.{workload}"


def markdown(results: dict[str, Any], *, whole: bool = True) -> str:
    figures, about = results["figures"], results["environment"]
    rows = [[name, number(of_name["cpu_us"]), number(of_name["per_second"])] for name, of_name in figures.items()]
    lines = [
        *pages.head("Runs beside DBOS", results, software=f"SQLite {about['sqlite']}", not_worth_quoting=not whole),
        f"Medians of {results['rounds']} rounds of {results['steps']:,} steps. What is measured and how: `benchmarks/runs.py`.",
        "",
        "![CPU of a step, and steps per second](runs.png)",
        "",
        "## Goals",
        "",
        *pages.goals(verdicts(results), command),
        "## Figures",
        "",
        *table(["one of them", "CPU (µs)", "per second"], rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runs", description="Measure runs beside DBOS.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ours", action="store_true", help="without DBOS and its package")
    parser.add_argument("--stores", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--results", type=Path)
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        os.chdir(given.stores)
        print(json.dumps(WORK[given.one](given.stores, given.steps)))
        return
    contenders = tuple(name for name in CONTENDERS if not (given.ours and name.startswith("DBOS")))
    results = {
        "steps": given.steps,
        "rounds": given.rounds,
        "environment": environment.describe(given.stores, ("holdfast", "dbos", "sqlalchemy")),
        "figures": measure(given.steps, given.rounds, given.stores, contenders),
    }
    whole = given.steps >= 1000 and given.rounds >= 5 and not given.ours
    directory = given.results or (HERE / "results" if whole else HERE / "results" / "partial")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "runs.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (directory / "runs.md").write_text(markdown(results, whole=whole), encoding="utf-8")
    if importlib.util.find_spec("matplotlib"):
        plot.bars(
            {
                "CPU of one, µs": {name: of_name["cpu_us"] for name, of_name in results["figures"].items()},
                "per second": {name: of_name["per_second"] for name, of_name in results["figures"].items()},
            },
            "Durable steps on SQLite",
            directory / "runs.png",
        )
    print(pages.as_text(verdicts(results)))


if __name__ == "__main__":
    main()
