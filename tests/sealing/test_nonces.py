"""No nonce is used twice under a key: by processes, their forks, and threads that share a store."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from stores import RING, Recorder, Store

from holdfast import SyncClient
from holdfast.backends.port import Commit
from holdfast.sealing import bridge

ITEMS = 1_000_000 if "HOLDFAST_SOAK" in os.environ else 12_000
PROCESSES, THREADS = 8, 2
LIST = [{"n": number, "text": "a long text " * 10} for number in range(40)]


def sealed_in(commit: Commit) -> Iterator[bytes]:
    """The key's id and the nonce of each envelope that a commit brings."""
    records = [*((commit.record,) if commit.record else ()), *commit.more_records]
    given = [record.data for record in records]
    given += [segment.data for segment in commit.segments]
    given += [piece for delete in commit.delete_segments for _, _, piece in delete.pieces]
    given += [row.value for row in commit.rows if row.value is not None]
    given += commit.blobs.values()
    for data in given:
        if data[:2] == b"HF":
            yield data[5:25]
        elif data[:2] == b"\x10\x01":
            yield data[2:22]


class Listener(Recorder):
    """A backend that notes each key id with its nonce, and nothing else."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.heard: list[bytes] = []

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        for commit in commits:
            self.heard += sealed_in(commit)
        return self.inner.commit_all(commits)


def write(client: SyncClient, name: str, listener: Listener, count: int) -> None:
    """Save until so many items were sealed: some with a list, a new tree now and then."""
    step = 0
    while len(listener.heard) < count:
        state = {"list": LIST[: 20 + step % 20], "n": step} if step % 5 == 0 else {"n": step}
        client.save("a", session_id=f"{name} {step // 100}", execution_state=state)
        step += 1


def write_in_threads(store: Store, client: SyncClient | None, name: str, where: Path, count: int) -> None:
    """Write with threads that share a client, and leave the nonces in a file."""
    listener = Listener(store.backend())
    shared = SyncClient(listener, keys=RING)
    if client is not None:  # of the parent: its keys, and whatever it may have drawn, are in this process, too
        inner = client._ctx.backend.inner
        listener = inner.backend
        listener.heard.clear()
        shared = client
    threads = [
        threading.Thread(target=write, args=(shared, f"{name} {number}", listener, count)) for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (where / name).write_bytes(b"".join(listener.heard))


def heard_by_processes(store: Store, where: Path, items: int) -> list[bytes]:
    """All nonces of processes of which each second one goes on with the client of its parent."""
    listener = Listener(store.backend())
    client = SyncClient(listener, keys=RING)
    for number in range(20):
        client.save("a", session_id="before", execution_state={"n": number})
    before = list(listener.heard)
    children = []
    for number in range(PROCESSES):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                inherited = client if number % 2 else None
                write_in_threads(store, inherited, f"p{number}", where, items // PROCESSES)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found = list(before)
    for path in sorted(where.glob("p*")):
        data = path.read_bytes()
        found += [data[at : at + 20] for at in range(0, len(data), 20)]
    return found


def count_repeated(found: list[bytes]) -> int:
    return len(found) - len(set(found))


@pytest.mark.slow
@pytest.mark.every_store
def test_no_nonce_is_used_twice_by_processes_forks_and_threads(shared_store: Store, tmp_path: Path):
    shared_store.is_sealed = True
    items = ITEMS if shared_store.kind == "sqlite" else ITEMS // 20
    where = tmp_path / "heard"
    where.mkdir()
    found = heard_by_processes(shared_store, where, items)
    assert len(found) >= items
    assert count_repeated(found) == 0


def test_no_nonce_is_used_twice_by_threads_of_a_store_in_memory(memory_store: Store, tmp_path: Path):
    memory_store.is_sealed = True
    write_in_threads(memory_store, None, "p0", tmp_path, 3000)
    data = (tmp_path / "p0").read_bytes()
    found = [data[at : at + 20] for at in range(0, len(data), 20)]
    assert len(found) >= 3000
    assert count_repeated(found) == 0


def test_control_a_constant_nonce_is_noticed(memory_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bridge, "_nonces", lambda count: iter([bytes(12)] * count))
    memory_store.is_sealed = True
    write_in_threads(memory_store, None, "p0", tmp_path, 100)
    data = (tmp_path / "p0").read_bytes()
    assert count_repeated([data[at : at + 20] for at in range(0, len(data), 20)]) > 0


@pytest.mark.slow
def test_control_nonces_that_are_kept_for_later_repeat_after_a_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Were they drawn ahead, a forked child would use those of its parent."""
    kept = iter([bytes(8) + number.to_bytes(4, "big") for number in range(10**6)])
    monkeypatch.setattr(bridge, "_nonces", lambda count: iter([next(kept) for _ in range(count)]))
    store = Store("sqlite", tmp_path)
    store.is_sealed = True
    where = tmp_path / "heard"
    where.mkdir()
    assert count_repeated(heard_by_processes(store, where, 400)) > 0
