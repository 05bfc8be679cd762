"""Real servers for the benchmarks: those of the test run, with the durability of production, on a real disk.

Every contender has a Valkey to itself: then what a server's memory holds is that contender's. All
share one PostgreSQL, with a database each.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.subprocesses import ROOT

sys.path.append(str(ROOT / "tests" / "support"))  # the servers of the test run

POSTGRES_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
}
VALKEY_SETTINGS = ("--appendonly", "yes", "--appendfsync", "everysec")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Work:
    """What a server has done so far; subtract two of them."""

    cpu_seconds: float
    requests: int
    """Commands that arrived at Redis; transactions that PostgreSQL committed."""
    bytes_in: int
    """From clients (Redis only)."""
    bytes_logged: int
    """WAL of PostgreSQL, append-only file of Redis."""

    def since(self, before: "Work") -> "Work":
        return Work(
            self.cpu_seconds - before.cpu_seconds,
            self.requests - before.requests,
            self.bytes_in - before.bytes_in,
            self.bytes_logged - before.bytes_logged,
        )


class RedisServer:
    def __init__(self, server: Any) -> None:
        self._server = server
        self.clear()

    @property
    def url(self) -> str:
        return self._server.url

    def clear(self) -> None:
        self._client.flushall(asynchronous=False)

    def bytes_kept(self) -> int:
        """What all keys take in the server's memory, as it says itself: names, values and what
        holds them together. The growth of its whole memory says less: that falls, too, when buffers
        of clients go."""
        import redis

        with redis.Redis.from_url(self.url, protocol=2) as client, client.pipeline(transaction=False) as asked:
            for name in client.scan_iter(count=1000):
                asked.memory_usage(name, samples=0)
            return sum(asked.execute())

    def version(self) -> str:
        said = self._client.info("server")
        name = said.get("server_name", "redis").capitalize()
        return f"{name} {said.get(f'{name.lower()}_version', said['redis_version'])}"

    def durability(self) -> str:
        said = self._client.config_get("append*")
        return f"appendonly {said['appendonly']}, appendfsync {said['appendfsync']}"

    def work(self) -> Work:
        said = self._client.info("all")
        return Work(
            cpu_of([self._server.server.pid]),
            said["total_commands_processed"],
            said["total_net_input_bytes"],
            said["aof_current_size"],
        )

    @cached_property
    def _client(self) -> Any:
        import redis

        return redis.Redis.from_url(self.url, decode_responses=True, protocol=2)


class PostgresDatabase:
    """A database of its own for one contender; `clear` makes it anew."""

    def __init__(self, server: Any, name: str) -> None:
        self._server = server
        self._name = name
        self.clear()

    @property
    def dsn(self) -> str:
        return f"{self._server.dsn.rpartition('/')[0]}/{self._name}"

    def clear(self) -> None:
        self.__dict__.pop("_connection", None)
        with _connected(self._server.dsn) as maintenance:
            maintenance.execute(f"DROP DATABASE IF EXISTS {self._name} WITH (FORCE)")
            maintenance.execute(f"CREATE DATABASE {self._name}")

    def bytes_kept(self) -> int:
        """Tables and indexes, as they are: nothing is vacuumed for the occasion."""
        return self.ask(
            "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint FROM pg_class "
            "JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE relkind = 'r' AND nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'"
        )

    def version(self) -> str:
        return f"PostgreSQL {self.ask('SHOW server_version').split()[0]}"

    def durability(self) -> str:
        return f"fsync {self.ask('SHOW fsync')}, synchronous_commit {self.ask('SHOW synchronous_commit')}"

    def work(self) -> Work:
        # Over one connection that stays: opening one costs the server as much as ten saves.
        committed = self.ask("SELECT sum(xact_commit)::bigint FROM pg_stat_database WHERE datname = current_database()")
        logged = self.ask("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
        return Work(cpu_of(_family(self._server.server.pid)), committed, 0, logged)

    def ask(self, query: str) -> Any:
        return self._connection.execute(query).fetchone()[0]

    def ask_nothing(self, statement: str) -> None:
        self._connection.execute(statement)

    @cached_property
    def _connection(self) -> Any:
        return _connected(self.dsn)


@contextmanager
def postgres(directory: Path | None) -> Iterator[Any]:
    from servers.postgres import Postgres

    with _on_disk(directory):
        server = Postgres(**POSTGRES_SETTINGS)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def valkey(directory: Path | None) -> Iterator[RedisServer]:
    from servers.valkey import Valkey

    with _on_disk(directory):
        server = Valkey(*VALKEY_SETTINGS)
    try:
        yield RedisServer(server)
    finally:
        server.stop()


@contextmanager
def _on_disk(directory: Path | None) -> Iterator[None]:
    """Where servers that are started in here keep their files; where temporary files go, if nothing is said."""
    before = tempfile.tempdir
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.tempdir = str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _connected(dsn: str) -> Any:
    import psycopg

    return psycopg.connect(dsn, autocommit=True)


def cpu_of(processes: list[int]) -> float:
    """User and system time of these processes, and of their children that have ended."""
    return sum(_ticks(process) for process in processes) / CLOCK_TICKS


def _ticks(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:  # ended just now: its parent has its time
        return 0
    return sum(int(ticks) for ticks in fields[11:15])


def _family(process: int) -> list[int]:
    """A process and its children: one for each connection."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [process, *(one for one, parent in parents.items() if parent == process)]
