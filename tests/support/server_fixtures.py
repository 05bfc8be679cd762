"""Servers that a test may kill, and proxies that drop traffic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from servers.postgres import Postgres
from servers.proxy import Proxy
from servers.running import ServerUnavailable
from servers.valkey import Valkey
from stores import Store

from holdfast import SyncClient


@contextmanager
def of_its_own(kind: str) -> Iterator[Postgres | Valkey]:
    """A server for one test. A Valkey syncs every commit: nothing may be lost when it is killed."""
    try:
        if kind == "postgres":
            server: Postgres | Valkey = Postgres()
        else:
            server = Valkey("--appendfsync", "always", "--repl-diskless-sync-delay", "0")
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with of_its_own("postgres") as server:
        assert isinstance(server, Postgres)
        yield server


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    with of_its_own("redis") as server:
        assert isinstance(server, Valkey)
        yield server


@pytest.fixture(params=["postgres", "redis", "redis:4"])
def own_server(request: pytest.FixtureRequest) -> Iterator[tuple[Postgres | Valkey, str]]:
    """A server of each kind, and the URL of a store on it."""
    kind, _, shards = request.param.partition(":")
    with of_its_own(kind) as server:
        yield server, server.url + (f"?shards={shards}" if shards else "")


@pytest.fixture(params=["postgres", "postgres in a loop", "redis", "redis in a loop"])
def proxied(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Proxy, str, str]]:
    """A proxy, a store's URL through it, and past it; asked by the thread itself,
    and by a loop. No hints are sent: one that is under way when the proxy is told to lose the next
    thing would be lost in its place. The server knows every script of a save: the answer that is
    lost is that to the commit, not that the script has to be sent."""
    from holdfast.backends.postgres.backend import PostgresBackend
    from holdfast.backends.postgres.notify import NotifyListener, ThreadNotifications
    from holdfast.backends.redis.backend import RedisBackend

    monkeypatch.setattr(NotifyListener, "announce", lambda _: None)
    monkeypatch.setattr(ThreadNotifications, "announce", lambda _: None)
    if request.param.endswith(" in a loop"):
        monkeypatch.delattr(PostgresBackend, "without_loop")
        monkeypatch.delattr(RedisBackend, "without_loop")
    kind = request.param.partition(" ")[0]
    server = request.getfixturevalue("postgres_dsn" if kind == "postgres" else "redis_url")
    past = Store(kind, tmp_path, server).url
    port = urlsplit(past).port
    assert port is not None
    with SyncClient.open(past) as client:
        for n in range(3):
            client.save("a", session_id="before", execution_state={"n": n})
    proxy = Proxy(port)
    yield proxy, past.replace(f":{port}/", f":{proxy.port}/"), past
    proxy.stop()
