"""The savers that are measured, each on a store of its own: how it is opened, and what it takes on disk."""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from benchmarks.contenders.contender import describe_durability
from benchmarks.contenders.holdfast_sqlite import durability_of
from benchmarks.langgraph import graphs
from benchmarks.measure import Samples


class Contender(ABC):
    key: ClassVar[str]
    title: ClassVar[str]
    store: ClassVar[str]
    delta: ClassVar[bool] = False

    def __init__(self, place: Any, turns: int) -> None:
        self.place = place
        self.puts = Samples()
        self._stack = ExitStack()
        self.saver = self._open()
        self.saver.put = graphs.timed(self.saver.put, self.puts.start)
        self.graph = graphs.compiled(self.saver, turns, delta=self.delta)

    @abstractmethod
    def _open(self) -> Any: ...

    @abstractmethod
    def bytes_on_disk(self) -> int: ...

    @abstractmethod
    def durability(self) -> str: ...

    def close(self) -> None:
        self._stack.close()


class OnFile(Contender):
    store = "SQLite"
    place: Path

    @property
    def file(self) -> Path:
        return self.place / "store.db"

    def bytes_on_disk(self) -> int:
        """Of all files: after closing, when the log has been written back."""
        return sum(file.stat().st_size for file in self.place.iterdir())


class OfficialSqlite(OnFile):
    key, title = "sqlite", "SqliteSaver"

    def _open(self) -> Any:
        from langgraph.checkpoint.sqlite import SqliteSaver

        saver = self._stack.enter_context(SqliteSaver.from_conn_string(str(self.file)))
        saver.setup()
        return saver

    def durability(self) -> str:
        ask = self.saver.conn.execute
        return describe_durability(ask("PRAGMA journal_mode").fetchone()[0], ask("PRAGMA synchronous").fetchone()[0])


class OfficialSqliteDelta(OfficialSqlite):
    key, title, delta = "sqlite_delta", "SqliteSaver, DeltaChannel", True


class HoldfastOnSqlite(OnFile):
    key, title = "holdfast_sqlite", "**HoldfastSaver**"

    def _open(self) -> Any:
        from holdfast.langgraph import HoldfastSaver

        return self._stack.enter_context(HoldfastSaver.from_sqlite(self.file))

    def durability(self) -> str:
        return durability_of(self.file)


class OnPostgres(Contender):
    store = "PostgreSQL"
    place: str

    def bytes_on_disk(self) -> int:
        """All tables of the database with their indexes and long values, as the server counts them."""
        with psycopg.connect(self.place, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            found = connection.execute(
                "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
                "WHERE relkind = 'r' AND nspname NOT IN ('pg_catalog', 'information_schema')"
            ).fetchone()
        assert found is not None
        return int(found[0])

    def durability(self) -> str:
        with psycopg.connect(self.place) as connection:
            asked = [connection.execute(f"SHOW {name}").fetchone() for name in ("fsync", "synchronous_commit")]
        return f"fsync {asked[0][0]}, synchronous_commit {asked[1][0]}"


class OfficialPostgres(OnPostgres):
    key, title = "postgres", "PostgresSaver"

    def _open(self) -> Any:
        from langgraph.checkpoint.postgres import PostgresSaver

        saver = self._stack.enter_context(PostgresSaver.from_conn_string(self.place))
        saver.setup()
        return saver


class OfficialPostgresDelta(OfficialPostgres):
    key, title, delta = "postgres_delta", "PostgresSaver, DeltaChannel", True


class HoldfastOnPostgres(OnPostgres):
    key, title = "holdfast_postgres", "**HoldfastSaver**"

    def _open(self) -> Any:
        from holdfast.langgraph import HoldfastSaver

        return self._stack.enter_context(HoldfastSaver.from_postgres(self.place))


ON_FILES: tuple[type[OnFile], ...] = (HoldfastOnSqlite, OfficialSqlite, OfficialSqliteDelta)
ON_POSTGRES: tuple[type[OnPostgres], ...] = (HoldfastOnPostgres, OfficialPostgres, OfficialPostgresDelta)
