"""Plugin for LangGraph's own core tests: those that take a saver from a fixture use `HoldfastSaver`."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from holdfast.langgraph import HoldfastSaver

REPLACED = {"sync_checkpointer": {"memory", "sqlite"}, "async_checkpointer": {"memory", "sqlite_aio"}}


@contextmanager
def _in_memory() -> Iterator[HoldfastSaver]:
    with HoldfastSaver.memory(allow_blocking=True) as saver:  # the async tests use it, too
        yield saver


@contextmanager
def _in_a_file() -> Iterator[HoldfastSaver]:
    with tempfile.TemporaryDirectory() as directory, HoldfastSaver.from_conn_string(_path(directory)) as saver:
        yield saver


@asynccontextmanager
async def _awaited() -> AsyncIterator[HoldfastSaver]:
    with tempfile.TemporaryDirectory() as directory:
        async with HoldfastSaver.from_conn_string(_path(directory)) as saver:
            yield saver


def _path(directory: str) -> str:
    return str(Path(directory, "checkpoints.db"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, left = [], []
    for item in items:
        given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        is_replaced = any(given.get(fixture) in savers for fixture, savers in REPLACED.items())
        (kept if is_replaced else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Replace what the fixtures open, which they look up by name when a test begins."""
    fixtures = importlib.import_module("tests.conftest")
    for name, opened in (("memory", _in_memory), ("sqlite", _in_a_file), ("sqlite_aio", _awaited)):
        if not hasattr(fixtures, f"_checkpointer_{name}"):
            raise pytest.UsageError(f"LangGraph's tests/conftest.py has no _checkpointer_{name} any more")
        setattr(fixtures, f"_checkpointer_{name}", opened)
