"""Plain saves of many writers to one session: none is refused because others save, too (P8)."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from campaign import SOAK
from servers.prefixes import prefix_name
from stores import Recorder, Store, python_process

from holdfast import Client, StoreError, SyncClient
from holdfast.backends.memory import MemoryBackend

pytestmark = [pytest.mark.every_store, pytest.mark.slow]  # in sum: processes, terminals, waits

PROCESSES, SAVES = (64, 10) if SOAK else (8, 4)


def message(writer: int, step: int) -> dict[str, Any]:
    return {"role": "user", "content": "x" * 200, "writer": writer, "step": step}


def one_line(client: SyncClient, saved: int) -> None:
    """The session is one line of so many checkpoints, each the child of the one before."""
    line = client.timeline(session_id="s", limit=None)
    assert len(line) == saved
    assert [entry.parent_id for entry in line] == [*(entry.checkpoint_id for entry in line[1:]), None]
    assert client.verify().ok


async def write(client: Client, writer: int, saves: int, acknowledged: list[str]) -> None:
    said = []
    for step in range(saves):
        said.append(message(writer, step))
        acknowledged.append(await client.save(f"{writer}", session_id="s", execution_state={"messages": said}))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("tasks", "saves"), [(3, 60), (8, 20), (64, 3)])
def test_tasks_that_each_save_a_list_of_their_own(store: Store, tasks: int, saves: int):
    if store.server:
        saves = max(saves // 4, 2)
    acknowledged: list[str] = []

    async def scenario() -> None:
        client = store.async_client()
        await asyncio.gather(*(write(client, writer, saves, acknowledged) for writer in range(tasks)))

    asyncio.run(scenario())
    assert len(set(acknowledged)) == tasks * saves
    client = store.client()
    one_line(client, tasks * saves)
    last = client.timeline(session_id="s", limit=None)
    for writer in range(tasks):  # the last one of each has all that it said, in order
        newest = next(entry.checkpoint_id for entry in last if entry.agent_id == f"{writer}")
        assert client.restore(newest).execution_state == {"messages": [message(writer, step) for step in range(saves)]}


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(300)
def test_tasks_on_a_cluster(redis_cluster, tmp_path):
    url = f"{redis_cluster.url}?prefix={prefix_name(tmp_path)}"
    acknowledged: list[str] = []

    async def scenario() -> None:
        async with Client.open(url) as client:
            await asyncio.gather(*(write(client, writer, 5, acknowledged) for writer in range(16)))

    asyncio.run(scenario())
    assert len(set(acknowledged)) == 80
    with SyncClient.open(url) as client:
        one_line(client, 80)


@pytest.mark.timeout(300)
def test_saves_beside_such_as_are_cancelled(store: Store):
    """Every second task gives up after a moment, again and again: that harms nobody else."""
    acknowledged: list[str] = []
    given_up: Counter[str] = Counter()
    saves = 10 if store.server else 40

    async def give_up(client: Client, writer: int) -> None:
        said = []
        for step in range(saves):
            said.append(message(writer, step))
            with suppress(TimeoutError):
                async with asyncio.timeout(0.0005 * (step % 8)):
                    await client.save(f"{writer}", session_id="s", execution_state={"messages": said})
                    given_up["not"] += 1
                    continue
            given_up["yes"] += 1

    async def scenario() -> None:
        client = store.async_client()
        patient = [write(client, writer, saves, acknowledged) for writer in range(4)]
        await asyncio.gather(*patient, *(give_up(client, writer) for writer in range(4, 8)))

    asyncio.run(scenario())
    assert given_up["yes"]
    assert len(set(acknowledged)) == 4 * saves
    client = store.client()
    one_line(client, len(client.timeline(session_id="s", limit=None)))
    assert {entry.checkpoint_id for entry in client.timeline(session_id="s", limit=None)} >= set(acknowledged)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("threads", "saves"), [(8, 15), (64, 2)])
def test_threads(store: Store, threads: int, saves: int):
    client = store.client()
    acknowledged: list[str] = []
    failures: list[BaseException] = []

    def work(writer: int) -> None:
        said = []
        try:
            for step in range(saves):
                said.append(message(writer, step))
                acknowledged.append(client.save(f"{writer}", session_id="s", execution_state={"messages": said}))
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(writer,), daemon=True) for writer in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(240)
    assert not failures
    assert len(set(acknowledged)) == threads * saves
    one_line(store.client(), threads * saves)


WRITER = """
    import json, sys
    from holdfast import SyncClient
    url, writer, saves = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with SyncClient.open(url) as client:
        client.latest(session_id="s")
        print("ready", flush=True)
        sys.stdin.readline()
        said, ids = [], []
        for step in range(saves):
            said.append({"step": step, "content": "x" * 300})
            ids.append(client.save(writer, session_id="s", execution_state={"messages": said}))
        print(json.dumps(ids))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_processes(shared_store: Store):
    shared_store.client().save("first", session_id="s")
    writers = [python_process(WRITER, shared_store.url, f"{n}", f"{SAVES}") for n in range(PROCESSES)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    said = [writer.communicate(timeout=500) for writer in writers]
    assert [errors for _, errors in said] == [""] * PROCESSES
    acknowledged = [id_ for told, _ in said for id_ in json.loads(told)]
    assert len(set(acknowledged)) == PROCESSES * SAVES
    one_line(shared_store.client(), PROCESSES * SAVES + 1)


class TestWhoIsAlwaysOvertaken:
    """Another writer commits right before each commit of ours."""

    def overtaken(self, timeout: float) -> tuple[Recorder, SyncClient]:
        recorder = Recorder(MemoryBackend(timeout=timeout))
        other = SyncClient(recorder.inner)
        other.save("other", session_id="s")
        recorder.before_commit = lambda _: other.save("other", session_id="s")
        return recorder, other

    def check(self, error: BaseException, recorder: Recorder, other: SyncClient, began: float) -> None:
        assert type(error).__name__ == "StoreBusyError"
        assert isinstance(error, StoreError)
        assert 0.2 < time.monotonic() - began < 20
        assert error.checkpoint_id is not None
        assert not [entry for entry in other.timeline(session_id="s", limit=None) if entry.agent_id == "ours"]
        recorder.before_commit = None
        client = SyncClient(recorder)
        for _ in range(2):
            saved = client.save("ours", session_id="s", execution_state={"n": 1}, checkpoint_id=error.checkpoint_id)
            assert saved == error.checkpoint_id
        assert [entry.agent_id for entry in other.timeline(session_id="s")][:2] == ["ours", "other"]

    def test_hears_that_the_store_is_busy_and_repeats_with_the_id(self):
        recorder, other = self.overtaken(0.3)
        began = time.monotonic()
        with pytest.raises(StoreError, match=r"'s' was written to by so many others .* 0\.3 s") as caught:
            SyncClient(recorder).save("ours", session_id="s", execution_state={"n": 1})
        self.check(caught.value, recorder, other, began)

    def test_so_does_a_task(self):
        recorder, other = self.overtaken(0.3)

        async def save() -> None:
            await Client(recorder).save("ours", session_id="s", execution_state={"n": 1})

        began = time.monotonic()
        with pytest.raises(StoreError, match="was written to by so many others") as caught:
            asyncio.run(save())
        self.check(caught.value, recorder, other, began)

    def test_and_who_waits_behind_it_does_not_wait_longer(self):
        recorder, _ = self.overtaken(0.3)

        async def save() -> None:
            client = Client(recorder)
            saves = [client.save("ours", session_id="s", execution_state={"n": n}) for n in range(5)]
            began = time.monotonic()
            errors = await asyncio.gather(*saves, return_exceptions=True)
            assert [type(error).__name__ for error in errors] == ["StoreBusyError"] * 5
            assert len({error.checkpoint_id for error in errors}) == 5
            assert time.monotonic() - began < 20

        asyncio.run(save())


def test_every_way_to_open_a_store_takes_a_timeout(tmp_path):
    for client in (
        SyncClient.memory(timeout=7),
        SyncClient.open("memory://", timeout=7),
        SyncClient.files(tmp_path / "files", timeout=7),
        SyncClient.open(f"file://{tmp_path}/files", timeout=7),
        SyncClient.sqlite(tmp_path / "store.db", timeout=7),
        SyncClient.open(f"sqlite:///{tmp_path}/store.db", timeout=7),
        SyncClient.postgres("postgresql://nowhere/none", timeout=7),
        SyncClient.redis("redis://nowhere", timeout=7),
    ):
        with client:
            assert client._ctx.backend.capabilities.timeout == 7
    with SyncClient.memory() as client:
        assert client._ctx.backend.capabilities.timeout == 30
