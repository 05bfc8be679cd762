"""`HoldfastStorage`: the storage protocol of Strands, and its snapshot session manager over it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from framework_environments import require

require("strands")

from strands import Agent
from strands.session import SnapshotSessionManager
from strands.storage import InMemoryStorage, Storage
from strands.types.exceptions import StorageError
from strands_model import FunctionModel

from holdfast import Client
from holdfast.strands import HoldfastStorage, resumable
from holdfast.transcript import BlobPart, to_transcript

PICTURE = bytes(range(256))
LATEST = "session/chat/scopes/agent/default"


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


def make_agent(storage: Any, **options: Any) -> Agent:
    manager = SnapshotSessionManager("chat", storage=storage, **options)
    model = FunctionModel(lambda messages: f"parrot {len(messages)}")
    return Agent(model, name="parrot", callback_handler=None, session_manager=manager)


@pytest.mark.parametrize("kind", ["holdfast", "control"])
def test_the_storage_does_what_the_protocol_says(url, kind):
    storage: Any = HoldfastStorage(store=url) if kind == "holdfast" else InMemoryStorage()

    async def main() -> None:
        assert isinstance(storage, Storage)
        assert await storage.read("a") is None
        await storage.delete("a")
        values = {
            "a": b"",
            "a/b": b"\x00\xff not json",
            "a/c.json": b'{"data": {"messages": [1]}}',
            "b/snapshots/1": b'{"data":  {"messages": []}}',  # not as json.dumps writes it
            "b/snapshots/2": json.dumps({"n": 1e300, "x": ["ü", None]}).encode(),
            "b/snapshots/3": b'{"data": {"x": 1, "messages": []}}',
        }
        for key, value in values.items():
            await storage.write(key, b"before")
            await storage.write(key, value)
        assert {key: await storage.read(key) for key in values} == values
        assert await storage.list("") == sorted(values)
        assert await storage.list("a/") == ["a/b", "a/c.json"]
        assert await storage.list("b/snapshots/2") == ["b/snapshots/2"]
        await storage.delete("b/snapshots/2")
        await storage.delete("a/b")
        assert await storage.read("b/snapshots/2") is None
        assert await storage.read("b/snapshots/1") == values["b/snapshots/1"]
        assert await storage.list("") == ["a", "a/c.json", "b/snapshots/1", "b/snapshots/3"]
        assert [one.key for one in await storage.search("messages")][:1]

    asyncio.run(main())
    if kind == "holdfast":
        asyncio.run(storage.close())


def test_a_session_of_strands_goes_on_and_is_read_like_any_other(url):
    storage = HoldfastStorage(store=url)
    agent = make_agent(storage, save_latest_on="message", snapshot_trigger=lambda **_: True)
    agent([{"text": "look"}, {"image": {"format": "png", "source": {"bytes": PICTURE}}}])
    agent = make_agent(storage, snapshot_trigger=lambda **_: True)
    assert str(agent("b")).strip() == "parrot 3"
    assert agent.messages[0]["content"][1]["image"]["source"]["bytes"] == PICTURE

    async def main() -> None:
        manager = SnapshotSessionManager("chat", storage=storage)
        other = make_agent(storage)
        ids = await manager.list_snapshot_ids(other)
        assert len(ids) == 2
        assert await manager.restore_snapshot(other, snapshot_id=ids[0])
        assert len(other.messages) == 2
        async with Client.open(url) as client:
            told = list(to_transcript(await client.latest(LATEST)))
            assert told[0].parts[1] == BlobPart(mime_type="image/png", data=PICTURE)
            assert [one.role for one in told] == ["user", "assistant"] * 2
            assert "base64" not in repr((await client.latest(LATEST)).execution_state)
        plain = Agent(FunctionModel(lambda messages: f"parrot {len(messages)}"), callback_handler=None)
        result = await resumable(plain, session_id=LATEST, store=url).invoke_async("c")
        assert str(result).strip() == "parrot 5"  # a session of Strands' own becomes a resumable one
        await manager.delete_session()
        assert await storage.list("session/chat/") == []
        await storage.close()

    asyncio.run(main())


def test_a_message_is_stored_once_though_strands_writes_all_of_them_each_time(url, tmp_path):
    class Counted(InMemoryStorage):
        written = 0

        async def write(self, key: str, data: bytes) -> None:
            Counted.written += len(data)
            await super().write(key, data)

        def namespace(self, prefix: str) -> Any:
            return self

    text = "".join(chr(97 + (number * number) % 26) for number in range(2000))
    storage = HoldfastStorage(store=url)
    for one in (storage, Counted()):
        agent = make_agent(one, save_latest_on="message", snapshot_trigger=lambda **_: True)
        for number in range(30):
            agent(f"{number} {text}")
    asyncio.run(storage.close())
    stored = sum(one.stat().st_size for one in tmp_path.glob("store.db*"))
    assert stored < Counted.written / 10, (stored, Counted.written)


def test_an_error_of_the_store_is_one_of_the_storage(tmp_path):
    (tmp_path / "store.db").write_bytes(b"not a database" * 1000)
    storage = HoldfastStorage(store=f"sqlite:///{tmp_path}/store.db")
    with pytest.raises(StorageError):
        asyncio.run(storage.read("a"))
