"""The conversation of a workflow: stored message by message, whatever its steps do with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from framework_environments import require

require("llama_index")

from pydantic import BaseModel
from workflow_parts import finish, memory
from workflows import Context, Workflow, step
from workflows.context.serializers import JsonSerializer
from workflows.events import StartEvent, StopEvent

from holdfast.codec.codec import Codec
from holdfast.llama_index import resumable

MANY = 200


class ChatMessage(BaseModel):
    role: str
    content: str


class Talk(Workflow):
    """Says something in each turn. Some words change what was said before."""

    @step
    async def talk(self, ctx: Context, ev: StartEvent) -> StopEvent:
        messages = await ctx.store.get("messages", default=[])
        match ev.word:
            case "begin":
                messages = [{"role": "user", "content": f"{number} {'text ' * 20}"} for number in range(MANY)]
            case "edit":
                messages[3]["content"] = "edited in its place"
            case "drop":
                messages = messages[5:]
        await ctx.store.set("messages", [*messages, {"role": "user", "content": ev.word}])
        return StopEvent(result=len(messages))


async def take(client: Any, *words: str) -> list[Any]:
    """Take turns, each by a workflow of its own or all by one; return the stored conversation."""
    office = resumable(Talk(), session_id="s", store=client)
    for word in words:
        await finish(office.run(word=word))
    return (await client.latest("s")).execution_state["messages"]


def test_a_turn_converts_its_own_messages_only(monkeypatch):
    async def main() -> None:
        encoded: list[int] = []
        native = Codec.encode_each

        def encode_each(self: Codec, elements: Sequence[Any], *rest: Any, **options: Any) -> Any:
            encoded.append(len(elements))
            return native(self, elements, *rest, **options)

        async with memory() as client:
            office = resumable(Talk(), session_id="s", store=client)
            await finish(office.run(word="begin"))
            await finish(office.run(word="a"))
            monkeypatch.setattr(Codec, "encode_each", encode_each)
            await finish(office.run(word="b"))
            assert sum(encoded) < MANY / 4
            stored = (await client.latest("s")).execution_state["messages"]
            assert [one["content"] for one in stored[-3:]] == ["begin", "a", "b"]
            assert len(stored) == MANY + 3

    asyncio.run(main())


def test_messages_that_a_step_edits_in_their_places_are_stored():
    async def main() -> None:
        async with memory() as client:
            stored = await take(client, "begin", "a", "edit", "b")
            assert stored[3]["content"] == "edited in its place"
            assert [one["content"] for one in stored[MANY:]] == ["begin", "a", "edit", "b"]
            again = await take(client, "edit", "c")  # by another object, which loads all of them
            assert [one["content"] for one in again[MANY:]] == ["begin", "a", "edit", "b", "edit", "c"]
            assert again[4] == stored[4]

    asyncio.run(main())


def test_messages_that_a_step_drops_are_gone():
    async def main() -> None:
        async with memory() as client:
            stored = await take(client, "begin", "drop", "a")
            assert len(stored) == MANY + 1 - 5 + 2
            assert stored[0]["content"].startswith("5 ")
            assert [one["content"] for one in stored[-3:]] == ["begin", "drop", "a"]

    asyncio.run(main())


def test_a_step_that_changes_a_message_after_the_turn_changes_no_stored_one():
    async def main() -> None:
        kept: list[Any] = []

        class Keeping(Talk):
            @step
            async def talk(self, ctx: Context, ev: StartEvent) -> StopEvent:
                messages = await ctx.store.get("messages", default=[])
                kept.append(messages)
                await ctx.store.set("messages", [*messages, {"role": "user", "content": ev.word}])
                return StopEvent(result=[one["content"] for one in messages])

        async with memory() as client:
            office = resumable(Keeping(), session_id="s", store=client)
            for word in ("a", "b"):
                await finish(office.run(word=word))
            kept[-1][0]["content"] = "changed behind its back"
            assert await finish(office.run(word="c")) == ["a", "b"]
            stored = (await client.latest("s")).execution_state["messages"]
            assert [one["content"] for one in stored] == ["a", "b", "c"]

    asyncio.run(main())


def test_messages_that_are_objects_come_back_as_such():
    async def main() -> None:
        class Chat(Workflow):
            @step
            async def chat(self, ctx: Context, ev: StartEvent) -> StopEvent:
                messages = await ctx.store.get("messages", default=[])
                assert all(isinstance(one, ChatMessage) for one in messages)
                await ctx.store.set("messages", [*messages, ChatMessage(role="user", content=ev.word)])
                return StopEvent(result=[one.content for one in messages])

        async with memory() as client:
            chat = Chat(serializer=JsonSerializer(allowed_types=[ChatMessage]))
            office = resumable(chat, session_id="s", store=client)
            for word in ("a", "b", "c"):
                said = await finish(office.run(word=word))
            assert said == ["a", "b"]

    asyncio.run(main())
