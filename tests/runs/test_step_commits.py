"""Commits of steps: when they happen, what they cost, and how concurrent steps share one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from call_recorder import Calls
from stores import Clock, Store

from holdfast import (
    Autosave,
    StoreError,
    SyncClient,
)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class TestSaving:
    def checkpoints(self, client: SyncClient) -> int:
        return len(client.timeline(session_id="s", limit=None))

    def test_after_every_step(self, client: SyncClient):
        with client.run("s") as run:
            for n in range(4):
                run.step(f"{n}", lambda: 1)
                assert self.checkpoints(client) == n + 1

    def test_after_every_n_steps_and_at_the_end(self, client: SyncClient):
        with client.run("s", autosave=3) as run:
            for n in range(4):
                run.step(f"{n}", lambda: 1)
            assert self.checkpoints(client) == 1
        assert self.checkpoints(client) == 2
        with client.run("s", autosave=3) as run:
            assert run.step("3", lambda: 2) == 1

    def test_after_so_many_seconds(self, quick: SyncClient, clock: Clock):
        clock.rules(quick)
        assert Autosave(seconds=10) == Autosave(steps=None, seconds=10) != Autosave(steps=1, seconds=10)
        assert Autosave() == Autosave(steps=1)
        with quick.run("s", autosave=Autosave(seconds=10)) as run:
            run.step("1", lambda: 1)
            assert self.checkpoints(quick) == 0
            clock.forward(11)
            run.step("2", lambda: 1)
            assert self.checkpoints(quick) == 1

    def test_only_when_something_changed(self, client: SyncClient):
        with client.run("s", autosave=Autosave(only_changed=True)) as run:
            first = run.save("one")
            assert run.save("two") == first
            run.state["x"] = 1
            assert run.save("three") != first
            assert self.checkpoints(client) == 2

    def test_by_hand(self, client: SyncClient):
        with client.run("s", autosave=None) as run:
            run.step("1", lambda: 1)
            assert self.checkpoints(client) == 0
            saved = run.save("here")
            assert run.checkpoint_id == saved
        assert client.get(saved).step_name == "here"

    def test_one_that_fails_raises_or_is_logged(self, memory_store: Store, caplog):
        def full(_):
            raise StoreError("the disk is full")

        for policy in ("raise", "warn"):
            client, recorder = memory_store.recorded()
            with client.run(policy, on_save_error=policy) as run:
                run.step("one", lambda: 1)
                recorder.before_commit = full
                if policy == "raise":
                    with pytest.raises(StoreError):
                        run.step("two", lambda: 2)
                else:
                    assert run.step("two", lambda: 2) == 2
                    assert "disk is full" in caplog.text
                recorder.before_commit = None
            with client.run(policy) as run:  # and the next save took it along
                assert run.step("two", lambda: 22) == 2

    def test_a_step_costs_what_it_adds(self, memory_store: Store):
        client, recorder = memory_store.recorded()
        written = []
        with client.run("s") as run:
            for n in range(400):
                recorder.forget()
                run.step(f"step {n}", lambda: "a result")
                written.append(recorder.written_bytes() + recorder.record_bytes())
        assert sorted(written[300:])[50] < 1.2 * sorted(written[100:200])[50]
        with memory_store.client().run("s") as run:
            assert [run.step(f"step {n}", lambda: "?") for n in range(400)] == ["a result"] * 400

    def test_a_head_that_expired_under_the_run_takes_no_records_with_it(self, client: SyncClient):
        with client.run("s") as run:
            for n in range(100):
                run.step(f"step {n}", lambda: "a result")
            client.expire(run.checkpoint_id)
            run.step("next", lambda: 1)
        with client.run("s") as run:
            assert run.step("step 99", lambda: "?") == "a result"
            assert run.step("next", lambda: "?") == 1

    def test_app_version_and_state_version_are_in_every_checkpoint(self, client: SyncClient):
        with client.run("s", app_version="2.3", state_version=4) as run:
            run.step("one", lambda: 1)
        assert {(one.app_version, one.state_version) for one in client.timeline(session_id="s")} == {("2.3", 4)}


# -- at the same time ------------------------------------------------------------------------------------------------


def test_parallel_steps_of_threads(store: Store):
    calls = Calls()
    for _ in range(2):
        client = store.client()
        with client.run("s") as run, ThreadPoolExecutor(8) as pool:
            found = pool.map(lambda n: run.step(f"n{n}", calls, n), range(40))
            assert list(found) == list(range(40))
    assert sorted(calls.made) == list(range(40))


def test_parallel_steps_of_tasks(store: Store):
    calls = Calls()

    async def work(n: int) -> object:
        await asyncio.sleep(0)
        return calls(n)

    async def program() -> None:
        async with store.async_client() as client:
            for _ in range(2):
                async with client.run("s") as run:
                    assert await asyncio.gather(*[run.step("work", work, n) for n in range(20)]) == list(range(20))
                    assert await run.step("plain", calls, "in a thread") == "in a thread"

    asyncio.run(program())
    assert len(calls.made) == 21


def test_steps_that_end_together_share_a_save(memory_store: Store):
    client, recorder = memory_store.recorded()
    together = threading.Barrier(8)
    held = threading.Event()

    def commits(_):
        held.wait(240)

    with client.run("s") as run:
        run.step("first", lambda: 1)
        recorder.forget()
        recorder.before_commit = commits
        with ThreadPoolExecutor(8) as pool:
            waiting = [pool.submit(run.step, f"n{n}", together.wait) for n in range(8)]
            wait_until(lambda: len(run._core.journal) == 9)
            held.set()
            [one.result() for one in waiting]
    saves = [commit for commit in recorder.commits if commit.record is not None]
    assert len(saves) <= 3
