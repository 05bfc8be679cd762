"""Topics between real processes: bursts of publishers, and consumers that are stopped while they have a message."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from campaign import SOAK, tally
from paths import SUPPORT
from stores import SERVED, Store
from topic_consumers import LEASE_SECONDS, RESULTS, TOPIC, consume, seen

from holdfast import SyncClient
from holdfast.model import group_state

pytestmark = [pytest.mark.every_store, pytest.mark.slow, pytest.mark.timeout(600)]
PROGRAM = SUPPORT / "topic_consumers.py"
PUBLISHERS = 4
BURST = 250 if SOAK else 30


class Child:
    """A process of `topic_consumers.py` that one talks to line by line."""

    def __init__(self, store: Store, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", PROGRAM, store.url, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        heard: dict[str, Any] = json.loads(line)
        return heard

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def send(self, what: signal.Signals) -> None:
        os.kill(self.process.pid, what)


@contextmanager
def children(store: Store, *all_arguments: tuple[str, ...]) -> Iterator[list[Child]]:
    started = [Child(store, *arguments) for arguments in all_arguments]
    try:
        yield started
    finally:
        for one in started:
            one.process.kill()
            one.process.communicate()


# -- publishers --------------------------------------------------------------------------------------------------------


def burst(store: Store, *options: str) -> tuple[int, list[float]]:
    """Let processes publish at once; return how many commits were refused, and the seconds of each message."""
    names = [f"p{n}" for n in range(PUBLISHERS)]
    with children(store, *(("burst", name, str(BURST), *options) for name in names)) as publishers:
        for one in publishers:
            one.hear()
        for one in publishers:
            one.go_on()
        said = [one.hear() for one in publishers]
    return sum(one["refused"] for one in said), [seconds for one in said for seconds in one["seconds"]]


def followed(client: SyncClient, count: int) -> list[list[Any]]:
    stream = client.messages(TOPIC, follow=True, poll_seconds=0.05)
    return [next(stream).value for _ in range(count)]


def test_four_processes_publish_to_one_topic_and_followers_read_one_order(shared_store):
    """No publisher waits for another: none is refused a commit, since each has a lane of its own."""
    count = PUBLISHERS * BURST
    read: list[list[list[Any]]] = []
    followers = [threading.Thread(target=lambda: read.append(followed(shared_store.client(), count))) for _ in range(2)]
    for one in followers:
        one.start()
    refused, seconds = burst(shared_store)
    for one in followers:
        one.join(60)
    assert len(read) == 2
    assert read[0] == read[1]
    assert sorted(map(tuple, read[0])) == sorted((f"p{n}", at) for n in range(PUBLISHERS) for at in range(BURST))
    for n in range(PUBLISHERS):
        assert [at for name, at in read[0] if name == f"p{n}"] == list(range(BURST))
    assert refused <= PUBLISHERS  # the topic's row, which all of them may register at once
    seconds.sort()
    tally(
        f"messages of four publishers, {shared_store.kind}",
        done=count, p50_us=round(seconds[count // 2] * 1e6), p99_us=round(seconds[count * 99 // 100] * 1e6),
    )  # fmt: skip


@pytest.mark.servers
@pytest.mark.parametrize("shared_store", SERVED, indirect=True)  # on local stores, processes take turns
def test_control_in_one_lane_publishers_refuse_each_others_commits(shared_store):
    refused = bursts = 0
    while refused <= PUBLISHERS and bursts < 20:  # a short burst may be over before the next process begins its own
        refused += burst(shared_store, "one-lane")[0]
        bursts += 1
    assert refused > PUBLISHERS
    assert len(list(shared_store.client().messages(TOPIC))) == PUBLISHERS * BURST * bursts


# -- a consumer that is stopped ----------------------------------------------------------------------------------------


def test_a_process_that_was_stopped_beyond_its_lease_is_refused(shared_store, monkeypatch):
    monkeypatch.setattr(group_state, "FIRST_BACKOFF_US", 1000)
    client = shared_store.client()
    client.publish(TOPIC, 1)
    with children(shared_store, ("slow", "stopped")) as [stopped]:
        assert stopped.hear() == {"has": 1}
        stopped.send(signal.SIGSTOP)
        time.sleep(LEASE_SECONDS * 1.5)
        consume(client, "heir", timeout=1)
        assert seen(client, "heir") == [1]
        stopped.send(signal.SIGCONT)
        stopped.go_on()
        assert stopped.hear()["refused"] in ("MessageLostError", "LeaseLostError")
    assert seen(client, "heir", "stopped") == [1]
    assert [one.value["of"] for one in client.messages(RESULTS)] == [1]
    [group] = client.topics(TOPIC)[0].groups
    assert (group.waiting, group.in_flight, group.dead) == (0, 0, 0)


def test_control_of_a_subscriber_that_was_stopped_the_effect_happens_twice(shared_store, monkeypatch):
    """At least once, as documented: its acknowledgement comes too late, and it is told so."""
    monkeypatch.setattr(group_state, "FIRST_BACKOFF_US", 1000)
    client = shared_store.client()
    client.publish(TOPIC, 1)
    with children(shared_store, ("slow-subscriber", "stopped")) as [stopped]:
        assert stopped.hear() == {"has": 1}
        stopped.send(signal.SIGSTOP)
        time.sleep(LEASE_SECONDS * 1.5)
        consume(client, "heir", timeout=1)
        stopped.send(signal.SIGCONT)
        stopped.go_on()
        assert stopped.hear() == {"acknowledged": False}
    assert [one.value["of"] for one in client.messages(RESULTS)] == [1, 1]


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_consumer_with_a_wrong_clock_causes_no_second_effect(shared_store, hours):
    """To one that is ahead, the lease of another is over: it takes the message over, and the other is refused."""
    client, wrong = shared_store.client(), shared_store.client()
    right_now = wrong._ctx.now_us
    wrong._ctx.now_us = lambda: right_now() + hours * 3_600_000_000
    client.publish(TOPIC, 1)
    with children(shared_store, ("slow", "right", "60")) as [right]:  # seconds that no busy machine reaches
        assert right.hear() == {"has": 1}
        consume(wrong, "wrong", timeout=0.3)
        right.go_on()
        said = right.hear()
    assert seen(client, "right", "wrong") == [1]
    assert ("saved" in said) == (seen(client, "right") == [1])
