"""The `store` argument of adapters: a client, a URL, or None for the default SQLite file."""

from __future__ import annotations

import threading
from typing import Any

from holdfast.errors import UsageError
from holdfast.operations.context import StoreContext


def check_store(store: Any, *, is_async: bool, is_kept_open: bool = False) -> None:
    """Raise `UsageError` if the argument can't be used.

    Frameworks that block need a `SyncClient`, the others a `Client`. A store in memory is refused by
    its URL unless it is kept open: closing it would empty it.
    """
    from holdfast.client.client import Client
    from holdfast.client.sync import SyncClient

    wanted = Client if is_async else SyncClient
    if isinstance(store, str) and store.startswith("memory:") and not is_kept_open:
        raise UsageError(
            f"store is {store!r:.60}: a store in memory that is named by its URL is gone after each turn. Give a "
            f"client: store={wanted.__name__}.memory()"
        )
    if store is not None and not isinstance(store, str | wanted):
        raise UsageError(
            f"store is a {type(store).__name__}: it must be a {wanted.__name__}, a URL such as 'sqlite:///agents.db', "
            "or None"
        )


def is_client(store: Any) -> bool:
    """Return whether the argument is the caller's own client, which the caller closes."""
    return store is not None and not isinstance(store, str)


def open_client(store: str | None, *, is_async: bool) -> Any:
    """Open the store at a URL, or the default one below the working directory."""
    from holdfast.client.client import Client
    from holdfast.client.sync import SyncClient

    kind = Client if is_async else SyncClient
    return kind.sqlite() if store is None else kind.open(store)


def client_over(ctx: StoreContext, *, is_async: bool) -> Any:
    """Return a client on the store of a run that is open."""
    from holdfast.client.client import Client
    from holdfast.client.sync import SyncClient

    return (Client if is_async else SyncClient)._open_over(ctx)


class SeamStore:
    """The store of a class that implements a framework's own interface.

    It is opened at its first use, by any thread or event loop, and stays open until `aclose()`, or
    `close()` with `is_async=False`. A client that was given is the caller's to close.
    """

    def __init__(self, store: Any = None, *, is_async: bool = True) -> None:
        check_store(store, is_async=is_async, is_kept_open=True)
        self._store = store
        self._is_async = is_async
        self._opened: Any = None
        self._lock = threading.Lock()

    @property
    def client(self) -> Any:
        if is_client(self._store):
            return self._store
        with self._lock:
            if self._opened is None:
                self._opened = open_client(self._store, is_async=self._is_async)
            return self._opened

    async def aclose(self) -> None:
        """Close what was opened here; the next use opens it again."""
        opened = self._forget()
        if opened is not None:
            await opened.close()

    def close(self) -> None:
        """`aclose` for frameworks that block."""
        opened = self._forget()
        if opened is not None:
            opened.close()

    def _forget(self) -> Any:
        with self._lock:
            opened, self._opened = self._opened, None
        return opened
