"""LangGraph's own conformance suite, its tests counted one by one: what it calls a pass also holds where it ran nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph_savers import ThroughSync, saver_on

from support import BACKENDS, Store

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


@pytest.mark.parametrize("calls", ["async", "sync"])
@pytest.mark.parametrize("kind", BACKENDS)
def test_all_tests_of_the_conformance_suite_pass(kind: str, calls: str, tmp_path: Path) -> None:
    stores: list[Store] = []

    @checkpointer_test(name="HoldfastSaver")
    async def fresh_saver():
        where = tmp_path / str(len(stores))
        where.mkdir()
        store = Store(kind, where)
        stores.append(store)
        yield saver_on(store) if calls == "async" else ThroughSync(saver_on(store))
        store.close()

    report = asyncio.run(validate(fresh_saver))
    assert not [failure for result in report.results.values() for failure in result.failures or ()]
    assert {name: result.tests_passed for name, result in report.results.items()} == TESTS
