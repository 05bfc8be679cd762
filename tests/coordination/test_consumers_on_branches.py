"""Consumers that were rolled back or forked: the next messages are new work, one that is redelivered is not."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import EffectBlockedError, EffectKind, SyncClient

pytestmark = pytest.mark.every_store


def consume(client: SyncClient, session: str, sent: list[Any], change: int = 0) -> None:
    with client.run(session, agent_id="a") as run:
        for message in run.receive("in", "g", timeout=0):
            run.effect("send", sent.append, message.value + change, kind=EffectKind.IRREVERSIBLE, on_repeat="replay")
            run.publish("out", message.value + change)


def publish(client: SyncClient, *numbers: int) -> None:
    for number in numbers:
        client.publish("in", number)


@pytest.mark.parametrize("way", ["rollback", "fork"])
def test_the_next_messages_are_no_possible_duplicates_of_earlier_ones(store, way):
    client, sent = store.client(), []
    publish(client, 0, 1, 2)
    consume(client, "s", sent)
    first = client.timeline("s")[-1].checkpoint_id
    publish(client, 3, 4)
    if way == "rollback":
        client.rollback("s", to=first)
        consume(client, "s", sent)
    else:
        client.fork(first, session_id="other")
        consume(client, "other", sent)
    assert sent == list(range(5))
    assert [one.value for one in client.messages("out")] == list(range(5))
    assert client.dead_messages("in") == []


def test_a_message_that_is_redelivered_after_a_rollback_is_handled_once(store):
    client, sent = store.client(), []
    publish(client, 0, 1)
    consume(client, "s", sent)
    report = client.rollback("s", to=client.timeline("s")[-1].checkpoint_id)
    for left in report.consumed:
        client.redeliver(left.topic, *left.groups, left.message_id)
    consume(client, "s", sent)
    assert sorted(sent) == [0, 1]
    assert sorted(one.value for one in client.messages("out")) == [0, 1]


def test_other_content_for_a_redelivered_message_is_a_possible_duplicate(store):
    client, sent = store.client(), []
    publish(client, 0, 1)
    consume(client, "s", sent)
    report = client.rollback("s", to=client.timeline("s")[-1].checkpoint_id)
    [left] = [left for left in report.consumed if client.restore(left.message_id).execution_state == 1]
    client.redeliver(left.topic, *left.groups, left.message_id)
    with pytest.raises(EffectBlockedError, match="possible duplicate"):
        consume(client, "s", sent, change=10)
    assert sorted(sent) == [0, 1]
