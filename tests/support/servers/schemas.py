"""A schema for each test, so that tests that share a server don't see each other."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

PREFIX = f"test_{os.getpid()}_"
_made: set[str] = set()


def schema_name(where: Path) -> str:
    """The schema of whoever has that directory to itself; dropped by `drop_schemas`."""
    name = PREFIX + hashlib.sha256(bytes(where)).hexdigest()[:24]
    _made.add(name)
    return name


def drop_schemas(dsn: str) -> None:
    """Drops all that were named since the last time."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(dsn, autocommit=True) as connection:
        for name in list(_made):  # one that can't be dropped now is tried again after the next test
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))
            _made.discard(name)
