"""Runs by workers beside DBOS's workflows: `python -m benchmarks.work [--runs N] [--rounds N] [--only postgres]`.

Each contender works in a process of its own, on the same PostgreSQL (with fsync) or on SQLite, as
each sets it up by default; they take turns. A run has ten steps, which are recorded one by one.

- start: the latency of recording a run that is to be carried out, by `client.start`, and by
  `Queue.enqueue` or `DBOS.start_workflow`, one after the other, while the same process carries out
  those before it. "From elsewhere" is a process that only starts, by `client.start` and by
  `DBOSClient.enqueue`, while nothing is carried out
- runs per second: from the first start to the last completion, which both read from what they
  have stored or said, not by a call for each run. A queue of DBOS, and a worker of holdfast,
  carries out eight at a time; without a queue DBOS starts a thread for each, and a worker of
  holdfast is given as many places
- CPU: of the whole process, over the steps of that time
- recovery: from the kill of a worker in the middle of a run to its end, by a worker that starts
  after the kill. DBOS: a process of the same executor, which recovers its workflows at launch
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import environment, pages
from benchmarks.goals import Goal, Verdict
from benchmarks.subprocesses import ROOT
from benchmarks.tables import table

STEPS = 10
AT_ONCE = 8
MANY = 64  # of coroutines, which need no threads
STORES = ("sqlite", "postgres")
RESULT = {"text": "what a step came to: " + "kelp " * 30, "numbers": list(range(10))}
PATIENCE = 240.0


# -- holdfast --------------------------------------------------------------------------------------------------------


def holdfast_client(place: str) -> Any:
    from holdfast import SyncClient

    return SyncClient.postgres(place) if place.startswith("postgres") else SyncClient.sqlite(f"{place}/holdfast.db")


def holdfast_names() -> Any:
    from holdfast import Runnables, runnable

    names = Runnables()

    @runnable("bench", registry=names)
    def bench(run: Any, number: int) -> int:
        for step in range(STEPS):
            run.step(f"step {step}", lambda: RESULT)
        return number

    @runnable("awaited", registry=names)
    async def awaited(run: Any, number: int) -> int:
        for step in range(STEPS):
            await run.step(f"step {step}", give)
        return number

    @runnable("slow", registry=names)
    def slow(run: Any, number: int) -> int:
        for step in range(STEPS):
            run.step(f"step {step}", pause, step)
        return number

    return names


async def give() -> Any:
    return RESULT


def pause(step: int) -> Any:
    if step == 5:
        print("middle", flush=True)
        time.sleep(0.5)
    return RESULT


def holdfast_throughput(place: str, runs: int, *, function: str = "bench", at_once: int = AT_ONCE) -> dict[str, float]:
    completed, stop = threading.Semaphore(0), threading.Event()

    def notify(_name: str, _session: str, what: str) -> None:
        if what == "completed":
            completed.release()

    with holdfast_client(place) as client:
        options = {"runnables": holdfast_names(), "concurrency": at_once, "stop": stop, "notify": notify}
        worker = threading.Thread(target=client.work, kwargs=options)
        worker.start()
        client.start(function, -1, session_id="warm")
        completed.acquire()
        latencies = []
        cpu, began = time.process_time(), time.perf_counter()
        for number in range(runs):
            at = time.perf_counter()
            client.start(function, number)
            latencies.append(time.perf_counter() - at)
        for _ in range(runs):
            completed.acquire()
        taken, cpu = time.perf_counter() - began, time.process_time() - cpu
        stop.set()
        worker.join()
        done = client.runs(status="completed")
        assert len(done) == runs + 1, len(done)
    return measured(latencies, taken, cpu, runs)


def holdfast_starts(place: str, runs: int) -> dict[str, float]:
    with holdfast_client(place) as client:
        client.start("bench", -1, session_id="warm")
        return {"start": timed_starts(lambda number: client.start("bench", number), runs)}


def timed_starts(start: Callable[[int], object], runs: int) -> float:
    latencies = []
    for number in range(runs):
        at = time.perf_counter()
        start(number)
        latencies.append(time.perf_counter() - at)
    return statistics.median(latencies)


def holdfast_awaited(place: str, runs: int) -> dict[str, float]:
    return holdfast_throughput(place, runs, function="awaited")


def holdfast_many(place: str, runs: int) -> dict[str, float]:
    return holdfast_throughput(place, runs, function="awaited", at_once=MANY)


def holdfast_victim(place: str) -> None:
    with holdfast_client(place) as client:
        client.start("slow", 1, session_id="slow")
        client.work(runnables=holdfast_names(), concurrency=AT_ONCE)


def holdfast_rescue(place: str) -> None:
    with holdfast_client(place) as client:
        while not (found := client.run_status("slow")) or found.status != "completed":
            client.work(drain=True, runnables=holdfast_names(), concurrency=AT_ONCE)


# -- DBOS ------------------------------------------------------------------------------------------------------------


def dbos_config(place: str) -> Any:
    from benchmarks.dbos_config import dbos_on_sqlite

    if place.startswith("postgres"):
        return {"name": "bench", "system_database_url": place.replace("postgresql://", "postgresql+psycopg://")}
    return dbos_on_sqlite(Path(place) / "dbos.sqlite")


def dbos_launch(place: str) -> tuple[Any, Any, Any]:
    import logging

    from dbos import DBOS

    logging.disable(logging.WARNING)
    DBOS(config={**dbos_config(place), "run_admin_server": False})

    @DBOS.step()
    def step(number: int) -> Any:
        return RESULT

    @DBOS.workflow()
    def bench(number: int) -> int:
        for at in range(STEPS):
            step(at)
        return number

    @DBOS.step()
    def slow_step(at: int) -> Any:
        return pause(at)

    @DBOS.workflow()
    def slow(number: int) -> int:
        for at in range(STEPS):
            slow_step(at)
        return number

    return DBOS, bench, slow


def dbos_queued(place: str, runs: int) -> dict[str, float]:
    DBOS, bench, _ = dbos_launch(place)  # noqa: N806 - its name
    DBOS.launch()
    queue = DBOS.register_queue("bench", worker_concurrency=AT_ONCE, polling_interval_sec=0.1)
    return dbos_throughput(DBOS, bench, queue.enqueue, runs, place)


def dbos_started(place: str, runs: int) -> dict[str, float]:
    """Starts without a queue: each in a thread of the process that starts it, as many as its pool has."""
    DBOS, bench, _ = dbos_launch(place)  # noqa: N806 - its name
    DBOS.launch()
    return dbos_throughput(DBOS, bench, DBOS.start_workflow, runs, place)


def dbos_throughput(dbos: Any, bench: Any, start: Any, runs: int, place: str) -> dict[str, float]:
    start(bench, -1).get_result()
    latencies = []
    with dbos_engine(place).connect() as connection:
        cpu, began = time.process_time(), time.perf_counter()
        for number in range(runs):
            at = time.perf_counter()
            start(bench, number)
            latencies.append(time.perf_counter() - at)
        while dbos_completed(connection) < runs + 1:
            time.sleep(0.02)
        taken, cpu = time.perf_counter() - began, time.process_time() - cpu
    dbos.destroy()
    return measured(latencies, taken, cpu, runs)


def dbos_engine(place: str) -> Any:
    """Return an engine for its database besides its own: `get_result` would poll once for each run."""
    import sqlalchemy

    config = dbos_config(place)
    return sqlalchemy.create_engine(config["system_database_url"], **config.get("db_engine_kwargs", {}))


def dbos_completed(connection: Any) -> int:
    import sqlalchemy

    schema = "" if connection.dialect.name == "sqlite" else "dbos."
    counted = connection.execute(
        sqlalchemy.text(f"SELECT count(*) FROM {schema}workflow_status WHERE status = 'SUCCESS'")
    )
    found = int(counted.scalar_one())
    connection.rollback()  # else PostgreSQL would call it idle in a transaction
    return found


def dbos_starts(place: str, runs: int) -> dict[str, float]:
    from dbos import DBOSClient

    DBOS, _, _ = dbos_launch(place)  # noqa: N806 - its name
    DBOS.launch()  # it makes the tables
    DBOS.destroy()
    client = DBOSClient(system_database_engine=dbos_engine(place))
    options: Any = {"queue_name": "elsewhere", "workflow_name": "bench"}
    client.enqueue(options, -1)
    return {"start": timed_starts(lambda number: client.enqueue(options, number), runs)}


def dbos_victim(place: str) -> None:
    DBOS, _, slow = dbos_launch(place)  # noqa: N806 - its name
    from dbos import SetWorkflowID

    DBOS.launch()
    with SetWorkflowID("slow"):
        DBOS.start_workflow(slow, 1).get_result()


def dbos_rescue(place: str) -> None:
    DBOS, _, _ = dbos_launch(place)  # noqa: N806 - its name
    DBOS.launch()
    assert DBOS.retrieve_workflow("slow").get_result() == 1
    os._exit(0)


def measured(latencies: list[float], taken: float, cpu: float, runs: int) -> dict[str, float]:
    return {
        "start": statistics.median(latencies),
        "runs": runs / taken,
        "cpu": cpu / (runs * STEPS),
    }


CONTENDERS = {
    "holdfast": holdfast_throughput,
    "holdfast, awaited": holdfast_awaited,
    "holdfast, 64 at a time": holdfast_many,
    "DBOS, queued": dbos_queued,
    "DBOS, started": dbos_started,
    "holdfast, from elsewhere": holdfast_starts,
    "DBOS, from elsewhere": dbos_starts,
}
RESCUES = {"holdfast": (holdfast_victim, holdfast_rescue), "DBOS": (dbos_victim, dbos_rescue)}


# -- turns -----------------------------------------------------------------------------------------------------------


def in_process(what: str, name: str, place: str, *more: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "benchmarks.work", what, name, place, *more]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def one_round(name: str, place: str, runs: int) -> dict[str, float]:
    child = in_process("--contender", name, place, "--runs", str(runs))
    said, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, name
    return json.loads(said.splitlines()[-1])


def one_rescue(name: str, place: str) -> float:
    victim = in_process("--victim", name, place)
    assert victim.stdout is not None
    while (line := victim.stdout.readline().strip()) != "middle":
        assert line or victim.poll() is None, name
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    began = time.perf_counter()
    rescue = in_process("--rescue", name, place)
    rescue.communicate(timeout=PATIENCE)
    assert rescue.returncode == 0, name
    return time.perf_counter() - began


def places(kind: str, root: Path, server: Any, name: str) -> str:
    if kind == "sqlite":
        made = root / f"{name.replace(', ', '-')}-{time.monotonic_ns()}"
        made.mkdir()
        return str(made)
    from benchmarks.local_servers import PostgresDatabase

    return PostgresDatabase(server, f"bench_{time.monotonic_ns()}").dsn


def compare(
    kind: str, root: Path, server: Any, runs: int, rounds: int, *, ours: bool = False
) -> dict[str, dict[str, float]]:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS if not ours or "holdfast" in name}
    rescued: dict[str, list[float]] = {name: [] for name in RESCUES if not ours or "holdfast" in name}
    for _ in range(rounds):
        for name, figures in found.items():
            figures.append(one_round(name, places(kind, root, server, name), runs))
        for name, times in rescued.items():
            times.append(one_rescue(name, places(kind, root, server, name)))
    medians = {
        name: {key: statistics.median(one[key] for one in all_) for key in all_[0]} for name, all_ in found.items()
    }
    for name, times in rescued.items():
        medians[RESCUED[name]]["recovery"] = statistics.median(times)
    return medians


# -- what it comes to --------------------------------------------------------------------------------------------------

RESCUED = {"holdfast": "holdfast", "DBOS": "DBOS, started"}
ELSEWHERE = ("holdfast, from elsewhere", "DBOS, from elsewhere")
PAIRS = (("holdfast", "DBOS, queued"), ("holdfast, 64 at a time", "DBOS, started"))


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    found = []
    for kind in STORES:
        for ours, theirs in PAIRS:
            for words, figure, limit in (("start p50", "start", 1.0), ("CPU per step", "cpu", 0.5)):
                told = f"{kind}: {words}, {ours} over {theirs}"
                found.append(Goal(told, kind, _ratio(kind, figure, ours, theirs), limit))
            told = f"{kind}: runs per second, {ours} over {theirs}"
            found.append(Goal(told, kind, _ratio(kind, "runs", ours, theirs), 1.5, at_least=True))
        ours, theirs = ELSEWHERE
        found.append(Goal(f"{kind}: start p50, {ours} over {theirs}", kind, _ratio(kind, "start", ours, theirs), 1.0))
        ours, theirs = RESCUED.values()
        found.append(Goal(f"{kind}: recovery, holdfast over DBOS", kind, _ratio(kind, "recovery", ours, theirs), 1.0))
    return [one.judge(results) for one in found]


def _ratio(kind: str, figure: str, ours: str, theirs: str) -> Callable[[dict[str, Any]], float]:
    def find(results: dict[str, Any]) -> float:
        of_kind = results["results"][kind]
        return float(of_kind[ours][figure]) / float(of_kind[theirs][figure])

    return find


def command(kind: str) -> str:
    return f"python -m benchmarks.work --only {kind}"


def page(results: dict[str, Any]) -> Iterator[str]:
    machine = results["environment"]
    software = ", ".join(filter(None, (f"SQLite {machine['sqlite']}", machine["servers"])))
    yield from pages.head("Workers beside DBOS", results, software=software, not_worth_quoting=results["runs"] < 100)
    yield f"Medians of {results['rounds']} rounds of {results['runs']} runs of {STEPS} steps; contenders take turns."
    yield ""
    yield "## Goals"
    yield ""
    yield from pages.goals(verdicts(results), command)
    for kind, found in results["results"].items():
        rows = [
            (name, f"{one['start'] * 1e3:.2f}", *(
                f"{one[figure] * scale:{form}}" if figure in one else ""
                for figure, scale, form in (("runs", 1, ".1f"), ("cpu", 1e6, ".0f"), ("recovery", 1, ".2f"))
            ))
            for name, one in found.items()
        ]  # fmt: skip
        yield f"## {kind}"
        yield ""
        yield from table(("", "start p50 (ms)", "runs per second", "CPU per step (µs)", "recovery (s)"), rows)
        yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(STORES))
    parser.add_argument("--ours", action="store_true", help="holdfast alone; needs no package of DBOS")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    for hidden in ("--contender", "--victim", "--rescue"):
        parser.add_argument(hidden, nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.contender:
        print(json.dumps(CONTENDERS[asked.contender[0]](asked.contender[1], asked.runs)))
        return
    for which, place in ((0, asked.victim), (1, asked.rescue)):
        if place:
            RESCUES[place[0]][which](place[1])
            return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as root, ExitStack() as opened:
        facts = environment.describe(Path(root), ("holdfast", "dbos", "sqlalchemy", "psycopg"))
        server, servers = None, ""
        if "postgres" in asked.only:
            from benchmarks.local_servers import PostgresDatabase, postgres

            server = opened.enter_context(postgres(None))
            servers = PostgresDatabase(server, "version").version()
        results: dict[str, Any] = {
            "environment": facts | {"servers": servers},
            "runs": asked.runs,
            "rounds": asked.rounds,
            "results": {
                kind: compare(kind, Path(root), server, asked.runs, asked.rounds, ours=asked.ours)
                for kind in asked.only.split(",")
            },
        }
    results["seconds"] = time.monotonic() - began
    asked.results.mkdir(parents=True, exist_ok=True)
    text = "\n".join(page(results)) + "\n"
    (asked.results / "work.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    (asked.results / "work.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
