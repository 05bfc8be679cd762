"""`HoldfastSaver`: a LangGraph checkpointer on any store of holdfast, for `invoke` and for `ainvoke`."""

from __future__ import annotations

import asyncio
import copy
import os
import random
import threading
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)

from holdfast.adapters.langgraph import history
from holdfast.adapters.langgraph.keys import Place
from holdfast.adapters.langgraph.retention import Shortening, checked
from holdfast.adapters.langgraph.threads import Threads, config_of
from holdfast.adapters.langgraph.types import SaverTypes
from holdfast.backends.bridge import Bridge
from holdfast.backends.direct import Direct
from holdfast.backends.inline import Inline
from holdfast.backends.loop_thread import awaited, blocking
from holdfast.backends.offload import Offload
from holdfast.backends.stepping import run_inline
from holdfast.client import Client
from holdfast.codec.codec import Codec
from holdfast.errors import UsageError
from holdfast.opening import DEFAULT_DIRECTORY, DEFAULT_PATH
from holdfast.operations import arguments
from holdfast.operations.memory import LineMemory
from holdfast.sync_client import SyncClient

T = TypeVar("T")
DEFAULT_AGENT = "langgraph"
CACHE_BYTES = 64 * 1024 * 1024  # of conversations that were put last, with their messages: to see what is new in them
_STRATEGIES = ("keep_latest", "delete", "delete_all")


class HoldfastSaver(BaseCheckpointSaver[str]):
    """Keeps the state of LangGraph's threads: `graph = builder.compile(checkpointer=HoldfastSaver.from_sqlite("state.db"))`.

    One object serves `invoke` and `ainvoke`, several threads and several event loops. It may be used as it is, at the
    top of a module for instance, or in a `with` or `async with` block that closes the store at its end.
    """

    def __init__(
        self,
        client: Client | SyncClient,
        *,
        allow: Iterable[type[Any] | tuple[str, ...]] = (),
        agent_id: str = DEFAULT_AGENT,
        ttl_seconds: float | None = None,
        keep_last: int | None = None,
        allow_blocking: bool = False,
    ) -> None:
        """A saver on the store of a client, which stays the caller's to close.

        `allow` has classes whose objects may be stored beside those that are known or can be found in an imported
        module. `ttl_seconds` ends each checkpoint after so long; `keep_last` leaves so many of each namespace of a thread, and
        ends older ones a few at a time. What a delta channel of a live checkpoint is made from stays with it. The methods without `await` refuse to run on the
        thread of a running event loop, which they would block; `allow_blocking=True` lets them (a notebook).
        """
        super().__init__()
        if not isinstance(client, Client | SyncClient):
            raise UsageError(
                f"HoldfastSaver takes a Client or a SyncClient, not a {type(client).__name__}. "
                "HoldfastSaver.from_sqlite('state.db') opens one"
            )
        self._allowed = tuple(allow)
        self._owns_client = False
        self._allow_blocking = allow_blocking
        services = client._services
        inline, looped = _both_ways(services.backend)
        services = replace(
            services,
            codec=Codec(SaverTypes(self._allowed), services.codec.limits),
            memory=LineMemory(CACHE_BYTES, threading.Lock()),
        )
        agent = arguments.name("agent_id", agent_id)
        last = checked(keep_last)
        self._here = Threads(
            replace(services, backend=inline),
            agent,
            arguments.ttl(ttl_seconds),
            shortening=None if last is None else Shortening(last),
        )
        self._there = replace(self._here, services=replace(services, backend=looped))

    # -- opening and closing -----------------------------------------------------------------------------------------

    @classmethod
    def from_sqlite(cls, path: str | os.PathLike[str] = DEFAULT_PATH, **options: Any) -> Self:
        """On one SQLite file, made if it is not there. Options are this class's and those of `Client.sqlite`."""
        return cls._opened(lambda rest: Client.sqlite(path, **rest), options)

    @classmethod
    def from_files(cls, directory: str | os.PathLike[str] = DEFAULT_DIRECTORY, **options: Any) -> Self:
        return cls._opened(lambda rest: Client.files(directory, **rest), options)

    @classmethod
    def from_postgres(cls, dsn: str, **options: Any) -> Self:
        return cls._opened(lambda rest: Client.postgres(dsn, **rest), options)

    @classmethod
    def from_redis(cls, url: str, **options: Any) -> Self:
        return cls._opened(lambda rest: Client.redis(url, **rest), options)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """On the store at `url`, as `Client.open` takes it."""
        return cls._opened(lambda rest: Client.open(url, **rest), options)

    @classmethod
    def memory(cls, **options: Any) -> Self:
        """On a store that is gone with the process."""
        return cls._opened(lambda rest: Client.memory(**rest), options)

    @classmethod
    def _opened(cls, open_client: Any, options: dict[str, Any]) -> Self:
        own = {
            name: options.pop(name)
            for name in ("allow", "agent_id", "ttl_seconds", "keep_last", "allow_blocking")
            if name in options
        }
        saver = cls(open_client(options), **own)
        saver._owns_client = True
        return saver

    def close(self) -> None:
        """Closes the store, if this saver has opened it."""
        if self._owns_client:
            run_inline(self._here.services.backend.close())

    async def aclose(self) -> None:
        if self._owns_client:
            bridge = cast("Bridge", self._there.services.backend)
            await bridge.close()
            if isinstance(bridge, Direct):
                await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """A saver on the same store that also takes these classes. They must be imported already."""
        clone = copy.copy(self)
        clone._allowed = (*self._allowed, *extra_allowlist)
        codec = Codec(SaverTypes(clone._allowed), self._here.services.codec.limits)
        clone._here = replace(self._here, services=replace(self._here.services, codec=codec))
        clone._there = replace(self._there, services=replace(self._there.services, codec=codec))
        return clone

    # -- reading -----------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._run(self._here.get(*_place_and_id(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._there.get(*_place_and_id(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        found = _listed(self._here, config, filter, before, limit)
        while (one := self._run(_next(found))) is not None:
            yield one

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        async for found in _listed(self._there, config, filter, before, limit):
            yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self._run(history.delta_history(self._here, *_place_and_id(config), channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await history.delta_history(self._there, *_place_and_id(config), channels)

    # -- writing -----------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - the engine finds out by itself what is new
    ) -> RunnableConfig:
        place, parent = _place_and_id(config)
        whole = cast("Any", get_checkpoint_metadata(config, metadata))
        self._run(self._here.put(place, cast("Any", checkpoint), whole, parent))
        return cast("RunnableConfig", config_of(place, checkpoint["id"]))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - as in put
    ) -> RunnableConfig:
        place, parent = _place_and_id(config)
        whole = cast("Any", get_checkpoint_metadata(config, metadata))
        await self._there.put(place, cast("Any", checkpoint), whole, parent)
        return cast("RunnableConfig", config_of(place, checkpoint["id"]))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._run(self._here.put_writes(*_place_of_writes(config), writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._there.put_writes(*_place_of_writes(config), writes, task_id, task_path)

    def get_next_version(self, current: str | int | float | None, channel: None) -> str:  # noqa: ARG002, PYI041 - older threads have numbers
        """The next number, and a random one: two branches never give a channel the same version."""
        number = int(str(current).split(".", maxsplit=1)[0]) if current is not None else 0
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311 - no secret

    # -- deleting and copying ----------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Expires the thread's checkpoints in all namespaces. `gc` removes their bytes."""
        self._run(self._here.delete_thread(str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._there.delete_thread(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._run(self._here.delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._there.delete_for_runs(run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._run(self._here.copy_thread(str(source_thread_id), str(target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._there.copy_thread(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`keep_latest` leaves the newest checkpoint of each namespace; `delete` (or `delete_all`) leaves nothing."""
        self._run(_prune(self._here, thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await _prune(self._there, thread_ids, strategy)

    async def replay_graph(self, graph: Any, start: Any, line: Any, asked: Any, *, plainly: bool) -> Any:
        """What `client.replay` calls, given a graph that was compiled with this saver."""
        from holdfast.adapters.langgraph import replaying

        threads = self._here if plainly else self._there
        return await replaying.replay_graph(threads, graph, start, line, asked, plainly=plainly)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if not self._allow_blocking and _is_on_a_loop():
            coroutine.close()
            raise UsageError(
                "a method of HoldfastSaver without `await` was called on the thread of a running event loop, which it would "
                "block. Use `graph.ainvoke`, `astream` and `aget_state` there; in a notebook, open the saver with "
                "allow_blocking=True"
            )
        return run_inline(coroutine)


def _both_ways(bridge: Any) -> tuple[Bridge, Bridge]:
    """A bridge without an event loop and one for event loops, to the same store; one of them is the given one."""
    if isinstance(bridge, Inline):
        over_network = awaited(bridge.backend)
        return bridge, Direct(over_network) if over_network is not None else Offload(bridge.backend)
    if bridge.capabilities.awaitable:
        return Inline(blocking(bridge.backend)), bridge
    return Inline(bridge.backend), bridge


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _place_and_id(config: RunnableConfig) -> tuple[Place, str | None]:
    configurable = config.get("configurable") or {}
    if configurable.get("thread_id") is None:
        raise UsageError('the config names no thread: give {"configurable": {"thread_id": "..."}}')
    return Place(str(configurable["thread_id"]), configurable.get("checkpoint_ns") or ""), (
        configurable.get("checkpoint_id") or None
    )


def _place_of_writes(config: RunnableConfig) -> tuple[Place, str]:
    place, id_ = _place_and_id(config)
    if id_ is None:
        raise UsageError("writes belong to a checkpoint: the config has no checkpoint_id")
    return place, id_


async def _listed(
    threads: Threads,
    config: RunnableConfig | None,
    wanted: Mapping[str, Any] | None,
    before: RunnableConfig | None,
    limit: int | None,
) -> AsyncIterator[CheckpointTuple]:
    configurable = (config or {}).get("configurable") or {}
    thread = configurable.get("thread_id")
    ns, id_ = configurable.get("checkpoint_ns"), configurable.get("checkpoint_id") or None
    before_id = ((before or {}).get("configurable") or {}).get("checkpoint_id") or None
    entries = threads.matching(None if thread is None else str(thread), ns, id_, before_id)
    async for found in history.listed(threads, entries, wanted, limit):
        yield found


async def _next(found: AsyncIterator[CheckpointTuple]) -> CheckpointTuple | None:
    return await anext(found, None)


async def _prune(threads: Threads, thread_ids: Sequence[str], strategy: str) -> None:
    names = [str(thread) for thread in thread_ids]
    if arguments.one_of("strategy", strategy, _STRATEGIES) == "keep_latest":
        await threads.prune(names)
        return
    for thread in names:
        await threads.delete_thread(thread)
