"""Timers: sleeping runs hold no process, survive restarts and clock jumps, and are found in the order of time."""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Client, Runnables, SyncClient, UsageError, runnable
from holdfast.runs import worker
from holdfast.runs.worker import WorkerOptions

HOUR_US = 3_600_000_000


@pytest.fixture
def names():
    made = Runnables()

    @runnable("naps", registry=made)
    def naps(run, seconds):
        run.step("before", lambda: 1)
        run.sleep(seconds)
        return run.step("after", lambda: "awake")

    return made


def set_clock(client: SyncClient, offset_us: int) -> None:
    """Sets the clock of a client's process, as one that jumps."""
    client._ctx.now_us = client._client._ctx.now_us = lambda: time.time_ns() // 1000 + offset_us


def work(client: SyncClient, names: Runnables) -> int:
    return client.work(drain=True, runnables=names)


@pytest.mark.slow
def test_a_thousand_sleeping_runs_hold_neither_process_nor_thread(quick, names):
    before = threading.active_count()
    for number in range(1000):
        quick.start("naps", 3600, session_id=f"run-{number}")
    assert quick.work(drain=True, runnables=names, concurrency=32) == 1000
    deadline = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before + 1
    sleeping = quick.runs(status="waiting")
    assert len(sleeping) == 1000
    assert {one.waits[0].kind for one in sleeping} == {"timer"}
    assert {one.holder for one in sleeping} == {None}
    assert work(quick, names) == 0
    set_clock(quick, HOUR_US)
    assert quick.work(drain=True, runnables=names, concurrency=32) == 1000
    assert {one.result for one in quick.runs(status="completed")} == {"awake"}


@pytest.mark.slow
def test_a_clock_that_is_set_back_wakes_nothing_early_and_loses_nothing(quick, names):
    quick.start("naps", 3, session_id="s")
    assert work(quick, names) == 1
    until = quick.run_status("s").waits[0].until
    set_clock(quick, -HOUR_US)
    time.sleep(3.1)
    assert work(quick, names) == 0
    assert quick.run_status("s").status == "waiting"
    set_clock(quick, 0)
    assert work(quick, names) == 1
    assert quick.run_status("s").result == "awake"
    assert datetime.now(UTC) >= until


def test_a_clock_that_jumps_ahead_wakes_what_is_due_by_it(quick, names):
    quick.start("naps", 3600, session_id="s")
    quick.start("naps", 0, session_id="later", at=datetime.now(UTC) + timedelta(hours=1))
    assert work(quick, names) == 1
    set_clock(quick, HOUR_US + 1)
    while not all(one.is_over for one in quick.runs()):
        work(quick, names)
    assert {one.result for one in quick.runs()} == {"awake"}


@pytest.mark.slow
def test_a_sleep_in_this_process_ends_in_time_though_the_clock_is_set_back(quick):
    begun = time.monotonic()
    with quick.run("s") as run:
        threading.Timer(0.3, set_clock, (quick, -HOUR_US)).start()
        run.sleep(1.5)
    assert 1.4 <= time.monotonic() - begun < 60


@pytest.mark.slow
def test_timers_survive_restarts_of_all_processes(tmp_path, names):
    path = tmp_path / "store.db"
    with SyncClient.sqlite(path) as client:
        client.start("naps", 4, session_id="s")
        client.start("naps", 0, session_id="later", at=datetime.now(UTC) + timedelta(seconds=4))
        work(client, names)
    with SyncClient.sqlite(path) as client:
        assert {str(one.status) for one in client.runs()} == {"waiting"}
        while not all(one.is_over for one in client.runs()):
            work(client, names)
            time.sleep(0.05)
        assert [one.result for one in client.runs()] == ["awake", "awake"]


@pytest.mark.slow
def test_what_is_due_first_is_taken_first(quick):
    order = []
    names = Runnables()
    runnable("note", registry=names)(lambda run: order.append(run.session_id))
    now = datetime.now(UTC)
    for number in (3, 1, 2, 0):
        quick.start("note", session_id=str(number), at=now + timedelta(seconds=1 + number * 0.2))
    deadline = time.monotonic() + 60
    while len(order) < 4:
        assert time.monotonic() < deadline
        quick.work(drain=True, runnables=names, concurrency=1)
        time.sleep(0.02)
    assert order == ["0", "1", "2", "3"]


@pytest.mark.slow
def test_an_idle_worker_reads_about_once_a_second(tmp_path, names):
    async def main() -> None:
        async with Client.sqlite(tmp_path / "store.db") as client:
            times = []
            backend = client._ctx.backend.backend
            scan = backend.scan

            def counted(*args, **kwargs):
                times.append(time.monotonic())
                return scan(*args, **kwargs)

            backend.scan = counted
            task = asyncio.create_task(client.work(runnables=names))
            while len(times) < 2 or times[-1] - times[-2] < 0.9:  # noqa: ASYNC110 - until it has slowed down
                await asyncio.sleep(0.1)
            times.clear()
            began = time.monotonic()
            async with asyncio.timeout(60):
                while time.monotonic() < began + 4 or len(times) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            calls, seconds = len(times), time.monotonic() - began
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert 2 <= calls <= seconds + 2

    asyncio.run(main())


@pytest.mark.slow
def test_a_start_wakes_a_worker_of_the_same_process_at_once(tmp_path, names, monkeypatch):
    monkeypatch.setitem(WorkerOptions.__init__.__kwdefaults__, "poll_seconds", 600.0)  # polling would take too long
    monkeypatch.setattr(worker, "SHORTEST_GAP", 0.0)  # nor does the worker slow down
    runnable("now", registry=names)(lambda run: 1)

    async def main() -> None:
        async with Client.sqlite(tmp_path / "store.db") as client, asyncio.timeout(60):
            task = asyncio.create_task(client.work(runnables=names))
            await asyncio.sleep(1)
            await client.start("now", session_id="s")
            while (await client.run_status("s")).status != "completed":  # noqa: ASYNC110 - a worker ends it
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


@pytest.mark.parametrize(
    "wrong", [{"seconds": -1}, {"seconds": "1"}, {}, {"until": datetime(2030, 1, 1)}, {"until": 5}]
)
def test_wrong_times_are_refused(quick, wrong):
    with quick.run("s") as run, pytest.raises(UsageError):
        run.sleep(**wrong)
