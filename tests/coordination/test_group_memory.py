"""What a consumer remembers of its group: never more than a store would tell, whatever others do meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from group_use import consume, load_group, publish, seen
from stores import Clock

from holdfast import LeaseLostError
from holdfast.model.group_state import GroupState
from holdfast.operations import group_memory

pytestmark = pytest.mark.every_store


def test_a_busy_consumer_reads_neither_row_nor_topic_for_each_message(store):
    client, recorder = store.recorded()
    Clock().rules(client)  # what is remembered does not grow old
    for n in range(32):
        client.publish("t", n)
    with client.run("s", agent_id="a") as run:
        messages = run.receive("t", "g", timeout=0)
        next(messages)
        recorder.forget()
        assert [next(messages).value for _ in range(16)] == list(range(1, 17))
        assert (recorder.calls["rows"], recorder.calls["changes"]) <= (2, 2)
        assert recorder.calls["commit_all"] <= 16 * (2.2 if store.is_sealed else 1.2)  # the next one is claimed with it


def test_two_consumers_in_turn_get_each_message_once(store):
    """Each has overtaken what the other remembers."""
    publish(store.client(), 24)
    one, two = store.client(), store.client()
    got: list[int] = []
    with one.run("s1", agent_id="a") as first, two.run("s2", agent_id="a") as second:
        loops = [first.receive("t", "g", timeout=0), second.receive("t", "g", timeout=0)]
        got.extend(next(loops[turn % 2]).value for turn in range(24))
        for loop in loops:
            assert next(loop, None) is None
    assert got == list(range(24))
    assert load_group(store.client())[0].entries == ()


def test_what_another_gives_back_is_found_at_once(store):
    """The remembered row says that there is nothing open: the last word has the store's."""
    publish(store.client(), 3)
    mine, other = store.client(), store.client()
    with other.subscribe("t", "g", batch=1, timeout=0) as theirs, mine.subscribe("t", "g", timeout=0) as messages:
        held = next(theirs)
        for expected in (1, 2):
            message = next(messages)
            assert message.value == expected
            assert message.ack()
        held.release()
        assert [message.value for message in messages if message.ack()] == [0]


def test_a_message_that_is_over_is_not_delivered_from_memory(store):
    publish(store.client(), 2)
    client = store.client()
    with client.subscribe("t", "g", timeout=0) as messages:
        first = next(messages)
        last = [one.message_id for one in client.messages("t")][-1]
        client.expire(last)
        messages._subscription.memory._changes_us -= 2 * group_memory.FRESH_US  # a second later
        assert first.ack()
        assert next(messages, None) is None


def test_memory_is_used_for_a_second_and_not_while_others_replace_the_row():
    clock, memory, state = Clock(), group_memory.GroupMemory(), GroupState(7)
    memory.keep_row(state, 3, clock.us)
    assert memory.take_row(clock.us) == (state, 3)
    assert memory.take_row(clock.us) is None  # until it is kept again
    memory.keep_row(state, 3, clock.us)
    assert memory.take_row(clock.us + group_memory.FRESH_US) is None
    memory.note_overtaken()
    for _ in range(group_memory.SHARED_FOR):
        memory.keep_row(state, 3, clock.us)
        assert memory.take_row(clock.us) is None
    memory.keep_row(state, 3, clock.us)
    assert memory.take_row(clock.us) == (state, 3)


def test_messages_with_one_key_are_claimed_one_after_the_other(store):
    client = store.client()
    Clock().rules(client)
    for n in range(12):
        client.publish("t", n, key="k" if n % 3 else None)
    in_flight: list[int] = []

    def look(_run, _message):
        entries = load_group(client)[0].entries
        in_flight.append(sum(entry.holder is not None and entry.key == "k" for entry in entries))

    assert sorted(consume(client, "s", handle=look)) == list(range(12))
    assert max(in_flight) == 1
    assert [value for value in seen(client, "s") if value % 3] == [1, 2, 4, 5, 7, 8, 10, 11]


def test_what_was_claimed_with_a_refused_commit_goes_to_others(store):
    client = store.client()
    publish(client, 6)
    with pytest.raises(LeaseLostError), client.run("s", agent_id="a") as run:
        run.state["seen"] = []
        messages = run.receive("t", "g", timeout=0)
        for message in messages:
            run.state["seen"].append(message.value)
            if message.value == 3:
                store.client().cancel("s", by="ana", reason="enough")
    assert seen(client, "s") == [0, 1, 2]
    assert consume(store.client(), "heir") == [4, 5]
    [failed] = load_group(client)[0].entries  # the one that was at work comes again after a pause
    assert (failed.attempts, failed.holder) == (1, None)


def test_a_claim_that_another_consumer_overtakes_is_made_again(store):
    client, other = store.client(), store.client()
    publish(client, 8)
    with other.subscribe("t", "g", timeout=0) as theirs:
        taken = []

        def interfere(_run, message):
            if message.value in (2, 5):
                delivery = next(theirs)
                taken.append(delivery.value)
                assert delivery.ack()

        got = consume(client, "s", handle=interfere)
    assert sorted([*got, *taken]) == list(range(8))
    assert len(taken) == 2
    assert load_group(client)[0].entries == ()


def test_awaited_consumers_claim_ahead_as_well(store):
    publish(store.client(), 12)

    async def use() -> list[int]:
        async with store.async_client() as client, client.run("s", agent_id="a") as run:
            run.state["seen"] = []
            async for message in run.receive("t", "g", timeout=0):
                run.state["seen"].append(message.value)
            return list(run.state["seen"])

    assert asyncio.run(use()) == list(range(12))


def test_a_consumer_that_gives_messages_back_remembers_the_row_that_it_has_written(store):
    client, recorder = store.recorded()
    Clock().rules(client)
    publish(client, 20)
    with client.subscribe("t", "g", timeout=0) as messages:
        next(messages).ack()
        recorder.forget()
        for expected in range(1, 16):
            message = next(messages)
            assert message.value == expected
            message.reject("no")
        assert recorder.calls["rows"] <= 2
    assert len(client.dead_messages("t")) == 15
