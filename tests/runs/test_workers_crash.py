"""Workers are killed at random and replaced: every run completes, every effect once, none runs twice at once.

100 runs of ten steps on SQLite, fewer elsewhere; 2,000 on each store under HOLDFAST_SOAK=1. The status of
all runs is sampled meanwhile, and compared with what the logs of the programs allow.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest
from campaign import SOAK, randomness, tally
from paths import SUPPORT
from worked_program import STEPS, lines

from holdfast import SyncClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
PROGRAM = SUPPORT / "worked_program.py"
WORKERS = 4
LEASE_SECONDS = 60.0  # none may run out on a busy machine; that of a process that died is over at once
PATIENCE = 1500.0 if SOAK else 600.0
WORK_BETWEEN_KILLS = 2 * WORKERS  # lines of logs: a process that starts must get to work before the next kill


class Crew:
    """Processes that work on one store; `died` are those that were killed."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url, self._directory = url, directory
        self.alive: list[subprocess.Popen[bytes]] = []
        self.died: set[int] = set()
        self.started: set[int] = set()

    def hire(self, lease_seconds: float = LEASE_SECONDS, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(PROGRAM), self._url, str(self._directory), str(lease_seconds)]
        with (self._directory / "output").open("ab") as output:
            env = {**os.environ, **environment}
            made = subprocess.Popen(command, stdout=output, stderr=output, env=env)
        self.alive.append(made)
        self.started.add(made.pid)
        return made

    def kill(self, one: subprocess.Popen[bytes]) -> None:
        one.kill()
        one.wait()
        self.alive.remove(one)
        self.died.add(one.pid)

    def replace_the_dead(self) -> None:
        for one in [one for one in self.alive if one.poll() is not None]:
            self.alive.remove(one)
            self.died.add(one.pid)
            self.hire()

    def output(self) -> str:
        return (self._directory / "output").read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.alive:
            one.kill()
            one.wait()


class Model:
    """What the logs of the programs, and the processes, allow a status to be."""

    def __init__(self, directory: Path, crew: Crew, names: list[str]) -> None:
        self.directory, self.crew, self.names = directory, crew, names
        self.over: dict[str, int] = {}  # completed runs, with the number of their lines
        self.samples = 0
        self.work = 0  # lines so far

    def check(self, client: SyncClient) -> int:
        """Compare a sample of all statuses with the logs before and after it; return how many are completed."""
        before = {name: lines(self.directory, name) for name in self.names}
        found = {one.session_id: one for one in client.runs()}
        after = {name: lines(self.directory, name) for name in self.names}
        self.work = sum(map(len, after.values()))
        for name in self.names:
            one, early, late = found[name], before[name], after[name]
            self.samples += 1
            allowed = {"running", "interrupted"}
            if not any(words[0] == "begin" for words in early):
                allowed.add("waiting")
            if any(words[0] == "end" for words in late):
                allowed.add("completed")
            if one.failure is not None and one.failure.error_type == "holdfast.errors.StoreBusyError":
                allowed.add("waiting")  # for its retry: the machine is so slow that a life has failed by it
            assert one.status in allowed, (one, early, late)
            if one.status == "running":
                assert one.holder is not None
                assert int(one.holder.removeprefix("worker ")) in self.crew.started
            if one.status == "interrupted":
                assert self.crew.died, one
            if name in self.over:
                assert one.status == "completed"
                assert len(late) == self.over[name], late  # nothing happens to it any more
            elif one.status == "completed":
                assert one.result == STEPS
                assert one.progress is not None
                assert one.progress.done == one.progress.total == STEPS
                self.over[name] = len(late)
        return len(self.over)


def check_logs(directory: Path, names: list[str]) -> None:
    assert find_defects(directory, names) == []
    for name in names:
        assert done_by(directory, name) == [number for number in range(STEPS) if number % 2]


def find_defects(directory: Path, names: list[str]) -> list[str]:
    """Runs that two processes carried out at once, and runs that did an effect twice."""
    found = []
    for name in names:
        if any(words[0] == "overlap" for words in lines(directory, name)):
            found.append(f"{name} ran twice at once")
        if len(set(done_by(directory, name))) < len(done_by(directory, name)):
            found.append(f"{name} repeated an effect")
    return found


def done_by(directory: Path, name: str) -> list[int]:
    return [int(words[1]) for words in lines(directory, name) if words[0] == "do"]


def campaign(store, directory: Path, count: int, kill_every: float) -> None:
    chance = randomness("workers", store.kind)
    client = store.client()
    names = [f"run-{number}" for number in range(count)]
    for name in names:
        client.start("campaign", STEPS, session_id=name)
    kills = 0
    with Crew(store.url, directory) as crew:
        model = Model(directory, crew, names)
        for _ in range(WORKERS):
            crew.hire()
        deadline = time.monotonic() + PATIENCE
        wait_for(lambda: any(lines(directory, name) for name in names), crew)
        next_kill, next_work = time.monotonic(), 0  # the first kill is early, however fast the machine
        while model.check(client) < count:
            assert time.monotonic() < deadline, crew.output()[-2000:]
            crew.replace_the_dead()
            if time.monotonic() > next_kill and model.work >= next_work:  # however slow it is, work is done in between
                crew.kill(chance.choice(crew.alive))
                kills += 1
                crew.hire()
                next_kill = time.monotonic() + chance.uniform(0.3, 2.0) * kill_every
                next_work = model.work + WORK_BETWEEN_KILLS
            time.sleep(0.2)
    check_logs(directory, names)
    assert client.verify().problems == ()
    assert kills
    tally("workers killed", runs=count, kills=kills, samples=model.samples)


@pytest.mark.every_store
def test_killed_workers_lose_no_run_and_repeat_no_effect(shared_store, tmp_path):
    count = 2000 if SOAK else 100 if shared_store.kind == "sqlite" else 40
    campaign(shared_store, tmp_path, count, kill_every=1.0)


@pytest.mark.every_store
def test_killed_workers_lose_no_delegated_work_and_no_message(shared_store, tmp_path):
    client, chance = shared_store.client(), randomness("delegations", shared_store.kind)
    count = 200 if SOAK else 8
    names = [f"boss-{number}" for number in range(count)]
    for name in names:
        client.start("boss", 3, session_id=name)
    client.start("reader", count, session_id="reader")
    with Crew(shared_store.url, tmp_path) as crew:
        for _ in range(WORKERS):
            crew.hire()
        wait_for(lambda: any(path.suffix == ".log" for path in tmp_path.iterdir()), crew)
        next_kill = deadline = time.monotonic()
        deadline += PATIENCE
        next_work = 0
        while left := [one for one in client.runs() if not one.is_over]:
            assert time.monotonic() < deadline, left
            crew.replace_the_dead()
            work = sum(len(path.read_text().splitlines()) for path in tmp_path.glob("*.log"))
            is_left = [one.session_id for one in left] != ["reader"]
            if time.monotonic() > next_kill and work >= next_work and is_left:
                crew.kill(chance.choice(crew.alive))
                crew.hire()
                next_kill, next_work = time.monotonic() + chance.uniform(0.3, 2.0), work + WORKERS
            time.sleep(0.2)
    found = {one.session_id: one for one in client.runs()}
    assert {one.status for one in found.values()} == {"completed"}
    assert [found[name].result for name in names] == [[0, 1, 2]] * count
    assert sorted(found["reader"].result) == sorted(names)  # each has told once that it is done
    children = [name for name in found if ".child." in name]
    assert len(children) == 3 * count
    assert find_defects(tmp_path, [*names, *children]) == []
    assert all(len(done_by(tmp_path, name)) == 1 for name in children)
    assert client.verify().problems == ()


def test_the_campaign_finds_workers_whose_leases_are_switched_off(sqlite_store, tmp_path):
    client = sqlite_store.client()
    names = [f"run-{number}" for number in range(20)]
    for name in names:
        client.start("campaign", STEPS, session_id=name)
    with Crew(sqlite_store.url, tmp_path) as crew:
        for _ in range(WORKERS):
            crew.hire(lease_seconds=0.2, HOLDFAST_BROKEN="leases")
        wait_for(lambda: find_defects(tmp_path, names), crew)


@pytest.mark.every_store
def test_each_run_stays_with_workers_of_its_version(shared_store, tmp_path):
    client = shared_store.client()
    given = {f"run-{number}": ("1", "2", "")[number % 3] for number in range(12)}
    for name, version in given.items():
        client.start("versioned", STEPS, session_id=name, version=version)

    def begun_by(name: str) -> list[str]:
        return [words[1] for words in lines(tmp_path, name) if words[0] == "begin"]

    with Crew(shared_store.url, tmp_path) as crew:
        old = crew.hire(HOLDFAST_VERSION="1")  # its runs wait for a file
        wait_for(lambda: any(begun_by(name) for name in given), crew)
        crew.kill(old)
        crew.hire(HOLDFAST_VERSION="2")
        wait_for(
            lambda: all(client.run_status(name).is_over for name, version in given.items() if version == "2"), crew
        )
        assert not any(client.run_status(name).is_over for name, version in given.items() if version == "1")
        (tmp_path / "go").touch()
        crew.hire(HOLDFAST_VERSION="1")
        wait_for(lambda: all(one.is_over for one in client.runs()), crew)
    for name, version in given.items():
        versions = begun_by(name)
        assert len(set(versions)) == 1, (name, versions)
        assert versions[0] == version or not version
        assert client.run_status(name).result == versions[0]
    assert any(len(begun_by(name)) > 1 for name in given)


@pytest.mark.every_store
def test_a_paused_worker_is_replaced_and_can_write_nothing_afterwards(shared_store, tmp_path):
    client = shared_store.client()
    client.start("paused", session_id="s")
    with Crew(shared_store.url, tmp_path) as crew:
        first = crew.hire(lease_seconds=10.0)
        wait_for(lambda: any(words[0] == "slow" for words in lines(tmp_path, "s")), crew)
        os.kill(first.pid, signal.SIGSTOP)
        wait_for(lambda: client.run_status("s").status == "interrupted", crew)
        crew.hire()
        wait_for(lambda: client.run_status("s").status == "completed", crew)
        saves = client.run_status("s").saves
        (tmp_path / "go").touch()
        os.kill(first.pid, signal.SIGCONT)
        wait_for(lambda: "paused s lost" in crew.output(), crew)
        found = client.run_status("s")
    assert (found.status, found.result, found.saves) == ("completed", "done 1", saves)
    assert [words[0] for words in lines(tmp_path, "s")] == ["begin", "slow", "begin", "slow", "do"]


@pytest.mark.servers
def test_workers_outlast_restarts_of_their_server(own_server, tmp_path):
    server, url = own_server
    names: list[str] = []

    def all_lines() -> list[list[str]]:
        return [words for name in names for words in lines(tmp_path, name)]

    with Crew(url, tmp_path) as crew, SyncClient.open(url, timeout=5) as client:
        crew.hire(lease_seconds=5.0, HOLDFAST_DURABLE="1")
        crew.hire(lease_seconds=5.0, HOLDFAST_DURABLE="1")

        def is_begun_by_both() -> bool:
            names.append(f"run-{len(names)}")
            client.start("campaign", STEPS, session_id=names[-1])
            return crew.started <= {int(words[-1]) for words in all_lines()}

        wait_for(is_begun_by_both, crew)
        for number in range(20):
            names.append(f"more-{number}")
            client.start("campaign", STEPS, session_id=names[-1])
        for _ in range(5 if SOAK else 1):
            server.server.kill()
            time.sleep(1)
            server.restart()
            before = len(all_lines())
            wait_for(lambda before=before: len(all_lines()) > before + 20, crew)
        wait_for(lambda: all(one.is_over for one in client.runs()), crew)
        assert [one.poll() for one in crew.alive] == [None, None]  # none has ended
        assert {one.status for one in client.runs()} == {"completed"}
        assert client.verify().problems == ()
    check_logs(tmp_path, names)


def test_a_poison_run_fails_alone(tmp_path, sqlite_store):
    client = sqlite_store.client()
    client.start("poison", session_id="poison")
    names = [f"run-{number}" for number in range(6)]
    for name in names:
        client.start("campaign", STEPS, session_id=name)
    with Crew(sqlite_store.url, tmp_path) as crew:
        crew.hire()

        def is_over() -> bool:
            crew.replace_the_dead()
            return all(one.is_over for one in client.runs())

        wait_for(is_over, crew)
    failed = client.run_status("poison")
    assert (failed.status, failed.attempts, failed.failure.error_type) == ("failed", 3, "ProcessDied")
    assert [words[0] for words in lines(tmp_path, "poison")] == ["begin"] * 3
    assert {one.status for one in client.runs()} == {"failed", "completed"}
    check_logs(tmp_path, names)


def test_a_poison_run_does_not_use_up_the_attempts_of_those_beside_it(tmp_path, sqlite_store):
    client = sqlite_store.client()
    victims = [f"victim-{number}" for number in range(3)]
    client.start("bomb", victims, session_id="bomb")
    for name in victims:
        client.start("victim", session_id=name)
    with Crew(sqlite_store.url, tmp_path) as crew:
        crew.hire()

        def is_over() -> bool:
            crew.replace_the_dead()
            return all(one.is_over for one in client.runs())

        wait_for(is_over, crew)
    found = {one.session_id: one.status for one in client.runs()}
    assert found == {"bomb": "failed", **dict.fromkeys(victims, "completed")}
    assert len(lines(tmp_path, "bomb")) == 3
    assert max(len(lines(tmp_path, name)) for name in victims) > 1  # it has taken some with it


def wait_for(is_so, crew: Crew) -> None:
    deadline = time.monotonic() + 240
    while not is_so():
        assert time.monotonic() < deadline, crew.output()[-3000:]
        time.sleep(0.05)
