"""The key of a row that can't be opened is not known: what goes by keys alone stops, and deletes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from sealed_story import Raw, with_crc
from stores import Store

from holdfast import HoldfastError, KeyMissingError, Runnables, SyncClient, TamperedError, runnable
from holdfast.backends.port import UnreadableBytes
from holdfast.format.rows import hold, inbox, run, topic

pytestmark = pytest.mark.every_store


@pytest.fixture
def sealed(store: Store) -> Store:
    store.is_sealed = True
    return store


def spoil(raw: Raw, space: str, number: int = 0) -> Callable[[], None]:
    """Change a row; return what puts it back."""
    key, row = raw.rows(space)[number]
    changed = bytearray(row.value)
    changed[-10] ^= 1
    raw.put_row(key, with_crc(bytes(changed)))
    return lambda: raw.put_row(key, row.value)


@pytest.mark.parametrize("space", [hold.PIN, inbox.INBOX])
def test_a_policy_expires_nothing_while_it_can_not_know_what_is_held(sealed: Store, space: str):
    client = sealed.client()
    saved = [client.save("a", session_id="s", execution_state={"n": number}) for number in range(6)]
    client.pin(saved[1])
    offered = client.handoff(saved[2], "b")
    client.save("a", session_id="s", execution_state={"n": 7})
    put_back = spoil(Raw.of(sealed), space)
    before = Raw.of(sealed).dump()
    with pytest.raises(TamperedError):
        sealed.client().retain(keep_last=1)
    assert Raw.of(sealed).dump() == before
    put_back()
    fresh = sealed.client()
    fresh.retain(keep_last=1)
    assert fresh.restore(saved[1]).execution_state == {"n": 1}
    assert fresh.get(offered)


def test_a_cancelled_session_leaves_no_handoff_behind_unseen(sealed: Store):
    client = sealed.client()
    client.handoff(client.save("a", session_id="s", execution_state={}), "b")
    put_back = spoil(Raw.of(sealed), inbox.INBOX)
    with pytest.raises(TamperedError):
        sealed.client().cancel("s")
    put_back()
    sealed.client().cancel("s")
    assert sealed.client().inbox("b") == []


@pytest.mark.parametrize("space", [inbox.INBOX, topic.GROUP, topic.DEAD])
def test_gc_deletes_no_row_because_it_can_not_be_opened(sealed: Store, space: str):
    client = sealed.client()
    client.handoff(client.save("a", session_id="s", execution_state={}), "b")
    for number in range(2):
        client.publish("t", {"n": number}, agent_id="a")
    with client.subscribe("t", "g", timeout=0) as messages:
        next(iter(messages)).reject("no")
    raw = Raw.of(sealed)
    put_back = spoil(raw, space)
    before = raw.rows(space)
    with pytest.raises(TamperedError):
        sealed.client().gc()
    assert raw.rows(space) == before
    put_back()
    sealed.client().gc()
    assert len(sealed.client().inbox("b")) == 1
    assert len(sealed.client().dead_messages("t", "g")) == 1


def test_a_list_says_what_it_leaves_out(sealed: Store, caplog: pytest.LogCaptureFixture):
    client = sealed.client()
    first = client.handoff(client.save("a", session_id="s", execution_state={}), "b")
    second = client.handoff(client.save("a", session_id="t", execution_state={}), "b")
    client.start("a function", session_id="started")
    raw = Raw.of(sealed)
    spoil(raw, inbox.INBOX)
    spoil(raw, run.RUN)
    caplog.set_level(logging.WARNING)
    fresh = sealed.client()
    assert {handoff.handoff_id for handoff in fresh.inbox("b")} < {first, second}
    assert "handoff 'hidden" in caplog.text
    assert fresh.runs() == []
    assert "session 'hidden" in caplog.text
    assert not fresh.verify().ok


def test_a_worker_leaves_hints_alone_that_are_sealed_under_a_missing_key(
    sealed: Store, monkeypatch: pytest.MonkeyPatch
):
    """A damaged hint is removed, so that others are found. A missing key may come back."""
    from holdfast.sealing.bridge import SealedBridge

    client = sealed.client()
    client.start("a function", session_id="started")
    original = SealedBridge._open_row

    def without_key(self, hidden, row):
        key, opened = original(self, hidden, row)
        if hidden.space != run.DUE:
            return key, opened
        return key, opened._replace(value=UnreadableBytes.because(KeyMissingError("its key is missing")))

    names = Runnables()
    runnable("a function", registry=names)(lambda run: 1)
    raw = Raw.of(sealed)
    before = raw.rows(run.DUE)
    with monkeypatch.context() as patch:
        patch.setattr(SealedBridge, "_open_row", without_key)
        sealed.client().work(drain=True, runnables=names)
    assert raw.rows(run.DUE) == before
    assert sealed.client().work(drain=True, runnables=names) == 1


def test_langgraph_lists_no_checkpoint_without_its_writes(memory_store: Store):
    pytest.importorskip("langgraph")
    from langgraph.checkpoint.base import empty_checkpoint

    from holdfast.adapters.langgraph import HoldfastSaver

    memory_store.is_sealed = True
    client: SyncClient = memory_store.client()
    saver = HoldfastSaver(client)
    given = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    config = saver.put(given, empty_checkpoint(), {"source": "loop", "step": 0}, {})
    saver.put_writes(config, [("channel", "a value")], "task")
    [found] = saver.list(given)
    assert found.pending_writes == [("task", "channel", "a value")]
    for space in ("lgwrites", "lgindex"):
        put_back = spoil(Raw.of(memory_store), space)
        fresh = HoldfastSaver(memory_store.client())
        for read in (lambda fresh=fresh: [*fresh.list(given)], lambda fresh=fresh: fresh.get_tuple(given)):
            with pytest.raises(HoldfastError):
                read()
        assert not memory_store.client().verify().ok
        put_back()
        assert memory_store.client().verify().ok
