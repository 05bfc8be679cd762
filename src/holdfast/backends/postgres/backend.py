"""The verbs of the port, on PostgreSQL.

Nothing depends on the state of a database session: no settings, locks or prepared statements
outlive a transaction. So pgbouncer in transaction mode works, and any connection serves any call.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import cached_property, partial
from typing import Any, Self

import psycopg

from holdfast.backends import fork_safety
from holdfast.backends.port import (
    MAX_LOG_ELEMENTS,
    STORE,
    BlobInfo,
    Capabilities,
    Change,
    Commit,
    Finding,
    Record,
    Row,
    RowKey,
    Segment,
    SegmentInfo,
    Span,
    Usage,
)
from holdfast.backends.postgres import queries, server_state
from holdfast.backends.postgres.binary_arrays import bytes_array, ints_array, text_array
from holdfast.backends.postgres.commit import (
    CommitPlan,
    Function,
    GeneralCommit,
    batches,
    changes_something,
    key_columns,
)
from holdfast.backends.postgres.connection_port import Links, PostgresConnection
from holdfast.backends.postgres.dsn import Location
from holdfast.backends.postgres.errors import CANCELLED, TRY_AGAIN, make_unconfirmed_error, outcome_unknown, translate
from holdfast.backends.postgres.notify import NotifyListener, ThreadNotifications
from holdfast.backends.postgres.pool import PostgresPool
from holdfast.backends.postgres.schema import prepare, quote_name
from holdfast.backends.postgres.simple_commit import FALLBACK_ERRORS, deciding_way_of, way_of
from holdfast.backends.postgres.sync_connection import BlockingConnections
from holdfast.backends.postgres.timeouts import NoAnswerError
from holdfast.backends.server_clock import StoreClock, since_start_us
from holdfast.backends.simple_commit import is_plain
from holdfast.errors import HoldfastError, StoreError, UsageError

DURABILITIES = ("full", "fast")
ATTEMPTS = 5
SEALED_BETWEEN_VACUUMS = 8  # each stands for 64 KB of dead segments
LONGEST_NAME = 63  # PostgreSQL cuts longer identifiers, and two of them would be one


class PostgresBackend:
    """A store in one schema of a database.

    `max_connections` limits the connections of each event loop, and of all threads together.
    `timeout` limits how long a call waits for a connection, and how long a server may be silent.
    With `durability="fast"` a crash of the server may lose the last saves (never tear one). Without
    `make`, a missing schema is an error, for callers that only read.
    """

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
        if timeout <= 0:
            raise UsageError(f"timeout is {timeout:g}: it is a number of seconds, more than 0")
        if max_connections < 1:
            raise UsageError(f"max_connections is {max_connections}: at least one is needed")
        location = Location(dsn, schema, timeout)
        self._where = location.shown
        self._schema = schema
        self._quoted = quote_name(schema)
        self._durability = durability
        self._timeout = timeout
        self._reached_by = location.conninfo, self._where, max_connections, timeout
        self._of_loops = PostgresPool(*self._reached_by)
        self._connections: Links = self._of_loops
        self._to_close: list[Links] = [self._connections]
        self._parting = threading.Lock()
        fork_safety.begin_again_in_child(self, _begin_again)
        self._without_loop: Self | None = None
        self._make = make
        self._is_prepared = False
        self._clock = StoreClock()
        self._hints: NotifyListener | ThreadNotifications = NotifyListener(self._of_loops, schema)
        self._sealed = 0
        self._queries: dict[str, bytes] = {}
        self._statements: dict[str, bytes] = {}

    def without_loop(self) -> Self:
        """Return the same store for callers without an event loop.

        The coroutines of its verbs never suspend, and any thread may step them. All callers share
        one such object and its connections. Closing one closes both.
        """
        with self._parting:
            if self._without_loop is None:
                other = self._without_loop = copy.copy(self)
                connections = BlockingConnections(*self._reached_by)
                other._connections = connections
                other._hints = ThreadNotifications(connections, self._schema)
                self._to_close.append(connections)
            return self._without_loop

    @cached_property  # each save asks for them
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="postgres",
            durability=self._durability,
            location=self._where,
            awaitable=True,
            feeds=True,
            timeout=self._timeout,
            now_us=self._clock.now_us,
            # A server that was restarted, or configured to stop waiting, shows commits that its standby may not
            # have.
            seen_is_durable=self._durability == "fast",
        )

    # -- writing -----------------------------------------------------------------------------------------------------

    async def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        outcomes: list[BaseException | None] = []
        for batch, locks in batches(commits, self._schema):
            outcomes += await self._carry_out(batch, locks)
        if any(map(_is_news, commits)):
            self._hints.announce()
        return outcomes

    async def wait_for_notify(self) -> None:
        assert isinstance(self._hints, NotifyListener), "an event loop listens"
        await self._hints.wait_for_notify()

    async def _carry_out(self, commits: list[Commit], locks: list[int]) -> list[BaseException | None]:
        """Carry out commits in one transaction; if one can't be written, each gets a transaction of its own."""
        are_plain = all(map(is_plain, commits))
        way = way_of(commits, locks) if are_plain else GeneralCommit(commits)
        for attempt in range(ATTEMPTS):
            connection: PostgresConnection | None = None
            try:
                async with self._connection() as connection:
                    connection.notices.clear()
                    outcomes = way.outcomes(await self._answer(connection, way, locks))
                    if connection.notices.are_unconfirmed:
                        outcomes = [outcome or make_unconfirmed_error(self._where) for outcome in outcomes]
                    if not are_plain:
                        outcomes = await self._looked_after(connection, commits, outcomes)
                return outcomes
            except psycopg.Error as error:
                if way.is_hopeful and error.sqlstate in FALLBACK_ERRORS:
                    way = deciding_way_of(commits)
                    continue
                if error.sqlstate in TRY_AGAIN and attempt + 1 < ATTEMPTS:
                    seconds = random.random() * 0.01 * 2**attempt  # noqa: S311 - who waits how long
                    await self._connections.sleep(seconds)
                    continue
                if len(commits) == 1 or error.sqlstate == CANCELLED:  # each by itself would wait as long again
                    return [translate(error, self._where, "written", connection) for _ in commits]
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
        self, connection: PostgresConnection, commits: list[Commit], outcomes: list[BaseException | None]
    ) -> list[BaseException | None]:
        """Finish commits that are not simple: some wait for standbys without a change, some leave dead rows."""
        if not all(map(changes_something, commits)):
            unsure = await self._wait_for_standbys(connection)
            outcomes = [
                outcome if changes_something(commit) else outcome or unsure
                for commit, outcome in zip(commits, outcomes, strict=True)
            ]
        await self._reuse_room(connection, commits, outcomes)
        return outcomes

    async def _reuse_room(
        self, connection: PostgresConnection, commits: list[Commit], outcomes: list[BaseException | None]
    ) -> None:
        """Vacuum now and then, to reuse the space of segments that were sealed into others.

        The server does so by itself once a minute; until then a busy session would grow by
        everything that it ever wrote.
        """
        self._sealed += sum(
            segment.first < segment.tail
            for commit, outcome in zip(commits, outcomes, strict=True)
            if outcome is None
            for segment in commit.segments
        )
        if self._sealed < SEALED_BETWEEN_VACUUMS:
            return
        self._sealed = 0
        # The commits are done, even if this fails.
        with suppress(psycopg.Error):
            await connection.run(queries.REUSE_ROOM.replace("{s}", self._quoted).encode())

    async def _answer(self, connection: PostgresConnection, way: CommitPlan, locks: list[int]) -> bytes:
        arguments = way.arguments(locks, fast=self._durability == "fast")
        try:
            return await connection.fetch_raw(self._statement(way.function), way.function.adapt(arguments))
        except psycopg.Error as error:
            # While the connection lives, an error means that the transaction was rolled back. A lost connection
            # may have taken the answer with it.
            if connection.closed:
                self._connections.drop_idle()
                raise outcome_unknown(error, self._where) from error
            raise

    def _statement(self, function: Function) -> bytes:
        known = self._statements.get(function.name)
        if known is None:
            places = ", ".join(f"${number}" for number in range(1, len(function.types) + 1))
            known = self._statements[function.name] = f"SELECT {self._quoted}.{function.name}({places})".encode()
        return known

    async def _wait_for_standbys(self, connection: PostgresConnection) -> StoreError | None:
        """Wait until earlier commits are where the server's settings want them; return why if that is unknown.

        Any change learns this from its own commit.
        """
        connection.notices.clear()
        try:
            await connection.run(f"UPDATE {self._quoted}.store SET version = version".encode())
        except psycopg.Error as error:
            if connection.closed:
                self._connections.drop_idle()
            return outcome_unknown(error, self._where)
        return make_unconfirmed_error(self._where) if connection.notices.are_unconfirmed else None

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
        asked = (len(ending), ending.lower(), limit)
        if len(ending) >= 8:
            rows = await self._read(queries.FIND_IDS_BY_INDEX, *asked, bytes.fromhex(ending[-8:]))
        else:
            rows = await self._read(queries.FIND_IDS, *asked)
        return [row[0] for row in rows]

    async def segments(self, spans: Sequence[Span]) -> list[list[Segment]]:
        wanted = list(dict.fromkeys(spans))
        if not wanted:
            return []
        bases = [span.log * MAX_LOG_ELEMENTS for span in wanted]
        firsts = [base + span.first for base, span in zip(bases, wanted, strict=True)]
        lasts = [base + span.end for base, span in zip(bases, wanted, strict=True)]
        found: dict[Span, list[Segment]] = {span: [] for span in wanted}
        for number, k, length, data in await self._read(
            queries.RUNS, ints_array(bases), ints_array(firsts), ints_array(lasts)
        ):
            span = wanted[number - 1]
            found[span].append(Segment(k - span.log * MAX_LOG_ELEMENTS, length, data))
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

    async def changes(self, after: int, limit: int, feed: bytes | None = None) -> list[Change]:
        if feed is None:
            rows = await self._read(queries.CHANGES, after, limit)
        else:
            rows = await self._read(queries.CHANGES_OF_FEED, feed, after, limit)
        return [Change(position, Record(*columns)) for position, *columns in rows]

    async def recent(self, before: int | None, limit: int) -> list[Change]:
        rows = await self._read(queries.RECENT, 2**63 - 1 if before is None else before, limit)
        return [Change(position, Record(*columns)) for position, *columns in rows]

    async def last_change(self) -> int:
        position: int = (await self._read(queries.LAST_CHANGE))[0][0]
        return position

    async def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]:
        start = -1 if after is None else after[0] * MAX_LOG_ELEMENTS + after[1]
        return [
            SegmentInfo(k // MAX_LOG_ELEMENTS, k % MAX_LOG_ELEMENTS, length, size)
            for k, length, size in await self._read(queries.PAGE_RUNS, start, limit)
        ]

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        return [BlobInfo(*row) for row in await self._read(queries.PAGE_BLOBS, after or b"", limit)]

    async def usage(self) -> Usage:
        return Usage(*(await self._read(queries.USAGE))[0])

    async def examine(self) -> list[Finding]:
        """Return findings about the server's settings and the role's rights.

        The schema is not prepared: that may be what fails.
        """
        try:
            async with self._connections.acquire() as connection:
                return await server_state.examine(connection, self._schema)
        except psycopg.Error as error:
            raise translate(error, self._where, "examined") from error

    async def why_undecided(self) -> str | None:
        try:
            async with self._connection() as connection:
                return await server_state.why_undecided(connection, self._quoted)
        except psycopg.Error as error:
            raise translate(error, self._where, "read") from error

    # -- life --------------------------------------------------------------------------------------------------------

    async def setup(self) -> None:
        """Create or upgrade the schema now; otherwise the first call of any verb does it."""
        async with self._connection():
            return

    async def compact(self) -> None:
        """Vacuum: make the space of deleted rows reusable, and return it at the ends of tables."""
        try:
            async with self._connection() as connection:
                with self._taking_long(connection):
                    for table in queries.TABLES:
                        await connection.run(f"VACUUM {self._quoted}.{table}".encode())
        except psycopg.Error as error:
            raise translate(error, self._where, "compacted") from error

    async def close(self) -> None:
        for connections in self._to_close:
            connections.close()

    def _connection(self) -> AbstractAsyncContextManager[PostgresConnection]:
        is_ready = self._is_prepared and not self._clock.is_due
        return self._connections.acquire() if is_ready else self._prepared_connection()

    @asynccontextmanager
    async def _prepared_connection(self) -> AsyncIterator[PostgresConnection]:
        async with self._connections.acquire() as connection:
            if not self._is_prepared:
                try:
                    with self._taking_long(connection):
                        await prepare(connection, self._schema, self._where, make=self._make)
                except psycopg.Error as error:
                    raise translate(error, self._where, "opened", connection) from error
                self._is_prepared = True
            if self._clock.is_due:
                asked_us = since_start_us()
                [[store_us]] = await self._fetch(connection, queries.NOW, ())
                self._clock.set(store_us, asked_us)
            yield connection

    async def _read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a query, and retry on a new connection if this one is lost: reading changes nothing."""
        for is_last in (False, True):
            connection: PostgresConnection | None = None
            try:
                async with self._connection() as connection:
                    return await self._fetch(connection, query, values)
            except psycopg.Error as error:
                if connection is not None and connection.closed:
                    self._connections.drop_idle()
                if is_last or connection is None or not connection.closed or isinstance(error, NoAnswerError):
                    raise translate(error, self._where, "read") from error
        raise AssertionError("unreachable")

    async def _fetch(self, connection: PostgresConnection, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        text = self._queries.get(query)
        if text is None:
            text = self._queries[query] = query.replace("{s}", self._quoted).encode()
        if query in queries.LONG:
            with self._taking_long(connection):
                return await connection.fetch(text, values)
        return await connection.fetch(text, values)

    @contextmanager
    def _taking_long(self, connection: PostgresConnection) -> Iterator[None]:
        """Allow a query to take longer than `timeout`, as long as the server works on it."""
        connection.is_at_work = partial(self._is_at_work, connection)
        try:
            yield
        finally:
            connection.is_at_work = None

    async def _is_at_work(self, connection: PostgresConnection) -> bool:
        """Return whether the server is reachable, and its work for a connection does not wait for a lock.

        Behind a pooler only the first can be told.
        """
        try:
            other = await self._connections.connect()
        except HoldfastError:
            return False
        try:
            found = await other.fetch(queries.IS_AT_WORK, (connection.pgconn.backend_pid,))
        except psycopg.Error:
            return False
        finally:
            other.finish()
        return not found or bool(found[0][0])


def _is_news(commit: Commit) -> bool:
    """Return whether a commit has a checkpoint, or a row of the whole store, such as a hint."""
    is_row = any(write.key.tree == STORE and write.value is not None for write in commit.rows)
    return commit.record is not None or is_row


def _begin_again(backend: PostgresBackend) -> None:
    """Begin again in a forked child; connections and hints do so themselves."""
    backend._parting = threading.Lock()
