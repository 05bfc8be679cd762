"""A boss and its workers die at every commit, and at random: each item is done once, and the answer is the same.

First on every store within one process, where a life that ended can't reach the store any more; then with processes
that are really killed. Small counts in `make test`, every commit and more kills under HOLDFAST_SOAK=1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from campaign import SOAK, randomness, tally
from delegation_team import ITEMS, SESSION, WORKER, Mortal, do, done_items, lead, work
from paths import SUPPORT
from stores import Store

from holdfast import SyncClient
from holdfast.model.lease import Process
from holdfast.runs import delegate

pytestmark = [pytest.mark.every_store, pytest.mark.timeout(900)]
PROGRAM = SUPPORT / "delegation_team.py"
VALUES = [one["n"] * 10 for one in ITEMS]
LIVES = 40
KILLS = 30 if SOAK else 3
POINTS = None if SOAK else 4
PATIENCE = 240.0


class LifeEnded(BaseException):
    """A process is gone: none of its code goes on."""


class Lives:
    """Clients of one process after the other. A life that ended is known to be dead, as on one machine."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ended: set[int] = set()
        self._count = 0

    def client(self, number: int = 0, when: str = "") -> tuple[SyncClient, Mortal]:
        self._count += 1
        me = self._count

        def die() -> None:
            self._ended.add(me)
            mortal.is_dead = True
            raise LifeEnded

        class Body(Mortal):
            is_dead = False

            def commit_all(self, commits: Any) -> Any:
                if self.is_dead:
                    raise LifeEnded
                return super().commit_all(commits)

        mortal = Body(self._store.backend(), number, when, die)
        client = SyncClient(mortal)
        client._ctx.this_process = lambda: Process("test", me, 0)
        client._ctx.has_ended = lambda process: process.place == "test" and process.pid in self._ended
        return client, mortal


def check(store: Store, directory: Path) -> None:
    """Each item has one session, one answer and one effect."""
    client = store.client()
    assert sorted(done_items(directory)) == [one["n"] for one in ITEMS]
    assert len(client.sessions()) == 1 + len(ITEMS)
    assert client.latest(SESSION).execution_state == {"sum": sum(VALUES)}
    assert {one.status for one in client.team(SESSION).members} == {"idle", "answered"}
    assert client.verify().problems == ()


def repeat(act: Callable[[int, str], Any], number: int, when: str) -> Any:
    """Act once with a death at that commit, then without one, until it comes to its end."""
    try:
        return act(number, when)
    except LifeEnded:
        return act(0, "")


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 12))
def test_the_boss_dies_at_each_of_its_commits(store, tmp_path, number, when):
    lives = Lives(store)
    stop = threading.Event()
    client, _ = lives.client()

    def serve() -> None:
        while not stop.is_set():
            work(client, tmp_path)
            stop.wait(0.01)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        got = repeat(lambda *kill: lead(lives.client(*kill)[0]), number, when)
        again = lead(lives.client()[0])
    finally:
        stop.set()
        thread.join()
    assert got.values == VALUES
    assert again.results == got.results
    check(store, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 9))
def test_a_worker_dies_at_each_of_its_commits(store, tmp_path, number, when):
    lives = Lives(store)
    boss, _ = lives.client()
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(lead(boss)))
    thread.start()
    look = lives.client()[0]
    while not look.inbox(WORKER):
        time.sleep(0.01)
    deadline = time.monotonic() + PATIENCE
    while thread.is_alive():
        assert time.monotonic() < deadline
        repeat(lambda *kill: work(lives.client(*kill)[0], tmp_path), number, when)
        thread.join(0.02)
    assert got[0].values == VALUES
    check(store, tmp_path)


def test_the_boss_makes_so_many_commits_that_every_one_was_tried(store, tmp_path):
    lives = Lives(store)
    client, mortal = lives.client()
    other, _ = lives.client()

    def serve() -> None:
        time.sleep(0.2)
        done, deadline = 0, time.monotonic() + PATIENCE
        while done < len(ITEMS) and time.monotonic() < deadline:
            done += work(other, tmp_path)

    thread = threading.Thread(target=serve)
    thread.start()
    began = time.monotonic()
    lead(client)
    seconds = time.monotonic() - began
    thread.join()
    assert 6 <= mortal.commits < 12 + seconds  # a boss that waits notes that, and renews its lease


# -- controls ----------------------------------------------------------------------------------------------------------


def test_control_with_names_of_chance_each_child_is_made_twice(quick, monkeypatch):
    """Were a child's name not derived from the run, the place and the item, a resume would offer it again."""
    derive = delegate._rows
    monkeypatch.setattr(
        delegate, "_rows", lambda *given: [one._replace(child=uuid.uuid4().hex) for one in derive(*given)]
    )
    for _ in range(2):
        with quick.run(SESSION, "boss", autosave=None) as run:
            run.delegate(WORKER, ITEMS)
            run._core.journal.entries.clear()  # its record is lost, as by a crash before it was saved
    assert len(quick.inbox(WORKER)) == 2 * len(ITEMS)


def test_control_a_worker_without_the_ledger_does_an_item_twice(quick, tmp_path):
    """Were the effect a plain call, the second worker would do it again."""
    with quick.run(SESSION, "boss") as run:
        [asked] = run.delegate(WORKER, ITEMS[1:2])
    for is_last in (False, True):
        with quick.claim(asked.handoff_id, WORKER) as claim:
            result = do(tmp_path, claim.checkpoint.execution_state["n"])
            if is_last:
                claim.complete(result)
    assert done_items(tmp_path) == [1, 1]


# -- processes that are killed -----------------------------------------------------------------------------------------


class Team:
    """Processes of a boss and of workers, in one directory."""

    def __init__(self, store: Store, directory: Path) -> None:
        self.store = store
        self.directory = directory
        self.running: list[subprocess.Popen[str]] = []

    def start(self, role: str, *kill: str) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            [sys.executable, str(PROGRAM), self.store.url, role, str(self.directory), *kill],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.running.append(made)
        return made

    def finish(self) -> list[int]:
        """Start the boss until it comes to its end, and return its values."""
        for _ in range(LIVES):
            boss = self.start("boss")
            said, errors = boss.communicate(timeout=PATIENCE)
            if boss.returncode == 0:
                return json.loads(said.splitlines()[-1])["values"]
            assert boss.returncode == -9, errors
        raise AssertionError("the boss never comes to its end")

    def end(self) -> None:
        (self.directory / "stop").touch()
        for one in self.running:
            if one.poll() is None:
                one.kill()
            one.communicate()


@pytest.fixture
def team(shared_store: Store, tmp_path: Path) -> Iterator[Team]:
    shared_store.client().sessions()  # it is there before processes race to make it
    made = Team(shared_store, tmp_path)
    yield made
    made.end()


def points(of: int, *names: object) -> list[tuple[str, int]]:
    every = [(when, number) for number in range(1, of + 1) for when in ("before", "after")]
    return every if POINTS is None else randomness(*names).sample(every, POINTS)


@pytest.mark.slow
def test_the_process_of_the_boss_is_killed_at_its_commits(team, tmp_path):
    for attempt, (when, number) in enumerate(points(9, "boss", team.store.kind)):
        team.directory = tmp_path / str(attempt)
        team.directory.mkdir()
        store = Store(team.store.kind, team.directory, team.store.server)
        team.store = store
        store.client().sessions()
        worker = team.start("worker")
        boss = team.start("boss", when, str(number))
        boss.communicate(timeout=PATIENCE)
        assert boss.returncode == -9
        assert team.finish() == VALUES
        assert team.finish() == VALUES
        check(store, team.directory)
        (team.directory / "stop").touch()
        assert worker.wait(PATIENCE) == 0
        store.close()
    tally("boss kills", kills=attempt + 1)


@pytest.mark.slow
def test_processes_of_workers_are_killed_at_random(team):
    random = randomness("workers", team.store.kind)
    team.start("worker", random.choice(("before", "after")), str(random.randint(1, 8)))
    boss = team.start("boss")
    deadline = time.monotonic() + PATIENCE
    kills = 0
    while boss.poll() is None:
        assert time.monotonic() < deadline
        worker = team.start("worker")
        assert worker.stdout is not None
        worker.stdout.readline()
        time.sleep(random.uniform(0, 0.08))
        if kills < KILLS:
            worker.kill()
            kills += 1
            worker.wait()
        else:
            boss.wait(PATIENCE)
    assert json.loads(boss.communicate()[0].splitlines()[-1])["values"] == VALUES
    assert boss.returncode == 0
    check(team.store, team.directory)
    tally("worker kills", kills=kills)
