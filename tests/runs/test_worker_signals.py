"""The end of a worker: the command by signals, a call in a program by an event or a cancellation."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from holdfast import Client, Runnables, SyncClient, runnable

pytestmark = pytest.mark.slow
PROGRAM = """
import pathlib, time, holdfast
from holdfast.runs.worker import Worker

def note(word):
    with pathlib.Path("log").open("a") as log:
        log.write(word + "\\n")

def rest(name):
    note(f"begin {name}")
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    note(f"end {name}")

@holdfast.runnable("steps")
def steps(run):
    for name in ("one", "two"):
        run.step(name, rest, name)
    return "done"

def note_and_stop(worker):
    is_first, _ = not worker._is_stopping, stop(worker)
    if is_first:
        note("stopping")

stop, Worker.stop = Worker.stop, note_and_stop
"""


@pytest.fixture
def work(tmp_path):
    """Starts `holdfast work` in a process; its first step ends once there is a file `go`."""
    (tmp_path / "worked.py").write_text(PROGRAM)
    started = []

    def start():
        client = SyncClient.sqlite(tmp_path / "store.db")
        client.start("steps", session_id="s")
        command = [sys.executable, "-m", "holdfast", "work", "worked", "--store", str(tmp_path / "store.db")]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        started.append(process)
        wait_until(lambda: lines(tmp_path) == ["begin one"])
        return client, process

    yield start
    for one in started:
        one.kill()
        one.communicate()


def lines(directory):
    log = directory / "log"
    return log.read_text().splitlines() if log.exists() else []


def wait_until(is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_step_end_hands_the_run_back_and_exits_with_0(work, tmp_path, number):
    client, process = work()
    process.send_signal(number)
    wait_until(lambda: "stopping" in lines(tmp_path))
    (tmp_path / "go").touch()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert lines(tmp_path) == ["begin one", "stopping", "end one"]
    found = client.run_status("s")
    assert (found.status, found.waits[0].kind, found.attempts, found.saves) == ("waiting", "worker", 0, 1)
    assert "carried out 1 lives" in errors


def test_a_second_signal_does_not_wait_for_the_step(work, tmp_path):
    client, process = work()
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: "stopping" in lines(tmp_path))
    time.sleep(1.0)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert lines(tmp_path) == ["begin one", "stopping"]
    assert client.run_status("s").status == "interrupted"  # the next worker takes it at once


@pytest.fixture
def own_handlers():
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    seen = []
    own = {one: lambda number, frame: seen.append(number) for one in before}
    for one, handler in own.items():
        signal.signal(one, handler)
    yield own, seen
    for one, handler in before.items():
        signal.signal(one, handler)


def quick_names(during):
    names = Runnables()

    @runnable("quick", registry=names)
    async def quick(run):
        during()

    return names


def test_a_worker_in_a_program_leaves_its_signal_handlers_alone(own_handlers, tmp_path):
    handlers, seen = own_handlers

    def look():
        assert {one: signal.getsignal(one) for one in handlers} == handlers
        os.kill(os.getpid(), signal.SIGTERM)

    client = SyncClient.sqlite(tmp_path / "store.db")
    client.start("quick", session_id="s")
    assert client.work(drain=True, runnables=quick_names(look)) == 1
    assert client.run_status("s").status == "completed"

    async def main():
        async with Client.sqlite(tmp_path / "store.db") as awaited:
            await awaited.start("quick", session_id="t")
            assert await awaited.work(drain=True, runnables=quick_names(look)) == 1
            assert (await awaited.run_status("t")).status == "completed"

    asyncio.run(main())
    assert seen == [signal.SIGTERM] * 2
    assert {one: signal.getsignal(one) for one in handlers} == handlers


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_worker_of_a_program_once_its_runs_are_handed_back(tmp_path):
    steps = []
    names = Runnables()

    @runnable("long", registry=names)
    def long(run):
        for number in range(100):
            run.step("one", time.sleep, 0.05)
            steps.append(number)
            if number == 2:
                os.kill(os.getpid(), signal.SIGINT)

    client = SyncClient.sqlite(tmp_path / "store.db")
    client.start("long", session_id="s")
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        client.work(runnables=names)
    assert signal.getsignal(signal.SIGINT) is before
    found = client.run_status("s")
    assert (found.status, found.waits[0].kind) == ("waiting", "worker")
    assert 3 <= len(steps) < 100


def test_a_cancelled_worker_hands_its_runs_back_first(tmp_path):
    steps = []
    names = Runnables()

    @runnable("long", registry=names)
    async def long(run):
        for number in range(100):
            await run.step("one", asyncio.sleep, 0.05, number)
            steps.append(number)

    async def main():
        async with Client.sqlite(tmp_path / "store.db") as client:
            await client.start("long", session_id="s")
            task = asyncio.create_task(client.work(runnables=names))
            while len(steps) < 3:  # noqa: ASYNC110 - a thread of the worker adds them
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            found = await client.run_status("s")
            assert (found.status, found.waits[0].kind, found.failure) == ("waiting", "worker", None)
            assert found.saves == len(steps)

    asyncio.run(main())
    assert 3 <= len(steps) < 100
