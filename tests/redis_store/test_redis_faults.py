"""What an agent meets: servers that restart, die or are replaced, and connections that take the answer with them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Self

import pytest

from holdfast import Client, StoreError, SyncClient
from servers.proxy import Proxy
from servers.running import ServerUnavailable
from servers.valkey import Valkey, ValkeyCluster

pytestmark = [pytest.mark.servers, pytest.mark.slow]

WRITERS = 32


@pytest.fixture
def server() -> Iterator[Valkey]:
    """A server that a test may kill. Every commit is synced: nothing may be lost."""
    try:
        started = Valkey("--appendfsync", "always", "--repl-diskless-sync-delay", "0")
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield started
    started.stop()


class Crowd:
    """Writers in one event loop, each in its own session. What fails is repeated with its id until it is done."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self.acknowledged: dict[str, list[str]] = {f"s{n}": [] for n in range(WRITERS)}
        self.failures: list[StoreError] = []
        self.problems: list[BaseException] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def wait_for_more(self) -> None:
        """Until every writer has saved again."""
        before = {session: len(saved) for session, saved in self.acknowledged.items()}
        deadline = time.monotonic() + 90
        while not self.problems and any(len(self.acknowledged[session]) <= before[session] for session in before):
            assert time.monotonic() < deadline, f"the writers stand still: {self.failures[-1:]}"
            time.sleep(0.02)

    async def _run(self) -> None:
        async with Client.open(self._url, max_connections=4, timeout=5) as client:
            await asyncio.gather(*(self._write(client, session) for session in self.acknowledged))

    async def _write(self, client: Client, session: str) -> None:
        saved = self.acknowledged[session]
        try:
            while not self._stop.is_set():
                saved.append(await self._save(client, session, len(saved)))
        except BaseException as error:
            self.problems.append(error)

    async def _save(self, client: Client, session: str, step: int) -> str:
        id_ = None
        while True:
            try:
                return await client.save("a", session_id=session, execution_state={"n": step}, checkpoint_id=id_)
            except StoreError as error:
                self.failures.append(error)
                id_ = error.checkpoint_id or id_  # without one, nothing can have been stored
                await asyncio.sleep(0.05)

    def check(self) -> None:
        """All that was acknowledged is there, in order, each once, and nothing else."""
        assert self.problems == []
        with SyncClient.open(self._url) as client:
            for session, saved in self.acknowledged.items():
                line = client.timeline(session_id=session, limit=100_000)
                assert [entry.checkpoint_id for entry in line][::-1] == saved
                assert client.latest(session_id=session).execution_state == {"n": len(saved) - 1}
            assert client.verify().ok


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("way", ["kill -9", "stop"])
def test_a_restart_in_the_middle_of_many_writers_loses_nothing(server, way, shards):
    with Crowd(f"{server.url}?shards={shards}") as crowd:
        for _ in range(3):
            if way == "stop":
                server.server.stop(keep=True)
            else:
                server.server.kill()
            server.server.start()
            crowd.wait_for_more()
    assert crowd.failures  # the control: the restarts were felt
    crowd.check()


def test_a_replica_takes_over_and_no_save_that_it_confirmed_is_lost():
    try:
        cluster = ValkeyCluster()
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    try:
        with Crowd(f"{cluster.url}?durability=replicated&wait_ms=500") as crowd:
            victim = next(node for node in cluster.nodes[:3] if node.ask("DBSIZE"))
            victim.server.kill()
            # The first that takes the place of the dead has no replica of its own: it comes back as one.
            victim.server.start()
            crowd.wait_for_more()
            crowd.wait_for_more()
        assert crowd.failures
        crowd.check()
    finally:
        cluster.stop()


def test_a_save_that_no_replica_confirmed_is_an_error_that_says_so(server):
    replica = Valkey("--replicaof", f"127.0.0.1 {server.port}")
    while server.ask("INFO", "replication").get("slave0", {}).get("state") != "online":
        time.sleep(0.05)
    with SyncClient.redis(server.url, durability="replicated", wait_ms=2000) as client:
        first = client.save("a", session_id="s", execution_state={"n": 0})  # the control: it is confirmed
        second = client.save("a", session_id="s", execution_state={"n": 1})
        replica.stop()
        with pytest.raises(StoreError, match=r"0 of 1 replicas.* outcome .*same checkpoint_id") as caught:
            client.save("a", session_id="s", execution_state={"n": 2})
        unsure = caught.value.checkpoint_id
        assert ids(server.url, "s") == [unsure, second, first]
        assert client.save("a", session_id="s", execution_state={"n": 2}, checkpoint_id=unsure) == unsure
        assert ids(server.url, "s") == [unsure, second, first]


@pytest.fixture
def proxied(redis_url: str, tmp_path) -> Iterator[tuple[Proxy, str, str]]:
    """A proxy, the store's URL through it, and past it."""
    proxy = Proxy(int(redis_url.rpartition(":")[2].partition("/")[0]))
    prefix = f"?prefix=proxied-{abs(hash(tmp_path))}"
    yield proxy, f"redis://127.0.0.1:{proxy.port}/0{prefix}", redis_url + prefix
    proxy.stop()


def ids(url: str, session: str) -> list[str]:
    with SyncClient.open(url) as client:
        return [entry.checkpoint_id for entry in client.timeline(session_id=session)]


def test_a_commit_whose_answer_was_lost_is_an_error_that_says_so_and_repeating_it_is_safe(proxied):
    proxy, through, past = proxied
    with SyncClient.open(through) as client:
        first = client.save("a", session_id="s", execution_state={"n": 0})
        proxy.eat_replies()
        with pytest.raises(StoreError, match="not known whether") as caught:
            client.save("a", session_id="s", execution_state={"n": 1})
        assert proxy.eaten == 1
        unsure = caught.value.checkpoint_id
        assert ids(past, "s") == [unsure, first]  # the control: it had been carried out
        assert client.save("a", session_id="s", execution_state={"n": 1}, checkpoint_id=unsure) == unsure
        assert ids(past, "s") == [unsure, first]
        third = client.save("a", session_id="s", execution_state={"n": 2})
        assert ids(past, "s") == [third, unsure, first]


def test_a_commit_that_was_lost_on_its_way_is_the_same_error_and_repeating_it_stores_it(proxied):
    proxy, through, past = proxied
    with SyncClient.open(through) as client:
        first = client.save("a", session_id="s", execution_state={"n": 0})
        proxy.eat_requests()
        with pytest.raises(StoreError, match="not known whether") as caught:
            client.save("a", session_id="s", execution_state={"n": 1})
        unsure = caught.value.checkpoint_id
        assert ids(past, "s") == [first]
        assert client.save("a", session_id="s", execution_state={"n": 1}, checkpoint_id=unsure) == unsure
        assert ids(past, "s") == [unsure, first]


def test_a_read_whose_answer_was_lost_is_repeated(proxied):
    proxy, through, _ = proxied
    with SyncClient.open(through) as client:
        saved = client.save("a", session_id="s", execution_state={"n": 0})
    with SyncClient.open(through) as client:
        assert client.sessions()
        proxy.eat_replies()
        assert client.restore(saved).execution_state == {"n": 0}
        assert proxy.eaten == 1
