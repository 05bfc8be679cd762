"""Keys for LangGraph's saver and store, wherever one of them opens a holdfast store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph
from stores import RING

from holdfast import KeyMissingError, KeyRing, SyncClient, UsageError
from holdfast.langgraph import HoldfastSaver, HoldfastStore, dev_checkpointer, dev_store

CANARY = "canary-5d"
OPENED: list[Callable[..., Any]] = [
    lambda kind, path, **keys: kind(sqlite3.connect(path), **keys),
    lambda kind, path, **keys: kind(conn=sqlite3.connect(path), **keys),
    lambda kind, path, **keys: kind(f"sqlite:///{path}", **keys),
    lambda kind, path, **keys: kind.from_sqlite(path, **keys),
    lambda kind, path, **keys: kind.from_url(f"sqlite:///{path}", **keys),
    lambda kind, path, **keys: kind.from_conn_string(str(path), **keys),
    lambda kind, path, **keys: kind.from_files(path.parent / "files", **keys),
]


def stored_bytes(directory: Path) -> bytes:
    return b"".join(file.read_bytes() + file.name.encode() for file in directory.rglob("*") if file.is_file())


def invoke(saver: HoldfastSaver, store: HoldfastStore) -> list[str]:
    def answer(state: MessagesState) -> dict[str, Any]:
        store.put((f"{CANARY}-user",), f"{CANARY}-key", {"likes": CANARY})
        return {"messages": [("ai", f"{CANARY} answers")]}

    builder = StateGraph(MessagesState)
    builder.add_node(f"{CANARY}-node", answer)
    builder.add_edge(START, f"{CANARY}-node")
    graph = builder.compile(checkpointer=saver, store=store)
    thread: Any = {"configurable": {"thread_id": f"{CANARY}-thread"}}
    return [one.content for one in graph.invoke({"messages": [("user", f"{CANARY} asks")]}, thread)["messages"]]


@pytest.mark.parametrize("opened", OPENED)
def test_a_saver_and_a_store_that_are_given_keys(tmp_path: Path, opened: Callable[..., Any]):
    path = tmp_path / "store.db"
    for turn in (1, 2):
        with opened(HoldfastSaver, path, keys=RING) as saver, opened(HoldfastStore, path, keys=RING) as store:
            assert len(invoke(saver, store)) == 2 * turn
            assert store.get((f"{CANARY}-user",), f"{CANARY}-key").value == {"likes": CANARY}
    stored = stored_bytes(tmp_path)
    assert len(stored) > 1000
    assert CANARY.encode() not in stored
    with opened(HoldfastSaver, path) as saver, pytest.raises(KeyMissingError, match="keys="):
        saver.get_tuple({"configurable": {"thread_id": f"{CANARY}-thread"}})
    with opened(HoldfastStore, path) as store, pytest.raises(KeyMissingError, match="keys="):
        store.get(("a",), "b")


def test_the_default_store_takes_keys_and_a_client_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with HoldfastSaver(keys=RING) as saver, HoldfastStore(keys=RING) as store:
        invoke(saver, store)
    assert CANARY.encode() not in stored_bytes(tmp_path)
    with SyncClient.memory(keys=RING) as client:
        for kind in (HoldfastSaver, HoldfastStore):
            with pytest.raises(UsageError, match="keys are those of the client"):
                kind(client, keys=RING)
        assert invoke(HoldfastSaver(client), HoldfastStore(client))


def test_the_dev_server_takes_keys_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    KeyRing.new_key(tmp_path / "keys.toml")
    monkeypatch.setenv("HOLDFAST_URL", str(tmp_path / "store" / "store.db"))
    monkeypatch.setenv("HOLDFAST_REQUIRE_KEYS", "1")

    async def put() -> None:
        async with dev_checkpointer() as saver, dev_store() as store:
            await store.aput((CANARY,), "key", {"likes": CANARY})
            config: Any = {"configurable": {"thread_id": CANARY, "checkpoint_ns": ""}}
            await saver.aput(config, empty_checkpoint(), {"source": "input"}, {})

    with pytest.raises(KeyMissingError):
        asyncio.run(put())
    monkeypatch.setenv("HOLDFAST_KEYS_FILE", str(tmp_path / "keys.toml"))
    asyncio.run(put())
    assert CANARY.encode() not in stored_bytes(tmp_path / "store")
    with SyncClient.sqlite(tmp_path / "store" / "store.db", keys=KeyRing.from_file(tmp_path / "keys.toml")) as client:
        assert client.session_ids() == [f"lg/{CANARY}"]


def test_a_serializer_that_encrypts_is_refused_with_the_right_way(tmp_path: Path):
    right_way = r"give it keys: HoldfastSaver.from_sqlite\(path, keys="
    with (
        HoldfastSaver.from_sqlite(tmp_path / "store.db", keys=RING) as saver,
        pytest.raises(UsageError, match=right_way),
    ):
        saver.serde = EncryptedSerializer(Any)
    with pytest.raises(UsageError, match="keys="):
        HoldfastSaver(serde=EncryptedSerializer(Any))
