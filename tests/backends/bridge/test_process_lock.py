"""Turns between processes: one at a time, and nobody is kept out for good."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from stores import Store, python_process

from holdfast.backends.bridge.inline import InlineBridge
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.process_lock import ProcessLock
from holdfast.operations.contention import Contention


def turn(directory: Path, seconds: float) -> ProcessLock:
    return ProcessLock(str(directory), seconds, 0, asyncio.sleep)


def test_one_at_a_time(tmp_path: Path):
    async def scenario() -> None:
        async with turn(tmp_path, 1) as first, turn(tmp_path, 0.02) as second:
            assert (first, second) == (True, False)
        async with turn(tmp_path, 1) as again:
            assert again

    asyncio.run(scenario())


def test_a_process_that_ends_gives_it_back(tmp_path: Path):
    holder = python_process(
        """
        import fcntl, os, sys
        fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
        print("held", flush=True)
        sys.stdin.read()
        """,
        str(tmp_path),
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"

    async def take(seconds: float) -> bool:
        async with turn(tmp_path, seconds) as is_given:
            return is_given

    assert not asyncio.run(take(0.02))
    holder.kill()
    holder.communicate()
    assert asyncio.run(take(30))


def test_a_child_that_was_forked_meanwhile_does_not_keep_it(tmp_path: Path):
    async def scenario() -> int:
        async with turn(tmp_path, 1) as first:
            assert first
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(writing)
                os.read(reading, 1)  # until the parent closes its end
                os._exit(0)
            os.close(reading)
        async with turn(tmp_path, 1) as again:
            assert again
        os.close(writing)
        return child

    os.waitpid(asyncio.run(scenario()), 0)


def test_who_waits_for_long_goes_on_without_it_while_there_is_time(tmp_path: Path):
    async def scenario() -> float:
        began = time.monotonic()
        async with turn(tmp_path, 60), turn(tmp_path, 0.6) as second:
            assert not second
            return time.monotonic() - began

    assert asyncio.run(scenario()) >= 0.4


def test_a_save_that_is_interrupted_as_it_gives_the_lock_back_does_not_keep_it(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
):
    async def interrupt(self: ProcessLock, *_: object) -> None:
        raise KeyboardInterrupt

    client = sqlite_store.client()
    client.save("a", session_id="s", execution_state={"n": 0})
    monkeypatch.setattr(Contention, "has_line", lambda *_: True)
    monkeypatch.setattr(Contention, "is_shared", lambda *_: True)  # so that processes take turns
    with monkeypatch.context() as at_that_moment:
        at_that_moment.setattr(ProcessLock, "__aexit__", interrupt)
        with pytest.raises(KeyboardInterrupt) as error:  # its frames are kept, and so is all that they hold
            client.save("a", session_id="s", execution_state={"n": 1})
    directory = client._ctx.backend.capabilities.directory
    assert directory is not None

    async def take() -> bool:
        async with turn(Path(directory), 0.02) as is_given:
            return is_given

    assert asyncio.run(take())
    assert error.value is not None


def test_where_there_is_none(tmp_path: Path):
    async def scenario() -> None:
        async with (
            turn(tmp_path / "nowhere", 1) as elsewhere,
            InlineBridge(MemoryBackend()).process_lock(1, 0) as in_memory,
        ):
            assert (elsewhere, in_memory) == (False, False)

    asyncio.run(scenario())
