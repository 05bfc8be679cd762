"""due: the index of runs that workers are to look at, in the order of time.

A row of the index is a hint. It may be there although the commit that wrote it was refused, and it
may be out of date. So a worker reads the run before it takes it, and puts a wrong hint right.

In a store that splits commits, a hint is there before the rest of its commit. So a hint that seems
wrong is looked at again before it is removed, and one that is to go with a commit stays until then.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.backends.port import STORE, Commit, CommitConflict, RowWrite
from holdfast.errors import HoldfastError, KeyMissingError, KeyUnavailableError
from holdfast.format.rows import head as heads
from holdfast.format.rows import run as rows
from holdfast.format.rows.run import AwaitsRow, CallRow, DueRow, RunRow
from holdfast.model.lease import Process
from holdfast.operations.context import StoreContext

PAGE = 64
_log = logging.getLogger("holdfast")
CHECKED = "look"  # in place of a process: the hint was looked at before, as often as its pid says
RETRY_US = (2_000_000, 60_000_000)  # a commit that takes longer may be lost with its process


async def page(ctx: StoreContext, after: bytes | None, limit: int = PAGE) -> tuple[list[DueRow], bytes | None]:
    """Return rows of the index after a key, the earliest first, and the key of the last one."""
    found = await ctx.backend.scan(rows.DUE, tree=STORE, after=after, limit=limit)
    due: list[DueRow] = []
    for key, row in found:
        try:
            due.append(rows.unpack_due(key, row))
        except (KeyMissingError, KeyUnavailableError) as error:  # it may come back
            _log.warning("a hint at a run is left alone: %s", error)
        except (HoldfastError, ValueError):  # damaged: the hint of another run must still be found
            await ctx.backend.commit(Commit(tree=STORE, rows=[RowWrite(key, None, row.version)]))
    return due, found[-1][0].key if found else None


async def make_hint(ctx: StoreContext, tree: bytes, session_id: str) -> Sequence[RowWrite]:
    """Return what a decision about a run adds to its commit, so that a worker looks at the run at once."""
    session = heads.session_key(session_id)
    key = rows.run_key(session, tree)
    [row] = await ctx.backend.rows([key])
    run = None if row is None else rows.unpack_run(key, row)
    if run is None or run.function is None or run.state in rows.OVER:
        return ()
    return (DueRow(ctx.now_us(), session, tree, run.function, run.version).write(),)


def awaits_of(run: RunRow, session: bytes, tree: bytes) -> list[AwaitsRow]:
    """Return the rows by which publishers find a parked run."""
    topics = {wait.targets[0] for wait in run.waits if wait.kind in rows.OF_TOPICS}
    return [AwaitsRow(topic, session, tree, run.function or "", run.version) for topic in sorted(topics)]


async def hints_of_topic(ctx: StoreContext, topic: str) -> list[RowWrite]:
    """Return hints at the parked runs that wait for messages of a topic, for commits that publish some.

    Writing them twice adds no rows.
    """
    now = ctx.now_us()
    page = await ctx.backend.scan(rows.AWAITS, tree=STORE, prefix=rows.awaits_prefix(topic))
    found = [rows.unpack_awaits(topic, key, row) for key, row in page]
    return [
        DueRow(now, awaits_row.session, awaits_row.tree, awaits_row.function, awaits_row.version).write()
        for awaits_row in found
    ]


async def drop(ctx: StoreContext, due: DueRow, *, extra_rows: Sequence[RowWrite] = ()) -> None:
    """Remove a hint that is wrong, unless it may be ahead of its commit."""
    checks = _count_checks(ctx, due)
    if checks is None or checks >= len(RETRY_US):
        await move(ctx, due, None, extra_rows=extra_rows)
    else:
        again = due._replace(process=Process(CHECKED, checks + 1, 0))
        await move(ctx, again, ctx.now_us() + RETRY_US[checks])


async def postpone(ctx: StoreContext, due: DueRow, at_us: int, holder: Process | None = None) -> None:
    """Move a hint to a later time, with who holds the lease; one ahead of its commit to a sooner one."""
    checks, process = _count_checks(ctx, due), holder or due.process
    if checks is not None and (checks == 0 or holder is None):
        process = Process(CHECKED, len(RETRY_US), 0)
    if checks == 0:
        again = RETRY_US[0]
        at_us = min(at_us, (ctx.now_us() // again + 2) * again)  # many hints at one run become one
    await move(ctx, due._replace(process=process), at_us)


def _count_checks(ctx: StoreContext, due: DueRow) -> int | None:
    """Return how often a hint was looked at; None if it was committed with what it is about."""
    if not ctx.backend.capabilities.splits or due.process.place not in ("", CHECKED):
        return None
    return due.process.pid


def make_removal(ctx: StoreContext, due: DueRow) -> list[RowWrite]:
    """Return the removal of a hint for a commit that ends its run; else a later look removes it."""
    return [] if ctx.backend.capabilities.splits else [due.delete()]


async def move(ctx: StoreContext, due: DueRow, at_us: int | None, *, extra_rows: Sequence[RowWrite] = ()) -> None:
    """Put a hint right: to another time, with the holder of the lease, or away."""
    writes = [due.delete()] if at_us is None else [due.delete(), due._replace(at_us=at_us).write()]
    if at_us == due.at_us:
        return
    try:
        await ctx.backend.commit(Commit(tree=STORE, rows=[*writes, *extra_rows]))
    except CommitConflict:
        return


def digest(function: str, arguments: bytes) -> bytes:
    """Return the digest by which a repeated start is recognised."""
    return hashlib.sha256(heads.session_key(function) + b"\0" + arguments).digest()[:16]


class RunRows(NamedTuple):
    """The rows of a run that a worker is to look at."""

    run: RunRow
    call: CallRow


async def load(ctx: StoreContext, session: bytes, tree: bytes) -> RunRows | None:
    """Return the rows of a named run; None if there is none."""
    keys = [rows.run_key(session, tree), rows.call_key(session, tree)]
    run, call = await ctx.backend.rows(keys)
    if run is None or call is None:
        return None
    return RunRows(rows.unpack_run(keys[0], run), rows.unpack_call(keys[1], call))
