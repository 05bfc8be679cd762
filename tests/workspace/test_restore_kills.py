"""Restores that are killed at random moments: the tree is the old one, the new one, or one in between that `resume` and
`roll_back` both finish, and no file that the user made is lost.

100 kills in `make test`, 2,000 under HOLDFAST_SOAK=1.
"""

from __future__ import annotations

import hashlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import restore_store
from campaign import SOAK, randomness, tally
from paths import SUPPORT
from restore_process import EDITING, RESTORING
from restore_trees import on_disk

from holdfast.backends.bridge.step import run_inline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if SOAK else 900)]
KILLS = 2000 if SOAK else 100
SHARES = 4 if SOAK else 2
MOST = 10  # times as many kills, where restores are so quick, or the machine so busy, that few are met
PATIENCE = 240.0


class Killed:
    """The process that forks workers, and the one that works."""

    def __init__(self, store: Path, root: Path, *how: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SUPPORT / "restore_process.py"), str(store), str(root), *how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(SUPPORT)},
        )
        self._buffer = b""

    def start(self, seed: str) -> int:
        self._process.stdin.write(seed.encode() + b"\n")
        self._process.stdin.flush()
        word, pid = self.listen().split()
        assert word == EDITING
        return int(pid)

    def listen(self) -> str:
        deadline = time.monotonic() + PATIENCE
        output = self._process.stdout.fileno()
        waiting = select.poll()  # select() takes no descriptor above 1,023
        waiting.register(output, select.POLLIN)
        while b"\n" not in self._buffer:
            ready = waiting.poll(max(deadline - time.monotonic(), 0) * 1000)
            assert ready, "the worker said nothing for a minute"
            data = os.read(output, 65536)
            assert data, "the worker ended by itself"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def kill(self, pid: int) -> str:
        """Ends the worker; what it said last."""
        os.kill(pid, signal.SIGKILL)
        last = ""
        while (line := self.listen()) != "ended":
            last = line
        return last

    def close(self) -> None:
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def put_user_file(root: Path, number: int, rng: random.Random) -> Path:
    folder = root / "shared" if rng.random() < 0.5 else root
    place = folder / f"user-{number}"
    place.write_bytes(f"made by hand, {number}".encode())
    return place


def judge(store: Path, root: Path, said: str, rng: random.Random) -> tuple[bool, list[str]]:
    """Whether the restore was cut off, and what is wrong."""
    directory = restore_store.open_directory(str(store), root)
    try:
        journal = run_inline(directory.restoring.find_interrupted())
        if journal is None:
            if not said.startswith(RESTORING):
                return False, []
            _, before, after = said.split()
            ends = [before, after]
        elif rng.random() < 0.5:
            run_inline(directory.restoring.resume())
            ends = [journal.target]
        else:
            run_inline(directory.restoring.roll_back())
            ends = [journal.safety]
        there = restore_store.without_users(
            restore_store.entries_of(directory, restore_store.name(directory.snapshot()))
        )
        wanted = [restore_store.without_users(restore_store.entries_of(directory, end)) for end in ends]
        wrong = [] if there in wanted else [f"after {said!r} ({'cut off' if journal else 'whole'}): another tree"]
        wrong += [f"left: {path!r}" for path in on_disk(root) if b".holdfast-" in path]
        return journal is not None, wrong
    finally:
        directory.client.close()


def lost_for_good(store: Path, root: Path, missing: dict[Path, bytes]) -> list[str]:
    """Those files of the user that are in no snapshot either. One that came while the worker took
    snapshots may have been in the last of them, and gone with the next restore like the worker's
    own: then it can be had back."""
    directory = restore_store.open_directory(str(store), root)
    try:
        references = {
            point.workspace
            for session in directory.client.sessions()
            for point in directory.client.timeline(session_id=session.session_id, limit=None)
            if point.workspace is not None
        }
        kept = {(path, entry.content) for one in references for path, entry in directory.entries(one).items()}
    finally:
        directory.client.close()
    return [
        f"lost: {made.name}"
        for made, data in missing.items()
        if (os.fsencode(made.relative_to(root)), hashlib.sha256(data).digest()) not in kept
    ]


def campaign(folder: Path, kills: int, rng: random.Random, *how: str) -> tuple[int, list[str]]:
    """Kills so many workers, and more until enough of them were in the middle of a restore, unless
    something is wrong before: how many restores were cut off, and what is wrong."""
    store, root = folder / "store.db", folder / "root"
    (root / "shared").mkdir(parents=True)
    worker = Killed(store, root, *how)
    cut_off, users = 0, {}
    usual = 0.02  # seconds that a restore takes here
    try:
        for kill in range(MOST * kills):
            if kill >= kills and cut_off >= kills // 25:
                break
            pid = worker.start(f"{kill} {rng.random()}")
            said = EDITING
            if rng.random() < 0.9:  # else while it edits and takes snapshots
                for _ in range(rng.randint(1, 4)):
                    began = time.monotonic()
                    while not (said := worker.listen()).startswith(RESTORING):
                        pass
                    usual = 0.8 * usual + 0.2 * min(time.monotonic() - began, 0.5)
                if rng.random() < 0.3:
                    made = put_user_file(root, kill, rng)
                    users[made] = made.read_bytes()
                time.sleep(rng.random() * usual)
            said = worker.kill(pid) or said
            was_cut_off, wrong = judge(store, root, said, rng)
            cut_off += was_cut_off
            lost = {made: data for made, data in users.items() if _content(made) != data}
            if lost:
                wrong += lost_for_good(store, root, lost)
                users = {made: data for made, data in users.items() if made not in lost}
            if wrong:
                return cut_off, [f"kill {kill}: {one}" for one in wrong]
    finally:
        worker.close()
    return cut_off, []


@pytest.mark.parametrize("number", range(SHARES))
def test_a_kill_at_any_moment_leaves_what_can_be_finished_and_loses_no_file_of_the_user(number: int, tmp_path: Path):
    kills = KILLS // SHARES
    cut_off, wrong = campaign(tmp_path, kills, randomness("restores", number))
    tally("kills of restores", done=kills, wrong=len(wrong), cut_off=cut_off)
    assert not wrong
    assert cut_off >= kills // 25, f"only {cut_off} restores were cut off: this proves too little"


def test_control_a_restore_without_a_journal_is_found_out(tmp_path: Path):
    _, wrong = campaign(tmp_path, 60, randomness("careless restores"), "careless")
    assert any("another tree" in one or "left:" in one for one in wrong), wrong


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
