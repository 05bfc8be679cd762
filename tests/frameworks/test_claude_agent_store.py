"""`HoldfastSessionStore`: the SDK's own conformance suite, what is stored, and the real CLI."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from anthropic_server import AnthropicServer, read_prompts
from framework_environments import require

require("claude_agent")

import claude_agent_sdk
from claude_agent_sdk.testing import run_session_store_conformance
from claude_talk import follow, make_options

from holdfast import Client
from holdfast.claude_agent import HoldfastSessionStore
from holdfast.errors import UsageError
from holdfast.transcript import to_transcript

KEY: Any = {"project_key": "-home-ann", "session_id": "0b3cbd3e-6d8a-4f6c-9d11-5a3f6b1f8f10"}
SUB: Any = {**KEY, "subpath": "subagents/agent-1.b"}


def make_entry(number: int, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": f"message {number} " + "x" * 500}
    return {"type": "user", "uuid": f"id-{number}", "message": message, **more}


def test_it_passes_the_conformance_suite_of_the_sdk(places):
    opened: list[HoldfastSessionStore] = []

    def make() -> HoldfastSessionStore:
        opened.append(HoldfastSessionStore(places.make(f"store-{len(opened)}")[0]))
        return opened[-1]

    async def main() -> None:
        await run_session_store_conformance(make)
        for store in opened:
            await store.aclose()

    asyncio.run(main())
    assert len(opened) > 10  # one for each contract: no optional method is left out


def test_an_entry_is_stored_once_however_often_it_is_appended(tmp_path: Path):
    async def main() -> None:
        store = HoldfastSessionStore(f"sqlite:///{tmp_path}/a")
        entries = [make_entry(number) for number in range(30)]
        for number in range(30):
            await store.append(KEY, entries[: number + 1])
            await store.append(SUB, [entries[number]])
        await store.append(KEY, [{"type": "mode"}, {"type": "mode"}])  # without an id
        await store.aclose()
        other = HoldfastSessionStore(f"sqlite:///{tmp_path}/a")  # another process
        await other.append(KEY, [*entries, entries[0], make_entry(30), make_entry(30)])
        assert await other.load(KEY) == [*entries, {"type": "mode"}, {"type": "mode"}, make_entry(30)]
        assert await other.load(SUB) == entries
        assert await other.list_subkeys(KEY) == [SUB["subpath"]]
        await other.aclose()

    asyncio.run(main())


def test_writers_of_one_session_lose_nothing(tmp_path: Path):
    async def main() -> None:
        stores = [HoldfastSessionStore(f"sqlite:///{tmp_path}/a") for _ in range(4)]
        await asyncio.gather(
            *(
                store.append(KEY, [make_entry(10 * number + more)])
                for more in range(5)
                for number, store in enumerate(stores)
            )
        )
        entries = await stores[0].load(KEY)
        assert sorted(entry["uuid"] for entry in entries) == sorted(
            f"id-{10 * a + b}" for a in range(4) for b in range(5)
        )
        for store in stores:
            await store.aclose()

    asyncio.run(main())


def test_a_session_that_was_deleted_begins_again(tmp_path: Path):
    async def main() -> None:
        store = HoldfastSessionStore(f"sqlite:///{tmp_path}/a")
        await store.append(KEY, [make_entry(1)])
        await store.delete(KEY)
        assert await store.load(KEY) is None
        await store.append(KEY, [make_entry(1)])
        assert await store.load(KEY) == [make_entry(1)]
        await store.aclose()

    asyncio.run(main())


def test_an_imported_session_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The SDK's in-memory store has it twice."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    project = tmp_path / "projects" / KEY["project_key"]
    project.mkdir(parents=True)
    entries = [make_entry(number, sessionId=KEY["session_id"]) for number in range(3)]
    (project / f"{KEY['session_id']}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in entries))

    async def main() -> None:
        ours, theirs = HoldfastSessionStore(f"sqlite:///{tmp_path}/a"), claude_agent_sdk.InMemorySessionStore()
        for store in (ours, theirs):
            for _ in range(2):
                await claude_agent_sdk.import_session_to_store(KEY["session_id"], store)
        assert (await ours.load(KEY), await theirs.load(KEY)) == (entries, [*entries, *entries])
        await ours.aclose()

    asyncio.run(main())


def test_the_main_transcript_has_no_subpath(tmp_path: Path):
    store = HoldfastSessionStore(f"sqlite:///{tmp_path}/a")
    for path in ("", "messages"):
        with pytest.raises(UsageError, match="subpath"):
            asyncio.run(store.append({**KEY, "subpath": path}, [make_entry(1)]))


def test_the_cli_resumes_from_it_with_another_home(tmp_path: Path):
    async def main() -> None:
        store = HoldfastSessionStore(f"sqlite:///{tmp_path}/a")
        with AnthropicServer(follow("one", "two")) as server:
            options = make_options(server, tmp_path / "home-1", cwd=tmp_path, session_store=store)
            first = [one async for one in claude_agent_sdk.query(prompt="first", options=options)][-1]
            options = make_options(
                server, tmp_path / "home-2", cwd=tmp_path, session_store=store, resume=first.session_id
            )
            second = [one async for one in claude_agent_sdk.query(prompt="second", options=options)][-1]
            assert second.result == "two"
            assert read_prompts(server.requests[-1]) == ["first", "second"]
            [listed] = await claude_agent_sdk.list_sessions_from_store(store, directory=str(tmp_path))
            assert (listed.session_id, listed.first_prompt) == (first.session_id, "first")
        await store.aclose()
        async with Client.open(f"sqlite:///{tmp_path}/a") as client:
            [name] = await client.session_ids("claude/")
            transcript = to_transcript(await client.latest(name))
        assert [one.text for one in transcript] == ["first", "one", "second", "two"]

    asyncio.run(main())
