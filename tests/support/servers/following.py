"""A process that saves on command, and a thread that follows its events: for tests of hints."""

from __future__ import annotations

import asyncio
import threading

from stores import python_process

from holdfast import Client, SyncClient

NEVER = 3600.0

WRITER = """
import sys
from holdfast import SyncClient
with SyncClient.open(sys.argv[1]) as client:
    for n in range(100_000):
        client.save("writer", session_id="s", execution_state={"n": n})
        print(n, flush=True)
        if not sys.stdin.readline():
            break
"""


class Writer:
    """A process of its own, that saves when it is told to."""

    def __init__(self, url: str) -> None:
        self._process = python_process(WRITER, url)
        self.saved = 0
        self._heard()

    def save(self) -> None:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._heard()

    def _heard(self) -> None:
        assert self._process.stdout.readline(), self._process.communicate()[1]
        self.saved += 1

    def end(self) -> None:
        self._process.communicate(timeout=240)


def follow(url: str, count: int, told: list[int], *, with_await: bool) -> threading.Thread:
    """Notes the numbers of so many events, from the beginning, in a thread."""

    async def listen() -> None:
        async with Client.open(url) as client:
            async for event in client.events(after="start", poll_seconds=NEVER):
                told.append(event.checkpoint.sequence)
                if len(told) == count:
                    return

    def hear_blocking() -> None:
        with SyncClient.open(url) as client:
            for event in client.events(after="start", poll_seconds=NEVER):
                told.append(event.checkpoint.sequence)
                if len(told) == count:
                    return

    thread = threading.Thread(target=(lambda: asyncio.run(listen())) if with_await else hear_blocking)
    thread.start()
    return thread
