"""Connection parameters from a DSN, with defaults that detect a dead server."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.errors import UsageError

LONGEST_CONNECT_SECONDS = 10
SHORTEST_CONNECT_SECONDS = 2  # libpq's own

# libpq would wait two minutes for a server that does not answer, and for one that has vanished for
# as long as the kernel does. The DSN's own parameters come first.
DEFAULTS: dict[str, Any] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "holdfast",
}


class Location:
    """The location of a store: parameters to connect with, and a form to show (without the password)."""

    def __init__(self, dsn: str, schema: str, timeout: float) -> None:
        try:
            parameters = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            raise UsageError(
                f"that is no PostgreSQL DSN ({str(error).strip()}): write 'postgresql://user@host:5432/database', or "
                "'host=… dbname=…'"
            ) from error
        if "," in str(parameters.get("host", "")):  # after a failover the others of the list are read-only
            parameters.setdefault("target_session_attrs", "read-write")
        hosts = str(parameters.get("host", "")).count(",") + 1
        seconds = max(SHORTEST_CONNECT_SECONDS, min(LONGEST_CONNECT_SECONDS, int(timeout / hosts)))
        self.conninfo = make_conninfo(**{**DEFAULTS, "connect_timeout": seconds, **parameters})
        host, port = parameters.get("host", "localhost"), parameters.get("port", 5432)
        database = parameters.get("dbname") or parameters.get("user", "")
        self.shown = f"postgresql://{host}:{port}/{database}?schema={schema}"
