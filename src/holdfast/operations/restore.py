"""restore and get: a checkpoint by its id, with and without its state; latest: the one a session stands at."""

from __future__ import annotations

from holdfast.model.checkpoint import Checkpoint
from holdfast.objects import record, rows
from holdfast.objects.record import Stored
from holdfast.operations import reading, state_versions
from holdfast.operations.services import Services


async def restore(services: Services, id_: bytes, *, verify: bool = True, migrate: bool = True) -> Checkpoint:
    """The checkpoint with its state, migrated. Only reads: the state is the caller's to change."""
    return await loaded(services, await reading.live_record(services, id_), verify=verify, migrate=migrate)


async def loaded(services: Services, stored: Stored, *, verify: bool = True, migrate: bool = True) -> Checkpoint:
    """The checkpoint of a record, with its state in the newest version that this program's migrations lead to."""
    # Before the state is decoded: a newer one may hold types that are not known here, which says less.
    steps = state_versions.steps_of(services, stored) if migrate else ()
    state = await reading.load_state(services, stored.manifest(), verify=verify)
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
    stored = (await reading.confirmed_line(services, rows.session_key(session_id))).tip
    while stored is not None:
        if agent_id is None or agent_id in (stored.header["agent"], stored.header.get("to")):
            return await loaded(services, stored, migrate=migrate)
        stored = await reading.nearest_live(services, stored.parent, stored.tree)
    return None
