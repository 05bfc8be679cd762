"""Saves of one session may queue up behind each other before the first is acknowledged. If that one fails, what was
built upon it must fail, too, even if another writer has meanwhile brought the head to the version it expects."""

from __future__ import annotations

import asyncio
import threading

from stores import Recorder, Store

from holdfast import Client, SyncClient


def one_line(client: SyncClient, session: str) -> list[int]:
    """The sequence numbers of a session in which each checkpoint is the child of the one before."""
    line = client.timeline(session_id=session, limit=None)
    assert [entry.parent_id for entry in line] == [*(entry.checkpoint_id for entry in line[1:]), None]
    assert client.verify().ok
    return [entry.sequence for entry in line]


def test_a_version_that_another_writer_led_to_is_not_taken_for_ours(store: Store):
    """A and B queue up in one process; another process commits in between, so that the head has the version that B
    expects, but not the checkpoint that B was built upon."""
    recorder = Recorder(store.backend())
    ours, theirs = Client(recorder), store.client()

    async def scenario() -> None:
        await ours.save("a", session_id="s", execution_state={"by": "first"})
        meddled = []

        def meddle(_: object) -> None:
            if not meddled:
                meddled.append(True)
                theirs.save("b", session_id="s", execution_state={"by": "them"})

        recorder.before_commit = meddle
        await asyncio.gather(*(ours.save("a", session_id="s", execution_state={"by": n}) for n in range(3)))

    asyncio.run(scenario())
    assert one_line(store.client(), "s") == [5, 4, 3, 2, 1]


def test_many_loops_and_threads_make_one_line(store: Store):
    client = store.async_client()

    async def saves() -> None:
        await asyncio.gather(*(client.save("a", session_id="s", append={"+m": [1]}) for _ in range(10)))

    for _ in range(5):
        threads = [threading.Thread(target=asyncio.run, args=(saves(),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert one_line(store.client(), "s") == list(range(150, 0, -1))
    assert store.client().latest(session_id="s").execution_state == {"m": [1] * 150}
