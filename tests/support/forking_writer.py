"""A program that forks while its other threads save: `python forking_writer.py URL KIND CHILDREN WAY`.

KIND is `sync` or `async`, WAY `fork` or `multiprocessing`. Each child saves and reads once with the
client of its parent, in a session of its own and in the one that the parent's threads save to.
Prints a JSON object: what each child said, and what the parent's threads were acknowledged. A child
that says nothing for `SECONDS` hangs: it is killed.
"""

import asyncio
import json
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable

from holdfast import Client, SyncClient
from holdfast.backends.memory import MemoryBackend

SECONDS = 30.0
THREADS = 3


def main(url: str, kind: str, children: int, way: str) -> None:
    is_over = threading.Event()
    acknowledged: list[str] = []
    failures: list[str] = []
    memory = MemoryBackend()
    if kind == "sync":
        sync = SyncClient(memory) if url == "memory://" else SyncClient.open(url)

        def save(agent: str, session: str, state: object) -> str:
            return sync.save(agent, session_id=session, execution_state=state)

        def look(*ids: str) -> list[object]:
            return [sync.restore(id_).execution_state for id_ in ids]

        def work(number: int) -> None:
            step = 0
            while not is_over.is_set():
                step += 1
                acknowledged.append(save("parent", f"s{number % 2}", {"n": step, "m": ["word " * 20] * (step % 40)}))
    else:
        client = Client(memory) if url == "memory://" else Client.open(url)

        def save(agent: str, session: str, state: object) -> str:
            return asyncio.run(client.save(agent, session_id=session, execution_state=state))

        def look(*ids: str) -> list[object]:
            async def restore() -> list[object]:
                return [(await client.restore(id_)).execution_state for id_ in ids]

            return asyncio.run(restore())

        def work(number: int) -> None:
            async def go_on() -> None:
                step = 0
                while not is_over.is_set():
                    step += 1
                    state = {"n": step, "m": ["word " * 20] * (step % 40)}
                    acknowledged.append(await client.save("parent", session_id=f"s{number % 2}", execution_state=state))

            asyncio.run(go_on())

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(f"{type(error).__name__}: {error}")

    first = save("parent", "s0", {"n": 0})
    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()

    def in_child(number: int) -> str:
        try:
            for session in (f"child {number}", "s0"):
                saved = save("child", session, {"n": number})
                if look(saved, first) != [{"n": number}, {"n": 0}]:
                    return "another state"
            return "done"
        except BaseException as error:
            return f"{type(error).__name__}: {error}"

    fork = forked if way == "fork" else processed
    said = []
    for number in range(children):
        time.sleep(0.003 * (number % 5))
        said.append(fork(lambda number=number: in_child(number)))
        if said[-1] == "hangs":
            break
    before = len(acknowledged)
    deadline = time.monotonic() + SECONDS
    while len(acknowledged) < before + THREADS and not failures and time.monotonic() < deadline:
        time.sleep(0.005)
    is_over.set()
    for thread in threads:
        thread.join(SECONDS)
    hanging = sum(thread.is_alive() for thread in threads)
    found = [] if hanging else look(*acknowledged)
    print(
        json.dumps(
            {
                "children": said,
                "acknowledged": acknowledged,
                "went_on": len(acknowledged) > before,
                "failures": failures,
                "hanging": hanging,
                "found": len(found),
            }
        ),
        flush=True,
    )
    os._exit(0)


def forked(work: Callable[[], str], seconds: float = SECONDS) -> str:
    """Run `work` in a forked child and return what it says; `hangs` if it says nothing for so long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, work().encode()[:2000])
        os._exit(0)
    os.close(writing)
    heard, _, _ = select.select([reading], [], [], seconds)
    if not heard:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read() if heard else "hangs"


def processed(work: Callable[[], str]) -> str:
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sending.send(work()), daemon=True)
    child.start()
    heard = receiving.poll(SECONDS)
    if not heard:
        child.kill()
    child.join()
    return receiving.recv() if heard else "hangs"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
