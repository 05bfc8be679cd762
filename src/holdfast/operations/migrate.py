"""migrate --check: would what is stored resume with the migrations and types that are registered here? Only reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from holdfast.backends.port import Record
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
from holdfast.model import ids
from holdfast.model.reports import MigrationProblem, MigrationReport
from holdfast.objects import journal, rows
from holdfast.objects.record import Stored
from holdfast.operations import reading, state_versions
from holdfast.operations.inspect import PAGE, all_records
from holdfast.operations.services import Services

Progress = Callable[[int, int], None]

# The first that fits.
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
    services: Services,
    *,
    session_id: str | None = None,
    agent_id: str | None = None,
    every: bool = False,
    progress: Progress | None = None,
) -> MigrationReport:
    """Restores and migrates each session's head or, with `every`, each live checkpoint, one after the other."""
    only = rows.session_key(session_id) if session_id is not None else None
    candidates = _checkpoints(services, only) if every else _heads(services, only)
    total = await _count(services, only, every=every) if progress is not None else 0
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
                migrating += await _would_migrate(services, found)
            except StoreError:
                raise  # it says nothing about the checkpoint
            except HoldfastError as error:
                problems.append(_problem(session, found.id, error, found))
    return MigrationReport(checked=checked, migrating=migrating, problems=tuple(problems))


async def _would_migrate(services: Services, stored: Stored) -> bool:
    steps = state_versions.steps_of(services, stored)
    state = await reading.load_state(services, stored.manifest(), verify=True)
    journal.check_context(state[1], f"checkpoint {ids.to_text(stored.id)}")
    if steps:
        # It is to be saved again: what a migration made must be something that can be kept.
        made, context = state_versions.migrated(steps, state)
        journal.check_context(context, f"checkpoint {ids.to_text(stored.id)}, migrated,")
        services.codec.encode(made, "execution_state")
        services.codec.encode(context, "agent_context")
    return bool(steps)


Candidates = AsyncIterator[tuple[bytes, bytes | None, Stored | HoldfastError | None]]
"""A session, an id if it is known before the record is read, and the checkpoint, what is wrong with it, or None: there
is nothing to resume."""


async def _heads(services: Services, only: bytes | None) -> Candidates:
    if only is not None:
        yield only, None, await _attempted(_head(services, only))
        return
    after: bytes | None = None
    while page := await services.backend.scan(rows.HEAD, after=after, limit=PAGE):
        for key, _ in page:
            yield key.key, None, await _attempted(_head(services, key.key))
        after = page[-1][0].key


async def _head(services: Services, session: bytes) -> Stored | None:
    return (await reading.standing(services, session)).tip


async def _checkpoints(services: Services, only: bytes | None) -> Candidates:
    if only is None:
        async for found in all_records(services):
            yield found.session, found.id, await _attempted(_live(services, found))
        return
    before: int | None = None
    while page := await services.backend.session_records(only, before=before, limit=PAGE):
        for found in page:
            yield only, found.id, await _attempted(_live(services, found))
        before = page[-1].sequence


async def _live(services: Services, found: Record) -> Stored | None:
    stored = reading.listed_record(services, found)
    return None if await reading.is_over(services, stored) else stored


async def _attempted(reading_it: Coroutine[Any, Any, Stored | None]) -> Stored | HoldfastError | None:
    try:
        return await reading_it
    except StoreError:
        raise
    except HoldfastError as error:
        return error


async def _count(services: Services, only: bytes | None, *, every: bool) -> int:
    if only is not None:
        newest = await services.backend.session_records(only, limit=1) if every else []
        return newest[0].sequence if newest else 1
    if every:
        return (await services.backend.usage()).records
    count, after = 0, None
    while page := await services.backend.scan(rows.HEAD, after=after, limit=PAGE):
        count += len(page)
        after = page[-1][0].key
    return count


def _problem(session: bytes, id_: bytes | None, error: HoldfastError, stored: Stored | None = None) -> MigrationProblem:
    return MigrationProblem(
        session_id=rows.session_name(session),
        checkpoint_id=ids.to_text(id_) if id_ else "",
        agent_id=stored.header["agent"] if stored else "",
        state_version=stored.state_version if stored else 0,
        reason=next(reason for kind, reason in _REASONS if isinstance(error, kind)),
        message=str(error),
    )
