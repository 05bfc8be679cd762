"""Fixtures: a store and a client over each backend that needs no server."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from examples import EXAMPLES
from holdfast import SyncClient
from servers.fixtures import (  # noqa: F401 - fixtures are found by their names here
    pgbouncer_dsn,
    postgres_dsn,
    postgres_url,
    redis_cluster,
    redis_url,
)
from servers.prefixes import delete_prefixes
from servers.schemas import drop_schemas
from support import SERVED, Clock, Store

# A test that takes long on a busy machine is no failure. The quick suite draws fewer examples than `make test`.
settings.register_profile("holdfast", deadline=None, max_examples=EXAMPLES)
settings.load_profile("holdfast")


def pytest_configure() -> None:
    """Commands find a store in any directory above, and somebody may have one in `/tmp`: then tests go elsewhere."""
    elsewhere = Path("/var/tmp")
    if has_store_above(Path(tempfile.gettempdir()).resolve()) and elsewhere.is_dir():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(elsewhere))


def has_store_above(place: Path) -> bool:
    return any((above / name).exists() for above in (place, *place.parents) for name in (".holdfast", "holdfast.toml"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected here stays until the end: no collection of garbage need go through it, now or in a test."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    return found


SERVERS = {  # the fixture that says where a kind's server is, and what clears it
    "postgres": ("postgres_dsn", drop_schemas),
    "redis": ("redis_url", delete_prefixes),
}


# `make check` tells the stories on memory and SQLite; files take the contract there, and everything in `make test`.
FILES = pytest.param("files", marks=pytest.mark.slow)
WITH_SERVERS = [pytest.param(kind, marks=(pytest.mark.servers, pytest.mark.slow)) for kind in SERVED]


def opened_store(request: pytest.FixtureRequest, where: Path) -> Iterator[Store]:
    fixture, clean = SERVERS.get(request.param.partition(":")[0], ("", None))
    server = request.getfixturevalue(fixture) if fixture else ""
    opened = Store(request.param, where, server)
    yield opened
    opened.close()
    if clean is not None:
        clean(server)


@pytest.fixture(params=("memory", FILES, "sqlite", *WITH_SERVERS))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind. `store.client()` opens a client on it, as often as it is called."""
    yield from opened_store(request, tmp_path)


@pytest.fixture(params=(FILES, "sqlite"))
def disk_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind that processes can share, and that is on disk."""
    yield from opened_store(request, tmp_path)


@pytest.fixture(params=(FILES, "sqlite", *WITH_SERVERS))
def shared_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind that processes can share."""
    yield from opened_store(request, tmp_path)


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    opened = Store("sqlite", tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def memory_store(tmp_path: Path) -> Store:
    """The quickest: for what does not depend on the backend."""
    return Store("memory", tmp_path)


@pytest.fixture
def client(store: Store) -> SyncClient:
    return store.client()


@pytest.fixture
def quick(memory_store: Store) -> SyncClient:
    """A client on a memory store: for what does not depend on the backend."""
    return memory_store.client()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """For children that are sent signals: where this run was started in the background, or by `nohup`, they would inherit that
    these are ignored."""
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)
