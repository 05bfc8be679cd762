"""A transaction that a test holds open, step by step, and clients of either kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg

from holdfast import SyncClient
from holdfast.backends.bridge.blocking import run_in_loop
from holdfast.backends.port import Commit
from holdfast.backends.postgres import open_url
from holdfast.backends.postgres.binary_arrays import CONTEXT, ints_array
from holdfast.backends.postgres.commit import GeneralCommit, batches
from holdfast.backends.postgres.schema import quote_name


def schema_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["schema"][0]


def connected(url: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(url.partition("?")[0], context=CONTEXT)


def opened(url: str, kind: str, **options: Any) -> SyncClient:
    """A client that waits for its answers itself ("thread"), or has an event loop do so ("loop")."""
    if kind == "thread":
        return SyncClient.open(url, **options)
    return SyncClient(run_in_loop(open_url(url, **options)))


class OpenTransaction:
    """`lock` and `write` are what `commit_all` does in one; nothing is committed before `commit`."""

    def __init__(self, url: str) -> None:
        self._schema = schema_of(url)
        self.connection = connected(url)

    def lock(self, commits: Sequence[Commit]) -> None:
        for _, locks in batches(commits, self._schema):
            self.connection.execute(
                "SELECT pg_advisory_xact_lock(lock) FROM unnest(%s::bigint[]) AS lock", (ints_array(locks),)
            )

    def write(self, commits: Sequence[Commit]) -> None:
        for batch, locks in batches(commits, self._schema):
            program = GeneralCommit(batch)
            values = program.function.adapt(program.arguments(locks, fast=False))
            call = f"SELECT {quote_name(self._schema)}.carry_out(%s, %s, %s, %s, %s)"
            assert self.connection.execute(call.encode(), values).fetchone() == ([0] * len(batch),)

    def commit(self) -> None:
        self.connection.commit()
        self.connection.close()

    def rollback(self) -> None:
        self.connection.rollback()
        self.connection.close()
