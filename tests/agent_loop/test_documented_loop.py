"""The calls on the checkpoint page of @providerprotocol/agents, in Python: on files, on a client's
store, on one of one's own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agent_models import Script
from agent_tools import LOOK, look
from stores import Store

from holdfast import AgentState, FileCheckpoints, SyncFileCheckpoints, agent


class OwnCheckpoints:
    """What the page shows for those who bring their own database: five methods over texts."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    async def save(self, session_id: str, state: Any) -> None:
        self.texts[session_id] = json.dumps(state)

    async def load(self, session_id: str) -> Any:
        return json.loads(self.texts[session_id]) if session_id in self.texts else None

    async def load_metadata(self, session_id: str) -> None:
        return None

    async def list(self) -> list[str]:
        return [*self.texts]

    async def delete(self, session_id: str) -> None:
        self.texts.pop(session_id, None)


async def resume_or_start(store: Any, prompt: str, *replies: Any) -> tuple[str, AgentState]:
    saved = await store.load("my-session")
    initial_state = AgentState.from_json(saved) if saved else AgentState.initial()
    coder = agent(model=Script(*replies), tools=[look], checkpoints=store, session_id="my-session")
    turn, state = await coder.generate(prompt, initial_state)
    return turn.text, state


async def awaited_story(store: Any) -> None:
    assert await store.list() == []
    text, state = await resume_or_start(store, "Fix the bug", LOOK, "fixed")
    assert (text, state.step) == ("fixed", 2)
    text, state = await resume_or_start(store, "Continue working", "done")
    assert (text, state.step) == ("done", 3)
    assert [message["content"] for message in state.messages if message["role"] == "user"] == [
        "Fix the bug",
        "Continue working",
    ]
    assert AgentState.from_json(await store.load("my-session")) == state
    assert await store.list() == ["my-session"]
    await store.delete("completed-session")  # which never was
    await store.delete("my-session")
    assert await store.load("my-session") is None
    assert await store.list() == []


def test_files_awaited(tmp_path: Path) -> None:
    asyncio.run(awaited_story(FileCheckpoints(dir=str(tmp_path / "checkpoints"))))


def test_a_clients_store_awaited(store: Store) -> None:
    async def story() -> None:
        async with store.async_client() as client:
            await awaited_story(client.as_store())

    asyncio.run(story())


def test_a_store_of_ones_own_awaited() -> None:
    asyncio.run(awaited_story(OwnCheckpoints()))


def blocking_story(store: Any) -> None:
    for prompt, replies, step in (("Fix the bug", (LOOK, "fixed"), 2), ("Continue working", ("done",), 3)):
        saved = store.load("my-session")
        initial_state = AgentState.from_json(saved) if saved else AgentState.initial()
        coder = agent(model=Script(*replies), tools=[look], checkpoints=store, session_id="my-session")
        turn, state = coder.generate(prompt, initial_state)
        assert (turn.text, state.step) == (replies[-1], step)
        assert AgentState.from_json(store.load("my-session")) == state
    for session_id in store.list():
        metadata = store.load_metadata(session_id)
        assert (session_id, metadata.session_id, metadata.step) == ("my-session", "my-session", 3)
        assert metadata.timestamp.endswith("Z")
    store.delete("my-session")
    assert (store.load("my-session"), store.load_metadata("my-session"), store.list()) == (None, None, [])


def test_files_without_await(tmp_path: Path) -> None:
    blocking_story(SyncFileCheckpoints(dir=str(tmp_path / "checkpoints")))


def test_a_clients_store_without_await(store: Store) -> None:
    blocking_story(store.client().as_store())


def test_the_directory_is_called_checkpoints_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(resume_or_start(FileCheckpoints(), "Fix the bug", "fixed"))
    folder = tmp_path / ".checkpoints" / "my-session"
    checkpoint, metadata = (json.loads((folder / name).read_text()) for name in ("checkpoint.json", "metadata.json"))
    assert (checkpoint["state"]["step"], metadata["step"], metadata["session_id"]) == (1, 1, "my-session")
    assert (folder / "checkpoint.json").read_text().startswith('{\n  "')
