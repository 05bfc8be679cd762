"""Ctrl-C at any moment of a save or a restore: what was acknowledged is there, and everybody can go on."""

from __future__ import annotations

import gc
import threading
import time

import pytest
from interrupts import Interrupts
from stores import Store

from holdfast import SyncClient
from holdfast.errors import StoreError

# A signal may come in a callback of the garbage collector, which can only write down that it did,
# or before a coroutine is begun.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.timeout(60),
]
INTERRUPTS = 150


def save_and_restore(client: SyncClient, session: str, n: int) -> str:
    saved = client.save("a", session_id=session, execution_state={"n": n, "text": "x" * 3000})
    assert client.restore(saved).execution_state["n"] == n
    assert client.latest(session_id=session).checkpoint_id == saved
    return saved


def saved_with_interrupts(client: SyncClient, sessions: int) -> list[str]:
    """Saves until it was interrupted often enough; what was acknowledged."""
    acknowledged, errors = [], []
    with Interrupts() as interrupts:
        n = 0
        while interrupts.interrupted < INTERRUPTS:
            n += 1
            try:
                acknowledged.append(interrupts.during(lambda n=n: save_and_restore(client, f"s{n % sessions}", n)))
            except KeyboardInterrupt as error:
                errors.append(error)  # its frames are kept, and so is all that they hold
                acknowledged.append(client.save("a", session_id=f"s{n % sessions}", execution_state={"n": -n}))
    errors.clear()
    gc.collect()  # here, where it is no wonder that coroutines were never begun
    return acknowledged


@pytest.mark.slow
@pytest.mark.parametrize("sessions", [1, 1000], ids=["one session", "many sessions"])
def test_nobody_waits_for_what_was_interrupted(disk_store: Store, sessions: int):
    acknowledged = saved_with_interrupts(disk_store.client(), sessions)
    other = disk_store.client()
    save_and_restore(other, "s0", 0)
    for id_ in acknowledged:
        other.restore(id_)


@pytest.mark.slow
def test_other_threads_go_on(disk_store: Store):
    client = disk_store.client()
    saves: list[int] = [0]
    failures: list[BaseException] = []
    is_over = threading.Event()

    def go_on() -> None:
        n = 0
        while not is_over.is_set():
            n += 1
            try:
                save_and_restore(client, f"t{n % 10}", n)
                saves[0] += 1
            except StoreError as error:  # its commit was in the hands of the thread that was interrupted
                if "was interrupted" not in str(error):
                    failures.append(error)
            except BaseException as error:
                failures.append(error)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    acknowledged = saved_with_interrupts(client, 10)
    before = saves[0]
    deadline = time.monotonic() + 60
    while saves[0] <= before and not failures and time.monotonic() < deadline:
        time.sleep(0.01)
    is_over.set()
    thread.join(60)
    assert not failures
    assert saves[0] > before
    for id_ in acknowledged:
        client.restore(id_)
