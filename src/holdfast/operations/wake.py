"""wake: whether what a parked run waits for has come.

Who decides, answers or publishes adds a hint to the commit (`due.py`). A hint may be missing, so a
worker also looks at a parked run by itself, the rarer the longer it waits.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from holdfast.format.rows import delegation as delegations
from holdfast.format.rows import ledger
from holdfast.format.rows import run as rows
from holdfast.format.rows.run import RunRow, WaitedFor
from holdfast.model import ids
from holdfast.operations import approval, read_topic
from holdfast.operations import group as groups
from holdfast.operations.context import StoreContext
from holdfast.operations.group import TopicGroup

FIRST_CHECK_US, LONGEST_CHECK_US = 2_000_000, 512_000_000
TOPIC_CHECK_US = 32_000_000  # a message may be held back after its commit, until an older one is decided


async def is_ready(ctx: StoreContext, run: RunRow, tree: bytes) -> bool:
    """Return whether what a parked or doubtful run waits for has come."""
    if run.state == rows.DOUBTFUL:
        found = await ctx.backend.rows([ledger.key(id_, tree) for id_, _ in run.effects])
        return any(row is None or row.version != known for row, (_, known) in zip(found, run.effects, strict=True))
    for wait in run.waits:
        if (wait.until_us is not None and wait.until_us <= ctx.now_us()) or await _has_come(ctx, wait, tree):
            return True
    return not run.waits


async def _has_come(ctx: StoreContext, wait: WaitedFor, tree: bytes) -> bool:
    match wait.kind:
        case rows.TIMER:
            return False
        case rows.APPROVAL:
            found = [await approval.read(ctx, tree, ids.from_text(target)) for target in wait.targets]
            return any(approval_row is None or not approval_row.approval.is_pending for approval_row in found)
        case rows.JOIN:
            return await _count_answered(ctx, wait.targets, tree) >= wait.mark
        case rows.RECEIVE:
            return await groups.has_open(ctx, TopicGroup(*wait.targets))
        case rows.MESSAGE:
            return bool((await read_topic.changes_of(ctx, wait.targets[0], wait.mark, 1))[0])
    return True  # of a newer holdfast: the run itself waits on


async def _count_answered(ctx: StoreContext, children: Sequence[str], tree: bytes) -> int:
    """Return how many of these delegations have ended; one without a row counts."""
    keys = [delegations.delegation_key(child, tree) for child in children]
    found = await ctx.backend.rows(keys)
    declared = [delegations.unpack_delegation(key, row) for key, row in zip(keys, found, strict=True) if row]
    ended = await ctx.backend.rows([item.done_key for item in declared]) if declared else []
    return len(children) - len(declared) + sum(row is not None for row in ended)


def next_check_us(ctx: StoreContext, run: RunRow, session: bytes) -> int:
    """Return when to look at a parked run again: the longer it waits, the rarer.

    Checks are on a grid of times that depends on the session. So many hints at one run become one.
    """
    longest = TOPIC_CHECK_US if any(wait.kind in rows.OF_TOPICS for wait in run.waits) else LONGEST_CHECK_US
    now, interval = ctx.now_us(), FIRST_CHECK_US
    while interval < min(now - run.at_us, longest):
        interval *= 2
    check = grid_us(now, interval, session)
    return min([check, *(wait.until_us for wait in run.waits if wait.until_us is not None)])


def grid_us(now_us: int, interval_us: int, session: bytes) -> int:
    """Return the next time on the grid of a session."""
    offset = zlib.crc32(session) % interval_us
    return ((now_us - offset) // interval_us + 1) * interval_us + offset
