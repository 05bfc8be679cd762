"""`holdfast.ag2.HoldfastStorage`: AG2's own `Storage` over a store of holdfast."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from ag2 import Context
from ag2.context import StreamId
from ag2.events import BaseEvent
from ag2.history import Storage

from holdfast.adapters.ag2.event_list import load_events
from holdfast.adapters.ag2.events import dump_event
from holdfast.adapters.base.message_log import MessageLog
from holdfast.adapters.base.store_access import SeamStore
from holdfast.model.framework import Framework


class HoldfastEventStorage(Storage):
    """A storage for `MemoryStream(HoldfastStorage(), id=stream_id)`. Each event is a checkpoint.

    The id of a stream is the id of its session. `store` is a `Client`, a URL, or None for
    `.holdfast/store.db`. A store that was opened here is closed by `close`, or by `async with`.
    """

    def __init__(self, store: Any = None, *, agent_id: str = "agent") -> None:
        self._store = SeamStore(store)
        self._agent_id = agent_id
        self._logs: dict[StreamId, MessageLog] = {}
        self._shortened: dict[StreamId, list[Any]] = {}

    async def save_event(self, event: BaseEvent, context: Context) -> None:
        stream_id, name = context.stream.id, type(event).__name__
        shortened = self._shortened.pop(stream_id, None)
        if shortened is None:
            await self._log(stream_id).append([dump_event(event)], step_name=name)
        else:
            await self._replace(stream_id, [*shortened, dump_event(event)], name)

    async def get_history(self, stream_id: StreamId) -> Iterable[BaseEvent]:
        shortened = self._shortened.get(stream_id)
        return load_events(await self._log(stream_id).load() if shortened is None else shortened)

    async def set_history(self, stream_id: StreamId, events: Iterable[BaseEvent]) -> None:
        """Replace the history.

        A history that only lacks its last event is stored with the next event, or by `close`:
        `agent.resume` removes that event and appends it again, and must not lose it in between.
        """
        wanted = [dump_event(event) for event in events]
        self._shortened.pop(stream_id, None)
        stored = await self._log(stream_id).load()
        if stored and wanted == stored[:-1]:
            self._shortened[stream_id] = wanted
        else:
            await self._replace(stream_id, wanted, "set_history")

    async def drop_history(self, stream_id: StreamId) -> None:
        """Remove all events. Earlier checkpoints still have them: `holdfast rollback` brings them back."""
        self._shortened.pop(stream_id, None)
        await self._replace(stream_id, [], "drop_history")

    async def close(self) -> None:
        for stream_id, shortened in list(self._shortened.items()):
            await self._replace(stream_id, shortened, "set_history")
        self._shortened.clear()
        await self._store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _replace(self, stream_id: StreamId, events: list[Any], step_name: str) -> None:
        def replace(messages: list[Any]) -> None:
            messages[:] = events

        await self._log(stream_id).change(replace, step_name=step_name)

    def _log(self, stream_id: StreamId) -> MessageLog:
        if stream_id not in self._logs:
            self._logs[stream_id] = MessageLog(self._store, Framework.AG2, str(stream_id), agent_id=self._agent_id)
        return self._logs[stream_id]
