"""Many consumers of a group at once: all make progress, keys stay in order, and gc takes nothing from them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from servers.schemas import schema_name
from stores import Store

from holdfast import SyncClient
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.postgres.backend import PostgresBackend
from holdfast.backends.redis.backend import RedisBackend
from holdfast.format.rows import topic as rows
from holdfast.model import group_state
from holdfast.operations import gc_topics, read_topic

pytestmark = [pytest.mark.every_store, pytest.mark.slow]
LONGEST_WAIT = 2.0


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch):
    monkeypatch.setattr(group_state, "FIRST_BACKOFF_US", 1000)
    monkeypatch.setattr(group_state, "BACKOFF_FACTOR", 1)


def at_once(*acts: Callable[[], Any]) -> None:
    """Call all of them, each in a thread of its own; raise the first error."""
    failures: list[BaseException] = []

    def run(act: Callable[[], Any]) -> None:
        try:
            act()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if failures:
        raise failures[0]


def consume(
    client: SyncClient, session: str, *, timeout: float = 1.0, over: threading.Event | None = None, **options: Any
) -> None:
    """Add up what comes in the state of a session, until nothing has come for a while after publishing is over."""
    with client.run(session, agent_id="a") as run:
        run.state.setdefault("seen", [])
        is_last = False
        while not is_last:
            is_last = over is None or over.is_set()
            for message in run.receive("t", "g", timeout=timeout, **options):
                run.state["seen"].append(message.value)


def seen(client: SyncClient, sessions: Iterable[str]) -> list[Any]:
    return sorted(value for one in sessions for value in client.latest(one).execution_state["seen"])


def alone(client: SyncClient) -> float:
    """The longest of a few claims while no other consumer is there."""
    waits = []
    with client.subscribe("t", "g", timeout=60) as messages:
        for _ in range(8):
            messages._subscription.memory.note_overtaken()  # else it reads less than one of sixteen does
            before = time.monotonic()
            next(messages).release()
            waits.append(time.monotonic() - before)
    return max(waits)


def test_sixteen_consumers_of_a_group_all_make_progress(shared_store):
    """Each claims and gives back for two seconds, as fast as it can: the group's row is never at rest."""
    client = shared_store.client()
    for n in range(64):
        client.publish("t", n)
    longest_wait = max(LONGEST_WAIT, 10 * 16 * alone(client))  # a slow machine is no starvation
    begins, waits, claims, counts = threading.Barrier(16), [], [], Counter[int]()

    def work() -> None:
        own, me = shared_store.client(), begins.wait()
        ends = time.monotonic() + LONGEST_WAIT
        with own.subscribe("t", "g", timeout=60) as messages:
            before, earlier = time.monotonic(), len(claims)
            # On a slow machine they go on until each has had its turn, or clearly has none.
            while before < ends or (min(counts[n] for n in range(16)) < 2 and len(claims) < 200 * 16):
                one = next(messages)
                waits.append((time.monotonic() - before, len(claims) - earlier))
                claims.append(one.value)
                one.release()
                before, earlier = time.monotonic(), len(claims)
                counts[me] += 1

    at_once(*[work] * 16)
    # If the others stood still meanwhile, too, the machine did.
    starved = [(seconds, others) for seconds, others in waits if seconds >= longest_wait and others > 5 * 16]
    assert not starved, sorted(starved)[-5:]
    assert min(counts[n] for n in range(16)) > 1, counts
    with client.subscribe("t", "g", timeout=0, batch=64) as messages:
        got = [(one.value, one.attempts) for one in messages if one.ack()]
    assert sorted(got) == [(n, 0) for n in range(64)]


def test_messages_of_a_key_are_delivered_one_at_a_time_in_order(store):
    """Also where one is tried again: those behind it wait."""
    client = store.client()
    for n in range(24):
        client.publish("t", n, key=f"k{n % 3}")
    at_work, lock, order = Counter[str](), threading.Lock(), []

    def work(name: str) -> None:
        with store.client().run(name, agent_id="a") as run:
            for message in run.receive("t", "g", timeout=2):
                key = message.message.key
                with lock:
                    at_work[key] += 1
                    assert at_work[key] == 1
                time.sleep(0.002)
                with lock:
                    at_work[key] -= 1
                    if message.value % 4 == 1 and not message.attempts:
                        message.fail("once more")
                    else:
                        order.append(message.value)

    at_once(*(lambda name=f"s{n}": work(name) for n in range(8)))
    assert sorted(order) == list(range(24))
    for key in range(3):
        of_key = [value for value in order if value % 3 == key]
        assert of_key == sorted(of_key)


def test_a_group_that_begins_while_others_publish_misses_nothing(store):
    client = store.client()
    client.publish("t", "before")
    begun, ended = threading.Event(), []
    after: list[int] = []

    def publish(first: int) -> None:
        try:
            own = store.client()
            for n in range(first, first + 30):
                is_after = begun.is_set()
                own.publish("t", n)
                if is_after:
                    after.append(n)
        finally:
            ended.append(first)

    def read(group: str, from_: str) -> list[Any]:
        """All that comes until nothing has come for a while after both publishers have ended."""
        own, found, is_last = store.client(), [], False
        while not is_last:
            is_last = len(ended) == 2
            with own.subscribe("t", group, from_=from_, timeout=1) as messages:
                found += [one.value for one in messages if one.ack()]
        return found

    got: dict[str, list[Any]] = {}

    def begin_now() -> None:
        time.sleep(0.05)
        with store.client().subscribe("t", "now", from_="now", timeout=0) as messages:
            next(messages, None)
        begun.set()
        got["now"] = read("now", "now")

    at_once(
        lambda: publish(0),
        lambda: publish(100),
        lambda: got.update(start=read("start", "start")),
        begin_now,
    )
    everything = ["before", *range(30), *range(100, 130)]
    assert sorted(map(str, got["start"])) == sorted(map(str, everything))
    assert len(got["now"]) == len(set(got["now"]))
    assert set(after) <= set(got["now"])
    assert "before" not in got["now"]


# -- gc --------------------------------------------------------------------------------------------------------------


def collect_beside(store: Store, seconds: float = 0.05) -> int:
    """Publish, consume, die and collect at once; return how many of 40 messages took effect."""
    client = store.client()
    consume(client, "s0", timeout=0)  # the group is there: it keeps what it needs
    is_published, is_collected, is_over = threading.Event(), threading.Event(), threading.Event()
    published: list[int] = []

    def publish() -> None:
        try:
            own = store.client()
            for n in range(40):
                own.publish("t", n, ttl=seconds)
                published.append(n)
                time.sleep(0.005)
        finally:
            is_published.set()

    def collect() -> None:
        own = store.client()
        while not is_over.is_set():
            is_worth_it = len(published) >= 10
            own.gc()
            if is_worth_it:
                is_collected.set()

    def work() -> None:
        try:
            assert is_collected.wait(240)
            consumers = [
                lambda name=f"s{n}": consume(store.client(), name, over=is_published, batch=4) for n in range(3)
            ]
            at_once(*consumers)
        finally:
            is_over.set()

    at_once(publish, collect, work)
    return len(seen(client, ["s0", "s1", "s2"]))


def test_gc_beside_publishers_and_consumers_takes_nothing_from_them(store):
    assert collect_beside(store) == 40
    client = store.client()
    assert seen(client, ["s0", "s1", "s2"]) == list(range(40))
    assert client.dead_messages("t") == []
    time.sleep(0.1)
    client.gc()
    assert list(client.messages("t")) == []
    assert run_inline(client._ctx.backend.scan(rows.TAKEN)) == []
    assert client.verify().problems == ()


def test_control_gc_that_asks_no_group_loses_messages(memory_store, monkeypatch):
    monkeypatch.setattr(read_topic, "is_live", lambda *_: False)
    monkeypatch.setattr(gc_topics.read_topic, "is_live", lambda *_: False)
    assert collect_beside(memory_store, seconds=0.001) < 40


def test_lanes_of_days_that_are_over_are_collected_whole(store, clock):
    client = store.client()
    clock.rules(client)
    for n in range(3):
        client.publish("t", n, ttl=60)
    trees = {one.tree_id for one in map(client.get, (one.message_id for one in client.messages("t")))}
    assert len(trees) == 1
    clock.forward(3 * 86400)
    client.publish("t", 3, ttl=60)
    client.gc()
    client.gc()
    assert [one.value for one in client.messages("t")] == [3]
    left = {one.session for one in run_inline(client._ctx.backend.page_records(None, 100))}
    assert len(left) == 1


# -- hints -----------------------------------------------------------------------------------------------------------


async def never(*_: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("hints", ["lost", "sent"])
def test_without_hints_polling_finds_the_same(shared_store, monkeypatch, hints):
    """No NOTIFY or SPUBLISH arrives, as behind a pooler, and the client's own commits wake no other client."""
    if hints == "lost":
        monkeypatch.setattr(PostgresBackend, "wait_for_notify", never)
        monkeypatch.setattr(RedisBackend, "wait_for_notify", never)
    client = shared_store.client()
    got: list[int] = []
    is_published = threading.Event()

    def publish() -> None:
        try:
            for n in range(12):
                client.publish("t", n)
                time.sleep(0.02)
        finally:
            is_published.set()

    def follow() -> None:
        for one in shared_store.client().messages("t", follow=True, poll_seconds=0.05):
            got.append(one.value)
            if len(got) == 12:
                return

    def wait() -> None:
        with shared_store.client().run("w", agent_id="a") as run:
            assert run.wait_for("t", where=lambda one: one.value == 11, after="start", timeout=60).value == 11

    names = [f"s{n}" for n in range(2)]
    consumers = [lambda name=name: consume(shared_store.client(), name, over=is_published) for name in names]
    at_once(publish, follow, wait, *consumers)
    assert got == list(range(12))
    assert seen(client, names) == list(range(12))


@pytest.mark.servers
def test_behind_a_pooler_messages_are_found_by_polling(pgbouncer_dsn, tmp_path):
    """Pgbouncer passes no NOTIFY on."""
    url = f"{pgbouncer_dsn}?schema={schema_name(tmp_path)}"
    with SyncClient.open(url) as client, SyncClient.open(url) as other:

        def publish() -> None:
            for n in range(12):
                other.publish("t", n)
                time.sleep(0.02)

        def receive() -> None:
            with client.run("s", agent_id="a") as run:
                run.state["seen"] = []
                for message in run.receive("t", "g", timeout=60):
                    run.state["seen"].append(message.value)
                    if len(run.state["seen"]) == 12:
                        break

        at_once(publish, receive)
        assert seen(client, ["s"]) == list(range(12))
        [group] = client.topics("t")[0].groups
        assert (group.waiting, group.in_flight) == (0, 0)
