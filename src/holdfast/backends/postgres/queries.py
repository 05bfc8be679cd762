"""The SQL of the verbs that read. {s} is the quoted name of the schema; values are always bound."""

from __future__ import annotations

from typing import Any

from holdfast.backends.port import end_of_prefix
from holdfast.backends.postgres.commit import INDEXED

_COLUMNS = "record.id, session.id, sequence, data"
# One index lookup per row, even if the planner would rather join whole tables: `OFFSET 0` keeps a
# subquery as it is. For a page of 200 records, a hash join would read every session of the store.
_RECORDS = (
    "FROM {s}.record CROSS JOIN LATERAL "
    "(SELECT session.id FROM {s}.session WHERE session.n = record.session OFFSET 0) AS session"
)

RECORDS = f"SELECT {_COLUMNS} {_RECORDS} WHERE record.id = ANY ($1)"

SESSION_RECORDS = (
    f"SELECT {_COLUMNS} {_RECORDS} WHERE record.session = "
    "(SELECT n FROM {s}.session WHERE sha256(id) = sha256($1)) AND sequence < $2 ORDER BY sequence DESC LIMIT $3"
)

FIND_IDS = "SELECT id FROM {s}.record WHERE right(encode(id, 'hex'), $1) = $2 LIMIT $3"
FIND_IDS_BY_INDEX = FIND_IDS.replace("WHERE", "WHERE substr(id, 13) = $4 AND")  # of their last four bytes

PAGE_RECORDS = f"SELECT {_COLUMNS} {_RECORDS} WHERE record.id > $1 ORDER BY record.id LIMIT $2"

# The subquery runs once; the primary key gives the rest, from the first position on.
CHANGES = (
    f"SELECT position, {_COLUMNS} {_RECORDS} "
    "WHERE position > $1 AND position < (SELECT {s}.decided_below()) ORDER BY position LIMIT $2"
)

# The index of feeds gives the order, and has no other records.
CHANGES_OF_FEED = (
    f"SELECT position, {_COLUMNS} {_RECORDS} WHERE feed = $1 "
    "AND position > $2 AND position < (SELECT {s}.decided_below()) ORDER BY position LIMIT $3"
)

RECENT = f"SELECT position, {_COLUMNS} {_RECORDS} WHERE position < $1 ORDER BY position DESC LIMIT $2"

LAST_CHANGE = (
    "SELECT greatest("
    "coalesce((SELECT max(position) FROM {s}.record WHERE position < decided.below), 0), "
    "coalesce((SELECT max(position) FROM {s}.deleted WHERE position < decided.below), 0)) "
    "FROM (SELECT {s}.decided_below() AS below) AS decided"
)

# For each span (its log's first k, its own first and last): from the last segment that begins at or
# before it.
RUNS = (
    "SELECT span.number, run.k, run.length, run.data "
    "FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS span (base, first, last, number) "
    "CROSS JOIN LATERAL (SELECT k, length, data FROM {s}.run WHERE k < span.last AND k + length > span.first AND k >= "
    "coalesce((SELECT max(k) FROM {s}.run WHERE k >= span.base AND k <= span.first), span.first)) AS run "
    "ORDER BY span.number, run.k"
)

PAGE_RUNS = "SELECT k, length, octet_length(data) FROM {s}.run WHERE k > $1 ORDER BY k LIMIT $2"

BLOBS = "SELECT hash, data FROM {s}.blob WHERE hash = ANY ($1)"

PAGE_BLOBS = "SELECT hash, octet_length(data), written_at_us FROM {s}.blob WHERE hash > $1 ORDER BY hash LIMIT $2"

ROWS = (
    "SELECT wanted.number, value, version FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::bytea[]) "
    "WITH ORDINALITY AS wanted (space, key, rest_hash, tree, number) CROSS JOIN LATERAL "
    "(SELECT value, version FROM {s}.rows WHERE rows.space = wanted.space AND rows.key = wanted.key "
    "AND rows.rest_hash = wanted.rest_hash AND rows.tree = wanted.tree OFFSET 0) AS found"
)

USAGE = (
    "SELECT (SELECT count(*) FROM {s}.record), (SELECT count(*) FROM {s}.run), (SELECT count(*) FROM {s}.blob), "
    "(SELECT count(*) FROM {s}.rows), "
    "(SELECT coalesce(sum(octet_length(data)), 0)::bigint FROM {s}.record), "
    "(SELECT coalesce(sum(octet_length(data)), 0)::bigint FROM {s}.run), "
    "(SELECT coalesce(sum(octet_length(data)), 0)::bigint FROM {s}.blob), "
    "(SELECT coalesce(sum(octet_length(value)), 0)::bigint FROM {s}.rows), "
    "(SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = '{s}.record'::regclass))"
)

NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

# Those that read the whole store.
LONG = frozenset((USAGE, FIND_IDS))

# Of the process that works on a query.
IS_AT_WORK = b"SELECT wait_event_type IS DISTINCT FROM 'Lock' FROM pg_stat_activity WHERE pid = $1"

# Visits the pages that changed since the last time, and no index: its time depends on what was
# written, not on the size of the store. It does nothing if another vacuum runs, or the table is not
# ours.
REUSE_ROOM = "VACUUM (INDEX_CLEANUP OFF, TRUNCATE OFF, SKIP_LOCKED) {s}.run"

TABLES = ("record", "run", "blob", "rows", "session")


def scan(
    space: str, tree: bytes | None, prefix: bytes, after: bytes | None, limit: int | None
) -> tuple[str, list[Any]]:
    """Return the query of `scan`, and its values.

    Keys are compared as (key, rest), which is the order of their bytes; the conditions on `key`
    alone repeat what the index can use.
    """
    values: list[Any] = []

    def value(of: Any) -> str:
        values.append(of)
        return f"${len(values)}"

    conditions = [f"space = {value(space)}"]
    if tree is not None:
        conditions.append(f"tree = {value(tree)}")
        if tree:
            conditions.append(
                "tree <> ''"
            )  # else the index by tree, which leaves out the store's own rows, could not be used
    if prefix:
        indexed, rest = prefix[:INDEXED], prefix[INDEXED:]
        conditions += [f"key >= {value(indexed)}", f"substr(key, 1, {len(indexed)}) = {value(indexed)}"]
        end = end_of_prefix(indexed)
        if end is not None:
            conditions.append(f"key < {value(end)}")
        if rest:
            conditions.append(f"substr(rest, 1, {len(rest)}) = {value(rest)}")
    if after is not None:
        start, beyond = value(after[:INDEXED]), value(after[INDEXED:])
        conditions += [f"key >= {start}", f"(key, rest) > ({start}, {beyond})"]
    query = (
        f"SELECT key || rest, tree, value, version FROM {{s}}.rows WHERE {' AND '.join(conditions)} "
        f"ORDER BY key, rest, tree LIMIT {value(limit)}"
    )
    return query, values
