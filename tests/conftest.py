"""Fixtures: a store and a client over each backend that needs no server."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bank import Bank
from browser_fixtures import (  # noqa: F401 - fixtures are found by their names here
    chromium,
    desk,
    own_desk,
    own_site,
    own_story,
    story_site,
    web_story,
)
from examples import EXAMPLES
from hypothesis import settings
from server_fixtures import own_server, postgres, proxied, valkey  # noqa: F401 - as below
from servers.fixtures import (  # noqa: F401 - fixtures are found by their names here
    pgbouncer_dsn,
    postgres_dsn,
    postgres_url,
    redis_cluster,
    redis_url,
)
from servers.prefixes import delete_prefixes
from servers.schemas import drop_schemas
from stores import SEALED, SERVED, Clock, Store

from holdfast import SyncClient

# Agent frameworks are in environments of their own, where `make framework-tests` names that folder.
collect_ignore = ["frameworks"]

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out stories on other stores than memory and SQLite, unless they are marked `every_store`."""
    if SEALED:
        plain_only = set((Path(__file__).parent / "support" / "plain_stores_only.txt").read_text().splitlines())
        items[:] = [one for one in items if one.nodeid.partition("[")[0] not in plain_only]
    if EVERY_STORE:
        return
    left_out = [one for one in items if runs_on_other_store(one) and one.get_closest_marker("every_store") is None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        chosen = set(left_out)
        items[:] = [one for one in items if one not in chosen]


def runs_on_other_store(item: pytest.Item) -> bool:
    """Whether a fixture has chosen another store than memory and SQLite. A test that names its stores keeps them."""
    given = getattr(item, "callspec", None)
    if given is None:
        return False
    named = {name.strip() for mark in item.iter_markers("parametrize") for name in _argument_names(mark)}
    kinds = [given.params[name] for name in STORE_FIXTURES if name in given.params and name not in named]
    return any(kind not in ("memory", "sqlite") for kind in kinds)


def _argument_names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return names.split(",") if isinstance(names, str) else list(names)


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


# Backends meet in the port, and the contract suite tests the port on each of them. So `make test`
# runs most stories on memory and
# SQLite; modules marked `every_store`, and everything in `make soak`, run on each kind of store.
EVERY_STORE = "HOLDFAST_EVERY_STORE" in os.environ
STORE_FIXTURES = ("store", "disk_store", "shared_store")
# The quick suite tells a story once, on SQLite.
MEMORY = pytest.param("memory", marks=pytest.mark.slow)
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


@pytest.fixture(params=(MEMORY, FILES, "sqlite", *WITH_SERVERS))
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
    """For children that are sent signals: where this run was started in the background, or by
    `nohup`, they would inherit that these are ignored."""
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.fixture
def one(store: Store, clock: Clock) -> SyncClient:
    client = store.client()
    clock.rules(client)
    return client


@pytest.fixture
def other(store: Store, clock: Clock) -> SyncClient:
    """A second client on the same store, with a memory of its own."""
    client = store.client()
    clock.rules(client)
    return client


@pytest.fixture
def bank() -> Bank:
    return Bank()
