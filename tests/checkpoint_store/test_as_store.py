"""`as_store`: the plain five-method store that agent loops with a pluggable store expect."""

from __future__ import annotations

import asyncio
import re
import uuid

from stores import Store, messages

from holdfast import CheckpointStore, SyncClient


def test_it_is_a_checkpoint_store(memory_store: Store):
    assert isinstance(memory_store.async_client().as_store(), CheckpointStore)


def test_the_five_methods(store: Store):
    async def scenario() -> None:
        plain = store.async_client().as_store()
        assert await plain.load("s") is None
        assert await plain.load_metadata("s") is None
        assert await plain.list() == []
        await plain.delete("s")
        await plain.save("s", {"step": 1, "messages": messages(20)})
        await plain.save("s", {"step": 2, "messages": messages(21)})
        await plain.save("t", {"step": 1})
        assert await plain.load("s") == {"step": 2, "messages": messages(21)}
        assert sorted(await plain.list()) == ["s", "t"]
        await plain.delete("s")
        assert await plain.load("s") is None
        assert await plain.load_metadata("s") is None
        assert await plain.list() == ["t"]
        assert await plain.load("t") == {"step": 1}

    asyncio.run(scenario())


def test_the_same_without_await(client: SyncClient):
    plain = client.as_store()
    plain.save("s", {"step": 4, "x": (1, 2)})
    assert plain.load("s") == {"step": 4, "x": (1, 2)}
    assert plain.load_metadata("s").step == 4
    assert plain.list() == ["s"]
    plain.delete("s")
    plain.delete("s")
    assert plain.list() == []


def test_metadata(client: SyncClient):
    plain = client.as_store("helper")
    plain.save("s", {"step": 7})
    metadata = plain.load_metadata("s")
    assert (metadata.session_id, metadata.step, metadata.agent_id) == ("s", 7, "helper")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", metadata.timestamp)
    assert uuid.UUID(metadata.checkpoint_id)
    plain.save("s", {"step": 8, "metadata": {"agentId": "from-the-state"}})
    assert plain.load_metadata("s").agent_id == "from-the-state"
    assert plain.load_metadata("s").checkpoint_id != metadata.checkpoint_id


def test_metadata_is_read_without_the_state(store: Store):
    client, recorder = store.recorded()
    plain = client.as_store()
    plain.save("s", {"messages": messages(50), "blob": "x" * 5000})
    recorder.forget()
    assert plain.load_metadata("s").session_id == "s"
    assert recorder.calls["segments"] == recorder.calls["blobs"] == 0


def test_each_save_is_a_checkpoint_that_can_be_gone_back_to(client: SyncClient):
    plain = client.as_store()
    for step in range(3):
        plain.save("s", {"step": step})
    history = client.timeline(session_id="s")
    assert [entry.step_index for entry in history] == [2, 1, 0]
    client.rollback("s", to=history[2].checkpoint_id)
    assert plain.load("s") == {"step": 0}
    assert plain.load_metadata("s").step == 0


def test_a_session_may_be_saved_again_after_it_was_deleted(client: SyncClient):
    plain = client.as_store()
    plain.save("s", {"messages": messages(20)})
    plain.delete("s")
    plain.save("s", {"messages": messages(10)})
    assert plain.load("s") == {"messages": messages(10)}
    assert plain.list() == ["s"]


def test_a_deleted_session_leaves_its_forks(client: SyncClient):
    plain = client.as_store()
    plain.save("s", {"messages": messages(20)})
    client.fork(client.latest(session_id="s").checkpoint_id, session_id="t")
    plain.delete("s")
    client.gc()
    assert plain.load("t") == {"messages": messages(20)}
