"""What an operation needs: the store, the codec, a clock, ids, and what this process remembers of its sessions."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.backends.port import ABSENT, Backend, Commit, CommitConflict, RowWrite
from holdfast.codec.codec import Codec
from holdfast.model.lease import Process
from holdfast.model.migrations import Migrations
from holdfast.objects import rows
from holdfast.operations.memory import LineMemory

LOGS_RESERVED_AT_ONCE = 256
LOGS_TURN = b"\xfflogs"  # no session: these are UTF-8


class LogNumbers:
    """Numbers for new logs, reserved in blocks. One that went into a commit is never given out again, even if the
    commit failed: it may have happened all the same. Threads may share one."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._process = os.getpid()

    async def take(self, backend: Backend, count: int) -> list[int]:
        """`count` numbers, for the caller alone; `give_back` those that are not used."""
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
        """Reserves numbers, if there are none: for who is about to write often, and each time with one commit."""
        self.give_back(await self.take(backend, 1))

    def give_back(self, numbers: list[int]) -> None:
        self._free += numbers

    async def _fill(self, backend: Backend) -> None:
        """Reserves a block of numbers, unless another task has done so or another process was first."""
        async with backend.turn(LOGS_TURN):
            if self._free:
                return
            [row] = await backend.rows([rows.NEXT_LOG])
            first = int.from_bytes(rows.content(rows.NEXT_LOG, row), "big") if row else 1
            after = first + LOGS_RESERVED_AT_ONCE
            value = rows.protect(rows.NEXT_LOG, after.to_bytes(8, "big"))
            try:
                await backend.commit(
                    Commit(tree=b"", rows=[RowWrite(rows.NEXT_LOG, value, row.version if row else ABSENT)])
                )
            except CommitConflict:
                return
            # Filled before the turn ends: whoever waits for it finds these.
            self._free += range(after - 1, first - 1, -1)


@dataclass(slots=True)
class Services:
    backend: Backend
    codec: Codec
    new_id: Callable[[bytes | None], bytes]
    now_us: Callable[[], int]
    memory: LineMemory
    logs: LogNumbers
    this_process: Callable[[], Process]
    has_ended: Callable[[Process], bool]
    migrations: Migrations

    def over(self, backend: Backend) -> Services:
        """The same, for reading from what `Backend.together` gives."""
        return self if backend is self.backend else replace(self, backend=backend)
