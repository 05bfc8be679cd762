"""restore and get: a checkpoint by id, with and without its state; latest: the head of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast import telemetry
from holdfast.backends.port import Backend, Segment, Span
from holdfast.format.rows import head
from holdfast.format.state import assemble, record
from holdfast.format.state.manifest import Manifest
from holdfast.format.state.record import StoredRecord
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.state_migration import MigrationStep
from holdfast.operations import lookup, state_version
from holdfast.operations.context import StoreContext


@telemetry.trace_operation(telemetry.RESTORE)
async def restore(ctx: StoreContext, id_: bytes, *, verify: bool = True, migrate: bool = True) -> Checkpoint:
    """Return the checkpoint with its state, migrated. Only reads: the state is the caller's to change."""

    async def read(backend: Backend) -> _Read:
        stored, at_hand = await lookup.live_record_and_segments(ctx.read_from(backend), id_)
        return await _read(ctx, backend, stored, migrate=migrate, at_hand=at_hand)

    return _assemble_checkpoint(ctx, await ctx.backend.batch_reads(read), verify=verify)


async def load_checkpoint(
    ctx: StoreContext, stored: StoredRecord, *, verify: bool = True, migrate: bool = True
) -> Checkpoint:
    """Return the checkpoint of a record, with its state in the newest version of the migrations."""

    async def read(backend: Backend) -> _Read:
        return await _read(ctx, backend, stored, migrate=migrate)

    return _assemble_checkpoint(ctx, await ctx.backend.batch_reads(read), verify=verify)


class _Read(NamedTuple):
    """A checkpoint as it was read, and the migrations to the newest version of its state."""

    stored: StoredRecord
    manifest: Manifest
    parts: lookup.Parts
    steps: tuple[MigrationStep, ...]


async def _read(
    ctx: StoreContext,
    backend: Backend,
    stored: StoredRecord,
    *,
    migrate: bool,
    at_hand: Mapping[Span, list[Segment]] | None = None,
) -> _Read:
    # Before the state is decoded: a newer one may hold types that are unknown here, which would be
    # a less helpful error.
    steps = state_version.steps_of(ctx, stored) if migrate else ()
    manifest = stored.manifest()
    parts = await lookup.load_parts(backend, manifest, at_hand)
    return _Read(stored, manifest, parts, steps)


def _assemble_checkpoint(ctx: StoreContext, found: _Read, *, verify: bool) -> Checkpoint:
    stored, manifest, (segments, blobs), steps = found
    state = assemble.assemble(ctx.codec, manifest, segments, blobs, verify=verify)
    if not steps:
        return record.checkpoint(ctx.codec, stored, state)
    state = state_version.migrate(steps, state)
    return record.checkpoint(ctx.codec, stored, state, state_version=steps[-1].to_version)


async def get(ctx: StoreContext, id_: bytes) -> Checkpoint:
    """Return the checkpoint without its state."""
    return record.checkpoint(ctx.codec, await lookup.load_live_record(ctx, id_))


async def latest(
    ctx: StoreContext, session_id: str, agent_id: str | None = None, *, migrate: bool = True
) -> Checkpoint | None:
    """Return the head of a session with its state, None if there is none.

    With `agent_id`, return the nearest checkpoint up from the head that the agent made or was
    handed.
    """
    session = head.session_key(session_id)

    async def read(backend: Backend) -> _Read | None:
        other_ctx = ctx.read_from(backend)
        stored = (await lookup.revalidated_tip(other_ctx, session)).checkpoint
        while stored is not None:
            if agent_id is None or agent_id in (stored.header["agent"], stored.header.get("to")):
                return await _read(ctx, backend, stored, migrate=migrate)
            stored = await lookup.find_nearest_live(other_ctx, stored.parent, stored.tree)
        return None

    found = await ctx.backend.batch_reads(read)
    return _assemble_checkpoint(ctx, found, verify=True) if found is not None else None
