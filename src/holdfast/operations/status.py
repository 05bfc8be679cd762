"""runs and overview: runs with their status, and pending work. They read rows and no states."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from holdfast.backends.port import Row, RowKey, UnreadableBytes
from holdfast.errors import HoldfastError
from holdfast.format.rows import delegation, ledger
from holdfast.format.rows import head as rows
from holdfast.format.rows import run as run_rows
from holdfast.format.rows.delegation import WaitRow
from holdfast.format.rows.run import ProgressRow, RunRow, WaitedFor
from holdfast.format.state import record
from holdfast.model import ids
from holdfast.model.run_status import RunFacts, RunFailure, RunProgress, RunState, RunStatus, RunWait, derive_state
from holdfast.model.store_status import Overview
from holdfast.operations import approval, lease, lookup
from holdfast.operations.context import StoreContext

PAGE = 200
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_log = logging.getLogger("holdfast")
_ORDER = {state: number for number, state in enumerate(RunState)}


class _StoredRun(NamedTuple):
    """What a store has of one run, as read."""

    key: RowKey  # of its head
    head: rows.Head
    run: RunRow | None
    progress: ProgressRow | None
    approvals: Collection[str]  # pending ones
    waits: Sequence[WaitRow]
    is_doubtful: bool


async def overview(ctx: StoreContext, *, sizes: bool = True) -> Overview:
    """Return the overview, optionally without `sizes`, whose cost grows with the store."""
    stored_bytes = (await ctx.backend.usage()).total_bytes if sizes else None
    capabilities = ctx.backend.capabilities
    sessions = saves = 0
    alive: list[RunStatus] = []
    after: bytes | None = None
    pending = await _load_pending(ctx)
    while page := await ctx.backend.scan(rows.HEAD, after=after, limit=PAGE):
        known = list(_select_readable(page))
        sessions += sum(head.checkpoint is not None for _, head in known)
        saves += sum(head.sequence for _, head in known)
        at_work = [found for found, head in known if _is_alive(ctx, head)]
        alive += await _make_statuses(ctx, await _load(ctx, at_work, pending))
        after = page[-1][0].key
    return Overview(
        backend=capabilities.name,
        location=capabilities.location,
        durability=capabilities.durability,
        sessions=sessions,
        saves=saves,
        stored_bytes=stored_bytes,
        approvals=sum(map(len, pending.approvals.values())),
        alive=tuple(alive),
    )


def _select_readable(page: Sequence[tuple[RowKey, Row]]) -> Iterator[tuple[tuple[RowKey, Row], rows.Head]]:
    """Yield the heads of a page; an unreadable one must not hide the others."""
    for found in page:
        try:
            yield found, rows.unpack_head(*found)
        except HoldfastError as error:
            _log.warning("session %r is left out of the list: %s", rows.session_name(found[0].key), error)


async def runs(
    ctx: StoreContext, *, alive: bool = False, status: Collection[RunState] | None = None
) -> list[RunStatus]:
    """Return the runs, of these states only: those at work first, of each state the latest first."""
    found: list[RunStatus] = []
    after: bytes | None = None
    pending = await _load_pending(ctx)
    with_row = await _sessions_with_row(ctx)
    while page := await ctx.backend.scan(rows.HEAD, after=after, limit=PAGE):
        of_runs = [found for found, head in _select_readable(page) if head.fence or found[0].key in with_row]
        stored = await _load(ctx, of_runs, pending)
        if alive:
            stored = [stored_run for stored_run in stored if _is_alive(ctx, stored_run.head)]
        if status is not None:
            stored = [stored_run for stored_run in stored if _state(ctx, stored_run) in status]
        found += await _make_statuses(ctx, stored)
        after = page[-1][0].key
    oldest = datetime.min.replace(tzinfo=UTC)
    found.sort(key=lambda item: item.since or (item.head.created_at if item.head else oldest), reverse=True)
    return sorted(found, key=lambda item: _ORDER[RunState(item.status)])


async def _sessions_with_row(ctx: StoreContext) -> set[bytes]:
    """Return the sessions that have a row of a run: one that waits for its first worker has had no lease."""
    found: set[bytes] = set()
    after: bytes | None = None
    while page := await ctx.backend.scan(run_rows.RUN, after=after, limit=PAGE):
        for key, row in page:
            if isinstance(row.value, UnreadableBytes):
                _log.warning("session %s is left out of the list: %s", rows.format_key(key.key), row.value.error)
        found.update(key.key for key, _ in page)
        after = page[-1][0].key
    return found


async def run_status(ctx: StoreContext, session_id: str) -> RunStatus | None:
    """Return the status of the run of a session; None if it was never one."""
    session = rows.session_key(session_id)
    tree = await lookup.find_tree(ctx, session)
    key = rows.head_key(session, tree or b"")
    [row] = await ctx.backend.rows([key])
    if tree is None or row is None:
        return None
    stored = await _load(ctx, [(key, row)], await _load_pending(ctx, session_id, tree), is_strict=True)
    return (await _make_statuses(ctx, stored, is_strict=True))[0] if stored[0].head.fence or stored[0].run else None


# -- what there is of a run --------------------------------------------------------------------------------------------


class _PendingWaits(NamedTuple):
    """What sessions wait for: pending approvals, and waits that their processes have written down."""

    approvals: dict[str, list[str]]
    waits: dict[tuple[bytes, str], list[WaitRow]]


async def _load_pending(ctx: StoreContext, session_id: str | None = None, tree: bytes | None = None) -> _PendingWaits:
    pending = _PendingWaits({}, {})
    for item in await approval.list_approvals(ctx, session_id):
        pending.approvals.setdefault(item.session_id, []).append(item.approval_id)
    for key, row in await ctx.backend.scan(delegation.WAIT, tree=tree):
        noted = delegation.unpack_wait(key, row)
        pending.waits.setdefault((key.tree, noted.session), []).append(noted)
    return pending


async def _load(
    ctx: StoreContext, page: Sequence[tuple[RowKey, Row]], pending: _PendingWaits, *, is_strict: bool = False
) -> list[_StoredRun]:
    """Return what there is of the runs of a page of heads."""
    keys = [make(key.key, key.tree) for key, _ in page for make in (run_rows.run_key, run_rows.progress_key)]
    found = iter(await ctx.backend.rows(keys))
    stored: list[_StoredRun] = []
    for (key, head_row), run_row, progress_row in zip(page, found, found, strict=True):
        name = rows.session_name(key.key)
        try:
            run = None if run_row is None else run_rows.unpack_run(run_rows.run_key(key.key, key.tree), run_row)
            at = run_rows.progress_key(key.key, key.tree)
            progress = None if progress_row is None else run_rows.unpack_progress(at, progress_row)
            head = rows.unpack_head(key, head_row)
        except HoldfastError as error:  # an unreadable one must not hide the others
            if is_strict:
                raise
            _log.warning("session %r is left out of the list: %s", name, error)
            continue
        approvals, waits = pending.approvals.get(name, ()), pending.waits.get((key.tree, name), ())
        doubtful = run is not None and run.state == run_rows.DOUBTFUL and await _is_doubtful(ctx, run, key.tree)
        stored.append(_StoredRun(key, head, run, progress, approvals, waits, doubtful))
    return stored


async def _is_doubtful(ctx: StoreContext, run: RunRow, tree: bytes) -> bool:
    """Return whether the effects that a run stopped at are still in doubt: a decision changes their entry."""
    found = await ctx.backend.rows([ledger.key(id_, tree) for id_, _ in run.effects])
    return all(row is not None and row.version == known for row, (_, known) in zip(found, run.effects, strict=True))


# -- the status --------------------------------------------------------------------------------------------------------


def _is_alive(ctx: StoreContext, head: rows.Head) -> bool:
    held = head.lease
    return held is not None and held.cancellation is None and lease.is_alive(ctx, held)


def _state(ctx: StoreContext, stored_run: _StoredRun) -> RunState:
    held, run, is_alive = stored_run.head.lease, stored_run.run, _is_alive(ctx, stored_run.head)
    return derive_state(
        RunFacts(
            is_cancelled=held is not None and held.cancellation is not None,
            has_lease=held is not None,
            is_alive=is_alive,
            ended=None if run is None else run.state,
            is_waiting=bool(stored_run.waits) if is_alive else _waits_on(stored_run),
            is_doubtful=stored_run.is_doubtful,
            is_worked=run is not None and run.function is not None,
            approvals=len(stored_run.approvals),
        )
    )


def _waits_on(run: _StoredRun) -> bool:
    """Return whether what a parked run waits for is still to come."""
    waits = run.run.waits if run.run is not None else ()
    return any(wait.kind != run_rows.APPROVAL or any(id_ in run.approvals for id_ in wait.targets) for wait in waits)


def _waits(ctx: StoreContext, stored_run: _StoredRun, state: RunState) -> tuple[RunWait, ...]:
    """Return what a waiting run waits for."""
    run = stored_run.run
    if state is not RunState.WAITING:
        return ()
    if _is_alive(ctx, stored_run.head):
        return tuple(
            RunWait(kind=wait.kind, targets=wait.targets, until=_moment(wait.until_us)) for wait in stored_run.waits
        )
    if stored_run.approvals:
        return (RunWait(kind=run_rows.APPROVAL, targets=tuple(stored_run.approvals)),)
    assert run is not None
    if run.wait is not None and (run.state == run_rows.READY or _waits_on(stored_run)):
        return tuple(_shown_wait(wait) for wait in run.waits)
    is_later = run.due_us is not None and run.due_us > ctx.now_us()
    kind = "retry" if run.failure is not None else "timer"
    return (RunWait(kind=kind, until=_moment(run.due_us)) if is_later else RunWait(kind="worker"),)


def _shown_wait(wait: WaitedFor) -> RunWait:
    targets = wait.targets[:1] if wait.kind in run_rows.OF_TOPICS else wait.targets  # without the group
    return RunWait(kind=wait.kind, targets=targets, until=_moment(wait.until_us))


async def _make_statuses(
    ctx: StoreContext, stored: Sequence[_StoredRun], *, is_strict: bool = False
) -> list[RunStatus]:
    shown: list[RunStatus] = []
    for stored_run in stored:
        try:
            shown.append(await _show(ctx, stored_run))
        except HoldfastError as error:
            if is_strict:
                raise
            _log.warning("session %r is left out of the list: %s", rows.session_name(stored_run.key.key), error)
    return shown


async def _show(ctx: StoreContext, stored_run: _StoredRun) -> RunStatus:
    state, run, head = _state(ctx, stored_run), stored_run.run, stored_run.head
    tip = await lookup.find_nearest_live(ctx, head.checkpoint, stored_run.key.tree)
    held = head.lease if _is_alive(ctx, head) else None
    made = head.lease.cancellation if head.lease is not None else None
    holder = rows.session_name(held.holder) if held is not None else made.by if made is not None else None
    since_us = made.at_us if made is not None else run.at_us if run is not None else None
    if held is not None and (run is None or run.token != head.fence):
        since_us = None  # the record is of an earlier life
    failure = run.failure if run is not None and state is not RunState.COMPLETED else None
    progress = (
        stored_run.progress if stored_run.progress is not None and stored_run.progress.token == head.fence else None
    )
    return RunStatus(
        session_id=rows.session_name(stored_run.key.key),
        status=state,
        head=None if tip is None else record.checkpoint(ctx.codec, tip),
        saves=head.sequence,
        approvals=len(stored_run.approvals),
        holder=holder,
        expires_at=_moment(held.expires_at_us) if held is not None else None,
        since=_moment(since_us),
        waits=_waits(ctx, stored_run, state),
        in_doubt=tuple(ids.to_text(id_) for id_, _ in run.effects) if run and state is RunState.IN_DOUBT else (),
        failure=None if failure is None else RunFailure(**failure._asdict()),
        attempts=0 if run is None else run.attempts,
        result=_result(ctx, run) if state is RunState.COMPLETED and run is not None else None,
        function=None if run is None else run.function,
        version=None if run is None or run.function is None else run.version,
        due=_moment(run.due_us) if run is not None and state is RunState.WAITING else None,
        progress=None if progress is None else _progress(progress),
    )


def _result(ctx: StoreContext, run: RunRow) -> object:
    """Return a run's result. A value of a class that is not registered here is shown as plain data."""
    if run.result is None:
        return None
    return ctx.codec.derive(on_unknown_type="plain", warns=False).decode(run.result, path="result")


def _progress(row: ProgressRow) -> RunProgress:
    at = _moment(row.at_us)
    assert at is not None
    return RunProgress(done=row.done, total=row.total, note=row.note, at=at)


def _moment(us: int | None) -> datetime | None:
    """Return a moment; the last that there is for one after it, which must not hide the other runs."""
    if us is None:
        return None
    try:
        return EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
