"""What an operation needs: the store, the codec, a clock, ids, and what this process remembers of its sessions."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.backends.port import ABSENT, Backend, Commit, CommitConflict, RowWrite
from holdfast.codec.codec import Codec
from holdfast.objects import rows
from holdfast.operations.memory import LineMemory

LOGS_RESERVED_AT_ONCE = 256


class LogNumbers:
    """Numbers for new logs, reserved in blocks. One that was taken is never given out again, even if its commit
    failed: the commit may have happened all the same."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._process = os.getpid()

    async def ensure(self, backend: Backend, count: int) -> None:
        """Reserves more until at least `count` can be taken."""
        if self._process != os.getpid():  # a forked child: these numbers are its parent's
            self._free, self._process = [], os.getpid()
        while len(self._free) < count:
            [row] = await backend.rows([rows.NEXT_LOG])
            first = int.from_bytes(rows.content(rows.NEXT_LOG, row), "big") if row else 1
            after = rows.protect(rows.NEXT_LOG, (first + LOGS_RESERVED_AT_ONCE).to_bytes(8, "big"))
            write = RowWrite(rows.NEXT_LOG, after, row.version if row else ABSENT)
            try:
                await backend.commit(Commit(tree=b"", rows=[write]))
            except CommitConflict:
                continue  # another process was first: these are its numbers
            self._free = [*range(first + LOGS_RESERVED_AT_ONCE - 1, first - 1, -1), *self._free]

    def take(self) -> int:
        return self._free.pop()


@dataclass(slots=True)
class Services:
    backend: Backend
    codec: Codec
    new_id: Callable[[bytes | None], bytes]
    now_us: Callable[[], int]
    memory: LineMemory
    logs: LogNumbers
