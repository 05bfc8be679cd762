"""`HoldfastConversationStore`: it does what Pydantic AI's own store does, and keeps it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from framework_environments import require

require("pydantic_ai")

from pydantic_ai import Agent, DeferredToolRequests, ModelRequest, ModelResponse, UserError
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.messages import BinaryImage, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from holdfast import Client, SyncClient, UsageError
from holdfast.pydantic_ai import HoldfastConversationStore, resumable
from holdfast.transcript import to_transcript


def say(text: str) -> list[ModelRequest | ModelResponse]:
    return [ModelRequest([UserPromptPart(text)]), ModelResponse([TextPart(f"re: {text}")])]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


class Story:
    """One sequence of operations, told to any store; what it returns is compared."""

    def __init__(self, store: ConversationStore, seed: int) -> None:
        self.store = store
        self.chance = random.Random(seed)
        self.ids: dict[str, str] = {}  # entries and conversations, by the order in which they are seen
        self.seen: list[object] = []

    def name(self, id_: str | None) -> str | None:
        return None if id_ is None else self.ids.setdefault(id_, f"#{len(self.ids)}")

    async def look(self, conversation_id: str) -> None:
        loaded = await self.store.load(conversation_id)
        entries = await self.store.load_entries(conversation_id)
        last = await self.store.load_entries(conversation_id, limit=2)
        assert loaded is not None and entries is not None and last is not None
        texts = [str(message.parts[0].content) for message in loaded.messages]
        self.seen += [texts, [(self.name(one.id), self.name(one.parent_id)) for one in entries]]
        self.seen += [[self.name(one.id) for one in last], loaded.usage.requests, loaded.deferred_tool_requests]
        assert [one.message for one in entries] == loaded.messages
        for one in entries[-1:]:
            assert await self.store.read_entry(one.id) == one

    async def tell(self, steps: int) -> list[object]:
        names = ["a", "b"]
        for number in range(steps):
            id_ = self.chance.choice(names)
            loaded = await self.store.load(id_)
            match self.chance.choice(["save", "save", "save", "rewrite", "branch", "fork", "delete", "stale"]):
                case "save":
                    conversation = loaded or Conversation(conversation_id=id_)
                    conversation.messages += say(f"{id_} {number}")
                    conversation.usage = RunUsage(requests=number)
                    conversation.deferred_tool_requests = DeferredToolRequests(
                        approvals=[ToolCallPart("pay", {"n": number}, tool_call_id=f"c-{number}")]
                    )
                    stored = await self.store.save(conversation, scope="ann" if id_ == "a" else None)
                    self.seen.append([self.name(one.id) for one in stored])
                case "rewrite" if loaded is not None:
                    loaded.messages = [*loaded.messages[:1], *say(f"summary {number}")]
                    self.seen.append(len(await self.store.save(loaded)))
                case "branch" if loaded is not None:
                    entries = await self.store.load_entries(id_)
                    assert entries is not None
                    if entries and self.chance.random() < 0.5:
                        at = {"from_entry": self.chance.choice(entries).id}
                    else:
                        at = {"at": self.chance.randint(0, len(entries))}
                    branched = await self.store.branch(id_, expected_revision=loaded.revision, **at)
                    self.seen.append(len(branched.messages))
                    record = await self.store.read_record(id_)
                    assert record is not None
                    self.seen.append([self.name(one) for one in record.branches])
                    for tip in record.branches:
                        self.seen.append([self.name(one.id) for one in await self.store.read_history(tip)])
                case "fork" if loaded is not None:
                    new = f"fork {number}"
                    await self.store.fork(id_, at=self.chance.randint(0, len(loaded.messages)), new_conversation_id=new)
                    names.append(new)
                    record = await self.store.read_record(new)
                    assert record is not None
                    self.seen.append((record.forked_from, self.name(record.forked_at), record.scope))
                case "delete" if loaded is not None and self.chance.random() < 0.5:
                    await self.store.delete(id_)
                    self.seen.append(await self.store.load(id_))
                case "stale" if loaded is not None:
                    again = await self.store.load(id_)
                    assert again is not None
                    again.messages += say("first")
                    await self.store.save(again)
                    loaded.messages += say("second")
                    with pytest.raises(ConversationConflict):
                        await self.store.save(loaded)
                    self.seen.append("stale")
            for name in names:
                if await self.store.load(name) is not None:
                    await self.look(name)
            self.seen.append([one.conversation_id for one in await self.store.list_conversations()])
            self.seen.append([one.conversation_id for one in await self.store.list_conversations(scope="ann", limit=2)])
        return self.seen


@pytest.mark.parametrize("seed", range(4))
def test_it_does_what_the_store_of_pydantic_ai_does(url, seed):
    async def main() -> None:
        expected = await Story(InMemoryConversationStore(), seed).tell(25)
        store = HoldfastConversationStore(url)
        assert await Story(store, seed).tell(25) == expected
        await store.aclose()

    asyncio.run(main())


def test_a_conversation_is_continued_by_a_new_process(url):
    async def take_turn(prompt: str) -> list[str]:
        store = HoldfastConversationStore(url)
        conversation = await store.load("c") or Conversation(conversation_id="c")
        result = await Agent(TestModel(custom_output_text=f"re: {prompt}")).run(prompt, conversation=conversation)
        await store.save(result, scope="ann")
        await store.aclose()
        return [str(message.parts[0].content) for message in result.all_messages()]

    assert asyncio.run(take_turn("one")) == ["one", "re: one"]
    assert asyncio.run(take_turn("two")) == ["one", "re: one", "two", "re: two"]
    with SyncClient.open(url) as client:
        head = client.latest("c")
        assert [message.text for message in to_transcript(head)] == ["one", "re: one", "two", "re: two"]
        assert head.framework == "pydantic_ai"


def test_of_two_writers_that_create_a_conversation_one_is_refused(url):
    async def main() -> None:
        async with Client.open(url) as client:
            stores = [HoldfastConversationStore(client) for _ in range(2)]
            tried = [
                store.save(Conversation(conversation_id="c", messages=say(str(number))))
                for number, store in enumerate(stores)
            ]
            ended = await asyncio.gather(*tried, return_exceptions=True)
            assert {type(one) for one in ended} == {list, ConversationConflict}
            loaded = await stores[0].load("c")
            assert loaded is not None
            assert len(loaded.messages) == 2

    asyncio.run(main())


def test_files_are_stored_as_bytes_and_come_back(url):
    image = BinaryImage(bytes(range(256)) * 40, media_type="image/png")

    async def main() -> None:
        store = HoldfastConversationStore(url)
        messages = [ModelRequest([UserPromptPart(["look", image])]), ModelResponse([TextPart("nice")])]
        await store.save(Conversation(conversation_id="c", messages=messages))
        loaded = await store.load("c")
        assert loaded is not None
        assert loaded.messages == messages
        await store.aclose()

    asyncio.run(main())
    with SyncClient.open(url) as client:
        [_, stored] = client.latest("c").execution_state["messages"][0]["parts"][0]["content"]
        assert stored["data"] == image.data


def test_a_fork_shares_what_is_stored(tmp_path):
    path = tmp_path / "store.db"

    async def main() -> None:
        async with Client.open(f"sqlite:///{path}") as client:
            store = HoldfastConversationStore(client)
            long = [message for number in range(200) for message in say(f"{number} " * 50)]
            await store.save(Conversation(conversation_id="c", messages=long))
            before = (await client.stats()).segment_bytes
            for number in range(10):
                await store.fork("c", at=200 + number, new_conversation_id=f"fork {number}")
            assert (await client.stats()).segment_bytes < before * 1.2

    asyncio.run(main())


def test_a_session_that_was_forked_by_hand_is_a_conversation(url):
    async def main() -> None:
        async with Client.open(url) as client:
            store = HoldfastConversationStore(client)
            await store.save(Conversation(conversation_id="c", messages=say("one")))
            await client.fork("c", session_id="by hand")
            loaded = await store.load("by hand")
            assert loaded is not None
            loaded.messages += say("two")
            await store.save(loaded)
            assert len((await store.load("by hand")).messages) == 4
            assert len((await store.load("c")).messages) == 2
            record = await store.read_record("by hand")
            assert (record.conversation_id, record.forked_from) == ("by hand", "c")

    asyncio.run(main())


def test_the_sessions_of_others_are_refused_not_overwritten(url):
    async def main() -> None:
        async with Client.open(url) as client:
            store = HoldfastConversationStore(client)
            await client.save("other", session_id="s", execution_state={"n": 1})
            with pytest.raises(UsageError, match="was not saved by HoldfastConversationStore"):
                await store.save(Conversation(conversation_id="s", messages=say("one")))
            await store.save(Conversation(conversation_id="c", messages=say("one")))
            agent = resumable(Agent(TestModel(), name="a"), session_id="c", store=client)
            with pytest.raises(UsageError, match="is a conversation of HoldfastConversationStore"):
                await agent.run("two")

    asyncio.run(main())


def test_an_unknown_entry_and_an_unknown_conversation_are_not_found(url):
    async def main() -> None:
        store = HoldfastConversationStore(url)
        assert await store.load("c") is None
        with pytest.raises(LookupError):
            await store.read_entry("nowhere")
        with pytest.raises(UserError):
            await store.branch("c", at=0, expected_revision=None)
        lost = ConversationRecord(conversation_id="c", head_id="nowhere")
        with pytest.raises(ConversationConflict):
            await store.write_record(lost, expected_revision=None)
        await store.aclose()

    asyncio.run(main())
