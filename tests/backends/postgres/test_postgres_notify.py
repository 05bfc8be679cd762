"""NOTIFY: followers hear of commits at once, and miss nothing where notifications don't arrive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from open_transaction import connected, opened, schema_of
from servers.following import NEVER, Writer
from servers.schemas import drop_schemas, schema_name
from servers.writers import until

from holdfast import Client, SyncClient
from holdfast.backends.postgres import notify, pool
from holdfast.operations import events
from servers import following

pytestmark = pytest.mark.servers


@pytest.fixture
def writer(postgres_url: str) -> Iterator[Writer]:
    started = Writer(postgres_url)
    yield started
    started.end()


def listeners(url: str) -> int:
    with connected(url) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND query LIKE 'LISTEN%%'"
        return connection.execute(query, (schema_of(url),)).fetchone()[0]


def follow(url: str, count: int, told: list[int], *, with_await: bool) -> threading.Thread:
    return following.follow(f"{url}&application_name={schema_of(url)}", count, told, with_await=with_await)


@pytest.mark.parametrize("with_await", [True, False])
def test_who_follows_is_woken_by_another_process(postgres_url, writer, monkeypatch, with_await):
    """Nobody looks again by himself here, in this test's lifetime: whatever comes was hinted at."""
    monkeypatch.setattr(events, "SHORTEST_WAIT", NEVER)
    told: list[int] = []
    thread = follow(postgres_url, 3, told, with_await=with_await)
    until(lambda: told == [1], "what was there before")
    until(lambda: listeners(postgres_url) == 1, "listening")

    def woken(count: int) -> bool:
        """A writer that found nobody listening a moment ago does not ask at once again: so it saves now and then."""
        writer.save()
        return len(told) >= count

    until(lambda: woken(2), "the first hint")
    until(lambda: woken(3), "the second hint")
    thread.join()
    assert told == [1, 2, 3]


def test_hints_that_are_lost_cost_time_only(postgres_url, writer):
    """The connection that listens is ended again and again."""
    told: list[int] = []
    thread = follow(postgres_url, 20, told, with_await=True)
    with connected(postgres_url) as connection:
        while writer.saved < 20:
            writer.save()
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' "
                "AND application_name = %s",
                (schema_of(postgres_url),),
            )
            connection.commit()
    thread.join()
    assert told == list(range(1, 21))


def test_behind_a_pooler_nobody_listens_and_events_are_found_by_looking(pgbouncer_dsn, postgres_dsn, tmp_path):
    schema = schema_name(tmp_path)
    url = f"{pgbouncer_dsn}?schema={schema}"
    writer = Writer(url)
    try:

        async def use() -> None:
            async with Client.open(url) as client:
                stream = client.events(after="start", poll_seconds=0.05)
                for number in range(1, 6):
                    assert (await anext(stream)).checkpoint.sequence == number
                    following = asyncio.ensure_future(anext(stream))
                    await asyncio.to_thread(until, lambda: not client._ctx.backend.backend._hints._are_heard)
                    assert not following.done()
                    await asyncio.to_thread(writer.save)
                    assert (await following).checkpoint.sequence == number + 1
                    stream = client.events(after=stream.cursor, poll_seconds=0.05)
                    await asyncio.to_thread(writer.save)
                    assert (await anext(stream)).checkpoint.sequence == number + 2
                    break

        asyncio.run(use())
        with connected(f"{postgres_dsn}?schema={schema}") as connection:
            held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s"
            number = notify.lock_number(b"listening", schema.encode()) & 0xFFFFFFFF
            assert connection.execute(held, (number,)).fetchone() == (0,)
    finally:
        writer.end()
        drop_schemas(postgres_dsn)


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_where_nobody_listens_writers_ask_now_and_then_only(postgres_url, monkeypatch, kind):
    monkeypatch.setattr(notify, "ASK_AGAIN_SECONDS", NEVER)
    asked = []
    ask = notify._Channel._is_heard

    async def counted(self):
        asked.append(1)
        return await ask(self)

    monkeypatch.setattr(notify._Channel, "_is_heard", counted)
    with opened(postgres_url, kind) as client:
        client.save("a", session_id="s")
        blocking = client._ctx.backend.backend
        of_kind = blocking._target if kind == "thread" else blocking._backend
        until(lambda: of_kind._hints._quiet_until, "the answer")
        for _ in range(20):
            client.save("a", session_id="s")
    assert asked == [1]


def test_as_long_as_somebody_listens_a_thread_sends_the_hints_of_those_who_have_no_loop(postgres_url, monkeypatch):
    monkeypatch.setattr(events, "SHORTEST_WAIT", NEVER)

    def senders() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "holdfast-hints"]

    told: list[int] = []
    with SyncClient.open(postgres_url) as client:
        client.save("a", session_id="s")
        thread = follow(postgres_url, 2, told, with_await=True)
        until(lambda: listeners(postgres_url) == 1, "listening")

        def is_sent_by_a_thread() -> bool:
            client.save("a", session_id="s")
            return bool(senders())

        until(is_sent_by_a_thread, "a thread that sends")
        thread.join()
        assert told[:2] == [1, 2]
        until(lambda: not senders(), "its end, when there is nothing to send any more")


def test_who_no_longer_follows_no_longer_listens(postgres_url, monkeypatch):
    monkeypatch.setattr(pool, "LINGER_SECONDS", 0.05)

    async def use() -> None:
        async with Client.open(f"{postgres_url}&application_name={schema_of(postgres_url)}") as client:
            await client.save("a", session_id="s")
            following = asyncio.ensure_future(anext(client.events(poll_seconds=NEVER)))
            await asyncio.to_thread(until, lambda: listeners(postgres_url) == 1, "listening")
            following.cancel()
            await asyncio.to_thread(until, lambda: listeners(postgres_url) == 0, "the end of listening")
            assert await client.latest(session_id="s") is not None

    asyncio.run(use())
