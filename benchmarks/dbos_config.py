"""DBOS on SQLite: its tables need SQLite 3.42, which not every Python has."""

import sqlite3
from pathlib import Path
from typing import Any

DBOS_NEEDS = (3, 42)  # unixepoch('subsec'), the default of a column


def dbos_on_sqlite(file: Path | str, **options: Any) -> Any:
    """Return a configuration of DBOS; its driver is pysqlite3 where Python's own SQLite is too old."""
    config = {"name": "bench", "system_database_url": f"sqlite:///{file}", **options}
    if sqlite3.sqlite_version_info >= DBOS_NEEDS:
        return config
    import pysqlite3

    return config | {"db_engine_kwargs": {"module": pysqlite3}}
