"""Damage of a store: keys of another kind, wrong counts, references to missing entries."""

from __future__ import annotations

from holdfast.backends.redis.queries import StoreQueries
from holdfast.backends.redis.script_calls import Calls
from holdfast.errors import StoreError

RECORDS_AT_ONCE = 500
SESSIONS_AT_ONCE = 100
LOGS_AT_ONCE = 500
SHOWN = 5


async def find_damage(calls: Calls, reading: StoreQueries) -> list[str]:
    """Return damage as sentences, none if all is well. Each count is atomic, even among writers."""
    problems: list[str] = []
    for shard in range(reading.shards):
        problems += [
            text.decode("utf-8", "replace") for text in await calls.read("audit", [reading.shards == 1], shard)
        ]
        try:
            for audit in (_records, _sessions, _logs):
                problems += await audit(calls, shard)
        except StoreError as error:
            problems.append(str(error))
    return problems


async def _records(calls: Calls, shard: int) -> list[str]:
    sums = [0, 0, 0]
    after: bytes | None = b"-"
    while after is not None:
        *counts, last = await calls.read("audit_records", [after, RECORDS_AT_ONCE], shard)
        sums = [total + count for total, count in zip(sums, counts, strict=True)]
        after = None if last is None else b"(" + last
    faults = ("are named and missing", "have no place in a session", "name a log that is not listed")
    return [f"{count} records {says}" for count, says in zip(sums, faults, strict=True) if count]


async def _sessions(calls: Calls, shard: int) -> list[str]:
    left, lost = 0, []
    first, has_more = 1, True
    while has_more:
        count, names, has_more = await calls.read("audit_sessions", [first, first + SESSIONS_AT_ONCE - 1], shard)
        left += count
        lost += names
        first += SESSIONS_AT_ONCE
    shown = ", ".join(repr(name.decode("utf-8", "replace"))[:60] for name in lost[:SHOWN])
    problems = [f"{left} checkpoints of sessions are named and missing"] if left else []
    if lost:
        problems.append(f"the orders of {len(lost)} sessions are missing: {shown}{', …' if lost[SHOWN:] else ''}")
    return problems


async def _logs(calls: Calls, shard: int) -> list[str]:
    missing = 0
    after: bytes | None = b"-inf"
    while after is not None:
        count, last = await calls.read("audit_logs", [after, LOGS_AT_ONCE], shard)
        missing += count
        after = None if last is None else b"(" + last
    return [f"{missing} runs of elements are missing, or named twice"] if missing else []
