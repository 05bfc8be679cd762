"""The databases of LangGraph's own savers, opened for reading only."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from holdfast.adapters.langgraph.official_value import OfficialValueReader, UnreadableError
from holdfast.adapters.langgraph.row_keys import ThreadNamespace
from holdfast.errors import StoreError, UsageError
from holdfast.importers.readonly_sqlite import columns, connect_readonly, describe, is_endless

Tasks = dict[str, dict[int, list[Any]]]  # by task and index: channel, task path, value


class FoundCheckpoint(NamedTuple):
    place: ThreadNamespace
    id: str
    parent: str | None


class OddRow(NamedTuple):
    """A row that can't be a checkpoint, and why."""

    where: str
    reason: str


class OfficialSource(Protocol):
    """Raises UnreadableError for what can't be read of one checkpoint."""

    def places(self) -> tuple[list[FoundCheckpoint], list[OddRow]]:
        """Return all checkpoints, those of a namespace by their ids, ascending; and the rows that are none."""

    def checkpoint(self, found: FoundCheckpoint) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the checkpoint with its channels' values, and its metadata."""

    def tasks(self, found: FoundCheckpoint) -> Tasks:
        """Return the writes of tasks since the checkpoint."""


_SQLITE_COLUMNS = {
    "checkpoints": "thread_id checkpoint_ns checkpoint_id parent_checkpoint_id type checkpoint metadata",
    "writes": "thread_id checkpoint_ns checkpoint_id task_id idx channel type value",
}
_IS_CHECKPOINT = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
_PLACES = (
    "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints "
    "ORDER BY thread_id, checkpoint_ns, checkpoint_id"
)


class SqliteSource:
    def __init__(self, connection: sqlite3.Connection, reader: OfficialValueReader) -> None:
        self._connection = connection
        self._reader = reader
        # Older databases have no task_path.
        self._path = "task_path" if "task_path" in columns(connection, "writes") else "''"

    def places(self) -> tuple[list[FoundCheckpoint], list[OddRow]]:
        try:
            return _sorted_out(self._connection.execute(_PLACES))
        except sqlite3.DatabaseError as error:
            raise _make_unreadable_error(error) from error

    def checkpoint(self, found: FoundCheckpoint) -> tuple[dict[str, Any], dict[str, Any]]:
        rows = self._rows("type, checkpoint, metadata", "checkpoints", found)
        if len(rows) != 1:
            raise UnreadableError(f"there are {len(rows)} rows of it, not one")
        [(kind, data, metadata)] = rows
        return _dict(self._reader.read(kind, data)), _dict(self._reader.read_json(metadata or b"{}"))

    def tasks(self, found: FoundCheckpoint) -> Tasks:
        tasks: Tasks = {}
        wanted = f"task_id, {self._path}, idx, channel, type, value"
        for task, path, index, channel, kind, data in self._rows(wanted, "writes", found):
            _add_write(tasks, task, path, index, channel, self._reader.read(kind, data))
        return tasks

    def _rows(self, wanted: str, table: str, found: FoundCheckpoint) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(
                f"SELECT {wanted} FROM {table} WHERE {_IS_CHECKPOINT}", (*found.place, found.id)
            ).fetchall()
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if is_endless(error):
                raise _make_unreadable_error(error) from error
            raise UnreadableError(f"its row can't be read: {error}") from error


def _make_unreadable_error(error: Exception) -> StoreError:
    return StoreError(
        f"the database to import from could not be read ({describe(error)}): it is damaged. "
        "Import a backup; don't use a file from a source that you don't trust"
    )


@contextlib.contextmanager
def sqlite_source(path: Path, allow: Iterable[type[Any]]) -> Iterator[SqliteSource]:
    def check(connection: sqlite3.Connection) -> None:
        for table, names in _SQLITE_COLUMNS.items():
            missing = sorted(set(names.split()) - columns(connection, table))
            if missing:
                raise UsageError(
                    f"{path} is no database of LangGraph's SqliteSaver: its table `{table}` lacks {', '.join(missing)}"
                )

    with connect_readonly(path, "the program that wrote it", check) as connection:
        yield SqliteSource(connection, OfficialValueReader(allow))


class PostgresSource:
    def __init__(self, connection: Any, reader: OfficialValueReader) -> None:
        self._connection = connection
        self._reader = reader
        self._place: ThreadNamespace | None = None
        self._values: dict[tuple[str, str], Any] = {}  # of the place that is read, by channel and version

    def places(self) -> tuple[list[FoundCheckpoint], list[OddRow]]:
        found, odd = _sorted_out(self._connection.execute(_PLACES).fetchall())
        return sorted(found, key=_by_code_points), odd  # whatever the database's collation is

    def checkpoint(self, found: FoundCheckpoint) -> tuple[dict[str, Any], dict[str, Any]]:
        [(stored, metadata)] = self._rows("checkpoint::text, metadata::text", "checkpoints", found)
        checkpoint = _dict(self._reader.read_json(stored))
        values = dict(_dict(checkpoint.get("channel_values") or {}))  # plain ones are in the row itself
        stated = _dict(checkpoint.get("channel_versions") or {})
        versions = {channel: str(version) for channel, version in stated.items()}
        checkpoint["channel_values"] = values | self._blobs(found.place, versions)
        return checkpoint, _dict(self._reader.read_json(metadata))

    def tasks(self, found: FoundCheckpoint) -> Tasks:
        tasks: Tasks = {}
        wanted = "task_id, task_path, idx, channel, type, blob"
        for task, path, index, channel, kind, data in self._rows(wanted, "checkpoint_writes", found):
            _add_write(tasks, task, path, index, channel, self._reader.read(kind, data))
        return tasks

    def _blobs(self, place: ThreadNamespace, versions: dict[str, str]) -> dict[str, Any]:
        """Return the channels' values at these versions.

        A value that stays the same from checkpoint to checkpoint is read once, and stays the same
        object.
        """
        before = self._values if self._place == place else {}
        self._place, self._values = place, {}
        missing = [(channel, version) for channel, version in versions.items() if (channel, version) not in before]
        rows = self._connection.execute(
            "SELECT channel, version, type, blob FROM checkpoint_blobs WHERE thread_id = %s AND checkpoint_ns = %s "
            "AND (channel, version) IN (SELECT * FROM unnest(%s::text[], %s::text[]))",
            (*place, [channel for channel, _ in missing], [version for _, version in missing]),
        ).fetchall()
        self._values = {key: value for key, value in before.items() if versions.get(key[0]) == key[1]}
        for channel, version, kind, data in rows:
            if kind != "empty":
                self._values[channel, version] = self._reader.read(kind, data)
        return {channel: value for (channel, _), value in self._values.items()}

    def _rows(self, wanted: str, table: str, found: FoundCheckpoint) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._connection.execute(
            f"SELECT {wanted} FROM {table} WHERE {_IS_CHECKPOINT.replace('?', '%s')}", (*found.place, found.id)
        ).fetchall()
        return rows


@contextlib.contextmanager
def postgres_source(dsn: str, allow: Iterable[type[Any]]) -> Iterator[PostgresSource]:
    try:
        import psycopg
    except ModuleNotFoundError as error:
        raise UsageError("reading a PostgreSQL needs psycopg: pip install 'holdfast[postgres]'") from error
    try:
        with psycopg.connect(dsn) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # one state for all that follows
            yield PostgresSource(connection, OfficialValueReader(allow))
    except psycopg.errors.UndefinedTable as error:
        raise UsageError(f"this is no database of LangGraph's PostgresSaver: {error.diag.message_primary}") from error
    except psycopg.Error as error:
        raise StoreError(f"the PostgreSQL to import from could not be read: {error}") from error


def _sorted_out(rows: Iterable[tuple[Any, ...]]) -> tuple[list[FoundCheckpoint], list[OddRow]]:
    """Split the rows into checkpoints and invalid rows: SQLite's columns may hold values of any type."""
    found: list[FoundCheckpoint] = []
    odd: list[OddRow] = []
    for thread, ns, id_, parent in rows:
        problem = _problem(thread, "thread_id") or _problem(ns, "checkpoint_ns", may_be_empty=True)
        problem = (
            problem or _problem(id_, "checkpoint_id") or _problem(parent, "parent_checkpoint_id", may_be_empty=True)
        )
        if problem is None:
            found.append(FoundCheckpoint(ThreadNamespace(thread, ns or ""), id_, parent or None))
        else:
            odd.append(OddRow(f"thread {thread!r:.60}", problem))
    return found, odd


def _problem(value: Any, column: str, *, may_be_empty: bool = False) -> str | None:
    """Why a column of a row is no name; None if it is one."""
    if may_be_empty and not value and isinstance(value, str | None):
        return None
    if type(value) is not str or not value:
        return f"its {column} is {value!r:.60}, not a text"
    if not _is_unicode(value):
        return f"its {column} is no UTF-8: {value!r:.60}"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _by_code_points(found: FoundCheckpoint) -> tuple[ThreadNamespace, str]:
    return found.place, found.id


def _add_write(tasks: Tasks, task: Any, path: Any, index: Any, channel: Any, value: Any) -> None:
    """Notes what a task has written. Raises UnreadableError for a row that can't be that."""
    if not (type(task) is type(channel) is str and type(index) is int and isinstance(path, str | None)):
        raise UnreadableError(
            f"a row of its writes is odd: task {task!r:.40}, index {index!r:.40}, channel {channel!r:.40}"
        )
    tasks.setdefault(task, {})[index] = [channel, path or "", value]


def _dict(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise UnreadableError(f"it is a {type(value).__name__}, not a map")
    return value
