"""`StoreHandle`: the opening, calls and closing of `HoldfastSaver` and `HoldfastStore`."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar, cast

from holdfast.adapters.langgraph.connection_info import open_conn_string, open_connection
from holdfast.backends.bridge.base import Bridge
from holdfast.backends.bridge.blocking import blocking, get_awaited_backend
from holdfast.backends.bridge.event_loop import AsyncBridge
from holdfast.backends.bridge.inline import InlineBridge
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.bridge.worker_thread import ThreadBridge
from holdfast.client.client import Client
from holdfast.client.factory import DEFAULT_DIRECTORY, DEFAULT_PATH
from holdfast.client.sync import SyncClient
from holdfast.errors import UsageError
from holdfast.operations.context import StoreContext
from holdfast.sealing.key_ring import KeyRing

T = TypeVar("T")
SECONDS_IN_A_MINUTE = 60
_warned_of_blocking = False


class CompletedCall:
    """The result of a call that has nothing to do. It is true; it may be awaited, and need not be."""

    def __await__(self) -> Generator[None, None, bool]:
        yield from ()
        return True


class StoreHandle:
    """A store of holdfast for LangGraph: with methods that block, and with coroutines."""

    _own_options: ClassVar[tuple[str, ...]] = ()
    _allow_blocking: bool
    _owns_client: bool
    _blocking_services: StoreContext
    _awaited_services: StoreContext

    def _connect(
        self, given: tuple[Any, ...], redis_url: str | None, *, allow_blocking: bool, keys: KeyRing | None
    ) -> None:
        """Take over a client's store, or open the one that a connection leads to, sealed with `keys`.

        Without either, open the default store.
        """
        found = [item for item in (*given, redis_url) if item is not None]
        if len(found) > 1:
            raise UsageError(f"{type(self).__name__} takes one client or connection, and was given {len(found)}")
        self._owns_client = not found or not isinstance(found[0], Client | SyncClient)
        if keys is not None and not self._owns_client:
            raise UsageError("keys are those of the client: give them where it is opened, Client.sqlite(path, keys=…)")
        if not found:
            client: Client | SyncClient = Client.sqlite(keys=keys)
        elif redis_url is not None:
            client = Client.redis(redis_url, keys=keys)
        else:
            client = open_connection(found[0], keys) if self._owns_client else found[0]
        self._allow_blocking = allow_blocking
        ctx = client._ctx
        inline, looped = _both_ways(cast("Bridge", ctx.backend))
        self._blocking_services = replace(ctx, backend=inline)
        self._awaited_services = replace(ctx, backend=looped)

    # -- opening -----------------------------------------------------------------------------------------------------

    @classmethod
    def from_sqlite(cls, path: str | os.PathLike[str] = DEFAULT_PATH, **options: Any) -> Self:
        """Open one SQLite file, made if it is not there.

        Options are this class's and those of `Client.sqlite`.
        """
        return cls._open_handle(lambda rest: Client.sqlite(path, **rest), options)

    @classmethod
    def from_files(cls, directory: str | os.PathLike[str] = DEFAULT_DIRECTORY, **options: Any) -> Self:
        return cls._open_handle(lambda rest: Client.files(directory, **rest), options)

    @classmethod
    def from_postgres(cls, dsn: str, **options: Any) -> Self:
        return cls._open_handle(lambda rest: Client.postgres(dsn, **rest), options)

    @classmethod
    def from_redis(cls, url: str, **options: Any) -> Self:
        return cls._open_handle(lambda rest: Client.redis(url, **rest), options)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> Self:
        """Open the store at `url`, as `Client.open` does."""
        return cls._open_handle(lambda rest: Client.open(url, **rest), options)

    @classmethod
    def from_conn_string(
        cls,
        conn_string: str,
        *,
        pipeline: bool = False,  # noqa: ARG003 - a commit always is one round trip
        pool_config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Open a store from an argument of LangGraph's own savers and stores.

        That is the path of a SQLite file, `:memory:`, a PostgreSQL DSN or a Redis URL. Use the
        result in `with` or `async with`, which close the store, or as it is. Of `pool_config`,
        `max_size` counts.
        """
        if pool_config and pool_config.get("max_size"):
            options.setdefault("max_connections", pool_config["max_size"])
        return cls._open_handle(lambda rest: open_conn_string(conn_string, rest), options)

    @classmethod
    def memory(cls, **options: Any) -> Self:
        """Open a store in memory, which is gone with the process."""
        return cls._open_handle(lambda rest: Client.memory(**rest), options)

    @classmethod
    def _open_handle(cls, open_client: Callable[[dict[str, Any]], Client], options: dict[str, Any]) -> Self:
        cls._check_options(options)
        own = {name: options.pop(name) for name in cls._own_options if name in options}
        opened = cast("Any", cls)(open_client(options), **own)
        opened._owns_client = True
        return cast("Self", opened)

    @classmethod
    def _check_options(cls, options: dict[str, Any]) -> None:
        """Raise `UsageError` for options that can't be taken, before a store is made."""

    def setup(self) -> CompletedCall:
        """Do nothing: a store sets itself up.

        LangGraph's own classes need the call. The async ones want it awaited, which it may be.
        """
        return CompletedCall()

    async def asetup(self) -> None:
        """Does nothing, like `setup`."""

    # -- closing -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the store, if this object has opened it."""
        if self._owns_client:
            run_inline(cast("Bridge", self._blocking_services.backend).close())

    async def aclose(self) -> None:
        if self._owns_client:
            bridge = cast("Bridge", self._awaited_services.backend)
            await bridge.close()
            if isinstance(bridge.inner, AsyncBridge):
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

    # -- calling -----------------------------------------------------------------------------------------------------

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Carries out a coroutine on the calling thread, which it blocks."""
        if not self._allow_blocking and _is_on_a_loop():
            try:
                self._admit_blocking()
            except BaseException:
                coroutine.close()
                raise
        return run_inline(coroutine)

    def _admit_blocking(self) -> None:
        """Warn once per process if the store is local; refuse if it is behind a network."""
        global _warned_of_blocking  # noqa: PLW0603 - once in a process
        name = type(self).__name__
        if get_awaited_backend(cast("Bridge", self._blocking_services.backend).inner.backend) is not None:
            raise UsageError(
                f"a method of {name} without `await` was called on the thread of a running event loop, which would "
                "wait for the network meanwhile. Use the methods with `await` there (`graph.ainvoke`, `astream`, "
                "`aget_state`, `store.aget`); in a notebook, open it with allow_blocking=True"
            )
        if not _warned_of_blocking:
            _warned_of_blocking = True
            warnings.warn(
                f"a method of {name} without `await` blocks the running event loop, for about a millisecond on a local "
                "store. Use `graph.ainvoke`, `astream`, `aget_state` or `store.aget` there; allow_blocking=True turns "
                "this warning off",
                RuntimeWarning,
                stacklevel=4,
            )


def ttl_seconds_of(ttl: Mapping[str, Any]) -> float | None:
    """Return the seconds of LangGraph's `ttl={"default_ttl": minutes}`."""
    if ttl.get("refresh_on_read"):
        raise UsageError(
            "refresh_on_read: a checkpoint is immutable, and reading it does not prolong its life. Leave it out: "
            "a thread that continues gets new checkpoints, each with its whole time to live"
        )
    minutes = ttl.get("default_ttl")
    return None if minutes is None else minutes * SECONDS_IN_A_MINUTE


def _both_ways(bridge: Bridge) -> tuple[Bridge, Bridge]:
    """Return a bridge without an event loop and one for event loops.

    Both lead to the same store; one of them is the given one.
    """
    inner = bridge.inner
    if isinstance(inner, InlineBridge):
        over_network = get_awaited_backend(inner.backend)
        looped = AsyncBridge(over_network) if over_network is not None else ThreadBridge(inner.backend)
        return bridge, bridge.rewrap(looped)
    backend = blocking(inner.backend) if inner.capabilities.awaitable else inner.backend
    return bridge.rewrap(InlineBridge(backend)), bridge


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
