"""The schema objects of a SQLite store, compared with those that the migrations make.

A file from elsewhere may have a view where a table belongs, triggers, or computed columns. SQLite
would run all of them. So the objects of a file are compared with ours, by type, name and SQL,
before any table is read.

Ordinary tables of other programs (Litestream's, `ANALYZE`'s, those of `.recover`) are accepted,
with their indexes: holdfast never reads them, so SQLite runs nothing because of them.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import CorruptError

MIGRATIONS = Path(__file__).with_name("migrations")
MOST_OBJECTS = 1000
# Digests of the objects of each version; a test derives them from the migrations. Deriving them
# here would take 2 ms at each start.
DIGESTS = {
    1: "0ec04420ebf45c0e0f80947429bbf84fb399fd4c97e916dec2cb69500b620e82",
    2: "e9d7fc9ec835b78b188d9a93cd181e2daf9b82ebc2bff6eaefa439398b2b3121",
    3: "2acf3f979dd7cce689f7d8da43ebedd85b7e8c1c88ad77264da6911eb14e2c28",
    4: "8907a0009fad158a132b99def5a32cf4c3077527d00cecdf4274cfd83db55099",
    5: "0e7426f724fe6ce36371a7ea645ca30b4204dac54a815b2bb6c0edfe7893f2df",
    6: "535cec8a98d5a72fff47e3bea35ee4744e67d83f2b1f781716bdec6dcb9e8168",
}
RESTORE = "Don't use a file from a source that you don't trust; restore a backup of your own. Nothing was changed"
# Indexes of columns, or made by SQLite itself: VACUUM would compute any expression.
_PLAIN_INDEX = re.compile(r"|CREATE (UNIQUE )?INDEX [^()]*\([^()]*\)", re.IGNORECASE)
_SCHEMA_QUERY = (
    "SELECT type, name, tbl_name, CASE WHEN length(sql) > 100000 THEN '' ELSE sql END, rootpage FROM sqlite_master "
    f"ORDER BY name, type LIMIT {MOST_OBJECTS + 1}"
)


class SchemaObject(NamedTuple):
    """A row of `sqlite_master`, its SQL with single blanks only."""

    type: str
    name: str
    table: str
    sql: str | None

    def __str__(self) -> str:
        return f"the {self.type} {self.name!r:.80}"


def read_objects(connection: sqlite3.Connection, path: Path) -> list[SchemaObject]:
    """Return the objects of a file; raise `CorruptError` for too many, or for tables that share pages."""
    rows = connection.execute(_SCHEMA_QUERY).fetchall()
    if len(rows) > MOST_OBJECTS:
        raise CorruptError(
            f"{_describe_refusal(path)}: it has more than {MOST_OBJECTS} tables, indexes, views and triggers"
        )
    if not all(type(value) is str for row in rows for value in row[:3]):
        raise CorruptError(f"{_describe_refusal(path)}: the list of its tables has rows of wrong types")
    roots = [row[4] for row in rows if row[4]]
    if len(set(roots)) != len(roots):
        raise CorruptError(f"{_describe_refusal(path)}: two of its tables or indexes are stored in one place")
    return [SchemaObject(kind, name, table, _normalize_sql(sql)) for kind, name, table, sql, _ in rows]


def check_objects(found: list[SchemaObject], version: int, path: Path) -> None:
    """Raise `CorruptError` unless the objects are those of a schema version, plus harmless tables."""
    if digest_of(found) == DIGESTS.get(version):
        return
    ours = {object_.name: object_ for object_ in expected_objects(version)}
    by_name = {object_.name: object_ for object_ in found}
    missing = [object_ for object_ in ours.values() if object_.name not in by_name]
    if len(missing) == len(ours):
        raise CorruptError(
            f"{_describe_refusal(path)}: it says that it is one of schema {version}, and has none of its tables. "
            "Restore a backup, or give holdfast a path where there is no file"
        )
    for object_ in found:
        expected = ours.get(object_.name)
        if expected is None:
            _check_foreign(object_, by_name, ours.keys(), path)
        elif expected != object_:
            difference = f"is a {object_.type}" if object_.type != expected.type else "is defined differently"
            raise CorruptError(
                f"{_describe_refusal(path)}: {object_.name!r} {difference}, where schema {version} has {expected}. "
                f"{RESTORE}"
            )
    if missing:
        names = ", ".join(str(object_) for object_ in missing)
        raise CorruptError(f"{_describe_refusal(path)}: these are missing: {names}. {RESTORE}")


def _check_foreign(object_: SchemaObject, by_name: dict[str, SchemaObject], ours: Iterable[str], path: Path) -> None:
    """Raise `CorruptError` if a foreign object could run something, or change holdfast's data."""
    if object_.type == "table" and object_.sql is not None and object_.sql.upper().startswith("CREATE TABLE "):
        return
    if (
        object_.type == "index"
        and object_.table not in ours
        and object_.table in by_name
        and _PLAIN_INDEX.fullmatch(object_.sql or "")
    ):
        return
    kind = "virtual table" if object_.type == "table" else object_.type
    on = "" if object_.table == object_.name else f" on {object_.table!r:.80}"
    raise CorruptError(
        f"{_describe_refusal(path)}: it has the {kind} {object_.name!r:.80}{on}, which holdfast did not make, and "
        "which SQLite would run. If you made it, remove it: "
        f'sqlite3 FILE "DROP {object_.type.upper()} ..."; else don\'t use the file. Nothing was changed'
    )


def digest_of(objects: Iterable[SchemaObject]) -> str:
    """Return a digest of objects in the order of their names."""
    return hashlib.sha256(repr([tuple(object_) for object_ in objects]).encode("utf-8", "replace")).hexdigest()


@cache
def expected_objects(version: int) -> tuple[SchemaObject, ...]:
    """Return the objects that the migrations up to a version make."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for number in range(1, version + 1):
            for statement in migration(number):
                connection.execute(statement)
        return tuple(read_objects(connection, Path(":memory:")))
    finally:
        connection.close()


def migration(number: int) -> list[str]:
    """Return the statements of a migration, one by one.

    `executescript` would commit the transaction that they belong to.
    """
    statements, current = [], ""
    for line in next(MIGRATIONS.glob(f"{number:03}_*.sql")).read_text().splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements


def _normalize_sql(sql: object) -> str | None:
    return " ".join(sql.split()) if isinstance(sql, str) else None


def _describe_refusal(path: Path) -> str:
    return f"the file {path} is not a store as holdfast makes it"
