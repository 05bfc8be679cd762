"""events: each once, in order, from where a cursor says, at once or soon; and nothing is left behind."""

import asyncio
import gc
import threading

import pytest
from stores import Clock, Store, python

from holdfast import Client, SyncClient
from holdfast.errors import CorruptError, StoreError, UsageError
from holdfast.operations import events

pytestmark = pytest.mark.every_store

WAIT = 240  # seconds until a test gives up; nothing waits for so long


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch):
    """Whoever waits for the next look at the store waits for ever: only being told helps."""
    monkeypatch.setattr(events, "SHORTEST_WAIT", 10 * WAIT)
    return {"poll_seconds": 10 * WAIT}


def drained(client: SyncClient, after: str = "start", **options):
    return list(client.events(after=after, follow=False, **options))


def steps(found) -> list[tuple[str, int]]:
    return [(event.checkpoint.session_id, event.checkpoint.step_index) for event in found]


def some_saves(client: SyncClient) -> list[str]:
    return [
        client.save("a", execution_state={"n": n}, session_id="odd" if n % 2 else "even", step_index=n)
        for n in range(6)
    ]


async def until_it_waits(client: Client) -> None:
    while not client._ctx.backend._listeners:  # noqa: ASYNC110 - it is set by no code of ours
        await asyncio.sleep(0.001)


class TestWhatIsGiven:
    def test_everything_once_in_the_order_of_saves(self, client: SyncClient):
        saved = some_saves(client)
        found = drained(client)
        assert [event.checkpoint.checkpoint_id for event in found] == saved
        assert {event.kind for event in found} == {"checkpoint"}
        assert not found[0].checkpoint.has_state
        assert found[0].checkpoint == client.get(saved[0])
        assert len({event.cursor for event in found}) == 6

    def test_a_handoff_is_a_handoff_and_a_fork_a_checkpoint(self, client: SyncClient):
        first = client.save("a", session_id="s")
        handed = client.handoff(first, "b")
        fork = client.fork(first, session_id="t")
        found = drained(client)
        assert [(event.kind, event.checkpoint.checkpoint_id) for event in found] == [
            ("checkpoint", first),
            ("handoff", handed),
            ("checkpoint", fork.checkpoint_id),
        ]

    def test_of_one_session(self, client: SyncClient):
        some_saves(client)
        assert steps(drained(client, session_id="odd")) == [("odd", 1), ("odd", 3), ("odd", 5)]
        assert drained(client, session_id="unknown") == []

    def test_a_session_without_a_name_is_one_as_any(self, client: SyncClient):
        some_saves(client)
        client.save("a", session_id="", step_index=9)
        assert steps(drained(client, session_id="")) == [("", 9)]
        assert ("", 9) not in steps(drained(client, session_id="odd"))

    def test_of_one_agent_what_it_made_or_was_handed(self, client: SyncClient):
        first = client.save("a", session_id="s")
        client.save("b", session_id="t")
        client.handoff(first, "b")
        assert [event.kind for event in drained(client, agent_id="a")] == ["checkpoint", "handoff"]
        assert [event.kind for event in drained(client, agent_id="b")] == ["checkpoint", "handoff"]
        assert drained(client, agent_id="b", session_id="s")[0].checkpoint.handoff_target == "b"
        assert drained(client, agent_id="c") == []

    def test_not_what_has_expired_or_was_collected(self, client: SyncClient, clock: Clock):
        clock.rules(client)
        kept = client.save("a", session_id="s")
        expired = client.save("a", session_id="s")
        client.save("a", session_id="s", ttl_seconds=5)
        pinned = client.save("a", session_id="s", ttl_seconds=5)
        client.save("a", session_id="gone", ttl_seconds=5)
        assert len(drained(client)) == 5
        client.pin(pinned)
        client.expire(expired)
        clock.forward(10)
        assert [event.checkpoint.checkpoint_id for event in drained(client)] == [kept, pinned]
        client.gc()
        assert [event.checkpoint.checkpoint_id for event in drained(client)] == [kept, pinned]

    def test_a_record_that_can_not_be_read_is_told_once_and_passed_over(self, memory_store: Store):
        client, recorder = memory_store.recorded()
        saved = some_saves(client)
        inner = recorder.inner
        damaged = inner._records[inner._order[2]]
        inner._records[damaged.id] = damaged._replace(data=damaged.data[:-1] + b"\0\0")
        stream = client.events(after="start", follow=False)
        assert [next(stream).checkpoint.checkpoint_id for _ in range(2)] == saved[:2]
        with pytest.raises(CorruptError):
            next(stream)
        assert [event.checkpoint.checkpoint_id for event in stream] == saved[3:]


class TestCursors:
    def test_reading_on_from_each(self, client: SyncClient):
        some_saves(client)
        found = drained(client)
        for number, event in enumerate(found):
            assert drained(client, after=event.cursor) == found[number + 1 :]

    def test_they_outlive_client_and_store(self, shared_store: Store):
        with shared_store.client() as client:
            some_saves(client)
            cursor = drained(client)[3].cursor
        with shared_store.client() as client:
            client.save("a", session_id="later", step_index=7)
            assert steps(drained(client, after=cursor)) == [("even", 4), ("odd", 5), ("later", 7)]

    def test_they_outlive_the_collection_of_what_they_point_at(self, client: SyncClient):
        some_saves(client)
        last = client.save("a", session_id="short")
        cursor = client.cursor()
        client.expire(last)
        client.gc()
        assert drained(client, after=cursor) == []
        client.save("a", session_id="next", step_index=1)
        assert steps(drained(client, after=cursor)) == [("next", 1)]

    def test_a_stream_is_past_what_it_passed_over(self, client: SyncClient):
        stream = client.events(session_id="odd", after="start", follow=False)
        assert stream.cursor == "0"
        some_saves(client)
        client.save("a", session_id="even", step_index=6)
        assert len(list(stream)) == 3
        assert stream.cursor == client.cursor()
        assert next(client.events(after=stream.cursor, follow=False), None) is None

    def test_from_now_on(self, client: SyncClient):
        some_saves(client)
        cursor = client.cursor()
        assert drained(client, after=None) == []
        client.save("a", session_id="s", step_index=1)
        assert steps(drained(client, after=cursor)) == [("s", 1)]

    def test_the_cursor_of_an_empty_store(self, client: SyncClient):
        cursor = client.cursor()
        assert len(some_saves(client)) == len(drained(client, after=cursor)) == 6

    def test_a_stream_that_begins_now_says_where_after_its_first_step(self, client: SyncClient):
        some_saves(client)
        stream = client.events(follow=False)
        assert stream.cursor is None
        assert list(stream) == []
        assert stream.cursor == client.cursor()
        client.save("a", session_id="s", step_index=8)
        assert steps(stream) == [("s", 8)]  # it can be gone on with

    @pytest.mark.parametrize(
        "rubbish", ["", "x", "-1", "1-", "1-xyz", "1-0123456", "1-0123456789", " 1", "1\n", "START", "9" * 20, 7, b"1"]
    )
    def test_rubbish_is_refused_at_once(self, quick: SyncClient, rubbish: object):
        with pytest.raises(UsageError, match="is no cursor"):
            quick.events(after=rubbish)

    def test_other_arguments_are_checked_at_once(self, quick: SyncClient):
        with pytest.raises(UsageError, match="session_id"):
            quick.events(session_id=7)
        with pytest.raises(UsageError, match="agent_id"):
            quick.events(agent_id=b"a")
        with pytest.raises(UsageError, match="poll_seconds"):
            quick.events(poll_seconds=0)

    def test_one_of_another_store_is_refused(self, store: Store):
        if store.kind == "postgres":
            pytest.skip("its positions are the server's transactions: one without a record here may have had one")
        client = store.client()
        other = SyncClient.memory()
        some_saves(other)
        for event in drained(other):
            with pytest.raises(UsageError, match=r"not one of .*another store"):
                drained(client, after=event.cursor)
        some_saves(client)
        for event in drained(other):
            with pytest.raises(UsageError, match=r"not one of .*another store"):
                drained(client, after=event.cursor)


class TestFollowing:
    def test_what_is_saved_here_wakes_a_thread_at_once(self, client: SyncClient, no_polling):
        some_saves(client)
        met = []
        stream = client.events(after=client.cursor(), **no_polling)

        def follow() -> None:
            for event in stream:
                met.append(event)
                heard.release()

        heard = threading.Semaphore(0)
        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        for number in range(20):
            client.save("a", session_id="s", step_index=number)
            assert heard.acquire(timeout=WAIT)
        client.close()
        follower.join(WAIT)
        assert not follower.is_alive()  # closing has ended it
        assert steps(met) == [("s", number) for number in range(20)]

    def test_what_is_saved_here_wakes_a_task_at_once(self, store: Store, no_polling):
        async def main() -> None:
            async with store.async_client() as client:
                stream = client.events(session_id="s", after=await client.cursor(), **no_polling)
                for number in range(20):
                    following = asyncio.ensure_future(anext(stream))
                    if number % 2:
                        await asyncio.sleep(0)
                    await client.save("a", session_id="another", step_index=number)
                    await client.save("a", session_id="s", step_index=number)
                    event = await asyncio.wait_for(following, WAIT)
                    assert steps([event]) == [("s", number)]

        asyncio.run(main())

    def test_what_is_saved_elsewhere_is_found(self, store: Store):
        async def main() -> None:
            other = store.client()
            async with store.async_client() as client:
                stream = client.events(after="start", poll_seconds=0.05)
                for number in range(5):
                    other.save("a", session_id="s", step_index=number)
                    assert steps([await asyncio.wait_for(anext(stream), WAIT)]) == [("s", number)]

        asyncio.run(main())

    def test_many_writers_and_followers_in_one_process(self, store: Store):
        async def main() -> None:
            async with store.async_client() as client:

                async def write(session: str) -> None:
                    for number in range(15):
                        await client.save("a", session_id=session, step_index=number)

                async def follow(**options) -> list[tuple[str, int]]:
                    met = []
                    async for event in client.events(after="start", **options):
                        met.append(event)
                        if len(met) == (15 if options else 60):
                            break
                    return steps(met)

                sessions = [f"s{number}" for number in range(4)]
                [everything, of_one, *_] = await asyncio.wait_for(
                    asyncio.gather(follow(), follow(session_id="s2"), *map(write, sessions)), WAIT
                )
                for session in sessions:
                    assert [one for one in everything if one[0] == session] == [(session, n) for n in range(15)]
                assert of_one == [("s2", n) for n in range(15)]
                assert client._ctx.backend._listeners == set()

        asyncio.run(main())

    def test_a_stream_may_change_its_event_loop(self, store: Store):
        client = store.async_client()
        stream = client.events(after="start")

        async def save_and_follow(number: int) -> None:
            following = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.02)
            await client.save("a", session_id="s", step_index=number)
            assert steps([await asyncio.wait_for(following, WAIT)]) == [("s", number)]

        for number in range(3):
            asyncio.run(save_and_follow(number))
        asyncio.run(client.close())


class TestEnding:
    def test_a_follower_that_is_cancelled_leaves_nothing_and_loses_nothing(self, store: Store, no_polling):
        async def main() -> None:
            async with store.async_client() as client:
                await client.save("a", session_id="s", step_index=0)
                stream = client.events(after="start", **no_polling)
                await anext(stream)
                for number in range(1, 4):
                    following = asyncio.ensure_future(anext(stream))
                    await until_it_waits(client)
                    following.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await following
                    assert client._ctx.backend._listeners == set()
                    await client.save("a", session_id="s", step_index=number)
                    assert steps([await asyncio.wait_for(anext(stream), WAIT)]) == [("s", number)]

        asyncio.run(main())

    def test_cancelling_at_any_moment_loses_and_repeats_nothing(self, store: Store, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(events, "PAGE", 2)

        async def main() -> None:
            async with store.async_client() as client:
                for number in range(20):
                    await client.save("a", session_id="s", step_index=number)
                stream = client.events(after="start", follow=False)
                met = []
                cancelled = in_vain = 0
                while len(met) < 20:
                    following = asyncio.ensure_future(anext(stream))
                    await asyncio.sleep(in_vain * 0.0003)  # a little longer each time, until one comes through
                    following.cancel()
                    await asyncio.wait([following])
                    if following.cancelled():
                        cancelled, in_vain = cancelled + 1, in_vain + 1
                    else:
                        met.append(following.result())
                        in_vain = 0
                assert steps(met) == [("s", number) for number in range(20)]
                assert cancelled >= 10  # each read at least once

        asyncio.run(main())

    def test_closing_the_client_ends_a_task_that_follows(self, store: Store, no_polling):
        async def main() -> None:
            client = store.async_client()
            await client.save("a", session_id="s")

            async def follow() -> int:
                return len([event async for event in client.events(after="start", **no_polling)])

            following = asyncio.ensure_future(follow())
            await until_it_waits(client)
            await client.close()
            assert await asyncio.wait_for(following, WAIT) == 1

        asyncio.run(main())

    def test_a_stream_of_a_client_that_was_closed_before_says_so(self, store: Store):
        client = store.client()
        stream = client.events()
        if store.kind == "memory":
            client = SyncClient.memory()
            stream = client.events()
        client.close()
        with pytest.raises(StoreError, match="was closed"):
            next(stream)

    def test_leaving_a_loop_leaves_nothing(self, store: Store):
        async def main() -> None:
            async with store.async_client() as client:
                await client.save("a", session_id="s")
                async for _ in client.events(after="start"):
                    break
                assert client._ctx.backend._listeners == set()

        asyncio.run(main())
        gc.collect()

    def test_no_thread_is_left(self, shared_store: Store):
        before = set(threading.enumerate())

        async def main() -> None:
            async with shared_store.async_client() as client:
                tasks = [asyncio.ensure_future(anext(client.events())) for _ in range(5)]
                await asyncio.sleep(0.1)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

        asyncio.run(main())
        left = set(threading.enumerate()) - before
        for thread in left:
            thread.join(WAIT)
        assert not any(thread.is_alive() for thread in left)

    @pytest.mark.parametrize("how", ["task", "thread"])
    def test_a_program_that_follows_can_end(self, shared_store: Store, how: str):
        """Without closing anything, and without a word on stderr."""
        code = f"""
            import asyncio, sys, threading, time
            from holdfast import Client, SyncClient

            async def main():
                client = Client.open(sys.argv[1])
                following = asyncio.ensure_future(anext(client.events()))
                await asyncio.sleep(0.2)
                print("following", not following.done())

            def thread():
                client = SyncClient.open(sys.argv[1])
                follower = threading.Thread(target=lambda: list(client.events()), daemon=True)
                follower.start()
                time.sleep(0.2)
                print("following", follower.is_alive())

            asyncio.run(main()) if {how!r} == "task" else thread()
        """
        done = python(code, shared_store.url)
        assert (done.stdout.split(), done.stderr) == (["following", "True"], "")


def test_an_event_shows_itself(quick: SyncClient):
    quick.save("worker", session_id="s", step_name="read")
    [event] = drained(quick)
    assert repr(event).startswith(f"<Event checkpoint {event.cursor} <Checkpoint ")
    assert "'worker'" in repr(event)


def test_the_async_client_tells_the_same(store: Store):
    async def main() -> list:
        async with Client(store.backend()) as client:
            return [event async for event in client.events(after="start", follow=False)]

    with_await = store.client()
    some_saves(with_await)
    expected = drained(with_await)
    assert asyncio.run(main()) == expected
