"""The contract, run over every backend that needs no server."""

from pathlib import Path

import pytest
from stores import as_awaitable, copy_empty_sqlite

from holdfast.backends.files import FilesBackend
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.port import AsyncBackend, BlockingBackend
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.testing import BackendContract


class TestMemory(BackendContract):
    def open_backend(self, where: Path) -> BlockingBackend:
        return MemoryBackend()


class TestAwaitable(BackendContract):
    """A backend whose verbs are coroutines takes the same tests."""

    def open_backend(self, where: Path) -> AsyncBackend:
        return as_awaitable(MemoryBackend())


@pytest.mark.slow  # each commit waits for the disk; what that is worth is tested with the backend
class TestFiles(BackendContract):
    def open_backend(self, where: Path) -> BlockingBackend:
        return FilesBackend(where / "store")


class TestFilesFast(BackendContract):
    def open_backend(self, where: Path) -> BlockingBackend:
        return FilesBackend(where / "store", durability="fast")


class TestSqlite(BackendContract):
    def open_backend(self, where: Path) -> BlockingBackend:
        copy_empty_sqlite(where / "store.db")
        return SqliteBackend(where / "store.db")


@pytest.mark.slow
class TestSqliteFast(BackendContract):
    def open_backend(self, where: Path) -> BlockingBackend:
        copy_empty_sqlite(where / "store.db")
        return SqliteBackend(where / "store.db", durability="fast")


def test_no_part_of_the_contract_hides_a_test_of_another():
    seen: dict[str, type] = {}
    for part in BackendContract.__mro__:
        for name in vars(part):
            if name.startswith("test_"):
                assert name not in seen, f"{name} is in {part.__name__} and in {seen[name].__name__}"
                seen[name] = part
