"""System calls that fail (R3): a `StoreError` or success, and never a lost, torn or doubled checkpoint.

The writer does what an application would: it tries again with the id that the error carries.
"""

import os
from pathlib import Path

import pytest
from acknowledged import Said, digest, digest_of, findings, open_client
from campaign import BACKENDS, ERROR_POINTS, share, tally
from injection import calls_of_the_story, need_strace, spread, story_with_fault

from holdfast.backends.files import disk
from holdfast.errors import HoldfastError

slow = pytest.mark.slow
SHARES = 2
FAILING = {
    "sqlite": ("pwrite64", "fdatasync", "fsync", "ftruncate", "unlink"),
    "files": ("pwrite64", "fsync", "renameat", "linkat", "unlinkat", "mkdirat", "utimensat"),
}


def judge(kind: str, store: Path, said: Said, *, in_flight: int) -> list[str]:
    client = open_client(kind, store)
    try:
        return findings(client, said, in_flight=in_flight)
    finally:
        client.close()


@slow
@pytest.mark.parametrize("number", range(SHARES))
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("kind", BACKENDS)
def test_one_failing_call_is_told_and_repeated_safely(kind: str, error: str, number: int, tmp_path: Path):
    """Any one system call of a story fails. The story goes on to its end, everything in it is there once."""
    need_strace()
    calls = calls_of_the_story(kind, tmp_path, FAILING[kind])
    done = told = 0
    wrong = {}
    for call, n in share(spread(calls, ERROR_POINTS), number, SHARES):
        store = tmp_path / f"{call}-{n}"
        status, said, errors = story_with_fault(kind, store, f"{call}:error={error}:when={n}")
        found = judge(kind, store, said, in_flight=0)
        if status or not said.finished:
            found.append(f"the writer ended with {status}: {errors[-600:]}")
        done += 1
        told += bool(said.failures)
        if found:
            wrong[(call, n)] = found
    tally(f"one {error}, {kind}", done=done, told=told, wrong=len(wrong))
    assert not wrong, f"{len(wrong)} of {done} failing calls: {wrong}"
    assert told, "no failing call was ever told: this proves nothing"


@slow
@pytest.mark.parametrize("kind", BACKENDS)
def test_a_disk_that_fails_for_good_costs_only_what_was_not_acknowledged(kind: str, tmp_path: Path):
    """From the n-th call on all fail. The writer gives up; another process, with the disk repaired, goes on."""
    need_strace()
    call = "pwrite64" if kind == "sqlite" else "fsync"
    calls = calls_of_the_story(kind, tmp_path, (call,))
    wrong = {}
    points = spread(calls, ERROR_POINTS)
    for _, n in points:
        store = tmp_path / f"{call}-{n}"
        status, said, errors = story_with_fault(kind, store, f"{call}:error=EIO:when={n}+")
        found = judge(kind, store, said, in_flight=1)
        if status:
            found.append(f"the writer ended with {status}: {errors[-600:]}")
        if found:
            wrong[(call, n)] = found
    tally(f"EIO for good, {kind}", done=len(points), wrong=len(wrong))
    assert not wrong, f"{len(wrong)} of {len(points)}: {wrong}"


@slow
def test_a_disk_that_lies_about_a_write_is_never_believed_in_silence(tmp_path: Path):
    """A write that never happened and was reported as done can lose data on any store. It must not make a restore
    return something else: every checkpoint is exact, or there is an error of ours."""
    need_strace()
    calls = calls_of_the_story("sqlite", tmp_path, ("pwrite64",))
    points = spread(calls, ERROR_POINTS)
    noticed = 0
    for call, n in points:
        store = tmp_path / f"{call}-{n}"
        _, said, errors = story_with_fault("sqlite", store, f"{call}:retval=100:when={n}")
        assert "Error" not in errors or "holdfast.errors." in errors, f"{n}: {errors[-600:]}"
        try:
            client = open_client("sqlite", store)
        except HoldfastError:
            noticed += 1
            continue
        failed = False
        for id_, expected in said.saved.items():
            try:
                restored = client.restore(id_)
            except HoldfastError:
                failed = True
            else:
                assert digest_of(restored) == expected, f"after a false write {n}: {id_} is there with another state"
        noticed += failed
        client.close()
    tally("false writes, sqlite", done=len(points), noticed=noticed, wrong=0)
    assert noticed, "no false write did any harm: this proves nothing"


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A system may write fewer bytes than it was given, and say so: the rest follows."""
    write, short = os.write, 0

    def write_a_little(descriptor: int, data: bytes) -> int:
        nonlocal short
        short += len(data) > 7
        return write(descriptor, bytes(data[:7]))

    monkeypatch.setattr(disk.os, "write", write_a_little)
    state = {"messages": [f"{number} " + "z" * 300 for number in range(40)], "blob": os.urandom(5000)}
    with open_client("files", tmp_path / "store") as client:
        id_ = client.save("a", execution_state=state, session_id="s", digest=digest(state, {}))
    monkeypatch.undo()
    assert short > 100
    with open_client("files", tmp_path / "store") as client:
        assert client.restore(id_).execution_state == state
        assert client.verify().ok
