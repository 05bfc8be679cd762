"""The feed of a record is no part of what is sealed: a message that is moved to another topic is refused there."""

from __future__ import annotations

import pytest
from sealed_story import Raw
from stores import Store

from holdfast import CorruptError
from holdfast.backends.port import Commit, RecordWrite
from holdfast.format.rows import head

pytestmark = pytest.mark.every_store


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_message_in_the_feed_of_another_topic_is_not_delivered(store: Store, is_sealed: bool):
    store.is_sealed = is_sealed
    client = store.client()
    client.publish("orders", {"pay": 1}, agent_id="a")
    client.publish("drafts", {"pay": 1000}, agent_id="a")
    client.save("a", session_id="s", execution_state={"pay": 2000})
    raw = Raw.of(store)
    feed = head.session_key("orders")
    if is_sealed:
        client.session_ids()
        feed = client._ctx.backend.store.names.hide("feed", feed)
    for record in raw.records()[1:]:
        raw.commit(Commit(record.id, delete_records=[(record.id, record.data)]))
        raw.commit(Commit(record.id, RecordWrite(*record, feed=feed)))
    fresh = store.client()
    got = []
    for name in ("one", "two"):
        with fresh.subscribe("orders", name, timeout=0) as messages:
            for message in messages:
                got.append(message.value)
                message.ack()
    assert got == [{"pay": 1}] * 2
    read = []
    try:
        for message in fresh.messages("orders"):
            read += [message.value]
    except CorruptError as error:
        assert "drafts" in str(error) or "no message" in str(error)
    assert read in ([], [{"pay": 1}])
    assert fresh.latest("s").execution_state == {"pay": 2000}


def test_numbers_that_no_writer_gives_are_refused(store: Store):
    """A sequence number beyond eight bytes has no place that anything was sealed for."""
    from holdfast.sealing import envelope

    for number in (-1, 2**64):
        assert envelope.record_place(b"i" * 16, b"s" * 16, number) == envelope.NO_PLACE
        assert envelope.segment_place(1, number, 1) == envelope.segment_place(number, 0, 1) == envelope.NO_PLACE
    assert envelope.record_place(b"i" * 16, b"s" * 16, 2**64 - 1) != envelope.NO_PLACE
    store.is_sealed = True
    client = store.client()
    assert client.restore(client.save("a", execution_state={"n": 1})).execution_state == {"n": 1}
