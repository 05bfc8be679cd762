"""Helpers of the behaviour tests: reopened stores, a recording backend, a fake clock, child processes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from servers.prefixes import prefix_name
from servers.schemas import schema_name

from holdfast import Client, SyncClient
from holdfast.backends.bridge.blocking import blocking
from holdfast.backends.files import FilesBackend
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.port import BlockingBackend, Capabilities, Commit
from holdfast.backends.postgres import open_postgres
from holdfast.backends.redis import open_redis
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.sealing.key_ring import KeyRing, RawKey

BACKENDS = ("memory", "files", "sqlite")
SERVED = ("postgres", "redis", "redis:4")  # those that need a server; redis:4 has four shards
SEALED = "HOLDFAST_SEALED" in os.environ  # every story is told on sealed stores: `make soak`
RING = KeyRing([RawKey("test", hashlib.sha256(b"a key for tests").digest())])
SOME_ID = "01939c5e-7c1b-7000-8a2f-0c4c1d9be2f1"
OTHER_ID = "01939c5e-7c1b-7000-8a2f-0c4c1d9be2f2"


@cache
def _empty_sqlite() -> bytes:
    with TemporaryDirectory() as where:
        path = Path(where, "store.db")
        SqliteBackend(path, durability="fast").close()
        return path.read_bytes()


def copy_empty_sqlite(path: Path) -> None:
    """Puts an empty SQLite store there, if there is none. Thousands of tests begin with one, and a
    copy costs a fraction of what making it does; how one is made is tested where SQLite is."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")  # nobody opens half of one
    whole.write_bytes(_empty_sqlite())
    whole.chmod(0o600)
    with suppress(FileExistsError):  # somebody else has made one meanwhile
        os.link(whole, path)
    whole.unlink()


class Store:
    """One store. Each client that it opens has a memory of its own, as another process would."""

    def __init__(self, kind: str, where: Path, server: str = "") -> None:
        """`server` is where the server is, for kinds that need one."""
        kind, _, sealed = kind.partition("+")
        self.is_sealed = bool(sealed) or SEALED
        self.kind, _, shards = kind.partition(":")
        self.shards = int(shards) if shards else None
        self.server = server
        self.where = where
        self._memory = MemoryBackend()
        self._opened: list[Any] = [self._memory]

    @property
    def url(self) -> str:
        if self.kind == "postgres":
            return f"{self.server}?schema={schema_name(self.where)}"
        if self.kind == "redis":
            shards = f"&shards={self.shards}" if self.shards else ""
            return f"{self.server}?prefix={prefix_name(self.where)}{shards}&auto_gc=no"
        return {"sqlite": f"sqlite:///{self.where}/store.db", "files": f"file://{self.where}/store"}[self.kind]

    def backend(self) -> BlockingBackend:
        """One more handle on the store, that blocks whatever its kind is."""
        opened = self._open()
        if not opened.capabilities.awaitable:
            return opened
        self._opened[-1] = blocking(opened)  # closing it ends its thread, too, and gives its descriptors back
        return self._opened[-1]

    def _open(self) -> Any:
        if self.kind == "memory":
            return self._memory
        opened: Any
        if self.kind == "postgres":
            opened = open_postgres(self.server, schema=schema_name(self.where), durability="fast")
        elif self.kind == "redis":
            # What is over is collected when a test says so: stories tell of the time before, too,
            # and some of other clocks.
            opened = open_redis(self.server, prefix=prefix_name(self.where), shards=self.shards, auto_gc=False)
        elif self.kind == "files":
            opened = FilesBackend(self.where / "store", durability="fast")
        else:
            copy_empty_sqlite(self.where / "store.db")
            opened = SqliteBackend(self.where / "store.db", durability="fast")
        self._opened.append(opened)
        return opened

    def client(self, **options: Any) -> SyncClient:
        return SyncClient(self.backend(), **self._keys, **options)

    def async_client(self, **options: Any) -> Client:
        return Client(self._open(), **self._keys, **options)

    @property
    def _keys(self) -> dict[str, Any]:
        return {"keys": RING} if self.is_sealed else {}

    def recorded(self, **options: Any) -> tuple[SyncClient, Recorder]:
        """A client, and what it asks of the store."""
        recorder = Recorder(self.backend())
        return SyncClient(recorder, **self._keys, **options), recorder

    def close(self) -> None:
        for backend in self._opened:
            closing = backend.close()
            if closing is not None:  # a coroutine
                asyncio.run(closing)


class Recorder:
    """A backend that writes down the calls and commits that pass through it, and can be told to interfere.

    `before_commit(commits)` is called before each batch; what it raises comes out of `commit_all`.
    """

    def __init__(self, inner: BlockingBackend) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()
        self.commits: list[Commit] = []
        self.before_commit: Callable[[Sequence[Commit]], None] | None = None

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        self.calls["commit_all"] += 1
        self.commits += commits
        if self.before_commit is not None:
            self.before_commit(commits)
        return self.inner.commit_all(commits)

    def forget(self) -> None:
        self.calls.clear()
        self.commits.clear()

    def written_bytes(self) -> int:
        """Bytes of state: runs and blobs, without records and rows."""
        return sum(
            sum(len(run.data) for run in commit.segments) + sum(map(len, commit.blobs.values()))
            for commit in self.commits
        )

    def record_bytes(self) -> int:
        return sum(len(commit.record.data) for commit in self.commits if commit.record)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.inner, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return attribute(*args, **kwargs)

        return call


class _Awaitable:
    """A backend whose verbs are coroutines that give way once, as those of a network do."""

    def __init__(self, inner: BlockingBackend) -> None:
        self.inner = inner
        self.batches: list[int] = []

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, awaitable=True)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        answer = getattr(self.inner, verb)  # what the inner one has not, this one has not either
        if verb == "ask_to_collect":  # the one that is no coroutine
            return answer

        async def call(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            if verb == "commit_all":
                self.batches.append(len(args[0]))
            return answer(*args, **kwargs)

        return call


def as_awaitable(inner: BlockingBackend) -> Any:
    return _Awaitable(inner)


class Clock:
    """Time that stands still until it is moved. Every client it is given to goes by it."""

    def __init__(self) -> None:
        self.us = 1_800_000_000_000_000

    def forward(self, seconds: float) -> None:
        self.us += round(seconds * 1_000_000)

    def rules(self, client: SyncClient | Client) -> None:
        client._ctx.now_us = lambda: self.us


def messages(count: int, start: int = 0, size: int = 500) -> list[dict[str, Any]]:
    """Messages that differ from each other; a dozen of them make a list that is kept as a log."""
    return [
        {"role": "user" if i % 2 else "assistant", "content": f"message {i} ".ljust(size, "abcdefghij"[i % 10]), "n": i}
        for i in range(start, start + count)
    ]


def python(code: str, *arguments: str, timeout: float = 240, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs code in a Python of its own; its arguments are in `sys.argv[1:]`."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=check,
        env={"PYTHONPATH": str(Path(__file__).parent), "PATH": "/usr/bin:/bin"},
    )


def python_process(code: str, *arguments: str) -> subprocess.Popen[str]:
    """The same, without waiting for it."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parent), "PATH": "/usr/bin:/bin"},
    )
