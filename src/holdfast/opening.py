"""Opening a client: on which store, with which types, limits and migrations."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from holdfast.idsource import IdSource
from holdfast.operations import arguments

if TYPE_CHECKING:
    from holdfast.backends.bridge import Bridge
    from holdfast.backends.port import AnyBackend
    from holdfast.codec.limits import Limits
    from holdfast.codec.types import TypeRegistry
    from holdfast.model.lease import Process
    from holdfast.model.migrations import Migrations
    from holdfast.objects.oplog import Origin
    from holdfast.workspace.workspace import Opened

DEFAULT_PATH = ".holdfast/store.db"
DEFAULT_DIRECTORY = ".holdfast/store"
DEFAULT_CACHE_BYTES = 32 * 1024 * 1024

_ids = IdSource()


def _this_process() -> Process:
    from holdfast import processes

    return processes.this_process()


def _has_ended(process: Process) -> bool:
    from holdfast import processes

    return processes.has_ended(process)


class Opening:
    """The ways to open a client; the same for both kinds."""

    def __init__(
        self,
        backend: AnyBackend,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
    ) -> None:
        """A client on a backend. `cache_bytes` caps what is remembered to make saves cheaper; `types` is a registry of
        its own instead of the process-wide one, and so is `migrations`; `limits` bound what a state may be."""
        # Who opens a client will save or restore: what these need is imported now, neither with the package nor by the
        # first save.
        from holdfast.codec.codec import Codec
        from holdfast.codec.limits import Limits
        from holdfast.model.migrations import default_migrations
        from holdfast.operations import restore, save  # noqa: F401 - the client's `restore` imports its own anew
        from holdfast.operations.memory import LineMemory
        from holdfast.operations.services import LogNumbers, Services

        self._saving = save
        bridge = self._bridge(backend)
        self._services = Services(
            backend=bridge,
            codec=Codec(types, limits or Limits()),
            new_id=_ids.new,
            now_us=backend.capabilities.now_us or (lambda: time.time_ns() // 1000),
            memory=LineMemory(cache_bytes, threading.Lock()),
            logs=LogNumbers(),
            this_process=_this_process,
            has_ended=_has_ended,
            migrations=default_migrations if migrations is None else migrations,
        )
        bridge.ask_to_collect(self._tidy)
        self._workspaces: dict[str, Opened] = {}  # those that were named by their directories

    def _bridge(self, backend: AnyBackend) -> Bridge:
        raise NotImplementedError

    def _tidy(self) -> None:
        """The store says that it may be time to collect: see tidying.py."""
        raise NotImplementedError

    def _origin(self, by: str | None = None) -> Origin:
        """Who asks for an operation, for the log of these: somebody who is named, or this process."""
        from holdfast import processes
        from holdfast.objects.oplog import Origin

        return Origin(processes.default_holder() if by is None else arguments.name("by", by))

    @classmethod
    def open(
        cls,
        url: str,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
        **options: Any,
    ) -> Self:
        """A client on the store at `url`: `sqlite:///relative.db`, `sqlite:////absolute.db`, `file:///directory`,
        `memory://`, `postgresql://user@host/database`, `redis://host:6379/0`, or what an installed package offers. Further
        options are the backend's."""
        from holdfast.backends.url import open_backend

        return cls(
            open_backend(url, **options), cache_bytes=cache_bytes, types=types, limits=limits, migrations=migrations
        )

    @classmethod
    def sqlite(
        cls,
        path: str | os.PathLike[str] = DEFAULT_PATH,
        *,
        durability: str = "full",
        timeout: float = 30.0,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
    ) -> Self:
        """A client on one SQLite file, made if it is not there. With `durability="fast"` a power cut may lose the last
        saves (never tear one); `kill -9` loses nothing in either mode. `timeout` is how long to wait for other
        writers."""
        from holdfast.backends.sqlite import SqliteBackend

        backend = SqliteBackend(path, durability=durability, timeout=timeout)
        return cls(backend, cache_bytes=cache_bytes, types=types, limits=limits, migrations=migrations)

    @classmethod
    def files(
        cls,
        directory: str | os.PathLike[str] = DEFAULT_DIRECTORY,
        *,
        durability: str = "full",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
    ) -> Self:
        """A client on a directory of files that can be looked into and copied."""
        from holdfast.backends.files import FilesBackend

        backend = FilesBackend(directory, durability=durability)
        return cls(backend, cache_bytes=cache_bytes, types=types, limits=limits, migrations=migrations)

    @classmethod
    def postgres(
        cls,
        dsn: str,
        *,
        schema: str = "holdfast",
        durability: str = "full",
        max_connections: int = 8,
        timeout: float = 30.0,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
    ) -> Self:
        """A client on one schema of a PostgreSQL database, made at the first call if it is not there. `dsn` is a URL or
        a list of libpq's parameters; each event loop opens at most `max_connections`, as all threads without one do, and a call waits for one
        of them for at most `timeout` seconds. With `durability="fast"` a crash of the server may lose the last saves (never tear
        one). Needs `pip install 'holdfast[postgres]'`."""
        from holdfast.backends.postgres import open_postgres

        backend = open_postgres(
            dsn, schema=schema, durability=durability, max_connections=max_connections, timeout=timeout
        )
        return cls(backend, cache_bytes=cache_bytes, types=types, limits=limits, migrations=migrations)

    @classmethod
    def redis(
        cls,
        url: str,
        *,
        prefix: str = "holdfast",
        durability: str = "default",
        replicas: int = 1,
        wait_ms: int = 1000,
        max_connections: int = 16,
        timeout: float = 30.0,
        shards: int | None = None,
        auto_gc: bool = True,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
    ) -> Self:
        """A client on a Redis or Valkey server, or a cluster of them (`redis+cluster://node1:7000,node2:7000`), where its
        keys begin with `{prefix`. How much a crash of the server may lose is decided by the server's settings:
        docs/redis.md. With `durability="replicated"` a save waits until so many replicas have it, and says so if they
        have not within `wait_ms`. Each event loop opens at most `max_connections` to a server, and calls wait for one
        of them. `shards` is how many parts a new store has, 1 or, on a cluster, 16. Once a
        quarter of the store has outlived its TTL, one of its clients collects it in the background, unless `auto_gc` is
        off. Needs `pip install 'holdfast[redis]'`."""
        from holdfast.backends.redis import open_redis

        backend = open_redis(
            url,
            prefix=prefix,
            durability=durability,
            replicas=replicas,
            wait_ms=wait_ms,
            max_connections=max_connections,
            timeout=timeout,
            shards=shards,
            auto_gc=auto_gc,
        )
        return cls(backend, cache_bytes=cache_bytes, types=types, limits=limits, migrations=migrations)

    @classmethod
    def memory(
        cls,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
    ) -> Self:
        """A client on a store that is gone with the process."""
        from holdfast.backends.memory import MemoryBackend

        return cls(MemoryBackend(), cache_bytes=cache_bytes, types=types, limits=limits, migrations=migrations)

    @classmethod
    def from_env(cls, variable: str = "HOLDFAST_URL") -> Self:
        """A client on the store that the environment names; the default SQLite file where it names none."""
        url = os.environ.get(variable)
        return cls.open(url) if url else cls.sqlite()

    def __repr__(self) -> str:
        capabilities = self._services.backend.capabilities
        return (
            f"<{type(self).__name__} {capabilities.name} {capabilities.location} durability={capabilities.durability}>"
        )
