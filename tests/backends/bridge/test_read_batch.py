"""Small reads of many tasks go to a server together; each gets its own answer, or its own error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from stores import Recorder, as_awaitable

from holdfast import Client, CorruptError, StoreError
from holdfast.backends.bridge.read_batch import MAX_KEYS, READS_AT_ONCE, ReadBatch
from holdfast.backends.memory import MemoryBackend


class Server:
    """Answers each key with its double; refuses what is in `damaged`."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.damaged: set[int] = set()
        self.is_lost = False

    async def ask(self, keys: Sequence[int]) -> list[int]:
        self.calls.append(list(keys))
        await asyncio.sleep(0.001)
        if self.is_lost:
            raise StoreError("the connection was lost")
        if found := self.damaged.intersection(keys):
            raise CorruptError(f"{min(found)} is damaged")
        return [2 * key for key in keys]


def test_a_thousand_reads_are_a_few_calls():
    server = Server()

    async def read_all() -> list[list[int]]:
        batch = ReadBatch(server.ask)
        return await asyncio.gather(*(batch.get([n, -n]) for n in range(1000)))

    assert asyncio.run(read_all()) == [[2 * n, -2 * n] for n in range(1000)]
    assert len(server.calls) <= READS_AT_ONCE + 2000 // MAX_KEYS + 2
    assert max(map(len, server.calls)) <= MAX_KEYS


def test_a_reader_alone_and_one_of_many_keys_ask_at_once():
    server = Server()

    async def read() -> None:
        batch = ReadBatch(server.ask)
        for n in range(3):
            assert await batch.get([n]) == [2 * n]
        answers = await asyncio.gather(*(batch.get(list(range(n, n + 10))) for n in range(5)))
        assert [answer[0] for answer in answers] == [0, 2, 4, 6, 8]

    asyncio.run(read())
    assert [len(keys) for keys in server.calls] == [1, 1, 1, 10, 10, 10, 10, 10]


def test_damage_of_one_is_told_to_its_reader_alone():
    server = Server()
    server.damaged = {7}

    async def read_all() -> list[list[int] | BaseException]:
        batch = ReadBatch(server.ask)
        return await asyncio.gather(*(batch.get([n]) for n in range(20)), return_exceptions=True)

    answers = asyncio.run(read_all())
    assert isinstance(answers[7], CorruptError)
    assert answers[:7] + answers[8:] == [[2 * n] for n in range(20) if n != 7]


def test_after_a_lost_connection_each_has_an_error_of_its_own():
    server = Server()
    server.is_lost = True

    async def read_all() -> list[list[int] | BaseException]:
        batch = ReadBatch(server.ask)
        errors = await asyncio.gather(*(batch.get([n]) for n in range(20)), return_exceptions=True)
        server.is_lost = False
        assert await batch.get([1]) == [2]
        return errors

    errors = asyncio.run(read_all())
    assert len({id(error) for error in errors if isinstance(error, StoreError)}) == 20


@pytest.mark.parametrize("cancelled", [0, 1, 2, 5, 19])
def test_a_cancelled_reader_keeps_no_other_waiting(cancelled: int):
    server = Server()

    async def read_all() -> None:
        batch = ReadBatch(server.ask)
        tasks = [asyncio.create_task(batch.get([n])) for n in range(20)]
        await asyncio.sleep(0)
        for task in tasks[cancelled:]:
            task.cancel()
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert answers[:cancelled] == [[2 * n] for n in range(cancelled)]
            assert await batch.get([1]) == [2]

    asyncio.run(read_all())


def test_sessions_that_a_process_has_not_met_are_read_together():
    recorder = Recorder(MemoryBackend())

    async def save_all() -> None:
        client = Client(as_awaitable(recorder))
        await asyncio.gather(*(client.save("a", session_id=f"s{n}", execution_state={"n": 1}) for n in range(300)))

    asyncio.run(save_all())
    recorder.forget()
    asyncio.run(save_all())  # as another process: its client knows no session
    assert recorder.calls["rows"] + recorder.calls["records"] < 60
    assert recorder.calls["commit_all"] < 60
