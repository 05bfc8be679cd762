"""Backends whose verbs are coroutines: either client serves them, from any loop and any thread."""

from __future__ import annotations

import asyncio
import threading

import pytest
from stores import as_awaitable, messages, python

from holdfast import Client, StoreError, SyncClient
from holdfast.backends.bridge.blocking import blocking
from holdfast.backends.memory import MemoryBackend

pytestmark = pytest.mark.every_store


def test_a_client_awaits_them_in_its_own_loop():
    async def use() -> None:
        backend = as_awaitable(MemoryBackend())
        async with Client(backend) as client:
            state = {"messages": messages(40)}
            first = await client.save("a", execution_state=state, session_id="s")
            state["messages"] += messages(1, start=40)
            second = await client.save("a", execution_state=state, session_id="s")
            assert (await client.restore(second)).execution_state == state
            assert [entry.checkpoint_id for entry in await client.timeline(session_id="s")] == [second, first]
            assert (await client.verify()).ok

    asyncio.run(use())


def test_commits_that_wait_go_together_and_in_order():
    async def use() -> None:
        backend = as_awaitable(MemoryBackend())
        client = Client(backend)
        await client.save("a", execution_state={"n": -1}, session_id="s")
        backend.batches.clear()
        saved = await asyncio.gather(*(client.save("a", execution_state={"n": n}, session_id="s") for n in range(50)))
        assert sum(backend.batches) == 50
        assert len(backend.batches) < 10
        line = [entry.checkpoint_id for entry in await client.timeline(session_id="s", limit=50)]
        assert line == saved[::-1]

    asyncio.run(use())


def test_a_failed_batch_fails_each_of_its_commits_and_the_next_one_works():
    async def use() -> None:
        inner = MemoryBackend()
        backend = as_awaitable(inner)
        client = Client(backend)
        await client.save("a", execution_state={}, session_id="s")
        commit_all = inner.commit_all

        def broken(_: object) -> None:
            raise StoreError("the line is cut")

        inner.commit_all = broken  # type: ignore[method-assign,assignment]  # for one batch
        outcomes = await asyncio.gather(*(client.save("a", session_id="s") for _ in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreError] * 3
        inner.commit_all = commit_all  # type: ignore[method-assign]  # see above
        await client.save("a", session_id="s")

    asyncio.run(use())


def test_one_client_serves_two_loops_one_after_the_other():
    client = Client(as_awaitable(MemoryBackend()))
    for n in range(2):
        asyncio.run(client.save("a", execution_state={"n": n}, session_id="s"))
    assert len(asyncio.run(client.timeline(session_id="s"))) == 2


def test_a_sync_client_serves_many_threads():
    client = SyncClient(as_awaitable(MemoryBackend()))
    errors: list[BaseException] = []

    def work(session: str) -> None:
        try:
            for n in range(20):
                client.save("a", execution_state={"n": n}, session_id=session)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"s{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(session.saves for session in client.sessions()) == [20] * 8
    client.close()
    with pytest.raises(StoreError, match="closed"):
        client.save("a", session_id="s0")


@pytest.mark.parametrize(
    "program",
    [
        "client = SyncClient(backend); client.save('a', session_id='s')",
        "import asyncio; client = Client(backend); asyncio.run(client.save('a', session_id='s'))",
    ],
)
def test_a_program_that_never_closes_its_client_ends(program):
    python(
        f"""
        from stores import as_awaitable
        from holdfast import Client, SyncClient
        from holdfast.backends.memory import MemoryBackend
        backend = as_awaitable(MemoryBackend())
        {program}
        """
    )


def test_who_waits_for_an_answer_when_another_thread_closes_gets_one():
    class Slow(MemoryBackend):
        def last_change(self) -> int:
            asked.set()
            return super().last_change()

    asked = threading.Event()
    for _ in range(20):
        asked.clear()
        backend = blocking(as_awaitable(Slow()))
        answers: list[object] = []

        def ask(backend=backend, answers=answers) -> None:
            try:
                while True:
                    answers.append(backend.last_change())
            except StoreError as error:
                answers.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert asked.wait(240)
        backend.close()
        thread.join(240)
        assert not thread.is_alive()
        assert "closed" in str(answers[-1])
