"""Many writers, in one event loop or a thread each, on a server that may fail."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from holdfast import Client, StoreError, SyncClient

WRITERS = 32
PATIENCE = 240.0


def until(holds: Callable[[], Any], what: str = "this") -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come to be in {PATIENCE:g} s"
        time.sleep(0.02)


class Writers:
    """Each in its own session. What fails is repeated with its id until it is done."""

    def __init__(self, url: str, *, in_threads: bool = False, **options: Any) -> None:
        self._url = url
        self._in_threads = in_threads
        self._options = {"max_connections": 4, **options}
        self._stop = threading.Event()
        self.acknowledged: dict[str, list[str]] = {f"s{n}": [] for n in range(WRITERS)}
        self.failures: list[StoreError] = []
        self.problems: list[BaseException] = []
        self.lost_count = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def wait_for_more(self) -> None:
        """Until every writer has saved again."""
        before = {session: len(saved) for session, saved in self.acknowledged.items()}
        until(
            lambda: self.problems or all(len(self.acknowledged[session]) > before[session] for session in before),
            f"a save by each writer (the last failure: {self.failures[-1:]})",
        )

    async def _run(self) -> None:
        if self._in_threads:
            await asyncio.to_thread(self._run_threads)
            return
        async with Client.open(self._url, **self._options) as client:
            await asyncio.gather(*(self._write(client, session) for session in self.acknowledged))

    def _run_threads(self) -> None:
        with SyncClient.open(self._url, **self._options) as client, ThreadPoolExecutor(WRITERS) as threads:
            for session in self.acknowledged:
                threads.submit(asyncio.run, self._write(_Stepped(client), session))

    async def _write(self, client: Client | _Stepped, session: str) -> None:
        saved = self.acknowledged[session]
        try:
            while not self._stop.is_set():
                saved.append(await self._save(client, session, len(saved)))
        except BaseException as error:
            self.problems.append(error)

    async def _save(self, client: Client | _Stepped, session: str, step: int) -> str:
        id_ = None
        while True:
            try:
                return await client.save("a", session_id=session, execution_state={"n": step}, checkpoint_id=id_)
            except StoreError as error:
                self.failures.append(error)
                id_ = error.checkpoint_id or id_  # without one, nothing can have been stored
                await asyncio.sleep(0.05)

    def lost(self) -> int:
        """How many acknowledged saves are not there."""
        with SyncClient.open(self._url) as client:
            there = {entry.checkpoint_id for session in self.acknowledged for entry in _line(client, session)}
        return sum(id_ not in there for saved in self.acknowledged.values() for id_ in saved)

    def check(self) -> None:
        """All that was acknowledged is there, in order, each once, and nothing else."""
        assert self.problems == []
        with SyncClient.open(self._url) as client:
            for session, saved in self.acknowledged.items():
                assert [entry.checkpoint_id for entry in _line(client, session)][::-1] == saved
                assert client.latest(session_id=session).execution_state == {"n": len(saved) - 1}
            assert client.verify().ok


class _Stepped:
    """A sync client, called as the other one is."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client

    async def save(self, *args: Any, **kwargs: Any) -> str:
        return self._client.save(*args, **kwargs)


def _line(client: SyncClient, session: str) -> list[Any]:
    return client.timeline(session_id=session, limit=None)
