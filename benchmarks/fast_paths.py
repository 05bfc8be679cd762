"""Fast paths beside the plain way: `python -m benchmarks.fast_paths [--rounds 15] [--only redis,history]`.

Each fast path of ARCHITECTURE.md that has a switch is measured with it and without it, in turn, on
a real server with the durability of production. One that takes less than a quarter off goes.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import environment, pages
from benchmarks.goals import Goal, Verdict
from benchmarks.local_servers import PostgresDatabase, postgres, valkey
from benchmarks.subprocesses import ROOT
from benchmarks.tables import number, table
from holdfast import Client, SyncClient

PACKAGES = ("holdfast", "ormsgpack", "zstandard", "psycopg", "redis", "hiredis", "langgraph-checkpoint")
STATE = {"messages": [{"role": "user", "content": "x" * 300} for _ in range(3)]}
MESSAGES, PAGE = 300, 20
LEAST_GAIN = 0.25

Samples = list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="with the fast path and without it, each")
    parser.add_argument("--saves", type=int, default=100, help="of a round")
    parser.add_argument("--only", default=",".join(PATHS))
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as servers:
        results: dict[str, Any] = {"environment": environment.describe(Path(directory), PACKAGES)}
        results |= {"rounds": given.rounds, "saves": given.saves}
        results["paths"] = {name: PATHS[name](given, Path(directory), servers) for name in given.only.split(",")}
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "fast_paths.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    page = "\n".join(_page(results)) + "\n"
    (given.results / "fast_paths.md").write_text(page, "utf-8")
    print(page)


# -- what is measured --------------------------------------------------------------------------------------------------


def measure_simple_commits(given: argparse.Namespace, _: Path, servers: ExitStack) -> dict[str, Any]:
    from holdfast.backends import simple_commit

    url = PostgresDatabase(servers.enter_context(postgres(None)), "fast_paths").dsn
    return _saves(given, url, lambda on: setattr(simple_commit, "USE_SIMPLE", on))


def measure_redis(given: argparse.Namespace, _: Path, servers: ExitStack) -> dict[str, Any]:
    from holdfast.backends.redis import connection

    url = servers.enter_context(valkey(None)).url
    return _saves(given, url, lambda on: setattr(connection, "USE_PIPELINE", on))


def measure_history(given: argparse.Namespace, directory: Path, _: ExitStack) -> dict[str, Any]:
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.base import empty_checkpoint

    from holdfast.adapters.langgraph import shared_decode
    from holdfast.langgraph import HoldfastSaver

    shared = shared_decode.SHARE_FROM
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with HoldfastSaver.from_sqlite(str(directory / "history.db")) as saver:
        messages: list[Any] = []
        for step in range(MESSAGES):
            messages = [*messages, HumanMessage(f"message {step} " + "x" * 300)]
            checkpoint = {**empty_checkpoint(), "channel_values": {"messages": messages}}
            checkpoint["channel_versions"] = {"messages": step + 1}
            config = saver.put(config, checkpoint, {"source": "loop", "step": step}, {"messages": step + 1})
        thread: Any = {"configurable": {"thread_id": "t"}}

        def turn(on: bool) -> Samples:
            shared_decode.SHARE_FROM = shared if on else PAGE + 1
            began = time.perf_counter()
            assert len(list(saver.list(thread, limit=PAGE))) == PAGE
            return [time.perf_counter() - began]

        return {f"list of {PAGE} at {MESSAGES} messages": _in_turn(given.rounds, turn)}


PATHS: dict[str, Callable[[argparse.Namespace, Path, ExitStack], dict[str, Any]]] = {
    "simple_commits": measure_simple_commits,
    "redis": measure_redis,
    "history": measure_history,
}


def _saves(given: argparse.Namespace, url: str, switch: Callable[[bool], None]) -> dict[str, Any]:
    """Saves and restores of both clients. A client's connections belong to one way: each turn opens one."""

    def save_sync(on: bool) -> Samples:
        switch(on)
        with SyncClient.open(url) as client:
            return [_timed(lambda: client.save("a", session_id="s", execution_state=STATE)) for _ in range(given.saves)]

    def restore_sync(on: bool) -> Samples:
        switch(on)
        with SyncClient.open(url) as client:
            ids = [one.checkpoint_id for one in client.timeline("s", limit=given.saves)]
            return [_timed(lambda one=one: client.restore(one)) for one in ids]

    async def save_awaited(on: bool) -> Samples:
        switch(on)
        taken = []
        async with Client.open(url) as client:
            for _ in range(given.saves):
                began = time.perf_counter()
                await client.save("a", session_id="s", execution_state=STATE)
                taken.append(time.perf_counter() - began)
        return taken

    async def save_together(on: bool) -> Samples:
        switch(on)
        async with Client.open(url) as client:
            await asyncio.gather(*(client.save("a", session_id=f"w{one}", execution_state=STATE) for one in range(32)))
            taken = []
            for _ in range(max(given.saves // 10, 1)):
                began = time.perf_counter()
                saves = (client.save("a", session_id=f"w{one}", execution_state=STATE) for one in range(32))
                await asyncio.gather(*saves)
                taken.append(time.perf_counter() - began)
        return taken

    async def restore_awaited(on: bool) -> Samples:
        switch(on)
        taken = []
        async with Client.open(url) as client:
            for one in await client.timeline("s", limit=given.saves):
                began = time.perf_counter()
                await client.restore(one.checkpoint_id)
                taken.append(time.perf_counter() - began)
        return taken

    try:
        return {
            "save, SyncClient": _in_turn(given.rounds, save_sync),
            "save, Client": _in_turn(given.rounds, lambda on: asyncio.run(save_awaited(on))),
            "32 writers, a save each": _in_turn(given.rounds, lambda on: asyncio.run(save_together(on))),
            "restore, SyncClient": _in_turn(given.rounds, restore_sync),
            "restore, Client": _in_turn(given.rounds, lambda on: asyncio.run(restore_awaited(on))),
        }
    finally:
        switch(True)


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _in_turn(rounds: int, turn: Callable[[bool], Samples]) -> dict[str, float]:
    """Return the medians, in milliseconds, with the fast path and without it."""
    samples: dict[bool, Samples] = {True: [], False: []}
    for number_ in range(rounds):
        for on in (True, False) if number_ % 2 else (False, True):
            samples[on] += turn(on)
    fast, plain = (1000 * statistics.median(samples[on]) for on in (True, False))
    return {"fast_ms": fast, "plain_ms": plain, "gain": 1 - fast / plain}


# -- the page ----------------------------------------------------------------------------------------------------------

TITLES = {
    "simple_commits": "functions for simple commits on PostgreSQL",
    "redis": "a pipelined Redis connection",
    "history": "shared decoding of LangGraph histories",
}


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    def largest(name: str) -> Callable[[dict[str, Any]], float]:
        return lambda found: max(one["gain"] for one in found["paths"][name].values())

    return [
        Goal(
            f"{TITLES[name]}: part of the time that it takes off",
            name,
            largest(name),
            LEAST_GAIN,
            at_least=True,
            unit="",
        ).judge(results)
        for name in results["paths"]
    ]


def command(workload: str) -> str:
    return f"python -m benchmarks.fast_paths --only {workload}"


def _page(results: dict[str, Any]) -> Iterator[str]:
    software = f"SQLite {results['environment']['sqlite']}"
    yield from pages.head("Fast paths", results, software=software, not_worth_quoting=results["rounds"] < 10)
    yield "Medians in milliseconds, with the fast path and without it, in turn, on one machine."
    yield ""
    yield "## Goals"
    yield ""
    yield from pages.goals(verdicts(results), command)
    yield "## Figures"
    yield ""
    rows = [
        [TITLES[name], operation, number(one["fast_ms"]), number(one["plain_ms"]), f"{100 * one['gain']:.0f} %"]
        for name, operations in results["paths"].items()
        for operation, one in operations.items()
    ]
    yield from table(["fast path", "operation", "with it", "without it", "takes off"], rows)


if __name__ == "__main__":
    main()
