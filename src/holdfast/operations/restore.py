"""restore and get: a checkpoint by its id, with and without its state; latest: the one a session stands at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from holdfast.backends.port import Backend, Run, Span
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.migrations import Step
from holdfast.objects import assemble, record, rows
from holdfast.objects.inflating import Inflating
from holdfast.objects.manifest import Manifest
from holdfast.objects.record import Stored
from holdfast.operations import reading, state_versions
from holdfast.operations.services import Services


async def restore(services: Services, id_: bytes, *, verify: bool = True, migrate: bool = True) -> Checkpoint:
    """The checkpoint with its state, migrated. Only reads: the state is the caller's to change."""

    async def read(backend: Backend) -> _Read:
        stored, at_hand = await reading.live_record_and_runs(services.over(backend), id_)
        return await _read(services, backend, stored, migrate=migrate, at_hand=at_hand)

    return _assembled(services, await services.backend.together(read, beside=_inflate), verify=verify)


def _inflate(found: _Read | None) -> Iterator[None]:
    """For the store's thread, which is done, while the caller's begins to hash: zstd holds no lock of Python's."""
    return found.inflating.help() if found is not None else iter(())


async def loaded(services: Services, stored: Stored, *, verify: bool = True, migrate: bool = True) -> Checkpoint:
    """The checkpoint of a record, with its state in the newest version that this program's migrations lead to."""

    async def read(backend: Backend) -> _Read:
        return await _read(services, backend, stored, migrate=migrate)

    return _assembled(services, await services.backend.together(read, beside=_inflate), verify=verify)


class _Read(NamedTuple):
    """A checkpoint as it was read, and what brings its state to the newest version."""

    stored: Stored
    manifest: Manifest
    parts: reading.Parts
    inflating: Inflating
    steps: tuple[Step, ...]


async def _read(
    services: Services,
    backend: Backend,
    stored: Stored,
    *,
    migrate: bool,
    at_hand: Mapping[Span, list[Run]] | None = None,
) -> _Read:
    # Before the state is decoded: a newer one may hold types that are not known here, which says less.
    steps = state_versions.steps_of(services, stored) if migrate else ()
    manifest = stored.manifest()
    parts = await reading.load_parts(backend, manifest, at_hand)
    inflating = Inflating([run.data for of_span in parts[0] for run in of_span])
    return _Read(stored, manifest, parts, inflating, steps)


def _assembled(services: Services, found: _Read, *, verify: bool) -> Checkpoint:
    stored, manifest, (runs, blobs), inflating, steps = found
    state = assemble.assemble(services.codec, manifest, runs, blobs, inflating, verify=verify)
    if not steps:
        return record.checkpoint(services.codec, stored, state)
    state = state_versions.migrated(steps, state)
    return record.checkpoint(services.codec, stored, state, state_version=steps[-1].to_version)


async def get(services: Services, id_: bytes) -> Checkpoint:
    """The checkpoint without its state."""
    return record.checkpoint(services.codec, await reading.live_record(services, id_))


async def latest(
    services: Services, session_id: str, agent_id: str | None = None, *, migrate: bool = True
) -> Checkpoint | None:
    """The checkpoint a session stands at, with its state; with `agent_id`, the nearest one up from there that the agent
    made or was handed. None if there is none."""
    session = rows.session_key(session_id)

    async def read(backend: Backend) -> _Read | None:
        there = services.over(backend)
        stored = (await reading.confirmed_line(there, session)).tip
        while stored is not None:
            if agent_id is None or agent_id in (stored.header["agent"], stored.header.get("to")):
                return await _read(services, backend, stored, migrate=migrate)
            stored = await reading.nearest_live(there, stored.parent, stored.tree)
        return None

    found = await services.backend.together(read, beside=_inflate)
    return _assembled(services, found, verify=True) if found is not None else None
