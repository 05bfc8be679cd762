"""LangGraph's own conformance suite, its tests counted one by one: what it calls a pass also holds
where it ran nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph_savers import ThroughSync, saver_on
from servers.schemas import drop_schemas
from stores import RING, Store

from holdfast.langgraph import HoldfastSaver

TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


class Savers:
    """Savers on stores of one kind, each on a fresh one."""

    def __init__(self, kind: str, where: Path, server: str) -> None:
        self.kind, self.where, self.server = kind, where, server

    def fresh(self) -> HoldfastSaver:
        kind, _, sealed = self.kind.partition("+")
        if kind == "redis":
            keys = RING if sealed else None
            return HoldfastSaver.from_redis(self.server, prefix=f"langgraph-{uuid.uuid4().hex}", keys=keys)
        where = self.where / uuid.uuid4().hex
        where.mkdir()
        return saver_on(Store(self.kind, where, self.server))


FILES, SEALED_FILES = (pytest.param(kind, marks=pytest.mark.slow) for kind in ("files", "files+sealed"))
SERVED = ("postgres", "postgres+sealed", "redis", "redis+sealed")


@pytest.fixture(
    params=(
        "memory",
        FILES,
        "sqlite",
        "memory+sealed",
        "sqlite+sealed",
        SEALED_FILES,
        *(pytest.param(kind, marks=pytest.mark.servers) for kind in SERVED),
    )
)
def savers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Savers]:
    fixtures = {"postgres": "postgres_dsn", "redis": "redis_url"}
    kind = request.param.partition("+")[0]
    server = request.getfixturevalue(fixtures[kind]) if kind in fixtures else ""
    yield Savers(request.param, tmp_path, server)
    if kind == "postgres":
        drop_schemas(server)


@pytest.mark.parametrize("calls", ["async", "sync"])
def test_all_tests_of_the_conformance_suite_pass(savers: Savers, calls: str) -> None:
    @checkpointer_test(name="HoldfastSaver")
    async def fresh_saver():
        saver = savers.fresh()
        yield saver if calls == "async" else ThroughSync(saver)
        saver._owns_client = True
        await saver.aclose()

    report = asyncio.run(validate(fresh_saver))
    assert not [failure for result in report.results.values() for failure in result.failures or ()]
    assert {name: result.tests_passed for name, result in report.results.items()} == TESTS
