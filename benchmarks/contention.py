"""Plain saves of many writers to one session: `python -m benchmarks.contention [--saves 20] [--only sqlite,redis]`.

1, 8 and 64 tasks, threads or processes save to one session, each its own conversation that grows by
a message. Every save is waited for before the next one of the same writer. Measured is the time of
one save, from asking to acknowledgement: it includes the wait for the others. Nothing may be
refused. Stores and numbers of writers take turns.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import environment, pages
from benchmarks.goals import Goal, Verdict
from benchmarks.local_servers import PostgresDatabase, postgres, valkey
from benchmarks.subprocesses import ROOT
from benchmarks.tables import number, table
from holdfast import Client, HoldfastError, SyncClient

PACKAGES = ("holdfast", "ormsgpack", "zstandard", "psycopg", "redis")
STORES = ("memory", "files", "sqlite", "postgres", "redis", "redis, 16 shards")
KINDS = ("tasks", "threads", "processes")
WRITERS = (1, 8, 64)

Outcome = dict[str, Any]  # of a writer: the seconds of its saves, and what was refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--saves", type=int, default=20, help="of each writer; with 1 writer ten times as many")
    parser.add_argument("--writers", default=",".join(map(str, WRITERS)))
    parser.add_argument("--only", default=";".join(STORES), help="stores, separated by ';'")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        _work(given.worker, given.saves)
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as stores, ExitStack() as servers:
        results: dict[str, Any] = {"environment": environment.describe(Path(stores), PACKAGES), "saves": given.saves}
        opened = dict(_urls(given.only.split(";"), Path(stores), servers))
        results["stores"] = {}
        for writers in map(int, given.writers.split(",")):
            saves = given.saves * 10 if writers == 1 else given.saves
            for kind in given.kinds.split(","):
                for store, url in opened.items():
                    if store == "memory" and kind == "processes":
                        continue
                    found = _measured(kind, url, f"{kind}{writers}", writers, saves)
                    results["stores"].setdefault(store, {}).setdefault(kind, {})[str(writers)] = found
                    print(f"{store}, {writers} {kind}: {found}", flush=True)
    results["seconds"] = time.monotonic() - began
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "contention.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    page = "\n".join(_page(results)) + "\n"
    (given.results / "contention.md").write_text(page, "utf-8")
    print(page)


def _urls(names: list[str], stores: Path, servers: ExitStack) -> Iterator[tuple[str, str]]:
    for name in names:
        if name == "memory":
            yield name, "memory://"
        elif name == "files":
            yield name, f"file://{stores}/files"
        elif name == "sqlite":
            yield name, f"sqlite:///{stores}/store.db"
        elif name == "postgres":
            # 64 processes come at once: each has a connection of its own.
            yield name, PostgresDatabase(servers.enter_context(postgres(None)), "contention").dsn
        else:
            url = servers.enter_context(valkey(None)).url
            yield name, url + ("?shards=16" if "shards" in name else "")


def _measured(kind: str, url: str, session: str, writers: int, saves: int) -> dict[str, Any]:
    began = time.monotonic()
    measure = {"tasks": _by_tasks, "threads": _by_threads, "processes": _by_processes}[kind]
    outcomes = measure(url, session, writers, saves)
    seconds = sorted(taken for outcome in outcomes for taken in outcome["seconds"])
    together = max(outcome["ended"] for outcome in outcomes) - min(outcome["began"] for outcome in outcomes)
    return {
        "saves": len(seconds),
        "refused": sum(outcome["refused"] for outcome in outcomes),
        "p50_ms": round(statistics.median(seconds) * 1000, 3),
        "p99_ms": round(seconds[max(0, -(-len(seconds) * 99 // 100) - 1)] * 1000, 3),
        "longest_ms": round(seconds[-1] * 1000, 3),
        "per_second": round(len(seconds) / together, 1),
        "took": round(time.monotonic() - began, 1),
    }


class _Writer:
    """One writer: what it says, and how long each of its saves takes."""

    def __init__(self, number: int) -> None:
        self.name = f"writer {number}"
        self.said: list[dict[str, Any]] = []
        self._seconds: list[float] = []
        self._refused = 0
        self._began = time.monotonic()  # the same clock for all processes

    @contextmanager
    def save(self) -> Iterator[None]:
        step = len(self.said)
        self.said.append({"role": "assistant", "content": f"step {step} of {self.name}: what was found. " * 8})
        asked = time.perf_counter()
        try:
            yield
        except HoldfastError:
            self._refused += 1
        self._seconds.append(time.perf_counter() - asked)

    def outcome(self) -> Outcome:
        return {
            "seconds": self._seconds, "refused": self._refused, "began": self._began, "ended": time.monotonic(),
        }  # fmt: skip


def _by_tasks(url: str, session: str, writers: int, saves: int) -> list[Outcome]:
    async def write(client: Client, number: int) -> Outcome:
        writer = _Writer(number)
        for _ in range(saves):
            with writer.save():
                await client.save(writer.name, execution_state={"messages": writer.said}, session_id=session)
        return writer.outcome()

    async def run() -> list[Outcome]:
        async with Client.open(url) as client:
            await client.save("first", session_id=session)
            return await asyncio.gather(*(write(client, number) for number in range(writers)))

    return asyncio.run(run())


def _write(client: SyncClient, session: str, number: int, saves: int) -> Outcome:
    writer = _Writer(number)
    for _ in range(saves):
        with writer.save():
            client.save(writer.name, execution_state={"messages": writer.said}, session_id=session)
    return writer.outcome()


def _by_threads(url: str, session: str, writers: int, saves: int) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with SyncClient.open(url) as client:
        client.save("first", session_id=session)
        threads = [
            threading.Thread(target=lambda writer=writer: outcomes.append(_write(client, session, writer, saves)))
            for writer in range(writers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return outcomes


def _by_processes(url: str, session: str, writers: int, saves: int) -> list[Outcome]:
    with SyncClient.open(url) as client:
        client.save("first", session_id=session)
    command = [sys.executable, "-m", "benchmarks.contention", "--saves", str(saves), "--worker"]
    workers = [
        subprocess.Popen(
            [*command, json.dumps([url, session, writer])], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True
        )
        for writer in range(writers)
    ]  # fmt: skip
    for worker in workers:  # all are ready
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return [json.loads(worker.communicate()[0]) for worker in workers]


def _work(given: str, saves: int) -> None:
    url, session, writer = json.loads(given)
    with SyncClient.open(url) as client:
        client.latest(session_id=session)  # connects
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(_write(client, session, writer, saves)))


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    def refused(found: dict[str, Any]) -> float:
        return sum(
            of["refused"] for kinds in found["stores"].values() for kind in kinds.values() for of in kind.values()
        )

    return [Goal("plain saves that were refused", "contention", refused, 0, unit="").judge(results)]


def command(workload: str) -> str:
    return f"python -m benchmarks.{workload}"


def _page(results: dict[str, Any]) -> Iterator[str]:
    software = f"SQLite {results['environment']['sqlite']}"
    yield from pages.head(
        "Many writers of one session", results, software=software, not_worth_quoting=results["saves"] < 20
    )
    yield (
        "Each writer saves its own growing conversation to one session, without `expect_head`, and waits for each save."
    )
    yield "All are durable in the default way of their store. Milliseconds of one save, from asking to acknowledgement."
    yield ""
    yield "## Goals"
    yield ""
    yield from pages.goals(verdicts(results), command)
    yield "## Figures"
    yield ""
    rows = [
        [
            store,
            f"{writers} {kind if int(writers) > 1 else kind.removesuffix('es' if kind == 'processes' else 's')}",
            number(of["p50_ms"]),
            number(of["p99_ms"]),
            number(of["longest_ms"]),
            number(of["per_second"]),
            str(of["refused"]),
        ]
        for store, kinds in results["stores"].items()
        for kind, found in kinds.items()
        for writers, of in found.items()
    ]
    yield from table(["store", "writers", "p50", "p99", "longest", "saves/s of all", "refused"], rows)


if __name__ == "__main__":
    main()
