"""The store behind another library's connection string, connection, pool or Redis client.

LangGraph's own savers and stores are opened with these. holdfast takes the address from the
argument and opens its own connections: it needs several, each with its own settings. The given
object is neither used nor closed.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from holdfast.client.client import Client
from holdfast.errors import UsageError
from holdfast.sealing.key_ring import KeyRing

_LIBPQ_PARAMETERS = (
    "host", "hostaddr", "port", "dbname", "user", "password", "passfile", "service", "sslmode", "application_name",
    "connect_timeout", "options", "target_session_attrs",
)  # fmt: skip
_PARAMETER_LIST = re.compile(rf"\s*({'|'.join(_LIBPQ_PARAMETERS)})\s*=", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+]+://", re.IGNORECASE)
_IN_MEMORY = ("", ":memory:")


def open_conn_string(conn_string: str, options: Mapping[str, Any]) -> Client:
    """Open the store that a connection string names.

    It is what LangGraph's own savers take: the path of a SQLite file, `:memory:`, a PostgreSQL DSN
    or URL, a Redis URL; and any URL that `Client.open` takes.
    """
    if not isinstance(conn_string, str):
        raise UsageError(f"a connection string is a text, not a {type(conn_string).__name__}")
    if _SCHEME.match(conn_string):
        return Client.open(conn_string, **options)
    if _PARAMETER_LIST.match(conn_string):
        return Client.postgres(conn_string, **options)
    return _open_sqlite(conn_string, options)


def open_connection(given: Any, keys: KeyRing | None = None) -> Client:
    """Return a client on the store that a connection, a pool or a Redis client is connected to."""
    if isinstance(given, str) and _SCHEME.match(given):  # RedisSaver("redis://...")
        return Client.open(given, keys=keys)
    if isinstance(given, sqlite3.Connection):
        return _open_sqlite(_sqlite_path(given), {"keys": keys})
    origin = type(given).__module__.partition(".")[0]
    if origin == "psycopg_pool":
        return Client.postgres(_conninfo_of_pool(given), max_connections=given.max_size, keys=keys)
    if origin == "psycopg":
        return Client.postgres(_conninfo_of_connection(given), keys=keys)
    if origin == "redis":
        return Client.redis(_redis_url(given), keys=keys)
    if origin == "aiosqlite":
        raise UsageError(
            "an aiosqlite connection does not say which file it is on: "
            "write `async with HoldfastSaver.from_conn_string('checkpoints.db') as saver` with that path"
        )
    raise UsageError(
        "HoldfastSaver and HoldfastStore take a Client, a SyncClient, a connection or pool of psycopg, a connection "
        f"of sqlite3, a Redis client or a URL, not a {type(given).__name__}. HoldfastSaver.from_sqlite('state.db') "
        "opens a file"
    )


def _open_sqlite(path: str, options: Mapping[str, Any]) -> Client:
    if path in _IN_MEMORY:
        return Client.memory(**options)
    try:
        return Client.sqlite(path, **options)
    except UsageError as error:
        raise UsageError(
            f"{error}. If it has the threads of LangGraph's own saver, open another file, and copy them there: "
            f"`holdfast import langgraph-sqlite {path}`"
        ) from error


def _sqlite_path(connection: sqlite3.Connection) -> str:
    try:
        databases = connection.execute("PRAGMA database_list").fetchall()
    except sqlite3.ProgrammingError as error:
        raise UsageError(f"the sqlite3 connection can't be asked for its file: {error}") from error
    return str(next(path or "" for _, name, path in map(tuple, databases) if name == "main"))


def _conninfo_of_pool(pool: Any) -> str:
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    if callable(pool.conninfo) or callable(pool.kwargs):
        raise UsageError(
            "the pool asks a function for its connection parameters: give the address, HoldfastSaver.from_postgres(dsn)"
        )
    # Among the parameters of a pool are psycopg's own (`autocommit`, `row_factory`): libpq's are
    # those of an address.
    parameters = {name: value for name, value in (pool.kwargs or {}).items() if _is_of_libpq(name)}
    return make_conninfo(**{**conninfo_to_dict(pool.conninfo), **parameters})


def _is_of_libpq(name: str) -> bool:
    from psycopg import pq

    return name.encode() in {option.keyword for option in pq.Conninfo.get_defaults()}


def _conninfo_of_connection(connection: Any) -> str:
    from psycopg.conninfo import make_conninfo

    if connection.closed:
        raise UsageError(
            "the psycopg connection is closed: its address can't be asked for. Give an open one, or the DSN"
        )
    info = connection.info
    password = {"password": info.password} if info.password else {}  # all but the password is among the parameters
    return str(make_conninfo(**{**info.get_parameters(), **password}))


def _redis_url(client: Any) -> str:
    nodes = getattr(client, "nodes_manager", None)
    if nodes is not None:
        settings = nodes.connection_kwargs
        places = [f"{node.host}:{node.port}" for node in nodes.startup_nodes.values()]
        scheme, path = ("rediss+cluster" if settings.get("ssl") else "redis+cluster"), ""
    else:
        pool = client.connection_pool
        settings = pool.connection_kwargs
        if "path" in settings:
            raise UsageError("holdfast reaches Redis over TCP: the client is on a Unix socket. Give a URL with a host")
        places = [f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"]
        is_encrypted = "SSL" in pool.connection_class.__name__
        scheme, path = ("rediss" if is_encrypted else "redis"), f"/{settings.get('db') or 0}"
    if settings.get("credential_provider") is not None:
        raise UsageError("the Redis client asks a provider for its password: give a URL, HoldfastSaver.from_redis(url)")
    user, password = (quote(str(settings.get(name) or ""), safe="") for name in ("username", "password"))
    credentials = f"{user}:{password}@" if user or password else ""
    security = "&".join(
        f"{name}={quote(str(value), safe='')}"
        for name, value in settings.items()
        if name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
        and isinstance(value, str | bool)
    )
    return f"{scheme}://{credentials}{','.join(places)}{path}" + (f"?{security}" if security else "")
