"""Run it: `python -m benchmarks.langgraph.run [--turns 1000] [--sqlite-only] [--results DIR]`."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import environment, pages
from benchmarks.langgraph import coroutines, growth, report
from benchmarks.subprocesses import ROOT

HERE = ROOT / "benchmarks"
PACKAGES = ("holdfast", "langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite",
            "langgraph-checkpoint-postgres",
            "langchain-core", "ormsgpack", "zstandard", "psycopg", "psycopg-pool")  # fmt: skip
# Both sides write to the same server, which keeps what it has acknowledged after a power cut, as it does by default.
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "shared_buffers": "128MB"}


def main() -> None:
    arguments = _arguments()
    whole = arguments.turns == report.FULL_TURNS and not arguments.sqlite_only
    directory = arguments.results or (HERE / "results" if whole else HERE / "results" / "partial")
    stores = arguments.stores or HERE / ".stores"
    stores.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    results: dict[str, Any] = {
        "turns": arguments.turns,
        "environment": environment.describe(stores, PACKAGES),
        "postgres": None,
    }
    with (
        TemporaryDirectory(prefix="langgraph-", dir=stores, ignore_cleanup_errors=True) as own,
        _postgres(wanted=not arguments.sqlite_only) as (version, new_database),
    ):
        results["postgres"] = version
        if new_database is not None:
            print("coroutines  16 of them, one PostgreSQL", flush=True)
            results["coroutines"] = asyncio.run(coroutines.run(new_database))
        print(f"    growth  a conversation of {arguments.turns:,} turns", flush=True)
        results["growth"] = growth.run(arguments.turns, Path(own), new_database)
    results["seconds"] = round(time.perf_counter() - began, 1)
    write(results, directory)
    print(f"\n{pages.as_text(report.verdicts(results))}\n\n{results['seconds']:.0f} s, written: {directory}")


def write(results: dict[str, Any], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "langgraph.json").write_text(
        json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (directory / "langgraph.md").write_text(report.markdown(results), encoding="utf-8")
    report.draw(results, directory / "langgraph.png")


@contextmanager
def _postgres(*, wanted: bool) -> Iterator[tuple[str | None, Callable[[str], str] | None]]:
    """The version of a server of our own, and what makes a database on it; neither if there is none."""
    if not wanted:
        yield None, None
        return
    sys.path.insert(0, str(ROOT / "tests" / "support"))  # the servers of the tests
    import psycopg
    from servers.postgres import Postgres
    from servers.running import ServerUnavailable

    try:
        server = Postgres(**DURABLE)
    except ServerUnavailable as reason:
        print(f"without PostgreSQL: {reason}", flush=True)
        yield None, None
        return

    def new_database(name: str) -> str:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "bench_{name}"')
        return server.dsn.rpartition("/")[0] + f"/bench_{name}"

    try:
        with psycopg.connect(server.dsn) as connection:
            version = f"{connection.info.server_version // 10000}.{connection.info.server_version % 10000}"
        yield version, new_database
    finally:
        server.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.langgraph.run", description="Measure HoldfastSaver beside LangGraph's own savers."
    )
    parser.add_argument(
        "--turns", type=int, default=report.FULL_TURNS, metavar="N", help="of the conversation; 1,000 if not given"
    )
    parser.add_argument("--sqlite-only", action="store_true", help="without a PostgreSQL")
    parser.add_argument("--results", type=Path, metavar="DIR", help="where the results go")
    parser.add_argument("--stores", type=Path, metavar="DIR", help="where the databases go meanwhile; not on tmpfs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
