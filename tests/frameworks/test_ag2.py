"""Agents of AG2: turns, replies, tools, sub-agents, streams, forks, transcripts, and states saved by hand."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from framework_environments import require

require("ag2")

from ag2 import (
    Agent,
    AgentReply,
    Context,
    KnowledgeConfig,
    MemoryStream,
    TaskConfig,
    Toolkit,
    ToolResult,
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
    TaskCompleted,
    ToolCallEvent,
    ToolCallsEvent,
    ToolErrorEvent,
    ToolResultEvent,
)
from ag2.knowledge import MemoryKnowledgeStore
from ag2.middleware import BaseMiddleware, Middleware
from ag2.middleware.builtin import RetryMiddleware
from ag2.tools import LocalEnvironment, SandboxShellTool
from ag2.tools.final import ClientTool, FunctionToolSchema
from ag2.tools.subagents import background_agent_tool, persistent_stream
from ag2.tools.tool import Tool
from ag2_model import FunctionConfig, call, results_of
from openai.types.responses import ResponseReasoningItem
from pydantic import BaseModel

from holdfast import NOT_DONE, Client, Done, Effect
from holdfast.adapters.base import session as sessions
from holdfast.ag2 import ResumableReply, extract, reconstruct, resumable
from holdfast.errors import HoldfastWarning, UnfinishedTurnError, UsageError
from holdfast.transcript import to_transcript


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


def run(test: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(test())


def restart() -> None:
    """Forget what this process has done, as a new one would not know it."""
    sessions._finished.clear()


def text_of(result: Any) -> str:
    return ", ".join(str(getattr(part, "content", getattr(part, "data", part))) for part in result.result.parts)


def call_once_each(*calls: Any) -> Callable[[Sequence[BaseEvent]], Any]:
    """Return a model that makes these calls in each turn, one after the other, then says what they returned."""

    def answer(events: Sequence[BaseEvent]) -> Any:
        results = results_of(events)
        return [calls[len(results)]] if len(results) < len(calls) else f"done: {', '.join(map(text_of, results))}"

    return answer


def count_requests(events: Sequence[BaseEvent]) -> str:
    return f"request {sum(isinstance(one, ModelRequest) for one in events)}"


# -- turns -------------------------------------------------------------------------------------------------------------


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
        resumable("clerk", session_id="s")  # type: ignore[arg-type]


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

        stream.history.storage = Elsewhere()  # type: ignore[assignment]
        with pytest.raises(UsageError, match="has a Elsewhere, but the session stores"):
            await agent.ask("c", stream=stream)

    run(main)


class NoteEvent(BaseEvent):
    """An event of the user's own, which a model's client publishes."""

    note: str
    tags: list[str] = Field(default_factory=list)


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


# -- tools -------------------------------------------------------------------------------------------------------------


def test_an_undeclared_call_that_was_under_way_is_told_to_the_model(url):
    config = FunctionConfig(call_once_each(call("first"), call("second")))
    called = []

    async def first() -> str:
        called.append("first")
        return "1"

    async def second() -> str:
        called.append("second")
        raise Killed

    async def life() -> Any:
        agent = Agent("a", config=config, tools=[first, second])
        return (await resumable(agent, session_id="s", store=url).ask("go", turn="1")).body

    with pytest.raises(Killed):
        run(life)
    assert run(life).startswith("done: 1, This call was interrupted, and its outcome is unknown")
    assert called == ["first", "second"]
    assert len(config.requests) == 3


def test_a_declared_effect_is_looked_up(url):
    config = FunctionConfig(call_once_each(call("pay", invoice="7")))
    called = []

    @tool
    @Effect("irreversible", key="invoice", probe=lambda invoice: Done({"receipt": 7}) if called else NOT_DONE)
    async def pay(invoice: str) -> dict[str, Any]:
        called.append(invoice)
        raise Killed

    async def life() -> Any:
        agent = Agent("a", config=config, tools=[pay])
        return (await resumable(agent, session_id="s", store=url).ask("go", turn="1")).body

    with pytest.raises(Killed):
        run(life)
    assert run(life) == "done: {'receipt': 7}"
    assert called == ["7"]


@pytest.mark.parametrize("declared", [{}, {"fail": "read"}, {"fail": "idempotent"}])
def test_a_failure_is_told_in_the_same_words_in_every_life(url, declared):
    config = FunctionConfig(call_once_each(call("fail"), call("die")))
    lives = iter([Killed(), None])

    async def fail() -> str:
        raise ValueError("no such invoice")

    async def die() -> str:
        if error := next(lives):
            raise error
        return "alive"

    async def life() -> Any:
        agent = Agent("a", config=config, tools=[fail, die])
        return await resumable(agent, session_id="s", store=url, tools={**declared, "die": "read"}).ask("go", turn="1")

    with pytest.raises(Killed):
        run(life)
    told = text_of(results_of(config.requests[-1])[0])
    assert "ValueError: no such invoice" in told
    events = run(lambda: _history(life))
    [failed] = [one for one in events if isinstance(one, ToolErrorEvent)]
    assert (type(failed.error), str(failed.error), text_of(failed)) == (ValueError, "no such invoice", told)
    assert len(config.requests) == 3


async def _history(life: Callable[[], Awaitable[Any]]) -> list[Any]:
    return list(await (await life()).history.get_events())


def test_results_of_all_kinds_are_the_same_in_every_life(url):
    @dataclasses.dataclass
    class Point:
        x: int

    class Place(BaseModel):
        name: str
        zip: str | None = None

    made = {
        "text": "plain",
        "number": 7,
        "nothing": None,
        "data": {"$type": "os.system", "$result": 1},
        "listed": [1, {"a": None}],
        "point": Point(1),
        "place": Place(name="here"),
        "image": ImageInput(data=b"\x89", media_type="image/png"),
        "parts": ToolResult("a", {"b": 1}, metadata={"m": 1}),
    }
    config = FunctionConfig(call_once_each(*(call(name, name) for name in made), call("die")))
    lives = iter([Killed(), None])

    async def die() -> str:
        if error := next(lives):
            raise error
        return "alive"

    def give(name: str) -> Any:
        async def given() -> Any:
            return made[name]

        return tool(given, name=name)

    async def life() -> Any:
        agent = Agent("a", config=config, tools=[*map(give, made), die])
        return await resumable(agent, session_id="s", store=url, tools={"die": "read"}).ask("go", turn="1")

    with pytest.raises(Killed):
        run(life)
    first = results_of(config.requests[-1])
    run(life)
    again = results_of(config.requests[-1])
    assert again[:-1] == first
    assert len(config.requests) == len(made) + 2
    plain = {one.name: one.result.parts[0] for one in again if len(one.result.parts) == 1}
    assert plain["data"].data == {"$type": "os.system", "$result": 1}
    assert (plain["point"].data, plain["place"].data) == ({"x": 1}, {"name": "here", "zip": None})
    assert again[-2].result.metadata == {"m": 1}


def test_variables_that_a_tool_changes_in_place_are_there_after_a_crash(url):
    config = FunctionConfig(call_once_each(call("note"), call("die")))
    lives = iter([Killed(), None, None])

    async def note(context: Context) -> str:
        context.variables["notes"].append({"tags": {"x", "y"}})
        context.variables.pop("old", None)
        return "noted"

    async def die(context: Context) -> str:
        if error := next(lives):
            raise error
        return f"{len(context.variables['notes'])} {'old' in context.variables}"

    async def life(session_id: str = "s", **more: Any) -> Any:
        agent = Agent("a", config=config, tools=[note, die])
        return await resumable(agent, session_id=session_id, store=url, tools={"die": "read"}).ask(
            "go", turn="1", variables={"notes": [], **more}
        )

    noted = {"notes": [{"tags": {"x", "y"}}]}
    with pytest.raises(Killed):
        asyncio.run(life(old=1))
    reply = asyncio.run(life(old=1))
    assert (reply.body, reply.context.variables) == ("done: noted, 1 False", noted)
    assert asyncio.run(life(old=1)).context.variables == noted  # recorded
    assert [asyncio.run(life("t")).context.variables for _ in range(2)] == [noted, noted]  # only in its place


def test_a_variable_that_cant_be_stored_is_reported(url):
    async def connect(context: Context) -> str:
        context.variables["connection"] = object()
        return "ok"

    async def main() -> None:
        agent = Agent("a", config=FunctionConfig(call_once_each(call("connect"))), tools=[connect])
        with pytest.warns(HoldfastWarning, match="variable 'connection' to a object"):
            await resumable(agent, session_id="s", store=url).ask("go")

    run(main)


class Gate(Tool):
    """A tool that is no function, as those of MCP servers are not."""

    def __init__(self, called: list[str]) -> None:
        self.name = "gate"
        self.called = called

    def __deepcopy__(self, memo: Any) -> Gate:  # AG2 copies the tools that an agent gets
        return self

    async def schemas(self, context: Any) -> list[Any]:
        return [FunctionToolSchema.from_dict({"function": {"name": "gate"}})]

    def register(self, stack: Any, context: Any, *, middleware: Any = ()) -> None:
        async def execute(event: ToolCallEvent, context: Context) -> None:
            async def open_gate(event: ToolCallEvent, context: Any) -> Any:
                self.called.append(event.arguments)
                return ToolResultEvent.from_call(event, "open")

            made: Any = open_gate
            for one in middleware:
                made = _wrapped(one.on_tool_execution, made)
            await context.send(await made(event.handled_by("gate:1"), context))

        stack.enter_context(context.stream.where(ToolCallEvent.name == "gate").sub_scope(execute))


def _wrapped(hook: Any, inner: Any) -> Any:
    return lambda event, context: hook(inner, event, context)


def test_tools_of_all_kinds_are_recorded(url, tmp_path):
    """Tools in toolkits, AG2's own shell, tools that are no functions, and those that are given with a question."""
    called: list[str] = []
    calls = [
        call("packed"),
        call("run_shell_command", command="echo x >> shell.txt"),
        call("gate"),
        call("given"),
        call("die"),
    ]
    config = FunctionConfig(call_once_each(*calls))
    lives = iter([Killed(), None])

    async def packed() -> str:
        called.append("packed")
        return "packed"

    async def given() -> str:
        called.append("given")
        return "given"

    async def die() -> str:
        if error := next(lives):
            raise error
        return "alive"

    async def life() -> Any:
        shell = SandboxShellTool(LocalEnvironment(tmp_path))
        agent = Agent("a", config=config, tools=[Toolkit(packed), shell, Gate(called), die])
        return (
            await resumable(agent, session_id="s", store=url, tools={"die": "read"}).ask(
                "go", turn="1", tools=[tool(given)]
            )
        ).body

    with pytest.raises(Killed):
        run(life)
    assert run(life) == "done: packed, , open, given, alive"
    assert called == ["packed", "{}", "given"]
    assert (tmp_path / "shell.txt").read_text() == "x\n"
    assert len(config.requests) == 6


def test_a_final_result_and_a_clients_tool_end_a_turn(url):
    async def finish() -> ToolResult:
        return ToolResult("the end", final=True)

    async def main() -> None:
        restart()
        agent = Agent("a", config=FunctionConfig(call_once_each(call("finish"))), tools=[finish])
        reply = await resumable(agent, session_id="s", store=url).ask("go")
        assert (reply.body, reply.response.response_force) == ("the end", True)
        client_tool = ClientTool({"function": {"name": "show"}})
        other = Agent("a", config=FunctionConfig(call_once_each(call("show", page=1))), tools=[client_tool])
        reply = await resumable(other, session_id="t", store=url).ask("go")
        assert [one.arguments for one in reply.response.tool_calls.calls] == ['{"page": 1}']

    run(main)
    run(main)


def test_wrong_arguments_are_told_to_the_model_as_ag2_does(url):
    def answer(events: Sequence[BaseEvent]) -> Any:
        if not results_of(events):
            return [ToolCallEvent("add", id="1", arguments="{not json")]
        return "wrong" if "JSONDecodeError" in text_of(results_of(events)[0]) else "?"

    async def add(a: int) -> int:
        return a

    async def main() -> Any:
        agent = Agent("a", config=FunctionConfig(answer), tools=[add])
        return (await resumable(agent, session_id="s", store=url).ask("go")).body

    assert run(main) == "wrong"


def test_an_agent_that_is_used_without_a_session_is_as_before(url):
    async def main() -> None:
        called = []

        async def note() -> str:
            called.append(1)
            return "noted"

        agent = Agent("a", config=FunctionConfig(call_once_each(call("note"))), tools=[note])
        await resumable(agent, session_id="s", store=url).ask("go")
        assert [(await agent.ask("go")).body for _ in range(2)] == ["done: noted"] * 2
        assert len(called) == 3

    run(main)


def test_a_task_that_outlives_its_turn_is_as_before(url):
    async def main() -> None:
        helper = Agent("helper", config=FunctionConfig(call_once_each(call("note"))), tools=[tool(_look, name="note")])
        said: list[Any] = []

        async def later() -> None:
            await asyncio.sleep(0.2)
            said.append((await helper.ask("hello")).body)

        async def begin(context: Context) -> str:
            context.stream.spawn_background(later())
            return "begun"

        config = FunctionConfig(call_once_each(call("begin")))
        agent = Agent("a", config=config, tools=[begin, helper.as_tool(description="helps")])
        await resumable(agent, session_id="s", store=url).ask("go")
        assert said == []
        await asyncio.sleep(0.4)
        assert said == ["done: seen"]

    run(main)


# -- sub-agents --------------------------------------------------------------------------------------------------------


def test_sub_agents_continue_where_they_stood(url):
    """An agent as a tool, in an agent as a tool, and two subtasks at a time."""
    called: list[str] = []
    lives = iter([Killed(), None])

    async def look(what: str) -> str:
        called.append(what)
        if what == "last" and (error := next(lives)):
            raise error
        return f"seen {what}"

    inner = FunctionConfig(call_once_each(call("look", what="inner")))
    outer = FunctionConfig(call_once_each(call("task_inner", objective="look closely")))
    sub = FunctionConfig(
        lambda events: (
            f"sub {text_of(results_of(events)[0])}"
            if results_of(events)
            else [call("look", what=events[0].parts[0].content)]
        )
    )
    main_config = FunctionConfig(
        call_once_each(
            call("task_outer", objective="look"),
            call("run_subtasks", tasks=["one", "two"]),
            call("look", what="last"),
        )
    )

    async def life() -> Any:
        looker = Agent("inner", config=inner, tools=[look])
        middle = Agent("outer", config=outer, tools=[looker.as_tool(description="looks")])
        clerk = Agent(
            "clerk",
            config=main_config,
            tools=[middle.as_tool(description="asks"), look],
            tasks=TaskConfig(config=sub),
        )
        agent = resumable(clerk, session_id="s", store=url, tools={"look": "read"})
        reply = await agent.ask("go", turn="1")
        return reply.body, sum(isinstance(one, TaskCompleted) for one in await reply.history.get_events())

    with pytest.raises(Killed):
        run(life)
    body, completed = run(life)
    assert "seen inner" in body
    assert "sub seen one" in body
    assert "sub seen two" in body
    assert completed == 3
    assert sorted(called) == ["inner", "last", "last", "one", "two"]
    assert [len(one.requests) for one in (inner, outer, sub, main_config)] == [2, 2, 4, 4]


def test_a_sub_agent_with_a_memory_of_its_own(url):
    """`persistent_stream()` lives as long as a context: a turn that was cut off has it, a reply of another life not."""
    worker = FunctionConfig(count_requests)
    lives = iter([Killed(), None, None, None])

    async def die() -> str:
        if error := next(lives):
            raise error
        return "alive"

    calls = (call("ask", "1", objective="a"), call("ask", "2", objective="b"), call("die"))

    async def life(*further: str) -> list[str | None]:
        helper = Agent("worker", config=worker).as_tool(name="ask", description="asks", stream=persistent_stream())
        agent = Agent("clerk", config=FunctionConfig(call_once_each(*calls)), tools=[helper, die])
        reply = await resumable(agent, session_id="s", store=url, tools={"die": "read"}).ask("go", turn="1")
        return [reply.body, *[(await reply.ask("on", turn=turn)).body for turn in further]]

    with pytest.raises(Killed):
        run(life)
    first, second = asyncio.run(life("2"))
    assert (first, second) == ("done: request 1, request 2, alive", "done: request 3, request 4, alive")
    assert len(worker.requests) == 4
    assert asyncio.run(life("3"))[1] == "done: request 1, request 2, alive"


def test_an_agent_in_the_background_is_refused(url):
    async def main() -> None:
        helper = Agent("helper", config=FunctionConfig(count_requests))
        agent = Agent(
            "a", config=FunctionConfig(count_requests), tools=[background_agent_tool(helper, description="helps")]
        )
        with pytest.raises(
            UsageError, match=r"'background_task_helper', which runs an agent in the background.*as_tool"
        ):
            await resumable(agent, session_id="s", store=url).ask("go")

    run(main)


# -- compaction --------------------------------------------------------------------------------------------------------


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


async def _look() -> str:
    return "seen"


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
            await reconstruct(checkpoint, "agent")  # type: ignore[arg-type]

    run(main)


def test_a_version_that_was_not_tested_warns(monkeypatch):
    from importlib import metadata

    from holdfast.adapters.base.install import warn_if_untested

    monkeypatch.setattr(metadata, "version", lambda _: "2.0.0")
    with pytest.warns(HoldfastWarning, match=r"ag2 2\.0\.0 is installed"):
        warn_if_untested("ag2", "1.2.1", "2")
    assert "ag2" in sys.modules
