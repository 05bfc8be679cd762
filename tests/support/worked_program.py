"""A worker process of the crash campaign, and the functions that it runs.

    python worked_program.py URL DIRECTORY [LEASE_SECONDS]

HOLDFAST_VERSION is the version of the function "versioned"; HOLDFAST_BROKEN=leases switches leases off,
and HOLDFAST_DURABLE=1 keeps what is acknowledged if the server dies.

Each run has ten steps, five of them effects, and writes a line for whatever it does to a file of
its own: `begin`, `do`, `end`, with the process. It holds a lock of the system while it does
something, so two processes at work on one run are found out.
"""

import fcntl
import os
import sys
import time
from pathlib import Path

import holdfast
from holdfast import NOT_DONE, Done, Retry, Runnables, SyncClient
from holdfast.backends.url import open_backend
from holdfast.coordination.lease import SyncLease
from holdfast.operations import lease as leasing

STEPS = 10
NAMES = Runnables()
DIRECTORY = Path()


def note(session: str, *words: object) -> None:
    line = " ".join(map(str, (*words, os.getpid()))) + "\n"
    descriptor = os.open(DIRECTORY / f"{session}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def lines(directory: Path, session: str) -> list[list[str]]:
    path = directory / f"{session}.log"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def alone(session: str, number: int) -> int:
    """Does something that no other process may do for this run at the same time."""
    with (DIRECTORY / f"{session}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(session, "overlap", number)
        time.sleep(0.02)
    return number


def do(session: str, number: int) -> str:
    alone(session, number)
    note(session, "do", number)
    return f"done {number}"


def find(session: str, number: int):
    is_done = any(words[:2] == ["do", str(number)] for words in lines(DIRECTORY, session))
    return Done(f"done {number}") if is_done else NOT_DONE


@holdfast.runnable("campaign", registry=NAMES, retry=Retry(attempts=1000, seconds=0.01))
def campaign(run, total):
    session = run.session_id
    note(session, "begin")
    for number in range(total):
        if number % 2:
            assert run.effect("do", do, session, number, probe=find, key=f"k{number}") == f"done {number}"
        else:
            assert run.step("step", alone, session, number) == number
        run.progress(number + 1, total)
    note(session, "end")
    return total


@holdfast.runnable("poison", registry=NAMES, retry=Retry(attempts=3, seconds=0.01))
def poison(run):
    note(run.session_id, "begin")
    os._exit(66)


@holdfast.runnable("bomb", registry=NAMES, retry=Retry(attempts=3, seconds=0.01))
def bomb(run, victims):
    """Kills its process once it carries out these runs, too, or some of them are not begun for a while."""
    note(run.session_id, "begin")
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline and not all(is_begun_here(name) for name in victims):
        time.sleep(0.01)
    os._exit(66)


@holdfast.runnable("victim", registry=NAMES, retry=Retry(attempts=3, seconds=0.01))
def victim(run):
    note(run.session_id, "begin")
    run.step("slow", time.sleep, 4)
    return "done"


def is_begun_here(session: str) -> bool:
    return ["begin", str(os.getpid())] in lines(DIRECTORY, session)


@holdfast.runnable("boss", registry=NAMES, retry=Retry(attempts=1000, seconds=0.01))
def boss(run, count):
    note(run.session_id, "begin")
    found = run.join(run.delegate("child", list(range(count))))
    run.publish("done", run.session_id)
    return [one.value for one in found.results]


@holdfast.runnable("child", registry=NAMES, retry=Retry(attempts=1000, seconds=0.01))
def child(run, number):
    note(run.session_id, "begin")
    run.step("step", alone, run.session_id, number)
    run.effect("do", do, run.session_id, number, probe=find, key="k")
    return number


@holdfast.runnable("reader", registry=NAMES, retry=Retry(attempts=1000, seconds=0.01))
def reader(run, count):
    """Reads in its state who is done: messages take effect once."""
    while len(run.state.get("seen", [])) < count:
        for message in run.receive("done", "readers"):
            run.state = {"seen": [*run.state.get("seen", []), message.value]}
            if len(run.state["seen"]) == count:
                break
    return run.state["seen"]


VERSION = os.environ.get("HOLDFAST_VERSION", "1")


@holdfast.runnable("versioned", version=VERSION, registry=NAMES)
def versioned(run, total):
    note(run.session_id, "begin", VERSION)
    if VERSION == "1":
        wait_for_go()
    for number in range(total):
        run.step("step", alone, run.session_id, number)
    return VERSION


@holdfast.runnable("paused", registry=NAMES)
def paused(run):
    note(run.session_id, "begin")
    run.step("slow", pause, run.session_id)
    return run.effect("do", do, run.session_id, 1, probe=find, key="k")


def pause(session: str) -> None:
    note(session, "slow")
    if sum(words[0] == "slow" for words in lines(DIRECTORY, session)) == 1:
        wait_for_go()  # it is stopped meanwhile


def wait_for_go() -> None:
    while not (DIRECTORY / "go").exists():
        time.sleep(0.05)


def switch_leases_off() -> None:
    """The control: a worker takes any run once its lease could have run out, and writes without one."""
    SyncLease._keep_renewing = lambda self, stop: None
    leasing.is_alive = lambda ctx, held: False
    leasing.allows = lambda ctx, head, lease: True


def main() -> None:
    global DIRECTORY  # noqa: PLW0603 - the functions of a process share it
    url, directory, *seconds = sys.argv[1:]
    DIRECTORY = Path(directory)
    is_durable = url.startswith("redis") or "HOLDFAST_DURABLE" in os.environ
    client = SyncClient(open_backend(url, **({} if is_durable else {"durability": "fast"})))
    lease = float(seconds[0]) if seconds else 15.0
    if os.environ.get("HOLDFAST_BROKEN") == "leases":
        switch_leases_off()
    client.work(
        runnables=NAMES, concurrency=4, lease_seconds=lease, holder=f"worker {os.getpid()}",
        notify=lambda name, session, what: print(name, session, what, flush=True),
    )  # fmt: skip


if __name__ == "__main__":
    main()
