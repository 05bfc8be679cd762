"""The driver's errors, as errors that say what happened and what to do."""

from __future__ import annotations

import re

import psycopg

from holdfast.backends.postgres.connection_port import PostgresConnection
from holdfast.errors import CorruptError, HoldfastError, StoreError

# Another transaction was in the way and ours was rolled back: a retry tells who was first.
TRY_AGAIN = ("23505", "40001", "40P01")
CANCELLED = "57014"

READ_ONLY = "25006"
_STANDBY = "this server only reads: it follows another one. Name all of them in the DSN (`host=a,b`)"
_ROLE = (
    "this role only reads (default_transaction_read_only): `ALTER ROLE NAME SET default_transaction_read_only = off`, "
    "or take another role"
)

ADVICE = {
    READ_ONLY: f"either {_STANDBY}; or {_ROLE}",
    "standby": _STANDBY,
    "role": _ROLE,
    "28P01": "the password is wrong: give it in the DSN, by PGPASSWORD or by a password file",
    "3D000": "create the database first: `createdb NAME`",
    "3F000": "its schema is not there any more; open a new client to make it again",
    "42501": "the role lacks a right: docs/postgres.md lists what it needs",
    "42883": "its functions are not there any more; open a new client to make them again",
    "42P01": "its tables are not there any more; open a new client to make them again",
    "53100": "the server's disk is full: free some space. Nothing that was saved before is lost",
    "53200": "the server is out of memory or of room for locks: see max_locks_per_transaction",
    "53300": "the server has no connection left: lower `max_connections` here, or raise the server's, or use pgbouncer",
    CANCELLED: "it waited longer than `timeout` allows, mostly for a lock that another program holds "
    "(`SELECT * FROM pg_locks WHERE NOT "
    "granted` shows who waits), or an administrator cancelled it. Nothing was changed; try again",
    "HF001": "the role's default_transaction_isolation must be 'read committed': `ALTER ROLE … SET …`",
    "HF002": "transaction ids went back, as they do when a dump is loaded: open a new client, which puts that right",
}


# A server that refuses a connection gives no code that libpq would pass on, only words. In another
# language than English they are shown as they are.
AT_CONNECTING = (
    ("password authentication failed", ADVICE["28P01"]),
    ("no password supplied", "the server wants a password: give it in the DSN, by PGPASSWORD or by a password file"),
    ("too many clients", ADVICE["53300"]),
    ("too many connections", ADVICE["53300"]),
    ("remaining connection slots", ADVICE["53300"]),
    ("no pg_hba.conf entry", "the server refuses this role from this host: see its pg_hba.conf"),
    ("is not permitted to log in", "this role may not log in: `ALTER ROLE NAME LOGIN`"),
    ("Connection refused", "is the server running, and is the port right?"),
    ("timeout expired", "is the server running, and does a firewall let this host through?"),
    ("the database system is", "it is starting or stopping: try again in a moment"),
    ("session is read-only", ADVICE[READ_ONLY]),
)  # fmt: skip
_NO_SUCH = re.compile(r'(database|role) "[^"]*" does not exist')
_MISSING = {
    "database": ADVICE["3D000"],
    "role": "create the role first: `createuser NAME`, or name another one in the DSN",
}


def translate(
    error: psycopg.Error, where: str, doing: str, connection: PostgresConnection | None = None
) -> HoldfastError:
    """Translate an error of the driver. `doing` is the failed action: read, written, opened."""
    text = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
    code = error.sqlstate or ""
    if code.startswith("XX00") and code != "XX000":
        return CorruptError(f"the store {where} is damaged ({text}). Keep a copy, and restore a backup")
    if code == READ_ONLY and connection is not None and not connection.closed:
        follows = connection.pgconn.parameter_status(b"in_hot_standby")  # None behind a pooler
        code = {b"on": "standby", b"off": "role"}.get(follows or b"", code)
    advice = ADVICE.get(code) or _advice_at_connecting(text) or "check the server and its log, then try again"
    return StoreError(f"the store {where} can't be {doing}: {text}. {advice[0].upper()}{advice[1:]}")


def _advice_at_connecting(text: str) -> str | None:
    missing = _NO_SUCH.search(text)
    if missing:
        return _MISSING[missing.group(1)]
    return next((advice for words, advice in AT_CONNECTING if words in text), None)


def outcome_unknown(error: BaseException, where: str) -> StoreError:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return StoreError(
        f"the connection to {where} was lost before the answer came ({text}): the commit may have been carried out, or "
        "not. Repeat it with the same id: if it was, nothing happens"
    )


def make_unconfirmed_error(where: str) -> StoreError:
    return StoreError(
        f"the server {where} has stopped to wait for its synchronous standby: the commit is on the server, and may be "
        "lost when a "
        "standby takes over, so its outcome is not known. Repeat it with the same id: that waits until a standby has it"
    )
