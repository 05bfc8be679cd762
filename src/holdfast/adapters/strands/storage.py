"""`HoldfastStorage`: the storage protocol of Strands over a store of holdfast.

A snapshot of an agent is stored as the state that `resumable` saves, so each message is stored once
and `holdfast show --messages` reads it. Any other value is stored as it is. The snapshots of an agent
share a session: the key up to `/snapshots/`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from strands.storage import Storage
from strands.types.exceptions import StorageError
from strands.types.session import decode_bytes_values, encode_bytes_values

from holdfast.adapters.base.session import TURN
from holdfast.adapters.base.store_access import SeamStore
from holdfast.adapters.strands.team import AGENTS, MESSAGES
from holdfast.errors import HoldfastError
from holdfast.model.framework import Framework

_KEY = "storage_key"
_SNAPSHOTS = "/snapshots/"


class HoldfastStorage(Storage):
    """A storage for `SnapshotSessionManager(session_id, storage=HoldfastStorage())`.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. A store that was opened here is
    closed by `close`.
    """

    def __init__(self, *, store: Any = None, agent_id: str = "agent") -> None:
        self._store = SeamStore(store)
        self._agent_id = agent_id

    async def write(self, key: str, data: bytes) -> None:
        session_id, name = _split(key)
        await self._do(
            "save",
            self._agent_id,
            framework=Framework.STRANDS,
            session_id=session_id,
            step_name=name,
            execution_state=_state_of(bytes(data)),
            **{_KEY: key},
        )

    async def read(self, key: str) -> bytes | None:
        session_id, _ = _split(key)
        head = await self._do("latest", session_id)
        if head is None:
            return None
        if head.metadata.get(_KEY) == key:
            return _data_of(head.execution_state)
        for entry in await self._entries(session_id):
            if entry.metadata.get(_KEY) == key:
                return _data_of((await self._do("restore", entry.checkpoint_id)).execution_state)
        return None

    async def delete(self, key: str) -> None:
        for entry in await self._entries(_split(key)[0]):
            if entry.metadata.get(_KEY) == key:
                await self._do("expire", entry.checkpoint_id)

    async def list(self, query: str = "") -> list[str]:
        found = set()
        for session_id in await self._do("session_ids"):
            if session_id.startswith(query) or query.startswith(session_id):
                found |= {entry.metadata.get(_KEY) for entry in await self._entries(session_id)}
        return sorted(key for key in found if isinstance(key, str) and key.startswith(query))

    async def close(self) -> None:
        await self._store.aclose()

    async def _entries(self, session_id: str) -> Any:
        """Return the live checkpoints of a session without their states, newest first."""
        return await self._do("timeline", session_id, limit=None)

    async def _do(self, operation: str, *args: Any, **options: Any) -> Any:
        try:
            return await getattr(self._store.client, operation)(*args, **options)
        except HoldfastError as error:
            raise StorageError(str(error)) from error


def _split(key: str) -> tuple[str, str]:
    """Return the session that has a key, and its name within it."""
    session_id, found, name = key.partition(_SNAPSHOTS)
    return (session_id, name) if found and session_id and name else (key, key.rpartition("/")[2] or key)


def _state_of(data: bytes) -> dict[str, Any]:
    """Return the state for a value: a snapshot in its parts, if these make the same bytes again."""
    try:
        snapshot = decode_bytes_values(json.loads(data))
        content = dict(snapshot["data"])
        messages = content.pop("messages")
        state = {"snapshot": {**snapshot, "data": None}, AGENTS: {"": content}, MESSAGES: messages, TURN: None}
        if isinstance(messages, list) and _data_of(state) == data:
            return state
    except (ValueError, TypeError, KeyError, RecursionError):
        pass  # no snapshot, or one that was written in another way
    return {"data": data, TURN: None}


def _data_of(state: Mapping[str, Any]) -> bytes:
    if "data" in state:
        return bytes(state["data"])
    content = {"messages": state[MESSAGES], **state[AGENTS][""]}
    snapshot = {**state["snapshot"], "data": content}
    return json.dumps(encode_bytes_values(snapshot), ensure_ascii=False).encode()
