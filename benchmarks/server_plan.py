"""How much of each workload is run on servers, and who takes part."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import local_servers
from benchmarks.contenders.on_server import OnServer
from benchmarks.contenders.postgres_without_loop import WithoutLoop
from benchmarks.local_servers import PostgresDatabase


@dataclass(frozen=True)
class Field:
    """The contenders, each with a server or a database of its own."""

    servers: dict[str, Any]
    with_peers: bool

    def growing(self) -> list[OnServer]:
        from benchmarks.contenders import holdfast_servers as ours

        kinds: list[type[OnServer]] = [
            ours.HoldfastRedis,
            ours.HoldfastRedisDeclared,
            ours.HoldfastPostgres,
            ours.HoldfastPostgresDeclared,
        ]
        if self.with_peers:
            from benchmarks.contenders.checkpnt_redis import CheckpntRedis
            from benchmarks.contenders.langgraph_postgres import LanggraphPostgres

            kinds += [CheckpntRedis, LanggraphPostgres]
        return [kind(self.servers[kind.key]) for kind in kinds]

    def throughput(self) -> list[OnServer]:
        from benchmarks.contenders.raw_postgres import RawPostgres
        from benchmarks.contenders.raw_redis import RawRedis

        kinds: list[type[OnServer]] = [RawRedis, RawPostgres]
        if self.with_peers:
            from benchmarks.contenders.langgraph_postgres import LanggraphPostgresPool

            kinds.append(LanggraphPostgresPool)
        whole = [one for one in self.growing() if not one.key.endswith("_declared")]
        return [*whole, *(kind(self.servers[kind.key]) for kind in kinds)]

    def without_loop(self) -> list[WithoutLoop]:
        from benchmarks.contenders import postgres_without_loop as on_postgres

        kinds: list[type[WithoutLoop]] = [on_postgres.HoldfastPostgresSync, on_postgres.RawPostgresSync]
        if self.with_peers:
            kinds.append(on_postgres.LanggraphPostgresSync)
        return [kind(self.servers[kind.key]) for kind in kinds]


@dataclass(frozen=True)
class ServerPlan:
    field: Field
    growing_steps: dict[int, int]
    """Workload A: number of steps -> rounds."""
    growing_tail: int
    """How many of the last saves make "the save at step N"."""
    restores: int
    timelines: int
    turns: dict[int, int]
    """Workload B: writers -> turns of each contender."""
    saves_per_turn: int
    """Of each writer: few, so that all see the same moods of the machine."""
    warm_up: int
    small_restores: int
    sessions: int
    """Workload S: how many sessions are kept, of so many steps."""
    session_steps: int


def full_plan(field: Field) -> ServerPlan:
    return ServerPlan(
        field=field,
        growing_steps={100: 5, 1000: 2},
        growing_tail=50,
        restores=14,
        timelines=7,
        turns={1: 120, 32: 24},
        saves_per_turn=25,
        warm_up=320,
        small_restores=1000,
        sessions=320,
        session_steps=20,
    )


def quick_plan(field: Field) -> ServerPlan:
    return ServerPlan(
        field=field,
        growing_steps={100: 1},
        growing_tail=20,
        restores=2,
        timelines=2,
        turns={1: 3, 32: 2},
        saves_per_turn=20,
        warm_up=64,
        small_restores=20,
        sessions=32,
        session_steps=5,
    )


REDIS = ("holdfast_redis", "holdfast_redis_declared", "checkpnt_redis", "raw_set")
POSTGRES = (
    "holdfast_postgres", "holdfast_postgres_declared", "holdfast_postgres_sync", "langgraph_postgres",
    "langgraph_postgres_pool", "langgraph_postgres_sync", "raw_insert", "raw_insert_sync",
)  # fmt: skip


@contextmanager
def entered(directory: Path | None, *, with_peers: bool) -> Iterator[Field]:
    """All servers, running."""
    with ExitStack() as stack:
        servers: dict[str, Any] = {key: stack.enter_context(local_servers.valkey(directory)) for key in REDIS}
        postgres = stack.enter_context(local_servers.postgres(directory))
        servers |= {key: PostgresDatabase(postgres, key) for key in POSTGRES}
        yield Field(servers, with_peers)
