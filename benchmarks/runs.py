"""Steps of a run beside DBOS's, and bare commits of sqlite3: `python -m benchmarks.runs [--steps N]
[--rounds N] [--results DIR]`.

Each contender works in a process of its own, for as many steps, on the same disk, and they take
turns. CPU is that of the whole process while it makes its steps, worker threads included. All are
durable after every step: WAL and synchronous=FULL for holdfast and sqlite3, a rollback journal at
SQLite's default, FULL, for DBOS, as it sets it up itself.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import environment, pages, plot
from benchmarks.goals import Goal, Verdict
from benchmarks.tables import number, table

Row = tuple[Any, ...]
HERE = Path(__file__).resolve().parent
RESULT = {"text": "what a step came to: " + "kelp " * 30, "numbers": list(range(10))}
STEP, COMMIT = "holdfast step", "bare sqlite3 commit"
ROWS, ONE_ROW = "bare sqlite3, a step's rows", "bare sqlite3, a step in one row"
ROW_AND_STEP = "the same, and a step in memory"
CONTENDERS = (STEP, "holdfast effect", "DBOS step", COMMIT, ROWS, ONE_ROW, ROW_AND_STEP)
GOAL = 0.7  # of the bare commits per second
# Until a WAL has been checkpointed for the first time it grows, and a commit that makes a file
# longer costs more.
WARM_UP = 1_000


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

    from benchmarks.dbos_config import dbos_on_sqlite

    logging.disable(logging.WARNING)
    DBOS(config=dbos_on_sqlite(where / "dbos.sqlite"))
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
    connection, (k, length, data), record, key = rows_of_a_step(where)
    number, id_, session, sequence, *rest = record
    put_record = f"INSERT INTO record VALUES ({', '.join('?' * len(record))})"

    def commit(n: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO run VALUES (?, ?, ?)", (k + n * length, length, data))
        new_id = id_[:-4] + n.to_bytes(4, "big")
        connection.execute(put_record, (number + n, new_id, session, sequence + n, *rest))
        connection.execute(
            "UPDATE row SET version = ?, value = ? WHERE space = ? AND key = ? AND tree = ?", (n, key[3], *key[:3])
        )
        connection.execute("COMMIT")

    for n in range(1, WARM_UP + 1):
        commit(n)
    taken = timed(lambda: [commit(WARM_UP + n) for n in range(1, steps + 1)])
    connection.close()
    return taken


def bare_row(where: Path, steps: int) -> tuple[float, float]:
    """The values of these rows as one row of one table, which is one page of the WAL: the least
    that any layout takes."""
    commit = one_row(where)
    for n in range(WARM_UP):
        commit(-1 - n)
    return timed(lambda: [commit(n) for n in range(steps)])


def bare_row_and_step(where: Path, steps: int) -> tuple[float, float]:
    """The same after a step of a run in memory: so what makes the values runs as it does in life,
    after a sync, when what the processor had at hand is gone."""
    from holdfast import SyncClient

    commit = one_row(where)
    with SyncClient.memory() as client, client.run("bench", agent_id="a") as run:

        def step(n: int) -> None:
            run.step(f"step {n}", lambda: RESULT)
            commit(n)

        for n in range(WARM_UP):
            step(-1 - n)
        return timed(lambda: [step(n) for n in range(steps)])


def one_row(where: Path) -> Callable[[int], None]:
    connection, *rows = rows_of_a_step(where)
    values = [value for row in rows for value in row]
    connection.close()
    connection = sqlite3.connect(where / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    columns = ", ".join(f"c{number}" for number in range(len(values)))
    connection.execute(f"CREATE TABLE step (n INTEGER PRIMARY KEY, {columns})")
    put = f"INSERT INTO step VALUES (?{', ?' * len(values)})"

    def commit(n: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(put, (n, *values))
        connection.execute("COMMIT")

    return commit


def rows_of_a_step(where: Path) -> tuple[sqlite3.Connection, Row, Row, Row]:
    """A store that steps were made in, and what the last one wrote: run, record, the head's key and value."""
    from holdfast import SyncClient

    with SyncClient.sqlite(where / "store.db") as client, client.run("bench", agent_id="a") as run:
        for n in range(WARM_UP):
            run.step(f"warm {n}", lambda: RESULT)
    connection = sqlite3.connect(where / "store.db", isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    queries = (
        "SELECT * FROM run ORDER BY k DESC LIMIT 1",
        "SELECT * FROM record WHERE step_name LIKE 'warm %' ORDER BY n DESC LIMIT 1",
        "SELECT space, key, tree, value FROM row WHERE space = 'head'",
    )
    run_, record, head = (connection.execute(query).fetchone() for query in queries)
    return connection, run_, record, head


def timed(work: Any) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - cpu


WORK = dict(
    zip(
        CONTENDERS,
        (holdfast_steps, holdfast_effects, dbos_steps, bare_commits, bare_rows, bare_row, bare_row_and_step),
        strict=True,
    )
)


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
            lambda _: figures[STEP]["cpu_us"] / figures["DBOS step"]["cpu_us"],
            1 / 3,
        ),
        Goal(
            "steps per second over bare commits of sqlite3 at FULL",
            "runs",
            lambda _: figures[STEP]["per_second"] / figures[COMMIT]["per_second"],
            GOAL,
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
        (
            f"Medians of {results['rounds']} rounds of {results['steps']:,} steps. What is measured and "
            "how: `benchmarks/runs.py`."
        ),
        "",
        "![CPU of a step, and steps per second](runs.png)",
        "",
        "## Goals",
        "",
        *pages.goals(verdicts(results), command),
        "## Figures",
        "",
        *table(["one of them", "CPU (µs)", "per second"], rows),
        *account(figures),
    ]
    return "\n".join(lines) + "\n"


def account(figures: dict[str, Any]) -> Iterator[str]:
    """What a step takes beyond a bare commit, and how little of that the goal leaves room for."""
    if not figures.keys() >= {STEP, COMMIT, ROWS, ONE_ROW, ROW_AND_STEP}:
        return
    step, commit, rows, one_row, row_and_step = (
        1e6 / figures[name]["per_second"] for name in (STEP, COMMIT, ROWS, ONE_ROW, ROW_AND_STEP)
    )
    making = row_and_step - one_row
    parts = {
        "a bare commit of one small row": commit,
        "a step's values in that row": one_row - commit,
        "these in three tables, to be found by": rows - one_row,
        "making them: a step in memory, after a sync": making,
        "conditions, entries to find records by, sealing": step - rows - making,
    }
    yield ""
    yield "## Where the time of a step goes"
    yield ""
    yield from table(["", "µs"], [[what, number(time)] for what, time in parts.items()])
    yield ""
    yield (
        f"Together {number(step)} µs; a step of {number(commit / GOAL)} µs would reach the goal. Over "
        "bare commits of a step's very "
        f"rows it is {number(rows / step)} times as many per second; with all of a step in one row, "
        "and nothing else to do, "
        f"it would be {number(commit / row_and_step)} times the bare commits of one small row."
    )


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
