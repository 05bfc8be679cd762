"""URLs of PostgreSQL stores. The driver is imported only when a store is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.backends.postgres.backend import PostgresBackend

OWN_OPTIONS = {"schema": str, "durability": str, "max_connections": int, "timeout": float}


def open_url(url: str, **options: Any) -> PostgresBackend:
    """Open `postgresql://user@host/database`, with parameters of libpq and our own.

    Our own are options of the backend: `?schema=agents&durability=fast`.
    """
    dsn, given = split_options(url)
    return open_postgres(dsn, **{**given, **options})


def open_postgres(dsn: str, **options: Any) -> PostgresBackend:
    try:
        from holdfast.backends.postgres.backend import PostgresBackend
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise UsageError(
            "a PostgreSQL store needs the driver psycopg, which is not installed: `pip install 'holdfast[postgres]'`"
        ) from error
    return PostgresBackend(dsn, **options)


def split_options(url: str) -> tuple[str, dict[str, Any]]:
    """Return the URL without our own options, and these: libpq refuses unknown ones."""
    from urllib.parse import unquote

    address, _, query = url.partition("?")
    options: dict[str, Any] = {}
    rest = []
    for part in filter(None, query.split("&")):
        name, _, text = part.partition("=")
        if name not in OWN_OPTIONS:
            rest.append(part)
            continue
        try:
            options[name] = OWN_OPTIONS[name](unquote(text))
        except ValueError as error:
            raise UsageError(f"the option {name} of the store's URL is {text!r}: that is no number") from error
    return address + ("?" + "&".join(rest) if rest else ""), options
