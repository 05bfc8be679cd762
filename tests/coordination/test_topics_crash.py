"""Publishers and consumers die at every commit, and at random: each message is published once, and takes effect once.

First within one process, where a life that ended can't reach the store any more; then with processes that are really
killed. Small counts in `make test`, every commit and a thousand messages under HOLDFAST_SOAK=1.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid

import pytest
from campaign import SOAK, randomness, tally
from paths import SUPPORT
from servers.writers import until
from test_delegation_crash import LifeEnded, Lives
from topic_consumers import GROUP, RESULTS, TOPIC, consume, publish, results, seen

from holdfast import Message
from holdfast.model import group_state
from holdfast.operations import group as groups

pytestmark = [pytest.mark.every_store, pytest.mark.timeout(900)]
PROGRAM = SUPPORT / "topic_consumers.py"
NUMBERS = 3
MESSAGES = 1000 if SOAK else 24
KILLS = 60 if SOAK else 3
PAUSE = "0.05"  # seconds for each message, so that a kill comes while one is handled
COMMITS = range(1, 15) if SOAK else (1, 2, 3, 5, 8)


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch):
    monkeypatch.setattr(group_state, "FIRST_BACKOFF_US", 1000)
    monkeypatch.setattr(group_state, "BACKOFF_FACTOR", 1)


def die_at(lives, number, when, act):
    """Act in a life that ends at that commit; whether it did end there."""
    try:
        act(lives.client(number, when)[0])
    except LifeEnded:
        return True
    return False


def check_published(client):
    """A message is there if and only if the checkpoint is that it was published with."""
    there = {one.message_id for one in client.messages(TOPIC)}
    assert len(there) == len(list(client.messages(TOPIC)))
    for one in client.messages(TOPIC):
        assert client.get(client.restore(one.message_id).parent_id).session_id == one.session_id
    assert client.verify().problems == ()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", COMMITS)
def test_a_publisher_dies_at_each_of_its_commits(store, number, when):
    lives = Lives(store)
    die_at(lives, number, when, lambda client: publish(client, "p", NUMBERS))
    check_published(store.client())
    publish(lives.client()[0], "p", NUMBERS)
    client = store.client()
    assert [one.value for one in client.messages(TOPIC)] == list(range(NUMBERS))
    check_published(client)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_save_dies_with_its_messages_or_not_at_all(store, number, when):
    lives = Lives(store)
    die_at(
        lives, number, when,
        lambda client: client.save("a", session_id="s", execution_state={"n": 1}, publish=[Message(TOPIC, 1)]),
    )  # fmt: skip
    client = store.client()
    assert (client.session("s") is not None) == (len(list(client.messages(TOPIC))) == 1)


def test_control_a_publication_after_the_save_is_not_there_after_a_crash_in_between(store):
    lives = Lives(store)
    lost = 0
    for number in (2, 3, 4, 5):
        name = f"s{number}"

        def act(client, name=name):
            client.save("a", session_id=name, execution_state={"n": 1})
            client.publish(TOPIC, name)

        die_at(lives, number, "before", act)
        client = store.client()
        is_saved = client.session(name) is not None
        lost += is_saved and name not in [one.value for one in client.messages(TOPIC)]
    assert lost


@pytest.mark.slow
@pytest.mark.parametrize("heir", ["same", "other"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", COMMITS)
def test_a_consumer_dies_at_each_of_its_commits(store, number, when, heir):
    lives = Lives(store)
    publish(lives.client()[0], "p", NUMBERS)
    die_at(lives, number, when, lambda client: consume(client, "a", batch=2))
    successor = "a" if heir == "same" else "b"
    consume(lives.client()[0], successor, timeout=0.3)
    client = store.client()
    assert seen(client, *{"a", successor}) == list(range(NUMBERS))
    assert results(client) == list(range(NUMBERS))
    [group] = client.topics(TOPIC)[0].groups
    assert (group.waiting, group.in_flight, group.dead) == (0, 0, 0)
    assert client.verify().problems == ()


@pytest.mark.slow
def test_control_without_a_look_at_the_decision_a_message_takes_effect_twice(store, monkeypatch):
    async def revoke(*_):
        return True

    monkeypatch.setattr(groups, "_revoke", revoke)
    lives = Lives(store)
    sessions = [f"a{number}" for number in range(3, 9)]
    for number, session in enumerate(sessions, 3):
        store.client().publish(TOPIC, number)
        die_at(lives, number, "after", lambda client, session=session: consume(client, session))
        consume(lives.client()[0], "heir", timeout=0.3)
    assert len(seen(store.client(), *sessions, "heir")) > len(sessions)


def test_a_poison_message_that_kills_its_consumers_is_dead_and_others_flow(store):
    lives = Lives(store)
    client = lives.client()[0]
    for number in range(5):
        client.publish(TOPIC, number)

    def poisoned(client):
        mortal = client._ctx.backend.backend
        with client.run("a", "consumer") as run:
            run.state.setdefault("seen", [])
            for message in run.receive(TOPIC, GROUP, batch=3, timeout=0.1):
                if message.value == 1:
                    mortal._die()
                run.state["seen"].append(message.value)

    ended = [die_at(lives, 0, "", poisoned) for _ in range(8)]
    assert ended == [True] * 5 + [False] * 3
    client = store.client()
    assert seen(client, "a") == [0, 2, 3, 4]
    [dead] = client.dead_messages(TOPIC)
    assert dead.attempts == 5
    assert all("died" in reason for reason in dead.reasons)


# -- processes -------------------------------------------------------------------------------------------------------


def start(store, role, session, *rest):
    return subprocess.Popen(
        [sys.executable, "-W", "error", PROGRAM, store.url, role, session, *rest],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def start_consumer(store, session):
    """Start a consumer, and return once it listens."""
    consumer = start(store, "consume", session, PAUSE)
    assert consumer.stdout.readline()
    return consumer


@pytest.mark.slow
def test_consumers_are_killed_at_random_and_each_message_takes_effect_once(shared_store):
    """A portion of the messages for each kill: one of two consumers is killed once it has begun to work on it."""
    chance = randomness("topics", shared_store.kind)
    client = shared_store.client()
    sessions = ["a", "b"]
    consumers = {one: start_consumer(shared_store, one) for one in sessions}
    published = killed = number = 0

    def revive() -> bool:
        """Start those again that ended because nothing came for a while: a message may wait to be tried again."""
        for name, process in consumers.items():
            if process.poll() is not None:
                _, errors = process.communicate()
                assert process.returncode == 0, errors
                consumers[name] = start_consumer(shared_store, name)
        return True

    try:
        while number < KILLS or killed <= KILLS // 2:  # one that comes after the work proves nothing
            number += 1
            assert number <= 5 * KILLS, f"{killed} of {number} were killed at work: this proves nothing"
            before = {one: len(seen(client, one)) for one in sessions}
            for value in range(published, published + MESSAGES // KILLS):
                client.publish(TOPIC, value)
            published += MESSAGES // KILLS
            until(lambda before=before: revive() and any(len(seen(client, one)) > before[one] for one in sessions))
            victim = max(sessions, key=lambda one: len(seen(client, one)) - before[one])
            time.sleep(chance.uniform(0, 0.05))
            consumers[victim].kill()
            killed += len(results(client)) < published
            consumers[victim].communicate()
            consumers[victim] = start_consumer(shared_store, victim)
        until(lambda: revive() and len(results(client)) == published)
        for process in consumers.values():
            _, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
    finally:
        for process in consumers.values():
            process.kill()
            process.communicate()
    assert seen(client, *sessions) == list(range(published))
    assert results(client) == list(range(published))
    assert client.dead_messages(TOPIC) == []
    tally(f"messages, consumers killed, {shared_store.kind}", done=published, kills=killed)


@pytest.mark.slow
def test_a_killed_publisher_continues_and_publishes_each_message_once(shared_store):
    chance = randomness("publisher", shared_store.kind, uuid.UUID(int=1))
    client = shared_store.client()
    for _ in range(KILLS):
        publisher = start(shared_store, "publish", "p", str(MESSAGES))
        time.sleep(chance.uniform(0.5, 2.5))
        publisher.kill()
        publisher.communicate()
    publish(client, "p", MESSAGES)
    # A publisher that was killed in the middle of a commit to a store in shards holds readers back for a while.
    until(lambda: len(list(client.messages(TOPIC))) >= MESSAGES)
    assert [one.value for one in client.messages(TOPIC)] == list(range(MESSAGES))
    assert list(client.messages(RESULTS)) == []
