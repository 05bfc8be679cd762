"""`HoldfastSaver`: a LangGraph checkpointer on any store of holdfast, for `invoke` and for `ainvoke`."""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

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
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.adapters.langgraph import listing
from holdfast.adapters.langgraph.allowed_types import SaverTypes
from holdfast.adapters.langgraph.handle import StoreHandle, ttl_seconds_of
from holdfast.adapters.langgraph.retention import HistoryTrimmer, check_keep_last
from holdfast.adapters.langgraph.row_keys import ThreadNamespace
from holdfast.adapters.langgraph.thread_store import Threads, config_of
from holdfast.client.client import Client
from holdfast.client.factory import make_tip_cache
from holdfast.client.sync import SyncClient
from holdfast.codec.unknown_types import OnUnknownType
from holdfast.errors import UsageError
from holdfast.operations import validate
from holdfast.sealing.key_ring import KeyRing

DEFAULT_AGENT = "langgraph"
CACHE_BYTES = 64 * 1024 * 1024  # of conversations that were put last, with their messages: to find the new parts
_STRATEGIES = ("keep_latest", "delete", "delete_all")


class HoldfastSaver(StoreHandle, BaseCheckpointSaver[str]):
    """A LangGraph checkpointer that stores threads in holdfast.

    `graph = builder.compile(checkpointer=HoldfastSaver.from_sqlite("state.db"))`.

    One object serves `invoke` and `ainvoke`, several threads and several event loops. It may be
    used as it is, at the top of a module for instance, or in a `with` or `async with` block that
    closes the store at its end.
    """

    _own_options = ("allow", "agent_id", "ttl_seconds", "ttl", "keep_last", "allow_blocking", "on_unknown_type")

    def __init__(
        self,
        client: Client | SyncClient | Any = None,
        *,
        allow: Iterable[type[Any] | tuple[str, ...]] = (),
        agent_id: str = DEFAULT_AGENT,
        ttl_seconds: float | None = None,
        ttl: Mapping[str, Any] | None = None,
        keep_last: int | None = None,
        allow_blocking: bool = False,
        on_unknown_type: OnUnknownType = "plain",
        conn: Any = None,
        redis_client: Any = None,
        redis_url: str | None = None,
        keys: KeyRing | None = None,
        serde: None = None,
    ) -> None:
        """Make a saver on a client's store, which the caller closes; by default on the default SQLite file.

        It also accepts the arguments of LangGraph's own savers: a connection or pool of psycopg, a
        connection of sqlite3 (`conn=`), a Redis client (`redis_client=`) or its URL (`redis_url=`).
        The saver reads the address from it and opens its own connections, which `close` and the end
        of a `with` block close.

        `allow` has classes whose objects may be stored, in addition to known ones and those found
        in an imported module. `ttl_seconds` expires each checkpoint after that time
        (`ttl={"default_ttl": minutes}` says the same). `keep_last` keeps that many checkpoints of
        each namespace of a thread, and expires older ones a few at a time. Ancestors that a delta
        channel of a live checkpoint needs stay with it.

        On the thread of a running event loop the methods without `await` warn once if the store is
        local, and refuse to run if it is behind a network; `allow_blocking=True` allows them (a
        notebook).

        An object whose class is gone, or no longer fits the stored data, comes back as plain data,
        with a warning (see `holdfast.UnknownValue`); `on_unknown_type="raise"` raises
        UnknownTypeError instead. `keys` encrypts a store that is opened here. `serde`, which
        LangGraph's own savers take, is refused with an explanation.
        """
        _refuse_serializer(serde)
        super().__init__()
        self._connect((client, conn, redis_client), redis_url, allow_blocking=allow_blocking, keys=keys)
        self._allowed = tuple(allow)
        ctx = replace(
            self._blocking_services,
            codec=self._blocking_services.codec.derive(
                types=SaverTypes(self._allowed), on_unknown_type=on_unknown_type
            ),
            memory=make_tip_cache(CACHE_BYTES),
        )
        agent = validate.name("agent_id", agent_id)
        last = check_keep_last(keep_last)
        if ttl is not None:
            if ttl_seconds is not None:
                raise UsageError("ttl and ttl_seconds say the same, in minutes and in seconds: give one of them")
            ttl_seconds = ttl_seconds_of(ttl)
        self._threads = Threads(
            ctx,
            agent,
            validate.ttl(ttl_seconds),
            shortening=None if last is None else HistoryTrimmer(last),
        )
        self._awaited_threads = replace(self._threads, ctx=replace(ctx, backend=self._awaited_services.backend))

    @classmethod
    def _check_options(cls, options: dict[str, Any]) -> None:
        _refuse_serializer(options.pop("serde", None))

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Return a saver on the same store that also takes these classes. They must be imported already."""
        clone = copy.copy(self)
        clone._allowed = (*self._allowed, *extra_allowlist)
        known = self._threads.ctx.codec
        codec = known.derive(types=SaverTypes(clone._allowed))
        clone._threads = replace(self._threads, ctx=replace(self._threads.ctx, codec=codec))
        clone._awaited_threads = replace(self._awaited_threads, ctx=replace(self._awaited_threads.ctx, codec=codec))
        return clone

    @property
    def serde(self) -> SerializerProtocol:
        """Return LangGraph's own serializer, for code that asks for it; this saver does not store through it."""
        return BaseCheckpointSaver.serde

    @serde.setter
    def serde(self, given: SerializerProtocol) -> None:
        if given is not BaseCheckpointSaver.serde:  # which the base class sets
            _refuse_serializer(given)

    # -- reading -----------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._run(self._threads.get(*_place_and_id(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._awaited_threads.get(*_place_and_id(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        found = _iterate_listed(self._threads, config, filter, before, limit)
        while (tuple_ := self._run(_get_next(found))) is not None:
            yield tuple_

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        async for found in _iterate_listed(self._awaited_threads, config, filter, before, limit):
            yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self._run(listing.delta_history(self._threads, *_place_and_id(config), channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await listing.delta_history(self._awaited_threads, *_place_and_id(config), channels)

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
        self._run(self._threads.put(place, cast("Any", checkpoint), whole, parent))
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
        await self._awaited_threads.put(place, cast("Any", checkpoint), whole, parent)
        return cast("RunnableConfig", config_of(place, checkpoint["id"]))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._run(self._threads.put_writes(*_place_of_writes(config), writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._awaited_threads.put_writes(*_place_of_writes(config), writes, task_id, task_path)

    def get_next_version(self, current: Any, channel: None) -> str:  # noqa: ARG002 - LangGraph's name
        """Return the next number with a random one: two branches never give a channel the same version.

        `current` is a version, a number in older threads, or None.
        """
        number = int(str(current).split(".", maxsplit=1)[0]) if current is not None else 0
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311 - no secret

    # -- deleting and copying ----------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Expires the thread's checkpoints in all namespaces. `gc` removes their bytes."""
        self._run(self._threads.delete_thread(str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._awaited_threads.delete_thread(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._run(self._threads.delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._awaited_threads.delete_for_runs(run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._run(self._threads.copy_thread(str(source_thread_id), str(target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._awaited_threads.copy_thread(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune threads to the newest checkpoint of each namespace (`keep_latest`), or remove them (`delete`).

        `delete_all` is the same as `delete`.
        """
        self._run(_prune(self._threads, thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await _prune(self._awaited_threads, thread_ids, strategy)

    async def replay_graph(self, graph: Any, start: Any, branch: Any, request: Any, *, plainly: bool) -> Any:
        """Replay a graph that was compiled with this saver, for `client.replay`."""
        from holdfast.adapters.langgraph import replay

        threads = self._threads if plainly else self._awaited_threads
        return await replay.replay_graph(threads, graph, start, branch, request, plainly=plainly)


def _refuse_serializer(given: object) -> None:
    if given is not None:
        raise UsageError(
            f"HoldfastSaver takes no serializer, and was given a {type(given).__name__}: it stores values by an "
            "encoding of its own, which no serializer can change, so nothing would be encrypted by one. Leave serde "
            "out; to encrypt everything that is stored, give it keys: HoldfastSaver.from_sqlite(path, "
            "keys=KeyRing.from_file(...)); to store a class in a way of your own, use holdfast.register(cls, "
            "encode=..., decode=...)"
        )


def _place_and_id(config: RunnableConfig) -> tuple[ThreadNamespace, str | None]:
    configurable = config.get("configurable") or {}
    if configurable.get("thread_id") is None:
        raise UsageError('the config names no thread: give {"configurable": {"thread_id": "..."}}')
    return ThreadNamespace(str(configurable["thread_id"]), configurable.get("checkpoint_ns") or ""), (
        configurable.get("checkpoint_id") or None
    )


def _place_of_writes(config: RunnableConfig) -> tuple[ThreadNamespace, str]:
    place, id_ = _place_and_id(config)
    if id_ is None:
        raise UsageError("writes belong to a checkpoint: the config has no checkpoint_id")
    return place, id_


async def _iterate_listed(
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
    entries = threads.iterate_matching(None if thread is None else str(thread), ns, id_, before_id)
    async for found in listing.iterate_listed(threads, entries, wanted, limit):
        yield found


async def _get_next(found: AsyncIterator[CheckpointTuple]) -> CheckpointTuple | None:
    return await anext(found, None)


async def _prune(threads: Threads, thread_ids: Sequence[str], strategy: str) -> None:
    names = [str(thread) for thread in thread_ids]
    if validate.one_of("strategy", strategy, _STRATEGIES) == "keep_latest":
        await threads.prune(names)
        return
    for thread in names:
        await threads.delete_thread(thread)
