"""What most tests of a directory begin with."""

from __future__ import annotations

from pathlib import Path

import pytest
from stores import Store

from holdfast import SyncClient


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that is empty, with nothing of the store's in it."""
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def quick(memory_store: Store) -> SyncClient:
    """A client for tests to which the kind of store does not matter."""
    return memory_store.client()
