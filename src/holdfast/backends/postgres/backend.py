"""The verbs of the port, on PostgreSQL.

Nothing depends on the state of a session: no settings, no locks that outlive a transaction, and prepared statements only where
nobody stands in between. So a pgbouncer in transaction mode may, and any connection serves any call.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Self

import psycopg

from holdfast.backends.plain_commits import is_plain
from holdfast.backends.port import (
    MAX_LOG_ELEMENTS,
    BlobInfo,
    Capabilities,
    Change,
    Commit,
    Record,
    Row,
    RowKey,
    Run,
    RunInfo,
    Span,
    Usage,
)
from holdfast.backends.postgres import queries
from holdfast.backends.postgres.arrays import bytes_array, ints_array, text_array
from holdfast.backends.postgres.asking import Call, ask, call
from holdfast.backends.postgres.blocking import BlockingConnections
from holdfast.backends.postgres.commit import Function, Program, Way, batches, changes_something, key_columns
from holdfast.backends.postgres.connections import Connections
from holdfast.backends.postgres.failures import TRY_AGAIN, outcome_unknown, translate
from holdfast.backends.postgres.hints import Hints, ThreadHints
from holdfast.backends.postgres.link import Link, Links
from holdfast.backends.postgres.location import Location
from holdfast.backends.postgres.plain import DISAPPOINTMENTS, Batch, way_of
from holdfast.backends.postgres.schema import prepare, quoted
from holdfast.backends.store_clock import StoreClock, since_start_us
from holdfast.errors import HoldfastError, StoreError, UsageError

DURABILITIES = ("full", "fast")
ATTEMPTS = 5
SEALED_BETWEEN_VACUUMS = 8  # each stands for 64 KB that are of no use any more
LONGEST_NAME = 63  # PostgreSQL cuts longer identifiers, and two of them would be one


class PostgresBackend:
    """A store in one schema of a database. `max_connections` bounds what each event loop opens, and what all threads together do, `timeout` how long a
    call waits for one of them; with `durability="fast"` a crash of the server may lose the last saves (never tear one). Without
    `make`, a schema that is not there is an error, for those who only look."""

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "holdfast",
        durability: str = "full",
        max_connections: int = 8,
        timeout: float = 30.0,
        make: bool = True,
    ) -> None:
        if durability not in DURABILITIES:
            raise UsageError(f"durability is {durability!r}: PostgreSQL offers 'full' (the default) and 'fast'")
        if not schema or "\0" in schema or len(schema.encode("utf-8", "replace")) > LONGEST_NAME:
            raise UsageError(
                f"the schema {schema!r:.80} can't be: a name has 1 to {LONGEST_NAME} bytes, none of them NUL"
            )
        if max_connections < 1:
            raise UsageError(f"max_connections is {max_connections}: at least one is needed")
        location = Location(dsn, schema)
        self._where = location.shown
        self._schema = schema
        self._quoted = quoted(schema)
        self._durability = durability
        self._reached_by = location.conninfo, self._where, max_connections, timeout
        self._of_loops = Connections(*self._reached_by)
        self._connections: Links = self._of_loops
        self._to_close: list[Links] = [self._connections]
        self._parting = threading.Lock()
        self._without_loop: Self | None = None
        self._make = make
        self._is_prepared = False
        self._clock = StoreClock()
        self._hints: Hints | ThreadHints = Hints(self._of_loops, schema)
        self._sealed = 0
        self._queries: dict[str, bytes] = {}
        self._calls: dict[str, Call] = {}

    def without_loop(self) -> Self:
        """The same store for who has no event loop: the coroutines of its verbs never suspend, and any thread may step them.
        There is one for all who ask, so they share its connections. Closing one closes both."""
        with self._parting:
            if self._without_loop is None:
                other = self._without_loop = copy.copy(self)
                connections = BlockingConnections(*self._reached_by)
                other._connections = connections
                other._hints = ThreadHints(connections, self._schema)
                self._to_close.append(connections)
            return self._without_loop

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="postgres",
            durability=self._durability,
            location=self._where,
            awaitable=True,
            now_us=self._clock.now_us,
            # A server that was restarted, or told not to wait any longer, shows what its standby may not have.
            seen_is_durable=self._durability == "fast",
        )

    # -- writing -----------------------------------------------------------------------------------------------------

    async def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        outcomes: list[BaseException | None] = []
        for batch, locks in batches(commits, self._schema):
            outcomes += await self._carry_out(batch, locks)
        if any(commit.record is not None for commit in commits):
            self._hints.tell()
        return outcomes

    async def news(self) -> None:
        assert isinstance(self._hints, Hints), "an event loop listens"
        await self._hints.news()

    async def _carry_out(self, commits: list[Commit], locks: list[int]) -> list[BaseException | None]:
        """One transaction. If one of the commits can't be written as it is, each gets a transaction of its own."""
        are_plain = all(map(is_plain, commits))
        way = way_of(commits, locks) if are_plain else Program(commits)
        for attempt in range(ATTEMPTS):
            try:
                async with self._connection() as connection:
                    outcomes = way.outcomes(await self._answer(connection, way, locks))
                    if not are_plain:
                        outcomes = await self._looked_after(connection, commits, outcomes)
                return outcomes
            except psycopg.Error as error:
                if way.is_hopeful and error.sqlstate in DISAPPOINTMENTS:
                    way = Batch(commits)
                    continue
                if error.sqlstate in TRY_AGAIN and attempt + 1 < ATTEMPTS:
                    await self._connections.sleep(random.random() * 0.01 * 2**attempt)  # noqa: S311 - who waits how long
                    continue
                if len(commits) == 1:
                    return [translate(error, self._where, "written")]
                break
            except HoldfastError as error:
                return [error] * len(commits)
        alone = [
            await self._carry_out(batch, locks)
            for commit in commits
            for batch, locks in batches([commit], self._schema)
        ]
        return [outcome for outcomes in alone for outcome in outcomes]

    async def _looked_after(
        self, connection: Link, commits: list[Commit], outcomes: list[BaseException | None]
    ) -> list[BaseException | None]:
        """What plain commits don't need: some wait for standbys without a change of their own, some leave room behind."""
        if not all(map(changes_something, commits)):
            unsure = await self._wait_for_standbys(connection)
            outcomes = [
                outcome if changes_something(commit) else outcome or unsure
                for commit, outcome in zip(commits, outcomes, strict=True)
            ]
        await self._reuse_room(connection, commits, outcomes)
        return outcomes

    async def _reuse_room(self, connection: Link, commits: list[Commit], outcomes: list[BaseException | None]) -> None:
        """Now and then, makes the room of runs that were sealed into others usable again. The server does so by itself,
        once a minute; until then a busy session would grow by all that it has ever written."""
        self._sealed += sum(
            run.first < run.tail
            for commit, outcome in zip(commits, outcomes, strict=True)
            if outcome is None
            for run in commit.runs
        )
        if self._sealed < SEALED_BETWEEN_VACUUMS:
            return
        self._sealed = 0
        # What was committed is committed, whatever becomes of this.
        with suppress(psycopg.Error):
            await connection.run(queries.REUSE_ROOM.replace("{s}", self._quoted).encode())

    async def _answer(self, connection: Link, way: Way, locks: list[int]) -> bytes:
        arguments = way.arguments(locks, fast=self._durability == "fast")
        try:
            return await call(connection, self._call(way.function), arguments)
        except psycopg.Error as error:
            # As long as the connection lives, an error means that the transaction was rolled back. A connection that is
            # lost may have taken the answer with it.
            if connection.closed:
                self._connections.drop_idle()
                raise outcome_unknown(error, self._where) from error
            raise

    def _call(self, function: Function) -> Call:
        known = self._calls.get(function.name)
        if known is None:
            known = self._calls[function.name] = Call(f"{self._quoted}.{function.name}", function.types)
        return known

    async def _wait_for_standbys(self, connection: Link) -> StoreError | None:
        """Returns when all that was committed before is where the server's settings want it, or why that is not known: any
        change says so by its own commit."""
        try:
            await connection.run(f"UPDATE {self._quoted}.store SET version = version".encode())
        except psycopg.Error as error:
            if connection.closed:
                self._connections.drop_idle()
            return outcome_unknown(error, self._where)
        return None

    # -- reading -----------------------------------------------------------------------------------------------------

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        if not ids:
            return []
        rows = await self._read(queries.RECORDS, bytes_array(list(dict.fromkeys(ids))))
        found = {row[0]: Record(*row) for row in rows}
        return [found.get(id_) for id_ in ids]

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]:
        rows = await self._read(queries.SESSION_RECORDS, session, 2**62 if before is None else before, limit)
        return [Record(*row) for row in rows]

    async def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        if not all(digit in "0123456789abcdefABCDEF" for digit in ending):
            return []
        rows = await self._read(queries.FIND_IDS, len(ending), ending.lower(), limit)
        return [row[0] for row in rows]

    async def runs(self, spans: Sequence[Span]) -> list[list[Run]]:
        wanted = list(dict.fromkeys(spans))
        if not wanted:
            return []
        bases = [span.log * MAX_LOG_ELEMENTS for span in wanted]
        firsts = [base + span.first for base, span in zip(bases, wanted, strict=True)]
        lasts = [base + span.end for base, span in zip(bases, wanted, strict=True)]
        found: dict[Span, list[Run]] = {span: [] for span in wanted}
        for number, k, length, data in await self._read(
            queries.RUNS, ints_array(bases), ints_array(firsts), ints_array(lasts)
        ):
            span = wanted[number - 1]
            found[span].append(Run(k - span.log * MAX_LOG_ELEMENTS, length, data))
        return [found[span] for span in spans]

    async def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        if not hashes:
            return []
        found = dict(await self._read(queries.BLOBS, bytes_array(list(dict.fromkeys(hashes)))))
        return [found.get(hash_) for hash_ in hashes]

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        answer: list[Row | None] = [None] * len(keys)
        if not keys:
            return answer
        columns = [key_columns(key.key) for key in keys]
        for number, value, version in await self._read(
            queries.ROWS,
            text_array([key.space for key in keys]),
            bytes_array([indexed for indexed, _ in columns]),
            bytes_array([rest_hash for _, rest_hash in columns]),
            bytes_array([key.tree for key in keys]),
        ):
            answer[number - 1] = Row(value, version)
        return answer

    async def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        query, values = queries.scan(space, tree, prefix, after, limit)
        rows = await self._read(query, *values)
        return [(RowKey(space, key, of_tree), Row(value, version)) for key, of_tree, value, version in rows]

    async def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        return [Record(*row) for row in await self._read(queries.PAGE_RECORDS, after or b"", limit)]

    async def changes(self, after: int, limit: int) -> list[Change]:
        rows = await self._read(queries.CHANGES, after, limit)
        return [Change(position, Record(*columns)) for position, *columns in rows]

    async def last_change(self) -> int:
        position: int = (await self._read(queries.LAST_CHANGE))[0][0]
        return position

    async def page_runs(self, after: tuple[int, int] | None, limit: int) -> list[RunInfo]:
        start = -1 if after is None else after[0] * MAX_LOG_ELEMENTS + after[1]
        return [
            RunInfo(k // MAX_LOG_ELEMENTS, k % MAX_LOG_ELEMENTS, length, size)
            for k, length, size in await self._read(queries.PAGE_RUNS, start, limit)
        ]

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        return [BlobInfo(*row) for row in await self._read(queries.PAGE_BLOBS, after or b"", limit)]

    async def usage(self) -> Usage:
        return Usage(*(await self._read(queries.USAGE))[0])

    # -- life --------------------------------------------------------------------------------------------------------

    async def setup(self) -> None:
        """Makes the schema, or brings it up to date, now: the first call of any verb does it otherwise."""
        async with self._connection():
            return

    async def compact(self) -> None:
        """Makes the room of what was deleted usable again, and gives back what is at the ends of tables."""
        try:
            async with self._connection() as connection:
                for table in queries.TABLES:
                    await connection.run(f"VACUUM {self._quoted}.{table}".encode())
        except psycopg.Error as error:
            raise translate(error, self._where, "compacted") from error

    async def close(self) -> None:
        for connections in self._to_close:
            connections.close()

    def _connection(self) -> AbstractAsyncContextManager[Link]:
        is_ready = self._is_prepared and not self._clock.is_due
        return self._connections.one() if is_ready else self._prepared_connection()

    @asynccontextmanager
    async def _prepared_connection(self) -> AsyncIterator[Link]:
        async with self._connections.one() as connection:
            if not self._is_prepared:
                try:
                    await prepare(connection, self._schema, self._where, make=self._make)
                except psycopg.Error as error:
                    raise translate(error, self._where, "opened") from error
                self._is_prepared = True
            if self._clock.is_due:
                asked_us = since_start_us()
                [[store_us]] = await self._fetch(connection, queries.NOW, ())
                self._clock.set(store_us, asked_us)
            yield connection

    async def _read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Asks, and asks again on a new connection if the one that was asked is lost: reading changes nothing."""
        for is_last in (False, True):
            connection: Link | None = None
            try:
                async with self._connection() as connection:
                    return await self._fetch(connection, query, values)
            except psycopg.Error as error:
                if is_last or connection is None or not connection.closed:
                    raise translate(error, self._where, "read") from error
                self._connections.drop_idle()
        raise AssertionError("unreachable")

    async def _fetch(self, connection: Link, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        text = self._queries.get(query)
        if text is None:
            text = self._queries[query] = query.replace("{s}", self._quoted).encode()
        if query in queries.OFTEN:
            return await ask(connection, text, values)
        return await connection.fetch(text, values)
