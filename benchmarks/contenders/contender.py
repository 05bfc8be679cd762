"""What a store must be able to do to be measured."""

import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import ClassVar

from benchmarks.conversation import State, Step

SYNCHRONOUS_NAMES = ("OFF", "NORMAL", "FULL", "EXTRA")


class Contender(ABC):
    key: ClassVar[str]
    """The name in results.json."""
    title: ClassVar[str]
    """The name in tables and plots."""
    writes_whole_states: ClassVar[bool]
    """True if the bytes written grow with the square of the number of steps."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def path(self) -> Path:
        return self.directory / "store.db"

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def save(self, session: str, step: Step) -> str:
        """Durable when it returns. Follows the last checkpoint that this contender saved in the session."""

    @abstractmethod
    async def restore(self, session: str, checkpoint_id: str) -> State: ...

    @abstractmethod
    async def timeline(self, session: str, limit: int) -> int:
        """List the newest checkpoints; returns how many there were."""

    @abstractmethod
    async def durability(self) -> str:
        """What the store's own connection answers about its journal and fsync, such as `wal/FULL`."""

    def bytes_on_disk(self) -> int:
        return sum(file.stat().st_size for file in self.directory.iterdir())

    def bytes_while_open(self) -> int:
        """The database as SQLite sees it now, whatever of it is still in the WAL."""
        return self._ask("page_count") * self._ask("page_size")

    def bytes_in_use(self) -> int:
        """The same without the pages that wait for reuse."""
        return (self._ask("page_count") - self._ask("freelist_count")) * self._ask("page_size")

    def _ask(self, pragma: str) -> int:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            return db.execute(f"PRAGMA {pragma}").fetchone()[0]


@contextmanager
def kept_on_disk(contenders: list[Contender]) -> Iterator[None]:
    """Their directories, which are deleted as soon as they are no longer needed: some grow to gigabytes."""
    try:
        for contender in contenders:
            contender.directory.mkdir(parents=True)
        yield
    finally:
        for contender in contenders:
            shutil.rmtree(contender.directory, ignore_errors=True)


@asynccontextmanager
async def opened(contenders: list[Contender]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for contender in contenders:
            await contender.open()
            stack.push_async_callback(contender.close)
        yield


def describe_durability(journal_mode: str, synchronous: int) -> str:
    return f"{journal_mode}/{SYNCHRONOUS_NAMES[synchronous]}"
