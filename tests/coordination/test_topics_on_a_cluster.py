"""Topics on a Redis cluster: the topic's lanes, the group and the consumers are on several nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from servers.prefixes import prefix_name
from servers.running import ServerUnavailable
from servers.valkey import Valkey, ValkeyCluster
from servers.writers import until
from topic_consumers import TOPIC, consume, publish, results, seen

from holdfast import HoldfastError, SyncClient
from holdfast.backends.redis import keys
from holdfast.format.rows import topic as rows
from holdfast.model import ids

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(600)]
SESSIONS = [f"consumer-{number}" for number in range(4)]
MESSAGES = 40


def test_each_message_takes_effect_once_across_nodes(redis_cluster, tmp_path):
    url = f"{redis_cluster.url}?prefix={prefix_name(tmp_path)}"
    failures = []
    is_published = threading.Event()

    def work(session):
        try:
            with SyncClient.open(url) as own:
                is_last = False
                while not is_last:
                    is_last = is_published.is_set()
                    consume(own, session, batch=2, timeout=2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(session,)) for session in SESSIONS]
    for one in threads:
        one.start()
    with SyncClient.open(url) as client:
        try:
            publish(client, "publisher", MESSAGES)
        finally:
            is_published.set()
        for one in threads:
            one.join()
        assert not failures
        assert [one.value for one in client.messages(TOPIC)] == list(range(MESSAGES))
        assert seen(client, *SESSIONS) == list(range(MESSAGES))
        assert results(client) == list(range(MESSAGES))
        trees = [ids.from_text(client.session(one).tree_id) for one in ("publisher", *SESSIONS)]
        trees.append(rows.group_tree(TOPIC, "adders"))
        assert len({keys.shard_of(tree, 16) for tree in trees}) > 1
        assert client.verify().problems == ()


@pytest.fixture
def failing_cluster() -> Iterator[ValkeyCluster]:
    try:
        cluster = ValkeyCluster("--cluster-node-timeout", "2000")
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield cluster
    cluster.stop()


def pair_of(cluster: ValkeyCluster, prefix: str, tree: bytes) -> tuple[Valkey, Valkey]:
    """The master that has a tree, and its replica."""
    slot = cluster.nodes[0].ask("CLUSTER", "KEYSLOT", f"{{{prefix}:{keys.shard_of(tree, 16)}}}")
    return cluster.pairs[0 if slot < 5461 else 1 if slot < 10923 else 2]


def until_done(is_done: Callable[[], bool], act: Callable[[], None], errors: list[HoldfastError]) -> None:
    """Act in life after life: one ends when a node fails, and the next goes on."""
    deadline = time.monotonic() + 300
    while not is_done():
        assert time.monotonic() < deadline, errors[-1:]
        try:
            act()
        except HoldfastError as error:
            errors.append(error)
            time.sleep(0.3)


def test_each_message_takes_effect_once_though_the_node_of_the_group_fails(failing_cluster, tmp_path):
    """Its replica takes over: what was acknowledged to it is there, the decisions and the group's row, too."""
    prefix = prefix_name(tmp_path)
    url = f"{failing_cluster.url}?prefix={prefix}&shards=16&durability=replicated&wait_ms=1000&timeout=10"
    errors: list[HoldfastError] = []
    is_killed, has_published = threading.Event(), threading.Event()

    def produce() -> None:
        with SyncClient.open(url) as own:
            publish(own, "publisher", MESSAGES // 2)
            assert is_killed.wait(300)
            publish(own, "publisher", MESSAGES)
        has_published.set()

    def work(session: str) -> None:
        with SyncClient.open(url) as own:
            consume(own, session, batch=2, timeout=1)
            if has_published.is_set() and len(results(own)) == MESSAGES:
                ended.add(session)

    ended: set[str] = set()
    threads = [threading.Thread(target=until_done, args=(has_published.is_set, produce, errors))]
    threads += [
        threading.Thread(
            target=until_done, args=(lambda session=session: session in ended, lambda name=session: work(name), errors)
        )
        for session in SESSIONS
    ]
    master, replica = pair_of(failing_cluster, prefix, rows.group_tree(TOPIC, "adders"))
    with SyncClient.open(url) as client:
        client.save("person", session_id="person")  # the store is there before the threads open it
        for one in threads:
            one.start()
        until(lambda: len(results(client)) > 0, "a message that has taken effect")
    master.server.kill()
    is_killed.set()
    until(lambda: replica.ask("INFO", "replication")["role"] == "master")
    master.restart()  # as the replica of the other: only now commits are confirmed again
    for one in threads:
        one.join()
    with SyncClient.open(url) as client:
        assert [one.value for one in client.messages(TOPIC)] == list(range(MESSAGES))
        assert seen(client, *SESSIONS) == list(range(MESSAGES))
        assert results(client) == list(range(MESSAGES))
        assert client.dead_messages(TOPIC) == []
        assert client.verify().problems == ()
    assert errors, "nothing has noticed the failure: this proves nothing"
