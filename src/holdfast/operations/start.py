"""start: record a run that workers carry out; retry: make one that failed due again."""

from __future__ import annotations

from holdfast import telemetry
from holdfast.backends.port import ABSENT
from holdfast.errors import CheckpointNotFoundError, ConflictError, UsageError
from holdfast.format.rows import head as heads
from holdfast.format.rows import run as rows
from holdfast.format.rows.run import CallRow, DueRow, RunRow
from holdfast.operations import delegation, due, lookup
from holdfast.operations import lease as leasing
from holdfast.operations.context import StoreContext
from holdfast.operations.session_cache import SessionTip

NOTHING = SessionTip(tree=None, version=ABSENT, head=heads.Head(None, 0), head_value=None, checkpoint=None)


async def start(
    ctx: StoreContext,
    session_id: str,
    *,
    agent_id: str,
    function: str,
    version: str,
    arguments: bytes,
    at_us: int | None,
    is_new: bool = False,
) -> bool:
    """Record a run with its call; return False if it is there already, with the same arguments.

    A turn of a conversation that has completed makes room for the next one. A session whose id was
    made for it is new, so there is nothing to read.
    """
    session, call = heads.session_key(session_id), due.digest(function, arguments)
    for attempt in range(leasing.MAX_ATTEMPTS):
        # Before the first request to a store, its own clock is not known.
        needs_no_read = is_new and not attempt and ctx.backend.committed
        tip = NOTHING if needs_no_read else await lookup.revalidated_tip(ctx, session)
        leasing.refuse_cancelled(session_id, tip.head)
        known = await due.load(ctx, session, tip.tree) if tip.tree is not None else None
        if known is not None:
            if known.run.digest == call:
                return False
            if not (known.run.takes_more and known.run.state == rows.COMPLETED):
                of = "another program" if known.run.function is None else repr(known.run.function)
                raise ConflictError(
                    f"session {session_id!r:.60} is a run of {of:.60} already, with other arguments: "
                    "give the new run a session_id of its own. Nothing was changed"
                )
        tree, now = tip.tree or ctx.new_id(None), ctx.now_us()
        at = now if at_us is None else max(at_us, now)
        row = RunRow(
            rows.READY, tip.head.fence, now, function=function, version=version, digest=call, due_us=at, started_us=at
        )
        writes = [
            row.write(session, tree),
            CallRow(agent_id, arguments, trace=telemetry.traceparent()).write(session, tree),
            DueRow(at, session, tree, function, version).write(),
        ]
        if await leasing.move_head(ctx, session, tip, tip.head, extra_rows=writes, new_tree=tree):
            return True
    raise leasing.make_overtaken_error(session_id)


async def retry(ctx: StoreContext, session_id: str) -> None:
    """Make a run due now: one that failed, that waits for its next attempt, or for a person."""
    session = heads.session_key(session_id)
    for _ in range(leasing.MAX_ATTEMPTS):
        tip = await lookup.revalidated_tip(ctx, session)
        known = await due.load(ctx, session, tip.tree) if tip.tree is not None else None
        if tip.tree is None:
            raise CheckpointNotFoundError(
                f"there is no session {session_id!r:.200}. `sessions` lists those that are there"
            )
        if known is None or known.run.function is None:
            raise UsageError(
                f"session {session_id!r:.60} is no run that workers carry out: start its program, or `holdfast resume`"
            )
        leasing.refuse_cancelled(session_id, tip.head)
        if tip.head.lease is not None and leasing.is_alive(ctx, tip.head.lease):
            raise ConflictError(f"session {session_id!r:.60} is running: wait until it ends, or `cancel` it")
        if known.call.is_delegated and (await delegation.offer_of(ctx, known.run.function, tip.tree)).is_ended:
            raise ConflictError(
                f"session {session_id!r:.60} has answered the session that delegated it: delegate the work again, with "
                "another key"
            )
        if known.run.state == rows.COMPLETED:
            raise ConflictError(
                f"session {session_id!r:.60} has completed: `start` another one, or `fork` it at an earlier checkpoint"
            )
        now = ctx.now_us()
        run = known.run._replace(
            state=rows.READY, at_us=now, attempts=0, due_us=now, wait=None, more_waits=(), failure=None
        )
        assert run.function is not None
        hint = DueRow(now, session, tip.tree, run.function, run.version)
        head = tip.head._replace(lease=None)
        if await leasing.move_head(ctx, session, tip, head, extra_rows=[run.write(session, tip.tree), hint.write()]):
            return
    raise leasing.make_overtaken_error(session_id)
