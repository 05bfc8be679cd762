"""Agents of AG2: turns, replies, tools, sub-agents, streams, forks, transcripts, and states saved by hand."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("ag2")

from ag2 import (
    Agent,
    AgentReply,
    Context,
    KnowledgeConfig,
    MemoryStream,
    Variable,
    tool,
)
from ag2.compact import CompactTrigger, TailWindowCompact
from ag2.config.openai.events import OpenAIReasoningEvent
from ag2.events import (
    BaseEvent,
    DocumentInput,
    Field,
    ImageInput,
    ModelMessage,
    ModelMessageChunk,
    ModelRequest,
    ModelResponse,
    ToolCallsEvent,
)
from ag2.knowledge import MemoryKnowledgeStore
from ag2.middleware import BaseMiddleware, Middleware
from ag2.middleware.builtin import RetryMiddleware
from ag2_model import FunctionConfig, call, results_of
from ag2_turns import Killed, _look, call_once_each, count_requests, restart, run, text_of
from openai.types.responses import ResponseReasoningItem
from pydantic import BaseModel

from holdfast import Client
from holdfast.ag2 import ResumableReply, extract, reconstruct, resumable
from holdfast.errors import HoldfastWarning, UnfinishedTurnError, UsageError
from holdfast.transcript import to_transcript


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


# -- turns -------------------------------------------------------------------------------------------------------------


@survives("finished turns", "return their replies")
def test_a_finished_turn_returns_its_recorded_reply(url):
    config = FunctionConfig(call_once_each(call("add", a=1, b=2)))

    def add(a: int, b: int) -> int:
        return a + b

    async def main() -> None:
        agent = Agent("clerk", config=config, tools=[add])
        first = await resumable(agent, session_id="s", store=url).ask("hello", turn="m1")
        again = await resumable(Agent("clerk", config=config, tools=[add]), session_id="s", store=url).ask(
            "hello", turn="m1"
        )
        assert len(config.requests) == 2
        assert isinstance(again, AgentReply)
        assert (again.body, again.response) == (first.body, first.response) == ("done: 3", first.response)
        assert list(await again.history.get_events()) == list(await first.history.get_events())
        assert (await again.usage()).total == (await first.usage()).total
        assert (await again.usage()).total.completion_tokens == 10

    run(main)


def test_turns_are_one_conversation_in_every_life(url):
    async def main() -> None:
        config = FunctionConfig(count_requests)
        assert (await resumable(Agent("a", config=config), session_id="s", store=url).ask("a")).body == "request 1"
        assert (await resumable(Agent("a", config=config), session_id="s", store=url).ask("b")).body == "request 2"
        agent = Agent("a", config=config)
        one, other = (resumable(agent, session_id=name, store=url) for name in ("s", "other"))
        assert (await other.ask("x")).body == "request 1"  # one agent may serve several sessions, also at a time
        replies = await asyncio.gather(one.ask("c"), other.ask("y"))
        assert [reply.body for reply in replies] == ["request 3", "request 2"]

    run(main)


def test_another_turn_is_refused_while_one_is_unfinished(url):
    async def main() -> None:
        away = Agent("a", config=FunctionConfig(lambda _: ConnectionError("the model is away")))
        agent = resumable(away, session_id="s", store=url)
        with pytest.raises(ConnectionError, match="away"):
            await agent.ask("a", turn="1")
        assert list(await agent.stream.history.get_events()) == []
        with pytest.raises(UnfinishedTurnError, match=r"turn=1.*turn=2"):
            await agent.ask("b", turn="2")
        back = resumable(Agent("a", config=FunctionConfig(count_requests)), session_id="s", store=url)
        assert (await back.ask("a", turn="1")).body == "request 1"

    run(main)


def test_a_model_that_is_tried_again_is_recorded_once(url):
    asked = []

    def answer(events: Sequence[BaseEvent]) -> Any:
        asked.append(events)
        return ConnectionError("away") if len(asked) == 1 else count_requests(events)

    async def main() -> None:
        agent = Agent("a", config=FunctionConfig(answer), middleware=[RetryMiddleware(max_retries=2)])
        assert (await resumable(agent, session_id="s", store=url).ask("a", turn="1")).body == "request 1"
        assert (await resumable(agent, session_id="s", store=url).ask("a", turn="1")).body == "request 1"
        assert len(asked) == 2

    run(main)


def test_what_is_no_agent_is_refused():
    with pytest.raises(UsageError, match="takes an Agent of AG2, not a str"):
        resumable("clerk", session_id="s")


def test_several_messages_and_media_are_one_input(url):
    async def main() -> None:
        config = FunctionConfig(count_requests)

        def ask() -> Awaitable[ResumableReply]:
            image = ImageInput(data=b"\x89PNG", media_type="image/png")
            return resumable(Agent("a", config=config), session_id="s", store=url).ask("look", image)

        first = await ask()
        restart()
        assert (await ask()).response == first.response
        assert len(config.requests) == 1
        async with Client.open(url) as client:
            [user, _] = to_transcript(await client.latest("s")).messages
        assert [part.kind for part in user.parts] == ["text", "blob"]
        assert user.parts[1].data == b"\x89PNG"

    run(main)


def test_a_link_to_a_document_is_not_taken_for_an_image(url):
    async def main() -> None:
        agent = resumable(Agent("a", config=FunctionConfig(count_requests)), session_id="s", store=url)
        await agent.ask(DocumentInput("https://a.example/1"), ImageInput("https://a.example/2"))
        async with Client.open(url) as client:
            [user, _] = to_transcript(await client.latest("s")).messages
        assert [part.mime_type for part in user.parts] == ["application/octet-stream", None]

    run(main)


# -- replies -----------------------------------------------------------------------------------------------------------


def test_a_reply_continues_the_conversation_in_every_life(url):
    """`reply.ask` keeps variables and dependencies, also those of a reply that was recorded."""
    config = FunctionConfig(call_once_each(call("count")))

    def count(context: Context, step: int = Variable(default=1)) -> str:
        context.variables["total"] = context.variables.get("total", 0) + step
        context.variables.setdefault("seen", []).append(context.dependencies["bank"])
        return str(context.variables["total"])

    async def main() -> list[Any]:
        restart()
        agent = Agent("a", config=config, tools=[count])
        reply = await resumable(agent, session_id="s", store=url).ask(
            "a", variables={"step": 2}, dependencies={"bank": "north"}
        )
        replies = [reply, reply := await reply.ask("b"), await reply.ask("c", variables={"step": 5})]
        assert [one.body for one in replies] == ["done: 2", "done: 4", "done: 9"]
        return replies

    first = run(main)
    assert first[2].context.variables == {"step": 5, "total": 9, "seen": ["north"] * 3}
    again = run(main)
    assert [one.context.variables["total"] for one in again] == [2, 4, 9]
    assert again[2].context.variables == first[2].context.variables
    assert len(config.requests) == 6


def test_a_reply_is_checked_by_its_schema_and_asks_again(url):
    class Person(BaseModel):
        name: str

    answers = ['{"nom": "ann"}', '{"name": "ann"}']
    config = FunctionConfig(lambda events: answers[sum(isinstance(one, ModelRequest) for one in events) - 1])

    async def main() -> None:
        restart()
        agent = resumable(Agent("a", config=config, response_schema=Person), session_id="s", store=url)
        reply = await agent.ask("who?")
        with pytest.raises(ValueError, match="name"):
            await reply.content()
        assert await reply.content(retries=1) == Person(name="ann")

    run(main)
    run(main)
    assert len(config.requests) == 2  # the question that was asked again is a turn, too
    other = Agent("a", config=FunctionConfig(lambda _: '{"data": 7}'))

    async def number() -> Any:
        return await (await resumable(other, session_id="t", store=url).ask("?", response_schema=int)).content()

    assert run(number) == 7


class Shout(BaseMiddleware):
    """A middleware of the user's own that changes the reply: AG2's history has the response as it was."""

    async def on_turn(self, call_next: Any, event: BaseEvent, context: Any) -> ModelResponse:
        response = await call_next(event, context)
        return ModelResponse(ModelMessage(response.content.upper()), usage=response.usage)


def test_a_reply_that_a_middleware_has_changed_is_recorded_as_such(url):
    config = FunctionConfig(count_requests)

    async def main() -> str | None:
        agent = Agent("a", config=config, middleware=[Middleware(Shout)])
        return (await resumable(agent, session_id="s", store=url).ask("a", turn="1")).body

    assert [run(main), run(main)] == ["REQUEST 1", "REQUEST 1"]
    assert len(config.requests) == 1


def test_a_reply_keeps_the_model_that_it_was_asked_of(url):
    async def main() -> None:
        chosen = FunctionConfig(lambda _: "chosen")
        agent = resumable(Agent("a", config=FunctionConfig(lambda _: "usual")), session_id="s", store=url)
        reply = await agent.ask("a", config=chosen)
        assert (reply.body, (await reply.ask("b")).body, (await agent.ask("c")).body) == ("chosen", "chosen", "usual")

    run(main)


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_turn_can_be_watched(url):
    config = FunctionConfig(lambda _: "three small words", is_streamed=True)

    async def watch() -> tuple[str | None, list[str]]:
        restart()
        heard: list[str] = []
        agent = resumable(Agent("a", config=config), session_id="s", store=url)
        async with agent.run("go") as turn:
            turn.stream.where(ModelMessageChunk).subscribe(lambda event: heard.append(event.content))
            turn.start()
            reply = await turn.result()
            assert await turn.result() is reply
        return reply.body, heard

    assert run(watch) == ("three small words", ["three", "small", "words"])
    assert run(watch) == ("three small words", [])  # finished
    assert len(config.requests) == 1


@survives("a streamed answer", "is replayed as one chunk")
def test_a_replayed_answer_is_published_as_a_whole(url):
    heard: list[str] = []
    lives = iter([Killed(), None])

    async def die() -> str:
        if error := next(lives):
            raise error
        return "alive"

    def answer(events: Sequence[BaseEvent]) -> Any:
        if results_of(events):
            return text_of(results_of(events)[0])
        return ModelResponse(ModelMessage("I try"), tool_calls=ToolCallsEvent([call("die")]))

    def publish(events: Sequence[BaseEvent]) -> list[BaseEvent]:
        return [] if results_of(events) else [ModelMessageChunk("I "), ModelMessageChunk("try")]

    async def watch() -> None:
        stream = MemoryStream()
        stream.where(ModelMessageChunk).subscribe(lambda event: heard.append(event.content))
        agent = Agent("a", config=FunctionConfig(answer, publish=publish), tools=[die])
        await resumable(agent, session_id="s", store=url, tools={"die": "read"}).ask("go", turn="1", stream=stream)

    with pytest.raises(Killed):
        run(watch)
    assert heard == ["I ", "try"]
    run(watch)
    assert heard == ["I ", "try", "I try"]


def test_a_stream_of_the_users_own_gets_the_conversation(url):
    async def main() -> None:
        stream = MemoryStream()
        agent = resumable(Agent("a", config=FunctionConfig(count_requests)), session_id="s", store=url)
        await agent.ask("a", stream=stream, turn="1")
        assert (await agent.ask("b", stream=stream, turn="2")).body == "request 2"
        other = MemoryStream()
        await resumable(agent.agent, session_id="s", store=url).ask("a", stream=other, turn="1")
        assert [type(one) for one in await other.history.get_events()] == [
            type(one) for one in await stream.history.get_events()
        ]
        with pytest.raises(UsageError, match="a history that is not this session's"):
            await resumable(agent.agent, session_id="t", store=url).ask("a", stream=stream)

        class Elsewhere:
            pass

        stream.history.storage = Elsewhere()
        with pytest.raises(UsageError, match="has a Elsewhere, but the session stores"):
            await agent.ask("c", stream=stream)

    run(main)


class NoteEvent(BaseEvent):
    """An event of the user's own, which a model's client publishes."""

    note: str
    tags: list[str] = Field(default_factory=list)


@survives("reasoning that a provider wants back", "is sent again by a replay")
def test_what_a_models_client_publishes_is_replayed(url):
    """Reasoning that a provider wants back is part of the conversation: AG2 keeps it in the history."""
    item = ResponseReasoningItem(id="r1", summary=[], type="reasoning", encrypted_content="zz")
    config = FunctionConfig(
        call_once_each(call("die")),
        publish=lambda events: [OpenAIReasoningEvent("hm", item=item), NoteEvent(note="n", tags=["x"])],
    )
    lives = iter([Killed(), None, None])

    async def die() -> str:
        if error := next(lives):
            raise error
        return "alive"

    async def life() -> list[Any]:
        agent = Agent("a", config=config, tools=[die])
        reply = await resumable(agent, session_id="s", store=url, tools={"die": "read"}).ask("go", turn="1")
        return list(await reply.history.get_events())

    with pytest.raises(Killed):
        run(life)
    events = run(life)
    assert len(config.requests) == 2
    assert [one for one in events if isinstance(one, OpenAIReasoningEvent)] == [
        OpenAIReasoningEvent("hm", item=item)
    ] * 2
    assert [(one.note, one.tags) for one in events if isinstance(one, NoteEvent)] == [("n", ["x"])] * 2
    restart()
    assert run(life) == events  # recorded


# -- compaction --------------------------------------------------------------------------------------------------------


@survives("a compacted history", "is that of the next life")
def test_a_compacted_history_is_that_of_the_next_life_and_the_transcript_is_whole(url):
    config = FunctionConfig(lambda events: f"heard {sum(isinstance(one, ModelRequest) for one in events)}")

    def make() -> Any:
        knowledge = KnowledgeConfig(
            store=MemoryKnowledgeStore(),
            compact=TailWindowCompact(target=4),
            compact_trigger=CompactTrigger(max_events=6),
            expose_tool=False,
        )
        return resumable(Agent("a", config=config, knowledge=knowledge), session_id="s", store=url)

    async def main(first: int, last: int, *, is_new: bool) -> list[str]:
        agent = make()
        said = []
        for number in range(first, last):
            agent = make() if is_new else agent
            said.append((await agent.ask(f"message {number}", turn=str(number))).body)
        return said

    once = asyncio.run(main(0, 8, is_new=False))
    assert max(int(one.split()[1]) for one in once) < 5  # it was compacted
    restart()
    other = url.replace("store.db", "other.db")
    url_of_one, url_of_other = url, other

    async def lives() -> list[str]:
        nonlocal url
        url = url_of_other
        return await main(0, 8, is_new=True)

    assert asyncio.run(lives()) == once
    url = url_of_one
    assert asyncio.run(main(0, 8, is_new=True)) == once  # recorded replies outlive a compaction

    async def transcript() -> list[str]:
        async with Client.open(url) as client:
            return [one.text for one in to_transcript(await client.latest("s")).messages]

    assert asyncio.run(transcript()) == [text for number in range(8) for text in (f"message {number}", once[number])]


# -- forks, transcripts, manual control --------------------------------------------------------------------------------


def test_a_fork_continues_by_itself(url):
    async def main() -> None:
        agent = Agent("a", config=FunctionConfig(count_requests))
        await resumable(agent, session_id="s", store=url).ask("a")
        async with Client.open(url) as client:
            await client.fork("s", session_id="try-2")
        assert (await resumable(agent, session_id="try-2", store=url).ask("b")).body == "request 2"
        assert (await resumable(agent, session_id="s", store=url).ask("c")).body == "request 2"

    run(main)


def test_a_turn_that_was_cut_off_is_shown(url):
    async def die() -> str:
        raise Killed

    async def main() -> None:
        config = FunctionConfig(call_once_each(call("look"), call("die")))
        agent = Agent("a", config=config, tools=[tool(_look, name="look"), die])
        with pytest.raises(Killed):
            await resumable(agent, session_id="s", store=url).ask("go")
        async with Client.open(url) as client:
            transcript = to_transcript(await client.latest("s"))
        assert [one.role for one in transcript.messages] == ["user", "assistant", "tool", "assistant"]
        assert transcript.messages[0].text == "go"
        assert transcript.messages[1].tool_calls[0].name == "look"
        assert transcript.messages[2].tool_responses[0].content[0].content == "seen"
        assert not transcript.cursor.is_finished

    run(main)


def test_a_conversation_is_extracted_saved_and_reconstructed(url):
    async def main() -> None:
        config = FunctionConfig(call_once_each(call("look")))
        agent = Agent("a", config=config, tools=[tool(_look, name="look")])
        reply = await agent.ask("go")
        checkpoint = await extract(reply, agent_id="a", session_id="by-hand", context={"invoice": 7})
        assert checkpoint.agent_context == {"invoice": 7}
        async with Client.open(url) as client:
            saved = await client.restore(await client.save_checkpoint(checkpoint))
        stream = await reconstruct(saved, agent)
        assert list(await stream.history.get_events()) == list(await reply.history.get_events())
        config.answer = count_requests
        assert (await agent.ask("again", stream=stream)).body == "request 2"
        assert (await resumable(agent, session_id="by-hand", store=url).ask("again")).body == "request 2"
        assert (await extract(stream, agent_id="a", session_id="t")).execution_state["messages"]
        tool_calls = [one.name for message in to_transcript(saved).messages for one in message.tool_calls]
        assert tool_calls == ["look"]

    run(main)


def test_what_is_no_reply_is_refused(url):
    async def main() -> None:
        with pytest.raises(UsageError, match="an AgentReply or a Stream of AG2, not a str"):
            await extract("hello", agent_id="a", session_id="s")
        reply = await Agent("a", config=FunctionConfig(count_requests)).ask("a")
        checkpoint = await extract(reply, agent_id="a", session_id="s")
        with pytest.raises(UsageError, match="takes an Agent of AG2, not a str"):
            await reconstruct(checkpoint, "agent")
        with pytest.raises(UsageError, match="takes a Checkpoint, not a str"):
            await reconstruct("s", Agent("a"))

    run(main)


def test_a_version_that_was_not_tested_warns(monkeypatch):
    from importlib import metadata

    from holdfast.adapters.base.install import warn_if_untested

    monkeypatch.setattr(metadata, "version", lambda _: "2.0.0")
    with pytest.warns(HoldfastWarning, match=r"ag2 2\.0\.0 is installed"):
        warn_if_untested("ag2", "1.2.1", "2")
    assert "ag2" in sys.modules
