"""sessions: the one saved to last first, and a short list does not read the whole store."""

from __future__ import annotations

import pytest
from stores import Clock, Store

from holdfast import SyncClient
from holdfast.operations import timeline

pytestmark = pytest.mark.every_store


def names(sessions) -> list[str]:
    return [one.session_id for one in sessions]


def test_the_session_saved_to_last_comes_first_whatever_the_clock_says(store: Store, clock: Clock):
    client = store.client()
    clock.rules(client)
    for name in ("a", "b", "c"):
        client.save("agent", session_id=name)
        clock.forward(-60)
    client.save("agent", session_id="a")
    assert names(client.sessions()) == ["a", "c", "b"]
    assert client.latest().session_id == "a"


def test_a_session_that_was_rolled_back_keeps_its_place(client: SyncClient):
    first = client.save("agent", session_id="a")
    client.save("agent", session_id="b")
    client.save("agent", session_id="a")
    client.rollback("a", to=first)
    assert names(client.sessions()) == ["a", "b"]
    assert client.sessions(limit=1)[0].head.checkpoint_id == first


def test_a_short_list_is_the_beginning_of_the_long_one(client: SyncClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timeline, "RECENT", 12)
    monkeypatch.setattr(timeline, "RECENT_PAGE", 5)
    for number in range(40):
        client.save(f"agent-{number % 3}", session_id=f"s{number * 7 % 11}")
    whole = client.sessions()
    assert sorted(names(whole)) == sorted(f"s{number}" for number in range(11))
    for limit in range(1, 13):
        assert client.sessions(limit=limit) == whole[:limit]
    of_agent = client.sessions(agent_id="agent-1")
    assert of_agent == [one for one in whole if one.head.agent_id == "agent-1"]
    assert [client.sessions(agent_id="agent-1", limit=limit) for limit in (1, 2)] == [of_agent[:1], of_agent[:2]]


def test_a_session_whose_own_checkpoints_were_all_collected_is_listed(client: SyncClient):
    root = client.save("agent", session_id="a")
    fork = client.fork(root, session_id="b")
    client.expire(fork.checkpoint_id)
    client.gc()
    assert {one.session_id: one.head.checkpoint_id for one in client.sessions()} == {"a": root, "b": root}


def test_a_short_list_reads_as_little_from_a_large_store_as_from_a_small_one(store: Store):
    client, recorder = store.recorded()
    read = []
    for count in (30, 300):
        for number in range(count):
            client.save("agent", session_id=f"{count}-{number}")
        recorder.forget()
        assert len(client.sessions(limit=5)) == 5
        assert client.latest() is not None
        read.append(dict(recorder.calls))
    assert read[0] == read[1]
    assert sum(read[0].values()) <= 12
