"""Groups: each message takes effect once, in order of its key; what can't be handled is given up with its reasons."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress

import pytest
from group_use import consume, group_of, load_group, publish, seen
from stores import Clock

from holdfast import LeaseLostError, Message, MessageLostError
from holdfast.backends.bridge.step import run_inline
from holdfast.format.rows import topic as rows
from holdfast.model import group_state
from holdfast.model.lease import Process
from holdfast.operations import group as groups
from holdfast.operations import group_memory

pytestmark = pytest.mark.every_store


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch):
    monkeypatch.setattr(group_state, "FIRST_BACKOFF_US", 1000)
    monkeypatch.setattr(group_state, "BACKOFF_FACTOR", 1)


# -- effect once -----------------------------------------------------------------------------------------------------


def test_the_state_and_the_consumption_are_one_checkpoint(store):
    client = store.client()
    publish(client, 3)
    states = []
    with client.run("s", agent_id="a") as run:
        run.state["seen"] = []
        for message in run.receive("t", "g", timeout=0):
            run.state["seen"].append(message.value)
            run.step("look", lambda: 1)  # saves a checkpoint within the turn
            states.append(store.client().latest("s").execution_state)
    assert states == [{"seen": []}, {"seen": [0]}, {"seen": [0, 1]}]
    assert seen(client, "s") == [0, 1, 2]
    assert (group_of(client).waiting, group_of(client).in_flight) == (0, 0)


def test_sessions_of_a_group_share_the_messages(store):
    client = store.client()
    publish(client, 12)
    threads = [threading.Thread(target=consume, args=(store.client(), f"s{n}")) for n in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    consume(client, "s0")
    assert sorted(seen(client, "s0", "s1", "s2")) == list(range(12))


def test_a_turn_that_raises_changes_nothing_and_is_tried_again(store):
    client = store.client()
    publish(client, 2)
    fails = iter((True, True, False, False))

    def handle(run, message):
        run.publish("out", message.value)
        if next(fails):
            raise ValueError("not now")

    for _ in range(2):
        with pytest.raises(ValueError, match="not now"):
            consume(client, "s", handle=handle)
        assert seen(client, "s") == []
        time.sleep(0.01)
    assert sorted(consume(client, "s", handle=handle)) == [0, 1]
    assert sorted(seen(client, "s")) == [0, 1]
    assert sorted(one.value for one in client.messages("out")) == [0, 1]


def test_steps_of_a_turn_are_not_repeated_in_the_same_session(store):
    client = store.client()
    publish(client, 3)
    calls = Counter()

    def look(value):
        calls[value] += 1
        return value * 10

    def handle(run, message):
        assert run.step("look", look, message.value) == message.value * 10
        if calls[message.value] == 1 and message.attempts == 0 and message.value == 1:
            raise ValueError("after the step")

    with pytest.raises(ValueError, match="after"):
        consume(client, "s", handle=handle)
    time.sleep(0.01)
    consume(client, "s", handle=handle)
    assert calls == {0: 1, 1: 1, 2: 1}
    assert sorted(seen(client, "s")) == [0, 1, 2]


def test_what_a_turn_publishes_comes_with_its_end(store):
    client = store.client()
    publish(client, 2)
    during = []

    def handle(run, message):
        first = run.publish("out", {"of": message.value})
        run.step("save", lambda: 1)
        during.append([one.value for one in client.messages("out")])
        assert first != run.publish("out", {"of": message.value})

    consume(client, "s", handle=handle)
    assert during == [[], [{"of": 0}, {"of": 0}]]
    assert [one.value for one in client.messages("out")] == [{"of": 0}] * 2 + [{"of": 1}] * 2


def test_a_message_is_consumed_if_the_loop_is_left_and_the_run_ends_well(store):
    client = store.client()
    publish(client, 3)
    with client.run("s", agent_id="a") as run:
        for message in run.receive("t", "g", batch=2):
            run.state["seen"] = [message.value]
            break
    assert seen(client, "s") == [0]
    assert (group_of(client).waiting, group_of(client).in_flight) == (2, 0)
    assert consume(client, "s") == [1, 2]


@pytest.mark.slow
def test_given_back_messages_leave_no_trace(store):
    client = store.client()
    publish(client, 1)
    outcomes = iter(("release", "fail", "release", None))

    def handle(run, message):
        run.publish("out", 1)
        what = next(outcomes)
        if what == "fail":
            message.fail("not yet")
        elif what == "release":
            message.release()

    consume(client, "s", timeout=1, handle=handle)
    assert seen(client, "s") == [0]
    assert [one.value for one in client.messages("out")] == [1]


def test_a_subscription_settles_by_hand(store):
    client = store.client()
    publish(client, 3)
    with client.subscribe("t", "g", timeout=0) as messages:
        assert [(one.value, one.ack()) for one in messages] == [(0, True), (1, True), (2, True)]
    with client.subscribe("t", "g", timeout=0) as messages:
        assert list(messages) == []


def test_a_message_without_an_ack_is_delivered_again_and_a_late_ack_is_refused(store):
    client, other, ahead_us = store.client(), store.client(), 0
    for one in (client, other):
        one._ctx.now_us = lambda now=one._ctx.now_us: now() + ahead_us
    publish(client, 1)
    slow = next(client.subscribe("t", "g", seconds=15))
    assert list(other.subscribe("t", "g", timeout=0)) == []
    ahead_us = 16_000_000
    fast = next(other.subscribe("t", "g", timeout=5))
    assert (fast.value, fast.attempts) == (0, 1)
    assert not slow.ack()
    assert not slow.renew()
    assert fast.renew()
    assert fast.ack()
    assert not fast.ack()
    assert list(other.subscribe("t", "g", timeout=0)) == []


@pytest.mark.slow
def test_leaving_a_subscription_gives_back_what_was_not_settled(store):
    client = store.client()
    publish(client, 4)
    with client.subscribe("t", "g", batch=3) as messages:
        next(messages).ack()
        next(messages)
    with suppress(KeyError), client.subscribe("t", "g", batch=3) as messages:
        assert next(messages).value == 1
        raise KeyError
    [failed] = [one for one in client.subscribe("t", "g", timeout=1) if one.ack() and one.attempts]
    assert failed.value == 1


# -- taking over -----------------------------------------------------------------------------------------------------


def stop(client):
    """Make a client one that is stopped: it renews no lease, and its clock stands."""
    clock = Clock()
    clock.us = time.time_ns() // 1000
    client._ctx.now_us = lambda: clock.us
    client._ctx.this_process = lambda: Process("elsewhere", 1, 1)
    return client


def interrupted(store, at):
    """A consumer that is stopped in its turn, or after its commit; and its loop."""
    client = stop(store.client())
    run = client.run("slow", agent_id="a", seconds=1)
    run.state["seen"] = []
    loop = run.receive("t", "g", timeout=0)
    message = next(loop)
    run.state["seen"].append(message.value)
    if at == "after":
        run._core.turns.consume(run._core)
        run.save()  # the commit, without the acknowledgement that follows
    return run, loop


@pytest.mark.slow
@pytest.mark.parametrize("how", ["next", "save", "close"])
def test_a_consumer_that_was_stopped_beyond_its_lease_is_refused(store, how):
    client = store.client()
    publish(client, 1)
    run, loop = interrupted(store, "within")
    time.sleep(1.1)
    assert consume(client, "fast", timeout=1) == [0]
    with pytest.raises((MessageLostError, LeaseLostError)):
        if how == "next":
            next(loop)
        else:
            run._core.turns.consume(run._core)
            if how == "save":
                run.save()
            else:
                run.__exit__(None, None, None)
    head = client.latest("slow")
    assert head is None or "seen" not in head.execution_state or head.execution_state["seen"] == []
    assert seen(client, "fast") == [0]


def test_a_consumer_with_a_live_lease_that_lost_its_message_is_told(store):
    client, other = store.client(), store.client()
    publish(client, 1)
    with pytest.raises(MessageLostError), client.run("slow", agent_id="a") as run:
        loop = run.receive("t", "g", timeout=0)
        next(loop)
        run.state["seen"] = ["wrong"]
        state, _ = load_group(client)
        holder = state.entries[0].holder
        group = groups.TopicGroup("t", "g")
        assert run_inline(groups._revoke(other._ctx, group, state.entries[0].id, holder))
        next(loop)
    assert client.latest("slow") is None or "seen" not in client.latest("slow").execution_state


def test_a_crash_between_commit_and_acknowledgement_delivers_nothing_again(store):
    client = store.client()
    publish(client, 1)
    _run, _ = interrupted(store, "after")
    assert group_of(client).in_flight == 1
    time.sleep(1.1)
    assert consume(client, "fast", timeout=0) == []
    assert seen(client, "slow") == [0]
    assert (group_of(client).waiting, group_of(client).in_flight) == (0, 0)


@pytest.mark.slow
def test_two_that_take_over_at_once_get_one_message(store):
    client = store.client()
    publish(client, 1)
    interrupted(store, "within")
    time.sleep(1.1)
    threads = [threading.Thread(target=consume, args=(store.client(), f"s{n}")) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    consume(client, "s0", timeout=0.5)
    assert seen(client, "s0", "s1", "s2", "s3") == [0]


@pytest.mark.slow
def test_the_same_session_goes_on_with_the_message_of_its_last_life(store):
    client = store.client()
    publish(client, 2)
    _run, _ = interrupted(store, "within")
    time.sleep(1.1)
    assert sorted(consume(client, "slow", timeout=1)) == [0, 1]
    assert sorted(seen(client, "slow")) == [0, 1]


# -- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_key_waits_for_its_message_that_is_tried_again(store, clock, monkeypatch):
    monkeypatch.setattr(group_state, "FIRST_BACKOFF_US", 5_000_000)
    client = store.client()
    clock.rules(client)
    for value, key in ((0, "a"), (1, "a"), (2, "b")):
        client.publish("t", value, key=key)
    order = []

    def handle(_run, message):
        order.append(message.value)
        if message.value == 0 and not message.attempts:
            message.fail("again")
        elif message.value == 2:
            clock.forward(6)

    consume(client, "s", handle=handle)
    assert order == [0, 2, 0, 1]


def test_two_groups_are_independent(store):
    client = store.client()
    publish(client, 4)
    assert consume(client, "one", "g1") == [0, 1, 2, 3]
    assert consume(client, "two", "g2", from_="now") == []
    publish(client, 1)
    assert consume(client, "one", "g1") == [0]
    assert consume(client, "two", "g2") == [0]


def test_a_new_group_begins_at_a_cursor(store):
    client = store.client()
    publish(client, 4)
    cursor = list(client.messages("t"))[1].cursor
    assert consume(client, "s", from_=cursor) == [2, 3]


def test_an_idle_subscription_gets_what_comes_and_what_is_redelivered(store, monkeypatch):
    """Though it has read that the group has nothing open: also if nothing but its polling tells it."""
    monkeypatch.setattr(group_memory, "QUIET_US", 500_000)
    client, other = store.client(), store.client()
    [message_id] = publish(other, 1)
    acts = iter((lambda: publish(other, 1), lambda: other.redeliver("t", "g", message_id)))
    got = []
    with client.subscribe("t", "g", timeout=60, poll_seconds=0.02) as messages:
        for message in messages:
            assert message.ack()
            got.append(message.value)
            if len(got) == 3:
                break
            threading.Timer(0.2, next(acts)).start()
    assert got == [0, 0, 0]
    assert (group_of(client).waiting, group_of(client).in_flight) == (0, 0)


# -- gc --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_gc_removes_decisions_and_nothing_is_delivered_again(store):
    client = store.client()
    publish(client, 3)
    interrupted(store, "after")
    consume(client, "s", timeout=0)
    time.sleep(1.1)
    client.gc()
    left = client._ctx.backend
    kinds = [rows.unpack_decision(key, row).what for key, row in run_inline(left.scan(rows.TAKEN))]
    assert kinds in ([], ["revoked"])
    assert consume(client, "again", timeout=0.3) == []


@pytest.mark.slow
def test_a_consumer_whose_session_was_collected_keeps_what_it_has_consumed(store):
    client = store.client()
    publish(client, 2)
    _run, _ = interrupted(store, "after")
    time.sleep(1.1)
    for one in client.timeline("slow"):
        client.expire(one.checkpoint_id)
    client.gc()
    assert consume(client, "slow", timeout=0.3) == [1]
    assert client.verify().problems == ()


def test_groups_in_a_save_share_the_order(store):
    client = store.client()
    client.save("a", session_id="x", execution_state={}, publish=[Message("t", n) for n in range(5)])
    assert consume(client, "s", batch=4) == [0, 1, 2, 3, 4]
