"""The documented retry: catch `StoreError`, and repeat the save with its checkpoint id."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import nullcontext
from typing import Any

from holdfast import Client, StoreError, SyncClient

WRITERS = 8
PAUSE = 0.02


def state_of(writer: int, step: int) -> dict[str, Any]:
    return {"writer": writer, "step": step}


def session_of(writer: int) -> str:
    """Half of them share one."""
    return "shared" if writer % 2 else f"own {writer}"


async def save_surely(client: Client, writer: int, step: int) -> str:
    failed = None
    while True:
        again = failed.checkpoint_id if failed is not None else None
        try:
            return await client.save(
                "a", session_id=session_of(writer), execution_state=state_of(writer, step), checkpoint_id=again
            )
        except StoreError as error:
            failed = error
            await asyncio.sleep(PAUSE)


def save_surely_in_a_thread(client: SyncClient, writer: int, step: int) -> str:
    failed = None
    while True:
        again = failed.checkpoint_id if failed is not None else None
        try:
            return client.save(
                "a", session_id=session_of(writer), execution_state=state_of(writer, step), checkpoint_id=again
            )
        except StoreError as error:
            failed = error
            time.sleep(PAUSE)


def by_tasks(client: Client, saves: int, *, closes: bool = False) -> list[str]:
    async def write(writer: int) -> list[str]:
        return [await save_surely(client, writer, step) for step in range(saves)]

    async def write_all() -> list[str]:
        async with client if closes else nullcontext():
            return [id_ for ids in await asyncio.gather(*map(write, range(WRITERS))) for id_ in ids]

    return asyncio.run(write_all())


def by_threads(client: SyncClient, saves: int) -> list[str]:
    acknowledged: list[str] = []
    failures: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            acknowledged.extend(save_surely_in_a_thread(client, writer, step) for step in range(saves))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(writer,), daemon=True) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    return acknowledged


def all_are_there_once(client: SyncClient, acknowledged: list[str], saves: int) -> None:
    assert len(set(acknowledged)) == len(acknowledged) == WRITERS * saves
    stored: Counter[tuple[int, int]] = Counter()
    for session in {session_of(writer) for writer in range(WRITERS)}:
        for entry in client.timeline(session_id=session, limit=None):
            assert entry.checkpoint_id in acknowledged
            state = client.restore(entry.checkpoint_id).execution_state
            stored[state["writer"], state["step"]] += 1
    assert stored == {(writer, step): 1 for writer in range(WRITERS) for step in range(saves)}
    assert client.verify().ok
