"""The contract, run over sealed stores of every backend that needs no server."""

from pathlib import Path
from typing import Any

import pytest
from sealed_backend import SealedBackend
from stores import copy_empty_sqlite

from holdfast.backends.files import FilesBackend
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.testing import BackendContract


class TestSealedMemory(BackendContract):
    def open_backend(self, where: Path) -> Any:
        return SealedBackend(MemoryBackend())


class TestSealedSqlite(BackendContract):
    def open_backend(self, where: Path) -> Any:
        copy_empty_sqlite(where / "store.db")
        return SealedBackend(SqliteBackend(where / "store.db", durability="fast"))


@pytest.mark.slow
class TestSealedFiles(BackendContract):
    def open_backend(self, where: Path) -> Any:
        return SealedBackend(FilesBackend(where / "store", durability="fast"))
