"""migrate --check: whether stored states resume with the registered migrations and types. Only reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from holdfast.errors import (
    CorruptError,
    HoldfastError,
    MigrationError,
    MissingMigrationError,
    NewerStateError,
    NewerVersionError,
    StoreError,
    UnknownTypeError,
    UnsupportedValueError,
)
from holdfast.format.rows import head
from holdfast.format.rows import run as run_rows
from holdfast.format.rows.run import CallRow, RunRow
from holdfast.format.state import run_journal
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.reports import MigrationProblem, MigrationReport
from holdfast.operations import lookup, state_version
from holdfast.operations.context import StoreContext
from holdfast.operations.record_pages import PAGE, record_pages

Progress = Callable[[int, int], None]
FindLimit = Callable[[str, str], object]

# The first match counts.
_REASONS: tuple[tuple[type[HoldfastError], str], ...] = (
    (MissingMigrationError, "missing_migration"),
    (NewerStateError, "newer_state"),
    (MigrationError, "migration_failed"),
    (UnknownTypeError, "unknown_type"),
    (UnsupportedValueError, "unsupported_value"),
    (CorruptError, "corrupt"),
    (NewerVersionError, "newer_holdfast"),
    (HoldfastError, "error"),
)


async def check(
    ctx: StoreContext,
    *,
    session_id: str | None = None,
    agent_id: str | None = None,
    every: bool = False,
    progress: Progress | None = None,
    find_limit: FindLimit | None = None,
) -> MigrationReport:
    """Restore and migrate each session's head or, with `every`, each live checkpoint, one by one.

    With `find_limit`, which knows the named functions of this process, runs that workers are still
    to carry out are checked, too.
    """
    only = head.session_key(session_id) if session_id is not None else None
    candidates = _checkpoints(ctx, only) if every else _heads(ctx, only)
    total = await _count(ctx, only, every=every) if progress is not None else 0
    checked = migrating = done = 0
    problems: list[MigrationProblem] = []
    async for session, id_, found in candidates:
        done += 1
        if progress is not None:
            progress(done, max(done, total))
        if isinstance(found, HoldfastError):
            checked += 1
            problems.append(_problem(session, id_, found))
        elif found is not None and agent_id in (None, found.header["agent"], found.header.get("to")):
            checked += 1
            try:
                migrating += await _would_migrate(ctx, found)
            except StoreError:
                raise  # it says nothing about the checkpoint
            except HoldfastError as error:
                problems.append(_problem(session, found.id, error, found))
    if find_limit is not None:
        async for session, run, call in _open_runs(ctx, only):
            if agent_id in (None, call.agent):
                problems += _run_problems(ctx, session, run, call, find_limit)
    return MigrationReport(checked=checked, migrating=migrating, problems=tuple(problems))


async def _open_runs(ctx: StoreContext, only: bytes | None) -> AsyncIterator[tuple[bytes, RunRow, CallRow]]:
    """Yield the runs that workers are still to carry out, with their calls."""
    after: bytes | None = None
    while page := await ctx.backend.scan(run_rows.RUN, prefix=only or b"", after=after, limit=PAGE):
        wanted = [(key, row) for key, row in page if only in (None, key.key)]
        calls = await ctx.backend.rows([run_rows.call_key(key.key, key.tree) for key, _ in wanted])
        for (key, row), call in zip(wanted, calls, strict=True):
            run = run_rows.unpack_run(key, row)
            if call is not None and run.function is not None and run.state not in run_rows.OVER:
                yield key.key, run, run_rows.unpack_call(run_rows.call_key(key.key, key.tree), call)
        after = page[-1][0].key


def _run_problems(
    ctx: StoreContext, session: bytes, run: RunRow, call: CallRow, find_limit: FindLimit
) -> list[MigrationProblem]:
    """Return why a run can't be carried out with this code: its function is not known, or its arguments."""
    found: list[tuple[str, str]] = []
    if find_limit(run.function or "", run.version) is None:
        version = f", version {run.version!r:.60}," if run.version else ""
        found.append(("unknown_function", f"no function is named {run.function!r:.60}{version} in this code"))
    try:
        ctx.codec.decode(call.arguments, path="arguments")
    except HoldfastError as error:
        found.append((_reason(error), str(error)))
    name = head.session_name(session)
    return [
        MigrationProblem(
            session_id=name, checkpoint_id="", agent_id=call.agent, state_version=0, reason=reason, message=message
        )
        for reason, message in found
    ]


async def _would_migrate(ctx: StoreContext, stored: StoredRecord) -> bool:
    steps = state_version.steps_of(ctx, stored)
    state = await lookup.load_state(ctx, stored.manifest(), verify=True)
    run_journal.check_context(state[1], f"checkpoint {ids.to_text(stored.id)}")
    if steps:
        # It will be saved again: the result of a migration must be storable.
        made, context = state_version.migrate(steps, state)
        run_journal.check_context(context, f"checkpoint {ids.to_text(stored.id)}, migrated,")
        ctx.codec.encode(made, "execution_state")
        ctx.codec.encode(context, "agent_context")
    return bool(steps)


Candidates = AsyncIterator[tuple[bytes, bytes | None, StoredRecord | HoldfastError | None]]
"""A session, an id if it is known before the record is read, and the checkpoint, what is wrong with it, or None: there
is nothing to resume."""


async def _heads(ctx: StoreContext, only: bytes | None) -> Candidates:
    if only is not None:
        yield only, None, await _attempt_read(_head(ctx, only))
        return
    after: bytes | None = None
    while page := await ctx.backend.scan(head.HEAD, after=after, limit=PAGE):
        for key, _ in page:
            yield key.key, None, await _attempt_read(_head(ctx, key.key))
        after = page[-1][0].key


async def _head(ctx: StoreContext, session: bytes) -> StoredRecord | None:
    return (await lookup.load_tip(ctx, session)).checkpoint


async def _checkpoints(ctx: StoreContext, only: bytes | None) -> Candidates:
    if only is None:
        async for page in record_pages(ctx):
            for found in page:
                yield found.session, found.id, await _attempt_read(lookup.unpack_live(ctx, found))
        return
    before: int | None = None
    while page := await ctx.backend.session_records(only, before=before, limit=PAGE):
        for found in page:
            yield only, found.id, await _attempt_read(lookup.unpack_live(ctx, found))
        before = page[-1].sequence


async def _attempt_read(load: Coroutine[Any, Any, StoredRecord | None]) -> StoredRecord | HoldfastError | None:
    try:
        return await load
    except StoreError:
        raise
    except HoldfastError as error:
        return error


async def _count(ctx: StoreContext, only: bytes | None, *, every: bool) -> int:
    if only is not None:
        newest = await ctx.backend.session_records(only, limit=1) if every else []
        return newest[0].sequence if newest else 1
    if every:
        return (await ctx.backend.usage()).records
    count, after = 0, None
    while page := await ctx.backend.scan(head.HEAD, after=after, limit=PAGE):
        count += len(page)
        after = page[-1][0].key
    return count


def _reason(error: HoldfastError) -> str:
    return next(reason for kind, reason in _REASONS if isinstance(error, kind))


def _problem(
    session: bytes, id_: bytes | None, error: HoldfastError, stored: StoredRecord | None = None
) -> MigrationProblem:
    return MigrationProblem(
        session_id=head.session_name(session),
        checkpoint_id=ids.to_text(id_) if id_ else "",
        agent_id=stored.header["agent"] if stored else "",
        state_version=stored.state_version if stored else 0,
        reason=_reason(error),
        message=str(error),
    )
