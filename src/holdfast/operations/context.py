"""The context of an operation: the store, the codec, a clock, ids, and the cache of session tips."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from holdfast.backends.port import ABSENT, Backend, Commit, CommitConflict, RowWrite
from holdfast.codec.codec import Codec
from holdfast.format.rows import head
from holdfast.model.lease import Process
from holdfast.model.state_migration import Migrations
from holdfast.operations.session_cache import TipCache

if TYPE_CHECKING:
    from holdfast.format.rows.contract import StoredContract
    from holdfast.operations.adapter import Adapter
    from holdfast.operations.read_topic import Backlog

LOGS_RESERVED_AT_ONCE = 256
LOGS_TURN = b"\xfflogs"  # no session: these are UTF-8


class LogNumbers:
    """Numbers for new logs, reserved in blocks. Threads may share one.

    A number that was part of a commit is never given out again, even if the commit failed: it may
    have happened all the same.
    """

    def __init__(self) -> None:
        self._free: list[int] = []
        self._process = os.getpid()

    async def take(self, backend: Backend, count: int) -> list[int]:
        """Return `count` numbers for the caller alone; `give_back` those that are not used."""
        if self._process != os.getpid():  # a forked child: these numbers are its parent's
            self._free, self._process = [], os.getpid()
        taken: list[int] = []
        while len(taken) < count:
            try:
                taken.append(self._free.pop())  # atomic, so that no other thread gets the same
            except IndexError:
                await self._fill(backend)
        return taken

    async def reserve(self, backend: Backend) -> None:
        """Reserve numbers, if there are none: for callers that write often, each time in one commit."""
        self.give_back(await self.take(backend, 1))

    def give_back(self, numbers: list[int]) -> None:
        self._free += numbers

    async def _fill(self, backend: Backend) -> None:
        """Reserve a block of numbers, unless another task has done so or another process was first."""
        async with backend.lock(LOGS_TURN):
            if self._free:
                return
            [row] = await backend.rows([head.NEXT_LOG])
            first = int.from_bytes(head.content(head.NEXT_LOG, row), "big") if row else 1
            after = first + LOGS_RESERVED_AT_ONCE
            value = head.protect(head.NEXT_LOG, after.to_bytes(8, "big"))
            try:
                await backend.commit(
                    Commit(tree=b"", rows=[RowWrite(head.NEXT_LOG, value, row.version if row else ABSENT)])
                )
            except CommitConflict:
                return
            # Filled before the lock is released: the task that waits for it finds these.
            self._free += range(after - 1, first - 1, -1)


@dataclass(slots=True)
class StoreContext:
    backend: Backend
    codec: Codec
    new_id: Callable[[bytes | None], bytes]
    now_us: Callable[[], int]
    memory: TipCache
    logs: LogNumbers
    this_process: Callable[[], Process]
    has_ended: Callable[[Process], bool]
    migrations: Migrations
    load_adapters: Callable[[], tuple[Adapter, ...]] = tuple
    # By directory, the checkpoint of the last snapshot that this client took of it.
    last_snapshots: dict[bytes, bytes] = field(default_factory=dict)
    topics: dict[str, Backlog] = field(default_factory=dict)  # that this client has registered
    contracts: dict[tuple[str, int], StoredContract] = field(default_factory=dict)  # versions never change
    compatible: dict[tuple[bytes, str], bool] = field(default_factory=dict)  # by a reader's hash, and a writer's schema

    def read_from(self, backend: Backend) -> StoreContext:
        """Return the same context, reading from the result of `Backend.batch_reads`."""
        return self if backend is self.backend else replace(self, backend=backend)
