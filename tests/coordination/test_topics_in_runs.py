"""Runs that publish and wait for messages: resumed, rolled back, forked and replayed."""

from __future__ import annotations

import threading
import time

import pytest
from topic_values import values

from holdfast import (
    EffectBlockedError,
    Message,
    NotRecordedError,
)

pytestmark = pytest.mark.every_store

# -- runs ------------------------------------------------------------------------------------------------------------


def publish_all(client, session="s", values=("one", "two"), **options):
    with client.run(session, agent_id="a", **options) as run:
        return [run.publish("t", one) for one in values]


def test_a_resume_gets_the_recorded_ids_and_sends_nothing(store):
    client = store.client()
    first = publish_all(client)
    assert publish_all(store.client()) == first
    assert values(client, "t") == ["one", "two"]


def test_equal_messages_are_different_ones(store):
    client = store.client()
    first = publish_all(client, values=("same", "same"))
    assert len(set(first)) == 2
    assert publish_all(client, values=("same", "same")) == first
    assert values(client, "t") == ["same", "same"]


def test_other_content_at_the_same_place_is_a_possible_duplicate(store):
    client = store.client()
    publish_all(client)
    with pytest.raises(EffectBlockedError):
        publish_all(client, values=("ONE", "two"))
    assert values(client, "t") == ["one", "two"]


def test_a_rollback_unsends_nothing_and_the_run_sends_nothing_again(store):
    client = store.client()
    begin = client.save("a", session_id="s", execution_state={})
    first = publish_all(client)
    report = client.rollback("s", to=begin)
    assert [(one.message_id, one.topic) for one in report.published] == [(one, "t") for one in first]
    assert publish_all(client) == first
    assert values(client, "t") == ["one", "two"]


def test_a_rollback_names_messages_that_a_save_published(store):
    client = store.client()
    begin = client.save("a", session_id="s", execution_state={})
    client.save("a", session_id="s", execution_state={"n": 1}, publish=[Message("t", 1)])
    with client.subscribe("t", "readers", timeout=5) as messages:
        for message in messages:
            assert message.ack()
            break
    report = client.rollback("s", to=begin)
    assert [(one.topic, one.groups) for one in report.published] == [("t", ("readers",))]
    assert values(client, "t") == [1]


def test_a_fork_gets_the_recorded_ids(store):
    client = store.client()
    first = publish_all(client)
    client.fork("s", session_id="f")
    assert publish_all(client, "f") == first
    assert values(client, "t") == ["one", "two"]


def test_a_replay_sends_nothing(store):
    client = store.client()
    begin = client.save("a", session_id="s", execution_state={})
    first = publish_all(client)

    def program(run):
        return [run.publish("t", one) for one in ("one", "two")]

    for mode in ("recorded", "mixed", "live"):
        report = client.replay("s", program, from_=begin, mode=mode)
        assert (report.result, report.error) == (first, None)
    assert values(client, "t") == ["one", "two"]


def test_a_replay_consumes_nothing(store):
    client = store.client()
    client.publish("t", 1)
    begin = client.save("a", session_id="s", execution_state={})
    publish_all(client, values=("other",))

    def program(run):
        return [one.value for one in run.receive("t", "g", timeout=0)]

    report = client.replay("s", program, from_=begin, mode="live")
    assert isinstance(report.error, NotRecordedError)
    assert client.topics("t")[0].groups == ()


def test_a_publication_waits_for_the_next_commit_if_steps_are_not_saved_at_once(store):
    client = store.client()
    with client.run("s", agent_id="a", autosave=None) as run:
        run.publish("t", 1)
        assert values(client, "t") == []
        run.save()
        assert values(client, "t") == [1]
        run.publish("t", 2)
    assert values(client, "t") == [1, 2]


# -- wait_for --------------------------------------------------------------------------------------------------------


def test_wait_for_returns_the_same_message_after_a_resume(store):
    client = store.client()
    for n in range(4):
        client.publish("t", {"n": n})

    def program():
        with client.run("s", agent_id="a") as run:
            return run.wait_for("t", where=lambda one: one.value["n"] == 2, after="start", timeout=30)

    first = program()
    assert first.value == {"n": 2}
    client.publish("t", {"n": 2})
    assert program() == first


def test_wait_for_ends_when_its_time_is_over(store):
    client = store.client()
    client.publish("t", "before")
    with client.run("s", agent_id="a") as run:
        assert run.wait_for("t", timeout=0.2) is None
    client.publish("t", "after")
    with client.run("s", agent_id="a") as run:
        assert run.wait_for("t", timeout=0.2) is None


def test_wait_for_begins_where_an_earlier_life_began(store):
    client = store.client()
    client.publish("t", "before")
    with pytest.raises(KeyError), client.run("s", agent_id="a") as run:
        client_where = {}
        threading.Thread(target=lambda: (wait_until_it_waits(client, "s"), client.publish("t", "first"))).start()
        run.wait_for("t", where=lambda one: client_where["fails"], timeout=30)
    client.publish("t", "second")
    with client.run("s", agent_id="a") as run:
        assert run.wait_for("t", timeout=30).value == "first"


def wait_until_it_waits(client, session):
    """What a run waits for, once it does."""
    deadline = time.monotonic() + 60
    while not (waits := client.team(session).waits):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return waits


@pytest.mark.slow
def test_a_wait_for_a_message_is_shown(store):
    client = store.client()
    seen = []

    def look():
        seen.extend((one.kind, one.targets) for one in wait_until_it_waits(client, "s"))
        client.publish("news", 1)

    with client.run("s", agent_id="a") as run:
        threading.Thread(target=look).start()
        assert run.wait_for("news", timeout=100).value == 1
    assert seen == [("message", ("news",))]
    assert client.team("s").members[0].waits == ()
