"""Topics: what is published is there if and only if its checkpoint is, and readers see one order."""

from __future__ import annotations

import threading
import time

import pytest
from stores import Clock
from topic_values import values

from holdfast import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    ConflictError,
    ContractError,
    Message,
    SyncClient,
    TopicFullError,
    UnsupportedValueError,
    UsageError,
    contract,
)
from holdfast.operations import publish as publishing

pytestmark = pytest.mark.every_store
ID = "01939c5e-7c1b-7000-8a2f-0c4c1d9be2f1"
LARGE = {"text": "x" * 9000, "lines": [{"n": n, "text": "y" * 80} for n in range(200)]}


def turned_client(store):
    """A client with a clock to turn."""
    client, clock = store.client(), Clock()
    clock.rules(client)
    return client, clock


def test_messages_of_sessions_and_others_are_in_one_order(store):
    client = store.client()
    first = client.publish("drafts", {"n": 1}, key="order-1", agent_id="shop")
    client.save("writer", session_id="s", execution_state={"step": 1}, publish=[Message("drafts", LARGE, key="k")])
    client.publish("other", "not this one")
    client.save("writer", session_id="s", execution_state={"step": 2})
    client.publish("drafts", [1, 2, 3])
    found = list(client.messages("drafts"))
    assert [one.value for one in found] == [{"n": 1}, LARGE, [1, 2, 3]]
    assert [one.key for one in found] == ["order-1", "k", None]
    assert [one.session_id for one in found] == [None, "s", None]
    assert [one.agent_id for one in found] == ["shop", "writer", "agent"]
    assert found[0].message_id == first
    assert values(client, after=found[1].cursor) == [[1, 2, 3]]
    assert values(store.client()) == [{"n": 1}, LARGE, [1, 2, 3]]
    assert client.verify().problems == ()


def test_a_message_is_a_leaf_of_the_session(store):
    client = store.client()
    first = client.save("a", session_id="s", execution_state={"n": 1}, publish=[Message("t", 1), Message("t", 2)])
    second = client.save("a", session_id="s", execution_state={"n": 2})
    assert client.latest("s").checkpoint_id == second
    assert [one.checkpoint_id for one in client.timeline("s")] == [second, first]
    assert [one.checkpoint_id for one in client.tree("s").entries] == [second, first]
    assert client.restore(second).parent_id == first
    for one in client.messages("t"):
        record = client.restore(one.message_id)
        assert (record.parent_id, record.execution_state) == (first, one.value)
    assert [one.session_id for one in client.sessions()] == ["s"]
    client.publish("t", 3)
    assert [one.session_id for one in client.sessions()] == ["s"]


def test_a_refused_save_publishes_nothing(store):
    client = store.client()
    head = client.save("a", session_id="s", execution_state={})
    client.save("a", session_id="s", execution_state={"n": 1})
    with pytest.raises(ConflictError):
        client.save("a", session_id="s", execution_state={}, expect_head=head, publish=[Message("t", "lost")])
    with pytest.raises(UsageError):
        client.save("a", session_id="s", execution_state={}, publish=[Message("t", object())])
    assert values(client, "t") == []
    assert len(client.timeline("s")) == 2


def test_a_wrong_value_is_refused_before_anything_is_written(store):
    draft = contract("draft", 1, {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
    client = store.client()
    with pytest.raises(ContractError) as error:
        client.publish("drafts", {"text": 7}, contract=draft)
    assert "text" in str(error.value)
    with pytest.raises(ContractError):
        client.save("a", session_id="s", publish=[Message("drafts", {"text": 1}, contract=draft)])
    assert client.session("s") is None
    client.publish("drafts", {"text": "hi"}, contract=draft)
    [found] = client.messages("drafts", contract=draft)
    assert (found.value["text"], found.contract) == ("hi", "draft@1")


def test_a_repetition_with_the_message_id_is_one_message(store):
    client = store.client()
    assert client.publish("drafts", {"n": 1}, message_id=ID) == ID
    assert client.publish("drafts", {"n": 1}, message_id=ID) == ID
    assert store.client().publish("drafts", {"n": 1}, message_id=ID) == ID
    assert values(client) == [{"n": 1}]
    for topic, value, key in (("drafts", {"n": 2}, None), ("drafts", {"n": 1}, "k"), ("other", {"n": 1}, None)):
        with pytest.raises(ConflictError):
            client.publish(topic, value, message_id=ID, key=key)
    assert values(client) == [{"n": 1}]
    assert values(client, "other") == []


def test_a_save_that_is_repeated_with_its_id_publishes_once(store):
    client = store.client()
    given = {"session_id": "s", "execution_state": {"n": 1}, "checkpoint_id": ID}
    client.save("a", **given, publish=[Message("t", 1), Message("t", LARGE)])
    client.save("a", **given, publish=[Message("t", 1), Message("t", LARGE)])
    assert values(client, "t") == [1, LARGE]
    for other in ([Message("t", 1)], [Message("t", 1), Message("t", 2)], []):
        with pytest.raises(ConflictError):
            client.save("a", **given, publish=other)


def test_another_process_of_the_same_day_repeats_a_message(store, monkeypatch):
    """A repetition may come from another process, whose messages without a session are in another lane."""
    client = store.client()
    client.publish("drafts", {"n": 1}, message_id=ID)
    monkeypatch.setattr(publishing, "_lane", lambda *_: "topic/drafts/2026-01-01/another")
    assert store.client().publish("drafts", {"n": 1}, message_id=ID) == ID
    assert values(client) == [{"n": 1}]


def test_a_follower_gets_what_is_published_while_it_waits(store):
    client, reader = store.client(), store.client()
    got = []
    stream = reader.messages("t", follow=True, poll_seconds=0.05)

    def read():
        for one in stream:
            got.append(one.value)
            if len(got) == 20:
                return

    thread = threading.Thread(target=read)
    thread.start()
    for n in range(20):
        if n % 2:
            client.publish("t", n)
        else:
            client.save("a", session_id="s", execution_state={"n": n}, publish=[Message("t", n)])
    thread.join(60)
    assert got == list(range(20))


def test_events_show_messages(store):
    client = store.client()
    client.save("a", session_id="s", execution_state={}, publish=[Message("t", 1)])
    client.publish("t", 2)
    found = [(one.kind, one.topic) for one in client.events(after="start", follow=False)]
    assert found == [("checkpoint", None), ("message", "t"), ("message", "t")]


# -- retention, limits -------------------------------------------------------------------------------------------------


def test_gc_keeps_what_the_slow_group_needs(store):
    client, clock = turned_client(store)
    for n in range(4):
        client.publish("t", n, ttl=60, max_ttl=3600)
    client.save("a", session_id="s", execution_state={}, publish=[Message("t", 4, ttl=60, max_ttl=3600)])
    fast, slow = client.subscribe("t", "fast", timeout=0), client.subscribe("t", "slow", timeout=0)
    assert [one.ack() for one in fast] == [True] * 5
    for one in slow:
        assert one.ack()
        if one.value == 1:
            break
    client.gc()
    assert values(client, "t") == [0, 1, 2, 3, 4]  # not old enough
    clock.forward(120)
    client.gc()
    assert values(client, "t") == [2, 3, 4]
    assert [one.ack() for one in slow] == [True] * 3
    client.gc()
    assert values(client, "t") == []
    assert client.latest("s") is not None
    assert client.verify().problems == ()
    assert [one.session_id for one in client.sessions()] == ["s"]


def test_a_message_ends_with_its_max_ttl_whatever_groups_need(store):
    client, clock = turned_client(store)
    client.publish("t", 1, ttl=60, max_ttl=600)
    client.publish("t", 2)
    messages = client.subscribe("t", "g", timeout=0)
    first = next(messages)
    assert first.value == 1
    first.release()
    clock.forward(700)
    assert values(client, "t") == [2]
    assert [one.value for one in client.subscribe("t", "g", timeout=0)] == [2]
    with pytest.raises((CheckpointExpiredError, CheckpointNotFoundError)):
        client.restore(first.message_id)


def test_a_dead_message_is_kept_for_its_max_ttl(store):
    client, clock = turned_client(store)
    for n in range(3):
        client.publish("t", n, ttl=60, max_ttl=3600)
    for one in client.subscribe("t", "g", timeout=0):
        if one.value == 1:
            one.reject("no")
        else:
            one.ack()
    clock.forward(120)
    client.gc()
    assert values(client, "t") == [1]
    [dead] = client.dead_messages("t")
    client.redeliver("t", "g", dead.message_id)
    next(client.subscribe("t", "g", timeout=0)).reject("not again")
    clock.forward(3600)
    for _ in range(2):
        client.gc()
    assert values(client, "t") == []
    assert client.dead_messages("t") == []
    assert client.topics("t")[0].groups[0].dead == 0
    assert client.verify().problems == ()


def test_an_old_group_keeps_nothing(store):
    client, clock = turned_client(store)
    client.publish("t", 1, ttl=60, max_ttl=10_000_000)
    client.subscribe("t", "gone", timeout=0, from_="start").__next__().release()
    clock.forward(31 * 86400)
    assert not client.topics("t")[0].groups[0].is_live
    client.gc()
    assert values(client, "t") == []


def test_a_full_topic_names_the_slowest_live_group(store, monkeypatch):
    monkeypatch.setattr(publishing, "CHECK_SECONDS", 0)
    client = store.client()
    for group in ("fast", "slow"):
        assert list(client.subscribe("t", group, timeout=0)) == []
    for n in range(5):
        client.publish("t", n, max_waiting=5)
    for one in client.subscribe("t", "fast", timeout=0):
        one.ack()
    with pytest.raises(TopicFullError) as error:
        client.publish("t", 5, max_waiting=5)
    assert (error.value.topic, error.value.group, error.value.waiting) == ("t", "slow", 5)
    with pytest.raises(TopicFullError):
        client.save("a", session_id="s", publish=[Message("t", 5, max_waiting=5)])
    assert client.session("s") is None
    next(client.subscribe("t", "slow", timeout=0)).ack()
    client.publish("t", 5, max_waiting=5)
    client.publish("nobody reads this", 1, max_waiting=1)
    client.publish("nobody reads this", 2, max_waiting=1)


@pytest.mark.parametrize("way", ["client", "save", "run"])
def test_a_publisher_waits_for_room(store, monkeypatch, way):
    monkeypatch.setattr(publishing, "CHECK_SECONDS", 0)
    client, consumer = store.client(), store.client()
    assert list(consumer.subscribe("t", "g", timeout=0)) == []
    for n in range(3):
        client.publish("t", n, max_waiting=3)

    def publish(wait):
        options = {"max_waiting": 3, "wait": wait}
        if way == "client":
            client.publish("t", 3, **options)
        elif way == "save":
            client.save("a", session_id="s", publish=[Message("t", 3, **options)])
        else:
            with client.run("s", agent_id="a") as run:
                run.publish("t", 3, **options)

    began = time.monotonic()
    with pytest.raises(TopicFullError):
        publish(0.2)
    assert time.monotonic() - began >= 0.2
    assert values(client, "t") == [0, 1, 2]

    def consume():
        time.sleep(0.2)
        next(consumer.subscribe("t", "g", timeout=0)).ack()

    thread = threading.Thread(target=consume)
    thread.start()
    publish(60)
    thread.join()
    assert values(client, "t") == [0, 1, 2, 3]


def test_retain_leaves_messages_to_their_topic(store):
    client = store.client()
    for n in range(4):
        client.save("a", session_id="s", execution_state={"n": n}, publish=[Message("t", n)])
        client.publish("t", -n)
    report = client.retain(keep_last=1)
    assert report.going == 3
    assert sorted(values(client, "t")) == [-3, -2, -1, 0, 0, 1, 2, 3]
    assert client.verify().problems == ()


def test_a_large_message_is_refused(store):
    client = store.client()
    for value in ("x" * 1_100_000, ["y" * 1000] * 1200):
        with pytest.raises(UsageError, match="publish its id"):
            client.publish("t", value)
        with pytest.raises(UsageError, match="publish its id"):
            client.save("a", session_id="s", publish=[Message("t", value)])
    assert values(client, "t") == []


@pytest.mark.parametrize("topic", ["..", "a/b", "a:b*{}", "%2e", "ünï ☃", " ", "'; --", "☃" * 200], ids=range(8))
def test_any_printable_text_is_a_topic_a_group_and_a_key(store, topic):
    client = store.client()
    client.publish("t", "of another topic")
    client.publish(topic, 1, key=topic)
    client.save("a", session_id="s", execution_state={}, publish=[Message(topic, 2)])
    with client.subscribe(topic, topic, timeout=0) as messages:
        assert [(one.value, one.message.topic, one.ack()) for one in messages] == [(1, topic, True), (2, topic, True)]
    assert values(client, topic) == [1, 2]
    assert [one.topic for one in client.topics(topic)] == [topic]
    assert client.verify().problems == ()


def test_a_session_with_the_name_of_a_lane_publishes_nothing_to_its_topic(store):
    """Its messages would be taken for those that are published without a session."""
    client = store.client()
    with pytest.raises(UsageError, match="another one"):
        client.save("a", session_id="topic/t/mine", execution_state={}, publish=[Message("t", 1)])
    assert client.session("topic/t/mine") is None
    client.save("a", session_id="topic/t/mine", execution_state={}, publish=[Message("u", 1)])
    assert values(client, "u") == [1]


@pytest.mark.parametrize("end", ["claim", "cancel"])
def test_a_publisher_continues_though_its_session_of_the_topic_was_taken(store, end):
    """A message is a checkpoint: somebody may hand it off, or cancel the session that it is in."""
    client = store.client()
    first = client.publish("t", 1)
    if end == "claim":
        store.client().claim(client.handoff(first, "reader"), "reader")
    else:
        client.cancel(client.get(first).session_id, by="ana", reason="by mistake")
    second = client.publish("t", 2, message_id=ID)
    assert client.publish("t", 2, message_id=ID) == second
    client.publish("t", 3)
    assert [one.value for one in client.messages("t")] == [1, 2, 3]


@pytest.mark.parametrize("value", [{"a": object()}, {"a": ["x" * 500] * 100, "b": object()}], ids=["small", "large"])
@pytest.mark.parametrize("way", ["client", "save", "run"])
def test_a_value_that_can_not_be_stored_is_named_by_its_place(memory_store, value, way):
    client = memory_store.client()
    with pytest.raises(UnsupportedValueError, match=r"^value\.[ab]: an object can't be stored"):
        if way == "client":
            client.publish("t", value)
        elif way == "save":
            client.save("a", execution_state={}, publish=[Message("t", value)])
        else:
            with client.run("s", agent_id="a") as run:
                run.publish("t", value)
    assert list(client.messages("t")) == []


def test_one_message_instead_of_a_list_is_refused(memory_store):
    with pytest.raises(UsageError, match="give a list"):
        memory_store.client().save("a", execution_state={}, publish=Message("t", 1))


@pytest.mark.parametrize("topic", ["", "a\nb", "x" * 201, 7, None])
def test_a_wrong_topic_is_refused(memory_store, topic):
    client = memory_store.client()
    for call in (
        lambda: client.publish(topic, 1),
        lambda: client.messages(topic),
        lambda: client.subscribe(topic, "g"),
        lambda: client.subscribe("t", topic),
        lambda: client.save("a", publish=[Message(topic, 1)]),
    ):
        with pytest.raises(UsageError):
            call()


@pytest.mark.parametrize(
    "wrong", [{"ttl": 0}, {"ttl": 10, "max_ttl": 5}, {"max_waiting": 0}, {"wait": -1}, {"contract": 1}]
)
def test_wrong_options_are_refused(memory_store, wrong):
    with pytest.raises(UsageError):
        memory_store.client().publish("t", 1, **wrong)


def test_a_backend_without_feeds_filters_all_changes(memory_store, monkeypatch):
    client = memory_store.client()
    for n in range(30):
        client.publish("t" if n % 3 else "u", n)
        client.save("a", session_id="s", execution_state={"n": n})
    expected = values(client, "t")
    capabilities = type(client._ctx.backend).capabilities.fget(client._ctx.backend)
    from dataclasses import replace

    monkeypatch.setattr(type(client._ctx.backend.inner), "capabilities", replace(capabilities, feeds=False))
    assert values(client, "t") == expected == [n for n in range(30) if n % 3]
    assert [one.value for one in client.subscribe("t", "g", timeout=0, batch=7)] == expected


# -- other stores ----------------------------------------------------------------------------------------------------


def test_a_copy_keeps_ids_and_what_groups_have_consumed(store, tmp_path):
    client = store.client()
    for n in range(3):
        client.save("a", session_id="s", execution_state={"n": n}, publish=[Message("t", n)])
        client.publish("t", 10 + n)
    for one in client.subscribe("t", "g", timeout=0):
        one.ack()
        if one.value == 1:
            break
    ids = {one.message_id for one in client.messages("t")}
    with SyncClient.sqlite(tmp_path / "copy.db") as copy:
        client.copy_to(copy)
        assert {one.message_id for one in copy.messages("t")} == ids
        assert sorted(one.value for one in copy.subscribe("t", "g", timeout=0)) == [2, 11, 12]
        assert sorted(one.value for one in copy.subscribe("t", "new", timeout=0)) == [0, 1, 2, 10, 11, 12]
        assert copy.verify().problems == ()
        copy.copy_to(client)  # nothing is new, so nothing is delivered again
        assert [one.value for one in client.subscribe("t", "g", timeout=0)] == [11, 2, 12]


def test_exported_messages_come_back_with_their_feed(store, tmp_path):
    client = store.client()
    client.save("a", session_id="s", execution_state={}, publish=[Message("t", LARGE, key="k")])
    client.export(tmp_path / "bundle")
    with SyncClient.memory() as other:
        other.import_(tmp_path / "bundle")
        [found] = other.messages("t")
        assert (found.value, found.key, found.session_id) == (LARGE, "k", "s")
        assert [one.value for one in other.subscribe("t", "g", timeout=0)] == [LARGE]
