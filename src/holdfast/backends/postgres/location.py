"""From a DSN to what is connected to, with defaults that notice a dead server."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.errors import UsageError

# libpq would wait two minutes for a server that does not answer, and for one that has vanished for as long as the kernel
# does. What the DSN says goes first.
DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "holdfast",
}


class Location:
    """Where the store is: what to connect with, and what to show to people (without the password)."""

    def __init__(self, dsn: str, schema: str) -> None:
        try:
            parameters = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            raise UsageError(
                f"that is no PostgreSQL DSN ({str(error).strip()}): write 'postgresql://user@host:5432/database', or "
                "'host=… dbname=…'"
            ) from error
        if "," in str(parameters.get("host", "")):  # after a failover the others of the list only read
            parameters.setdefault("target_session_attrs", "read-write")
        self.conninfo = make_conninfo(**{**DEFAULTS, **parameters})
        host, port = parameters.get("host", "localhost"), parameters.get("port", 5432)
        database = parameters.get("dbname") or parameters.get("user", "")
        self.shown = f"postgresql://{host}:{port}/{database}?schema={schema}"
