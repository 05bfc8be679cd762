"""What the driver raises, as errors that say what happened and what to do."""

from __future__ import annotations

import psycopg

from holdfast.errors import CorruptError, HoldfastError, StoreError

# A neighbour was in the way and the transaction was rolled back: trying again tells who was first.
TRY_AGAIN = ("23505", "40001", "40P01")

ADVICE = {
    "25006": "this server only reads: it follows another one. Name all of them in the DSN (`host=a,b`)",
    "28P01": "the password is wrong",
    "3D000": "create the database first: `createdb NAME`",
    "3F000": "its schema is not there any more; open a new client to make it again",
    "42501": "the role lacks a right: docs/postgres.md lists what it needs",
    "42883": "its functions are not there any more; open a new client to make them again",
    "42P01": "its tables are not there any more; open a new client to make them again",
    "53100": "the server's disk is full: free some space. Nothing that was saved before is lost",
    "53200": "the server is out of memory or of room for locks: see max_locks_per_transaction",
    "53300": "the server has no connection left: lower `max_connections` here, or raise the server's, or use pgbouncer",
    "HF001": "the role's default_transaction_isolation must be 'read committed': `ALTER ROLE … SET …`",
    "HF002": "transaction ids went back, as they do when a dump is loaded: open a new client, which puts that right",
}


def translate(error: psycopg.Error, where: str, doing: str) -> HoldfastError:
    """An error of the driver as ours. `doing` is what could not be done: read, written, opened."""
    text = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
    code = error.sqlstate or ""
    if code.startswith("XX00") and code != "XX000":
        return CorruptError(f"the store {where} is damaged ({text}). Keep a copy, and restore a backup")
    advice = ADVICE.get(code, "Check the server and its log, then try again")
    return StoreError(f"the store {where} can't be {doing}: {text}. {advice[0].upper()}{advice[1:]}")


def outcome_unknown(error: BaseException, where: str) -> StoreError:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return StoreError(
        f"the connection to {where} was lost before the answer came ({text}): the commit may have been carried out, or "
        "not. Repeat it with the same id: if it was, nothing happens"
    )
