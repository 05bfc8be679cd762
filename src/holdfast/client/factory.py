"""The base of both clients: their constructors, by kind of store."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from holdfast.coordination.id_generator import IdSource
from holdfast.errors import KeyMissingError
from holdfast.operations import validate

if TYPE_CHECKING:
    from holdfast.backends.bridge.base import Bridge
    from holdfast.backends.port import AnyBackend
    from holdfast.codec.limits import Limits
    from holdfast.codec.redaction_rules import Redact
    from holdfast.codec.registry import TypeRegistry
    from holdfast.codec.unknown_types import OnUnknownType
    from holdfast.format.rows.operation_log import Origin
    from holdfast.model.lease import Process
    from holdfast.model.state_migration import Migrations
    from holdfast.operations.adapter import Adapter
    from holdfast.operations.context import StoreContext
    from holdfast.operations.session_cache import TipCache
    from holdfast.sealing.key_ring import KeyRing
    from holdfast.workspace.api import Workspace
    from holdfast.workspace.core import WorkspaceCore
    from holdfast.workspace.sync import SyncWorkspace

DEFAULT_PATH = ".holdfast/store.db"
DEFAULT_DIRECTORY = ".holdfast/store"
DEFAULT_CACHE_BYTES = 32 * 1024 * 1024

_ids = IdSource()


def _this_process() -> Process:
    from holdfast.coordination import process as processes

    return processes.this_process()


def _has_ended(process: Process) -> bool:
    from holdfast.coordination import process as processes

    return processes.has_ended(process)


def _load_adapters() -> tuple[Adapter, ...]:
    from holdfast.client.adapters import load_adapters

    return load_adapters()


def _refuse_linked_default(path: str | os.PathLike[str], default: str) -> None:
    """Refuses a default store behind a link: the current directory may be a stranger's."""
    if path == default:
        from holdfast.backends.local_path import refuse_links

        refuse_links("", *default.split("/"))


def make_tip_cache(max_bytes: int) -> TipCache:
    """Return a client's cache of its sessions. A forked child begins without it."""
    from holdfast.backends import fork_safety
    from holdfast.operations.session_cache import TipCache

    memory = TipCache(max_bytes, threading.Lock())
    fork_safety.begin_again_in_child(memory, lambda of_child: of_child.begin(threading.Lock()))
    return memory


def open_bridge(bridge: Bridge, keys: KeyRing | None, *, require_keys: bool) -> Bridge:
    """Return the bridge that seals what is stored; without keys, one that refuses a sealed store."""
    if keys is not None:
        from holdfast.sealing.bridge import SealedBridge
        from holdfast.sealing.open_store import OpenStore

        return SealedBridge(bridge, OpenStore(keys))
    if require_keys:
        raise KeyMissingError("keys are required here, and none were given: pass keys=KeyRing.from_file(…)")
    from holdfast.sealing.plain_guard import PlainGuard

    return PlainGuard(bridge)


class ClientBase:
    """The constructors of a client; the same for both kinds."""

    _is_plain = False  # whether what callers give is called on the spot, without an event loop

    def __init__(
        self,
        backend: AnyBackend,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
        on_unknown_type: OnUnknownType = "raise",
        redact: Redact = (),
        keys: KeyRing | None = None,
        require_keys: bool = False,
    ) -> None:
        """Opens a client on a backend.

        `cache_bytes` limits the cache that makes saves cheaper; `types` is a registry of its own
        instead of the process-wide one, and so is `migrations`; `limits` bound the size of a
        state. With `on_unknown_type="plain"` an object whose type is not registered here, or no
        longer fits what was stored, is restored as plain data that carries its type's name
        (`UnknownValue`), with a warning, instead of raising UnknownTypeError.

        `redact` has rules of `holdfast.redaction`: what they meet is left out of everything that is
        saved, and a `RedactedValue` reference stands there. pydantic's secrets are left out without any
        rule; with `redact=False` they are refused.

        `keys` encrypts everything that is stored: see "Encrypt a store" in the documentation. An
        empty store becomes a sealed one; a plain store is refused. With `require_keys=True` a client
        without keys is refused, whatever the store is.
        """
        # A new client will save or restore: their modules are imported now, neither with the
        # package nor by the first save.
        from holdfast.codec.codec import Codec
        from holdfast.codec.limits import Limits
        from holdfast.codec.secret_types import redaction_of
        from holdfast.model.state_migration import default_migrations
        from holdfast.operations import restore, save  # noqa: F401 - the client's `restore` imports its own
        from holdfast.operations.context import LogNumbers, StoreContext
        from holdfast.sealing.plain_guard import PlainGuard

        self._saving = save
        bridge = open_bridge(self._bridge(backend), keys, require_keys=require_keys)
        self._ctx = StoreContext(
            backend=bridge,
            codec=Codec(types, limits or Limits(), on_unknown_type, redaction=redaction_of(redact)),
            new_id=_ids.new,
            now_us=backend.capabilities.now_us or (lambda: time.time_ns() // 1000),
            memory=make_tip_cache(cache_bytes),
            logs=LogNumbers(),
            this_process=_this_process,
            has_ended=_has_ended,
            migrations=default_migrations if migrations is None else migrations,
            load_adapters=_load_adapters,
        )
        if isinstance(bridge, PlainGuard):
            bridge.passage.then.append(partial(setattr, self._ctx, "backend", bridge.inner))
        bridge.ask_to_collect(self._tidy)
        self._workspaces: dict[str, WorkspaceCore] = {}  # those that were named by their directories

    @classmethod
    def _open_over(cls, ctx: StoreContext) -> Self:
        """Return a client on the store of a context, which another client closes."""
        from holdfast.operations import save

        made = cls.__new__(cls)
        made._saving, made._ctx, made._workspaces = save, ctx, {}
        return made

    def _bridge(self, backend: AnyBackend) -> Bridge:
        raise NotImplementedError  # Client and SyncClient each have their own

    def _tidy(self) -> None:
        """Run gc in the background when the store says that it is due: see background_gc.py."""
        raise NotImplementedError  # Client and SyncClient each have their own

    def _origin(self, by: str | None = None) -> Origin:
        """Return the origin of an operation for the operation log: a named user, or this process."""
        from holdfast.coordination import process as processes
        from holdfast.format.rows.operation_log import Origin

        return Origin(processes.default_holder() if by is None else validate.name("by", by))

    def _open_workspace(self, workspace: str | os.PathLike[str] | Workspace | SyncWorkspace) -> WorkspaceCore:
        from holdfast.workspace.api import get_workspace

        return get_workspace(self._ctx, self._workspaces, workspace)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
        on_unknown_type: OnUnknownType = "raise",
        redact: Redact = (),
        keys: KeyRing | None = None,
        require_keys: bool = False,
        **options: Any,
    ) -> Self:
        """Opens the store at `url`. Further options are the backend's.

        `sqlite:///relative.db`, `sqlite:////absolute.db`, `file:///directory`, `memory://`,
        `postgresql://user@host/database`, `redis://host:6379/0`, or a scheme of an installed
        package.
        """
        from holdfast.backends.url import open_backend

        return cls(
            open_backend(url, **options),
            cache_bytes=cache_bytes,
            types=types,
            limits=limits,
            migrations=migrations,
            on_unknown_type=on_unknown_type,
            redact=redact,
            keys=keys,
            require_keys=require_keys,
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
        on_unknown_type: OnUnknownType = "raise",
        redact: Redact = (),
        keys: KeyRing | None = None,
        require_keys: bool = False,
    ) -> Self:
        """Opens one SQLite file, made if it is not there.

        With `durability="fast"` a power cut may lose the last saves (never tear one); `kill -9`
        loses nothing in either mode. `timeout` is how long to wait for other writers: then
        `StoreBusyError` is raised.
        """
        from holdfast.backends.sqlite.backend import SqliteBackend

        _refuse_linked_default(path, DEFAULT_PATH)
        backend = SqliteBackend(path, durability=durability, timeout=timeout)
        return cls(
            backend,
            cache_bytes=cache_bytes,
            types=types,
            limits=limits,
            migrations=migrations,
            on_unknown_type=on_unknown_type,
            redact=redact,
            keys=keys,
            require_keys=require_keys,
        )

    @classmethod
    def files(
        cls,
        directory: str | os.PathLike[str] = DEFAULT_DIRECTORY,
        *,
        durability: str = "full",
        timeout: float = 30.0,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
        on_unknown_type: OnUnknownType = "raise",
        redact: Redact = (),
        keys: KeyRing | None = None,
        require_keys: bool = False,
    ) -> Self:
        """Opens a directory of files that can be read and copied.

        `timeout` is how long to wait for other writers: then `StoreBusyError` is raised.
        """
        from holdfast.backends.files import FilesBackend

        _refuse_linked_default(directory, DEFAULT_DIRECTORY)
        backend = FilesBackend(directory, durability=durability, timeout=timeout)
        return cls(
            backend,
            cache_bytes=cache_bytes,
            types=types,
            limits=limits,
            migrations=migrations,
            on_unknown_type=on_unknown_type,
            redact=redact,
            keys=keys,
            require_keys=require_keys,
        )

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
        on_unknown_type: OnUnknownType = "raise",
        redact: Redact = (),
        keys: KeyRing | None = None,
        require_keys: bool = False,
    ) -> Self:
        """Opens one schema of a PostgreSQL database, made at the first call if it is not there.

        `dsn` is a URL or a list of libpq's parameters. Each event loop opens at most
        `max_connections`, as all threads without one do together. A call waits for one of them,
        and a save for other writers of its session, for at most `timeout` seconds. With
        `durability="fast"` a crash of the server may lose the last saves (never tear one). Needs
        `pip install 'holdfast[postgres]'`.
        """
        from holdfast.backends.postgres import open_postgres

        backend = open_postgres(
            dsn, schema=schema, durability=durability, max_connections=max_connections, timeout=timeout
        )
        return cls(
            backend,
            cache_bytes=cache_bytes,
            types=types,
            limits=limits,
            migrations=migrations,
            on_unknown_type=on_unknown_type,
            redact=redact,
            keys=keys,
            require_keys=require_keys,
        )

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
        on_unknown_type: OnUnknownType = "raise",
        redact: Redact = (),
        keys: KeyRing | None = None,
        require_keys: bool = False,
    ) -> Self:
        """Opens a store on a Redis or Valkey server or cluster, where its keys begin with `{prefix`.

        A cluster is `redis+cluster://node1:7000,node2:7000`. How much a crash of the server may
        lose is decided by the server's settings: docs/redis.md. With `durability="replicated"` a
        save waits until so many replicas have it, and raises if they have not within `wait_ms`.
        Each event loop opens at most `max_connections` to a server, and calls wait for one of
        them. `shards` is how many parts a new store has, 1 or, on a cluster, 16. Once a quarter of
        the store has outlived its TTL, one of its clients collects it in the background, unless
        `auto_gc` is off. Needs `pip install 'holdfast[redis]'`.
        """
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
        return cls(
            backend,
            cache_bytes=cache_bytes,
            types=types,
            limits=limits,
            migrations=migrations,
            on_unknown_type=on_unknown_type,
            redact=redact,
            keys=keys,
            require_keys=require_keys,
        )

    @classmethod
    def memory(
        cls,
        *,
        timeout: float = 30.0,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
        on_unknown_type: OnUnknownType = "raise",
        redact: Redact = (),
        keys: KeyRing | None = None,
        require_keys: bool = False,
    ) -> Self:
        """Opens a store that is gone with the process.

        `timeout` is how long a save waits for other writers of its session.
        """
        from holdfast.backends.memory import MemoryBackend

        return cls(
            MemoryBackend(timeout=timeout),
            cache_bytes=cache_bytes,
            types=types,
            limits=limits,
            migrations=migrations,
            on_unknown_type=on_unknown_type,
            redact=redact,
            keys=keys,
            require_keys=require_keys,
        )

    @classmethod
    def from_env(cls, variable: str = "HOLDFAST_URL") -> Self:
        """Opens the store that the environment names; the default SQLite file where it names none.

        `HOLDFAST_KEYS` or `HOLDFAST_KEYS_FILE` has the keys of a sealed store. With
        `HOLDFAST_REQUIRE_KEYS=1` one of them must be set.
        """
        from holdfast.sealing.key_ring import keys_from_environment

        keys, is_required = keys_from_environment()
        url = os.environ.get(variable)
        if url:
            return cls.open(url, keys=keys, require_keys=is_required)
        return cls.sqlite(keys=keys, require_keys=is_required)

    def __repr__(self) -> str:
        capabilities = self._ctx.backend.capabilities
        return (
            f"<{type(self).__name__} {capabilities.name} {capabilities.location} durability={capabilities.durability}>"
        )
