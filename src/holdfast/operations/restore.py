"""restore and get: a checkpoint by its id, with and without its state; latest: the one a session stands at."""

from __future__ import annotations

from holdfast.model.checkpoint import Checkpoint
from holdfast.objects import record, rows
from holdfast.operations import reading
from holdfast.operations.services import Services


async def restore(services: Services, id_: bytes, *, verify: bool = True) -> Checkpoint:
    """The checkpoint with its state. Only reads: the state is the caller's to change."""
    stored = await reading.live_record(services, id_)
    state = await reading.load_state(services, stored.manifest(), verify=verify)
    return record.checkpoint(services.codec, stored, state)


async def get(services: Services, id_: bytes) -> Checkpoint:
    """The checkpoint without its state."""
    return record.checkpoint(services.codec, await reading.live_record(services, id_))


async def latest(services: Services, session_id: str, agent_id: str | None = None) -> Checkpoint | None:
    """The checkpoint a session stands at, with its state; with `agent_id`, the nearest one up from there that the agent
    made or was handed. None if there is none."""
    stored = (await reading.confirmed_line(services, rows.session_key(session_id))).tip
    while stored is not None:
        if agent_id is None or agent_id in (stored.header["agent"], stored.header.get("to")):
            state = await reading.load_state(services, stored.manifest(), verify=True)
            return record.checkpoint(services.codec, stored, state)
        stored = await reading.nearest_live(services, stored.parent)
    return None
