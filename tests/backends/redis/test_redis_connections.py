"""Connections: for each event loop its own, never more than allowed, none left over, and the dead are found."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from uuid import UUID

import pytest
import redis
from stores import python

from holdfast import Client, StoreError, SyncClient
from holdfast.backends.redis.pool import RedisPool
from holdfast.backends.redis.sync_connection import BlockingPool

pytestmark = pytest.mark.servers


@pytest.fixture
def url(redis_url: str, tmp_path) -> str:
    """A store of this test's own. Its connections have its name."""
    name = f"test-{abs(hash(tmp_path))}"
    return f"{redis_url}?prefix={name}&client_name={name}"


def connections_of(url: str) -> list[dict[str, str]]:
    with redis.Redis.from_url(url.partition("?")[0]) as client:
        name = url.rpartition("=")[2]
        return [found for found in client.client_list() if found["name"] == name]


def end_connections(url: str) -> None:
    with redis.Redis.from_url(url.partition("?")[0]) as client:
        for found in connections_of(url):
            client.client_kill_filter(_id=found["id"])


def test_a_thousand_saves_at_once_wait_and_none_fails(url):
    async def use() -> None:
        async with Client.open(url, max_connections=2) as client:
            await client.save("a", session_id="s0")
            saved = await asyncio.gather(*(client.save("a", session_id=f"s{n % 50}") for n in range(1000)))
            assert len(set(saved)) == 1000
            restored = await asyncio.gather(*(client.restore(id_) for id_ in saved[:300]))
            assert [checkpoint.checkpoint_id for checkpoint in restored] == saved[:300]
            assert len(connections_of(url)) <= 2

    asyncio.run(use())


def test_one_client_serves_loops_one_after_the_other_and_closing_leaves_nothing(url):
    client = Client.open(url)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(3):
            asyncio.run(client.save("a", execution_state={"n": n}, session_id="s"))
            gc.collect()
            assert nothing_is_left(url)  # a loop's connections end with it
        assert len(asyncio.run(client.timeline(session_id="s"))) == 3
        asyncio.run(client.close())
        gc.collect()
    with pytest.raises(StoreError, match="closed"):
        asyncio.run(client.save("a"))


def test_closing_a_client_without_await_leaves_nothing(url):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with SyncClient.open(url) as client:
            client.save("a", session_id="s")
            assert connections_of(url)
        gc.collect()
    assert nothing_is_left(url)


def test_a_client_that_is_dropped_in_a_loop_that_goes_on_leaves_nothing(url):
    async def use() -> None:
        await Client.open(url).save("a", session_id="s")
        gc.collect()
        assert await asyncio.to_thread(nothing_is_left, url)

    asyncio.run(use())


def nothing_is_left(url: str) -> bool:
    deadline = time.monotonic() + 240
    while connections_of(url):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize(
    "program",
    [
        "client = SyncClient.open(url); client.save('a', session_id='s')",
        "import asyncio; client = Client.open(url); asyncio.run(client.save('a', session_id='s'))",
        "import asyncio; asyncio.run(Client.open(url).save('a', session_id='s'))",
        """
async def main():
    client = Client.open(url)
    asyncio.ensure_future(anext(client.events()))
    await asyncio.sleep(0.03)
import asyncio; asyncio.run(main())
""",
    ],
)
def test_a_program_that_never_closes_its_client_ends_without_a_word(url, program):
    done = python(f"import sys; from holdfast import Client, SyncClient; url = sys.argv[1]\n{program}", url)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_forked_child_opens_its_own(url):
    done = python(
        """
        import os, sys
        from holdfast import SyncClient
        client = SyncClient.open(sys.argv[1])
        client.save("a", session_id="parent")
        children = []
        for n in range(2):
            child = os.fork()
            if child == 0:
                for _ in range(10):
                    client.save("a", session_id=f"child {n}")
                os._exit(0)
            children.append(child)
        for _ in range(10):
            client.save("a", session_id="parent")
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        client.save("a", session_id="parent")
        print(sorted((session.session_id, session.saves) for session in client.sessions()))
        client.close()
        """,
        url,
    )
    assert done.stdout.strip() == "[('child 0', 10), ('child 1', 10), ('parent', 12)]"


def test_connections_that_the_server_ended_are_replaced(url):
    """Idle ones, before anything is sent over them: neither a read nor a save fails."""
    with SyncClient.open(url) as client:
        client.save("a", session_id="s")
        for _ in range(3):
            end_connections(url)
            client.save("a", session_id="s")
            end_connections(url)
            assert client.latest(session_id="s") is not None
        assert len(client.timeline(session_id="s")) == 4


def test_scripts_that_the_server_forgot_are_sent_again(url):
    with SyncClient.open(url) as client, redis.Redis.from_url(url.partition("?")[0]) as server:
        for n in range(3):
            server.script_flush()
            client.save("a", session_id="s", execution_state={"n": n})
            server.script_flush()
            assert client.latest(session_id="s").execution_state == {"n": n}
        assert len(client.timeline(session_id="s")) == 3


@pytest.fixture
def sent(monkeypatch) -> list[int]:
    """How many commands were sent together, each time that something was sent."""
    counts: list[int] = []

    def count(pool: type[RedisPool | BlockingPool]) -> None:
        exchange = pool.exchange

        async def counted(self, node, commands):
            counts.append(len(commands))
            return await exchange(self, node, commands)

        monkeypatch.setattr(pool, "exchange", counted)

    count(RedisPool)
    count(BlockingPool)
    return counts


def test_a_save_is_one_call(url, sent):
    """A save of a session that this process knows asks the server once."""
    with SyncClient.open(url) as client:
        for _ in range(2):  # the second one goes by another script, which the server does not know yet
            client.save("a", session_id="s", execution_state={"n": 0})
        sent.clear()
        for n in range(1, 11):
            client.save("a", session_id="s", execution_state={"n": n})
        assert sent == [1] * 10


@pytest.mark.parametrize("shards", [1, 5])
def test_a_restore_is_one_call(url, sent, shards):
    """Record and runs come together, whether this process knows the session or not."""
    messages = [{"n": n, "text": "x" * 800} for n in range(40)]
    with SyncClient.open(f"{url}&shards={shards}") as client:
        for end in range(10, 40, 5):
            id_ = client.save("a", session_id="s", execution_state={"messages": messages[:end], "plan": "y" * 600})
    with SyncClient.open(url) as client:
        client.sessions()  # opens the store
        for _ in range(2):  # first the server does not know the script
            sent.clear()
            assert client.restore(id_).execution_state == {"messages": messages[:35], "plan": "y" * 600}
        assert sent == [1]


def test_a_state_in_many_pieces_takes_a_second_call(url, sent):
    state = {f"list {n}": [f"{n} {m} " + "x" * 500 for m in range(10)] for n in range(12)}
    with SyncClient.open(url) as client:
        id_ = client.save("a", session_id="s", execution_state=state)
        for _ in range(2):
            sent.clear()
            assert client.restore(id_).execution_state == state
        assert sent == [1, 1]


def test_records_of_the_first_layout_are_read(url, sent):
    """They name no spans. A store that has them is of the newer layout from now on, so that no
    older holdfast reads it."""
    state = {"messages": ["x" * 800] * 12}
    with SyncClient.open(url) as client:
        id_ = client.save("a", session_id="s", execution_state=state)
    with redis.Redis.from_url(url.partition("?")[0]) as server:
        base = f"{{{url.rpartition('=')[2]}:0}}"
        record = server.hget(f"{base}:record", UUID(id_).bytes)
        before, data = record.split(b":", 3)[:3], record.split(b":", 3)[3]
        before[2] = before[2].partition(b";")[0]
        assert server.hset(f"{base}:record", UUID(id_).bytes, b":".join([*before, data])) == 0
        server.hset(f"{base}:about", "layout", 1)
        with SyncClient.open(url) as client:
            assert client.restore(id_).execution_state == state
            second = client.save("a", session_id="s", execution_state={"messages": ["x" * 800] * 13})
            assert [one.checkpoint_id for one in client.timeline("s", agent_id="a")] == [second, id_]
            assert client.verify().ok
            assert client.expire(id_)
        assert server.hget(f"{base}:about", "layout") == b"2"


def test_saves_that_wait_go_together(url, sent):
    async def use() -> None:
        async with Client.open(url) as client:
            await asyncio.gather(*(client.save("a", session_id=f"s{n}") for n in range(64)))
            sent.clear()
            await asyncio.gather(*(client.save("a", session_id=f"s{n}") for n in range(64)))
            assert sum(sent) < 8
            assert [len(await client.timeline(session_id=f"s{n}")) for n in range(64)] == [2] * 64

    asyncio.run(use())
