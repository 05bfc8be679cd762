"""The checkpointer and the store of `langgraph dev`, set by environment variables."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

from holdfast.adapters.langgraph.handle import StoreHandle
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.server_records import Recording
from holdfast.adapters.langgraph.store import HoldfastStore
from holdfast.errors import UsageError
from holdfast.sealing.key_ring import keys_from_environment

H = TypeVar("H", bound=StoreHandle)
STORE = "HOLDFAST_URL"
Numbers = Mapping[str, tuple[str, Callable[[str], Any]]]
NUMBERS: Numbers = {"HOLDFAST_TTL_SECONDS": ("ttl_seconds", float), "HOLDFAST_KEEP_LAST": ("keep_last", int)}

_recording = Recording()


class DevSaver(HoldfastSaver):
    """The saver of a dev server: with each checkpoint it keeps the server's own entry of the thread."""

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        await self._copy_thread(config)
        return await super().aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._copy_thread(config)
        await super().aput_writes(config, writes, task_id, task_path)

    async def _copy_thread(self, config: RunnableConfig) -> None:
        records = _recording.records
        if records is not None:
            await records.copy_thread(str(config["configurable"]["thread_id"]), self._awaited_services.backend)


@asynccontextmanager
async def dev_checkpointer() -> AsyncIterator[HoldfastSaver]:
    """Yield the checkpointer of `langgraph dev`: `holdfast.langgraph.dev_checkpointer` in langgraph.json.

    Its entry is `"checkpointer": {"path": "holdfast.langgraph.dev_checkpointer"}`. The server calls
    it without arguments, once for each of its threads that run graphs, and closes the result when
    it stops. `HOLDFAST_URL` names the store, by its URL or as the path of a SQLite file; without
    it, the store is `.holdfast/store.db` where the server was started. `HOLDFAST_TTL_SECONDS`
    expires each checkpoint after that time, and `HOLDFAST_KEEP_LAST` keeps that many of each
    thread's namespace. `HOLDFAST_KEYS_FILE` or `HOLDFAST_KEYS` has the keys of a sealed store.

    At the server's start, threads, assistants, crons and runs that it had lost are restored.
    """
    # The server refuses calls that block its event loop, and opening a file is one.
    saver = await asyncio.to_thread(_open, DevSaver, NUMBERS)
    async with saver:
        end = await _recording.begin(saver._awaited_threads.ctx)
        try:
            yield saver
        finally:
            if end is not None:
                await end()


@asynccontextmanager
async def dev_store() -> AsyncIterator[HoldfastStore]:
    """Keep the items of the dev server's store.

    For `"store": {"path": "holdfast.langgraph.dev_store"}` in langgraph.json.
    """
    store = await asyncio.to_thread(_open, HoldfastStore, {})
    async with store:
        yield store


def _open(kind: type[H], numbers: Numbers) -> H:
    keys, is_required = keys_from_environment()
    options: dict[str, Any] = {"keys": keys, "require_keys": is_required}
    for variable, (name, number) in numbers.items():
        given = os.environ.get(variable)
        if given:
            try:
                options[name] = number(given)
            except ValueError:
                raise UsageError(f"{variable} is a number, not {given!r:.60}") from None
    where = os.environ.get(STORE)
    if not where:
        return kind.from_sqlite(**options)
    if "://" in where:
        return kind.from_url(where, **options)
    return kind.from_sqlite(os.path.expanduser(where), **options)  # noqa: PTH111 - any text is a path here
