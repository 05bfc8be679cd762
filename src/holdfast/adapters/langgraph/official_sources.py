"""The databases of LangGraph's own savers, opened for reading only."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from holdfast.adapters.langgraph.keys import Place
from holdfast.adapters.langgraph.official_values import Reader, UnreadableError
from holdfast.errors import StoreError, UsageError
from holdfast.importers.readonly_sqlite import columns, connected

Tasks = dict[str, dict[int, list[Any]]]  # by task and index: channel, task path, value


class Found(NamedTuple):
    place: Place
    id: str
    parent: str | None


class Source(Protocol):
    """Raises UnreadableError for what can't be read of one checkpoint."""

    def places(self) -> list[Found]:
        """All checkpoints, those of a namespace by their ids, ascending."""

    def checkpoint(self, found: Found) -> tuple[dict[str, Any], dict[str, Any]]:
        """The checkpoint with its channels' values, and its metadata."""

    def tasks(self, found: Found) -> Tasks:
        """What tasks have written since the checkpoint."""


_SQLITE_COLUMNS = {
    "checkpoints": "thread_id checkpoint_ns checkpoint_id parent_checkpoint_id type checkpoint metadata",
    "writes": "thread_id checkpoint_ns checkpoint_id task_id idx channel type value",
}
_ONE = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
_PLACES = (
    "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints "
    "ORDER BY thread_id, checkpoint_ns, checkpoint_id"
)


class SqliteSource:
    def __init__(self, connection: sqlite3.Connection, reader: Reader) -> None:
        self._connection = connection
        self._reader = reader
        # Older databases have no task_path.
        self._path = "task_path" if "task_path" in columns(connection, "writes") else "''"

    def places(self) -> list[Found]:
        return [
            Found(Place(str(thread), ns or ""), id_, parent or None)
            for thread, ns, id_, parent in self._connection.execute(_PLACES)
        ]

    def checkpoint(self, found: Found) -> tuple[dict[str, Any], dict[str, Any]]:
        kind, data, metadata = self._rows("type, checkpoint, metadata", "checkpoints", found)[0]
        return _dict(self._reader.read(kind, data)), _dict(self._reader.read_json(metadata or b"{}"))

    def tasks(self, found: Found) -> Tasks:
        tasks: Tasks = {}
        wanted = f"task_id, {self._path}, idx, channel, type, value"
        for task, path, index, channel, kind, data in self._rows(wanted, "writes", found):
            tasks.setdefault(task, {})[index] = [channel, path, self._reader.read(kind, data)]
        return tasks

    def _rows(self, wanted: str, table: str, found: Found) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(
                f"SELECT {wanted} FROM {table} WHERE {_ONE}", (*found.place, found.id)
            ).fetchall()
        except sqlite3.DatabaseError as error:
            raise UnreadableError(f"its row can't be read: {error}") from error


@contextlib.contextmanager
def sqlite_source(path: Path, allow: Iterable[type[Any]]) -> Iterator[SqliteSource]:
    def check(connection: sqlite3.Connection) -> None:
        for table, names in _SQLITE_COLUMNS.items():
            missing = sorted(set(names.split()) - columns(connection, table))
            if missing:
                raise UsageError(
                    f"{path} is no database of LangGraph's SqliteSaver: its table `{table}` lacks {', '.join(missing)}"
                )

    with connected(path, "the program that wrote it", check) as connection:
        yield SqliteSource(connection, Reader(allow))


class PostgresSource:
    def __init__(self, connection: Any, reader: Reader) -> None:
        self._connection = connection
        self._reader = reader
        self._place: Place | None = None
        self._values: dict[tuple[str, str], Any] = {}  # of the place that is read, by channel and version

    def places(self) -> list[Found]:
        found = [
            Found(Place(thread, ns), id_, parent or None)
            for thread, ns, id_, parent in self._connection.execute(_PLACES).fetchall()
        ]
        return sorted(found)  # by code points, whatever the database's collation is

    def checkpoint(self, found: Found) -> tuple[dict[str, Any], dict[str, Any]]:
        [(stored, metadata)] = self._rows("checkpoint::text, metadata::text", "checkpoints", found)
        checkpoint = _dict(self._reader.read_json(stored))
        values = dict(checkpoint.get("channel_values") or {})  # plain ones are in the row itself
        versions = {channel: str(version) for channel, version in (checkpoint.get("channel_versions") or {}).items()}
        checkpoint["channel_values"] = values | self._blobs(found.place, versions)
        return checkpoint, _dict(self._reader.read_json(metadata))

    def tasks(self, found: Found) -> Tasks:
        tasks: Tasks = {}
        wanted = "task_id, task_path, idx, channel, type, blob"
        for task, path, index, channel, kind, data in self._rows(wanted, "checkpoint_writes", found):
            tasks.setdefault(task, {})[index] = [channel, path, self._reader.read(kind, data)]
        return tasks

    def _blobs(self, place: Place, versions: dict[str, str]) -> dict[str, Any]:
        """The channels' values at these versions. One that stays the same from checkpoint to checkpoint is read once, and
        stays the same object."""
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

    def _rows(self, wanted: str, table: str, found: Found) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._connection.execute(
            f"SELECT {wanted} FROM {table} WHERE {_ONE.replace('?', '%s')}", (*found.place, found.id)
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
            yield PostgresSource(connection, Reader(allow))
    except psycopg.errors.UndefinedTable as error:
        raise UsageError(f"this is no database of LangGraph's PostgresSaver: {error.diag.message_primary}") from error
    except psycopg.Error as error:
        raise StoreError(f"the PostgreSQL to import from could not be read: {error}") from error


def _dict(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise UnreadableError(f"it is a {type(value).__name__}, not a map")
    return value
